/* The workloads by hand for SIMD: one work item in each lane, several vectors in flight where a loop
   would wait for its own result; in reverse a tape across the items of a tile, small enough for the
   cache, and derivatives written by hand.

   To be compiled with contraction, but without reassociation: see `vector.h` on MAGIC. */
#include <stdlib.h>

#include "vector.h"
#include "work.h"

#define UNROLLED _Pragma("GCC unroll 16")

static vec *new_tape(long vectors) { return aligned_alloc(sizeof(vec), (vectors + 1) * sizeof(vec)); }

/* Vectors that a tile has of each variable. */
#define SINES 4
#define LINES 8
#define TURNS 2

void recurrence_forward(const Work *w) {
    for (long i = w->begin; i < w->end; i += SINES * LANES) {
        vec v[SINES];
        for (int u = 0; u < SINES; u++) v[u] = load(w->x, 1, 0, i + u * LANES, w->end);
        for (long t = 0; t < w->steps; t++)
            UNROLLED for (int u = 0; u < SINES; u++) v[u] = sine(v[u]) * 0.95f + 0.01f;
        for (int u = 0; u < SINES; u++) store(w->y, 1, 0, i + u * LANES, w->end, v[u]);
    }
}

/* The tape holds cosines, which the reverse sweep has only to multiply. */
void recurrence_backward(const Work *w) {
    vec *tape = new_tape(w->steps * SINES);
    for (long i = w->begin; i < w->end; i += SINES * LANES) {
        vec v[SINES], bar[SINES];
        for (int u = 0; u < SINES; u++) v[u] = load(w->x, 1, 0, i + u * LANES, w->end);
        for (long t = 0; t < w->steps; t++)
            UNROLLED for (int u = 0; u < SINES; u++)
                v[u] = sine_cosine(v[u], &tape[t * SINES + u]) * 0.95f + 0.01f;
        for (int u = 0; u < SINES; u++) bar[u] = load(w->y_adjoint, 1, 0, i + u * LANES, w->end);
        for (long t = w->steps - 1; t >= 0; t--)
            UNROLLED for (int u = 0; u < SINES; u++) bar[u] *= 0.95f * tape[t * SINES + u];
        for (int u = 0; u < SINES; u++) add(w->x_adjoint, 1, 0, i + u * LANES, w->end, bar[u]);
    }
    free(tape);
}

void affine_forward(const Work *w) {
    for (long i = w->begin; i < w->end; i += LINES * LANES) {
        vec v[LINES], a[LINES];
        for (int u = 0; u < LINES; u++) {
            v[u] = load(w->x, 1, 0, i + u * LANES, w->end);
            a[u] = load(w->a, 1, 0, i + u * LANES, w->end);
        }
        for (long t = 0; t < w->steps; t++)
            UNROLLED for (int u = 0; u < LINES; u++) v[u] = v[u] * a[u] + 0.01f;
        for (int u = 0; u < LINES; u++) store(w->y, 1, 0, i + u * LANES, w->end, v[u]);
    }
}

#define TAPED_LINES 4

void affine_backward(const Work *w) {
    vec *tape = new_tape(w->steps * TAPED_LINES);
    for (long i = w->begin; i < w->end; i += TAPED_LINES * LANES) {
        vec v[TAPED_LINES], a[TAPED_LINES], bar[TAPED_LINES], a_bar[TAPED_LINES];
        for (int u = 0; u < TAPED_LINES; u++) {
            v[u] = load(w->x, 1, 0, i + u * LANES, w->end);
            a[u] = load(w->a, 1, 0, i + u * LANES, w->end);
            bar[u] = load(w->y_adjoint, 1, 0, i + u * LANES, w->end);
            a_bar[u] = splat(0);
        }
        for (long t = 0; t < w->steps; t++)
            UNROLLED for (int u = 0; u < TAPED_LINES; u++) {
                tape[t * TAPED_LINES + u] = v[u];
                v[u] = v[u] * a[u] + 0.01f;
            }
        for (long t = w->steps - 1; t >= 0; t--)
            UNROLLED for (int u = 0; u < TAPED_LINES; u++) {
                a_bar[u] += bar[u] * tape[t * TAPED_LINES + u];
                bar[u] *= a[u];
            }
        for (int u = 0; u < TAPED_LINES; u++) {
            add(w->x_adjoint, 1, 0, i + u * LANES, w->end, bar[u]);
            add(w->a_adjoint, 1, 0, i + u * LANES, w->end, a_bar[u]);
        }
    }
    free(tape);
}

static ivec counts(const Work *w, long begin) {
    ivec result = {0};
    for (int l = 0; l < LANES && begin + l < w->end; l++) result[l] = w->count[begin + l];
    return result;
}

static int greatest(const Work *w, long begin, long number) {
    int result = 0;
    for (long i = begin; i < begin + number && i < w->end; i++)
        if (w->count[i] > result) result = w->count[i];
    return result;
}

/* Lanes differ in how often the outer loop runs; the inner one is the same for all that are in it. */
void ragged_forward(const Work *w) {
    for (long i = w->begin; i < w->end; i += SINES * LANES) {
        vec v[SINES];
        ivec count[SINES];
        for (int u = 0; u < SINES; u++) {
            v[u] = load(w->x, 1, 0, i + u * LANES, w->end);
            count[u] = counts(w, i + u * LANES);
        }
        int rounds = greatest(w, i, SINES * LANES);
        for (int j = 0; j < rounds; j++) {
            vec next[SINES];
            UNROLLED for (int u = 0; u < SINES; u++) next[u] = v[u];
            for (int k = 0; k < j; k++)
                UNROLLED for (int u = 0; u < SINES; u++) next[u] = sine(next[u]) * 0.95f + 0.01f;
            UNROLLED for (int u = 0; u < SINES; u++) v[u] = choose(j < count[u], next[u], v[u]);
        }
        for (int u = 0; u < SINES; u++) store(w->y, 1, 0, i + u * LANES, w->end, v[u]);
    }
}

/* The tape of the whole nest: the sum of its trips. */
void ragged_backward(const Work *w) {
    vec *tape = new_tape(w->steps * w->steps / 2 * SINES);
    for (long i = w->begin; i < w->end; i += SINES * LANES) {
        vec v[SINES], bar[SINES], *top = tape;
        ivec count[SINES];
        for (int u = 0; u < SINES; u++) {
            v[u] = load(w->x, 1, 0, i + u * LANES, w->end);
            bar[u] = load(w->y_adjoint, 1, 0, i + u * LANES, w->end);
            count[u] = counts(w, i + u * LANES);
        }
        int rounds = greatest(w, i, SINES * LANES);
        for (int j = 0; j < rounds; j++) /* what lanes that are done compute is not used */
            for (int k = 0; k < j; k++, top += SINES)
                UNROLLED for (int u = 0; u < SINES; u++)
                    v[u] = sine_cosine(v[u], &top[u]) * 0.95f + 0.01f;
        for (int j = rounds - 1; j >= 0; j--) {
            vec before[SINES];
            UNROLLED for (int u = 0; u < SINES; u++) before[u] = bar[u];
            for (int k = 0; k < j; k++) {
                top -= SINES;
                UNROLLED for (int u = 0; u < SINES; u++) before[u] *= 0.95f * top[u];
            }
            UNROLLED for (int u = 0; u < SINES; u++)
                bar[u] = choose(j < count[u], before[u], bar[u]);
        }
        for (int u = 0; u < SINES; u++) add(w->x_adjoint, 1, 0, i + u * LANES, w->end, bar[u]);
    }
    free(tape);
}

/* As `ragged`, but the counts of neighbours have nothing in common. */
void nest_forward(const Work *w) {
    for (long i = w->begin; i < w->end; i += SINES * LANES) {
        vec x[SINES], v[SINES];
        ivec count[SINES];
        for (int u = 0; u < SINES; u++) {
            v[u] = x[u] = load(w->x, 1, 0, i + u * LANES, w->end);
            count[u] = counts(w, i + u * LANES);
        }
        int rounds = greatest(w, i, SINES * LANES);
        for (int j = 0; j < rounds; j++) {
            vec next[SINES];
            UNROLLED for (int u = 0; u < SINES; u++) next[u] = v[u];
            for (int k = 0; k < j; k++)
                UNROLLED for (int u = 0; u < SINES; u++)
                    next[u] = sine(next[u] + 0.01f * k) * 0.9f + 0.05f * x[u];
            UNROLLED for (int u = 0; u < SINES; u++) v[u] = choose(j < count[u], next[u], v[u]);
        }
        for (int u = 0; u < SINES; u++) store(w->y, 1, 0, i + u * LANES, w->end, v[u]);
    }
}

void nest_backward(const Work *w) {
    vec *tape = new_tape(w->steps * w->steps / 2 * SINES);
    for (long i = w->begin; i < w->end; i += SINES * LANES) {
        vec x[SINES], v[SINES], bar[SINES], x_bar[SINES], *top = tape;
        ivec count[SINES];
        for (int u = 0; u < SINES; u++) {
            v[u] = x[u] = load(w->x, 1, 0, i + u * LANES, w->end);
            bar[u] = load(w->y_adjoint, 1, 0, i + u * LANES, w->end);
            x_bar[u] = splat(0);
            count[u] = counts(w, i + u * LANES);
        }
        int rounds = greatest(w, i, SINES * LANES);
        for (int j = 0; j < rounds; j++) /* what lanes that are done compute is not used */
            for (int k = 0; k < j; k++, top += SINES)
                UNROLLED for (int u = 0; u < SINES; u++)
                    v[u] = sine_cosine(v[u] + 0.01f * k, &top[u]) * 0.9f + 0.05f * x[u];
        for (int j = rounds - 1; j >= 0; j--) {
            vec before[SINES], sum[SINES];
            UNROLLED for (int u = 0; u < SINES; u++) before[u] = bar[u], sum[u] = splat(0);
            for (int k = 0; k < j; k++) {
                top -= SINES;
                UNROLLED for (int u = 0; u < SINES; u++) {
                    sum[u] += before[u];
                    before[u] *= 0.9f * top[u];
                }
            }
            UNROLLED for (int u = 0; u < SINES; u++) {
                x_bar[u] += choose(j < count[u], 0.05f * sum[u], splat(0));
                bar[u] = choose(j < count[u], before[u], bar[u]);
            }
        }
        for (int u = 0; u < SINES; u++)
            add(w->x_adjoint, 1, 0, i + u * LANES, w->end, x_bar[u] + bar[u]);
    }
    free(tape);
}

#define H 0.01f

static inline void slope(const vec *v, vec *rate) {
    UNROLLED for (int k = 0; k < 6; k++)
        rate[k] = (v[(k + 1) % 6] - v[(k + 4) % 6]) * v[(k + 5) % 6] - (v[k] - 2.0f);
}

/* The transposed Jacobian of `slope` at v, times bar, row by row. */
static inline void slope_adjoint(const vec *v, const vec *bar, vec *result) {
    UNROLLED for (int k = 0; k < 6; k++)
        result[k] = bar[(k + 5) % 6] * v[(k + 4) % 6] - bar[(k + 2) % 6] * v[(k + 1) % 6]
                    + (bar[(k + 1) % 6] * (v[(k + 2) % 6] - v[(k + 5) % 6]) - bar[k]);
}

static inline void moved(const vec *v, float by, const vec *rate, vec *result) {
    UNROLLED for (int k = 0; k < 6; k++) result[k] = v[k] + by * rate[k];
}

static inline void ode_step(vec *v) {
    vec sum[6], rate[6], point[6];
    slope(v, sum);
    moved(v, H / 2, sum, point);
    slope(point, rate);
    UNROLLED for (int k = 0; k < 6; k++) sum[k] += 2.0f * rate[k];
    moved(v, H / 2, rate, point);
    slope(point, rate);
    UNROLLED for (int k = 0; k < 6; k++) sum[k] += 2.0f * rate[k];
    moved(v, H, rate, point);
    slope(point, rate);
    UNROLLED for (int k = 0; k < 6; k++) v[k] += H / 6 * (sum[k] + rate[k]);
}

void ode_forward(const Work *w) {
    for (long i = w->begin; i < w->end; i += LANES) {
        vec v[6];
        for (int k = 0; k < 6; k++) v[k] = load(w->x, 6, k, i, w->end);
        for (long t = 0; t < w->steps; t++) ode_step(v);
        for (int k = 0; k < 6; k++) store(w->y, 6, k, i, w->end, v[k]);
    }
}

static inline void ode_step_adjoint(const vec *v, vec *bar) {
    vec second[6], third[6], fourth[6], rate[6], rate_bar[6], point_bar[6], sum[6];
    slope(v, rate);
    moved(v, H / 2, rate, second);
    slope(second, rate);
    moved(v, H / 2, rate, third);
    slope(third, rate);
    moved(v, H, rate, fourth);
    UNROLLED for (int k = 0; k < 6; k++) rate_bar[k] = H / 6 * bar[k];
    slope_adjoint(fourth, rate_bar, point_bar);
    UNROLLED for (int k = 0; k < 6; k++) {
        sum[k] = bar[k] + point_bar[k];
        rate_bar[k] = H / 3 * bar[k] + H * point_bar[k];
    }
    slope_adjoint(third, rate_bar, point_bar);
    UNROLLED for (int k = 0; k < 6; k++) {
        sum[k] += point_bar[k];
        rate_bar[k] = H / 3 * bar[k] + H / 2 * point_bar[k];
    }
    slope_adjoint(second, rate_bar, point_bar);
    UNROLLED for (int k = 0; k < 6; k++) {
        sum[k] += point_bar[k];
        rate_bar[k] = H / 6 * bar[k] + H / 2 * point_bar[k];
    }
    slope_adjoint(v, rate_bar, point_bar);
    UNROLLED for (int k = 0; k < 6; k++) bar[k] = sum[k] + point_bar[k];
}

void ode_backward(const Work *w) {
    vec *tape = new_tape(w->steps * 6);
    for (long i = w->begin; i < w->end; i += LANES) {
        vec v[6], bar[6];
        for (int k = 0; k < 6; k++) v[k] = load(w->x, 6, k, i, w->end);
        for (long t = 0; t < w->steps; t++) {
            UNROLLED for (int k = 0; k < 6; k++) tape[6 * t + k] = v[k];
            ode_step(v);
        }
        for (int k = 0; k < 6; k++) bar[k] = load(w->y_adjoint, 6, k, i, w->end);
        for (long t = w->steps - 1; t >= 0; t--) ode_step_adjoint(tape + 6 * t, bar);
        for (int k = 0; k < 6; k++) add(w->x_adjoint, 6, k, i, w->end, bar[k]);
    }
    free(tape);
}

static inline void turn(vec r[3][3], vec a, vec b, vec c) {
    UNROLLED for (int k = 0; k < 3; k++) {
        vec p = r[k][0], q = r[k][1], s = r[k][2];
        r[k][0] = p + q * c - s * b;
        r[k][1] = q + s * a - p * c;
        r[k][2] = s + p * b - q * a;
    }
}

static inline void identity(vec r[3][3]) {
    UNROLLED for (int k = 0; k < 9; k++) r[k / 3][k % 3] = splat(k % 4 == 0);
}

void rotation_forward(const Work *w) {
    for (long i = w->begin; i < w->end; i += LANES) {
        vec r[3][3], rate[3];
        for (int k = 0; k < 3; k++) rate[k] = 0.001f * load(w->x, 3, k, i, w->end);
        identity(r);
        for (long t = 0; t < w->steps; t++) turn(r, rate[0], rate[1], rate[2]);
        for (int k = 0; k < 3; k++) store(w->y, 3, k, i, w->end, r[k][0] + r[k][2]);
    }
}

void rotation_backward(const Work *w) {
    vec *tape = new_tape(w->steps * 9);
    for (long i = w->begin; i < w->end; i += LANES) {
        vec r[3][3], bar[3][3], rate[3], rate_bar[3];
        for (int k = 0; k < 3; k++) {
            rate[k] = 0.001f * load(w->x, 3, k, i, w->end);
            rate_bar[k] = splat(0);
            bar[k][0] = bar[k][2] = load(w->y_adjoint, 3, k, i, w->end);
            bar[k][1] = splat(0);
        }
        identity(r);
        for (long t = 0; t < w->steps; t++) {
            UNROLLED for (int k = 0; k < 9; k++) tape[9 * t + k] = r[k / 3][k % 3];
            turn(r, rate[0], rate[1], rate[2]);
        }
        for (long t = w->steps - 1; t >= 0; t--) {
            UNROLLED for (int k = 0; k < 3; k++) {
                const vec *row = tape + 9 * t + 3 * k;
                vec p = bar[k][0], q = bar[k][1], s = bar[k][2];
                rate_bar[0] = rate_bar[0] + q * row[2] - s * row[1];
                rate_bar[1] = rate_bar[1] + s * row[0] - p * row[2];
                rate_bar[2] = rate_bar[2] + p * row[1] - q * row[0];
            }
            turn(bar, -rate[0], -rate[1], -rate[2]);
        }
        for (int k = 0; k < 3; k++) add(w->x_adjoint, 3, k, i, w->end, 0.001f * rate_bar[k]);
    }
    free(tape);
}

/* The forces on the bodies of TURNS vectors, by all bodies. */
static inline void forces(const Work *w, long i, vec force[TURNS][3]) {
    vec here[TURNS][3];
    for (int u = 0; u < TURNS; u++)
        for (int k = 0; k < 3; k++) {
            here[u][k] = load(w->x, 3, k, i + u * LANES, w->end);
            force[u][k] = splat(0);
        }
    for (long j = 0; j < w->items; j++) {
        const float *there = w->x + 3 * j;
        UNROLLED for (int u = 0; u < TURNS; u++) {
            vec d0 = there[0] - here[u][0], d1 = there[1] - here[u][1], d2 = there[2] - here[u][2];
            vec root = inverse_root(d0 * d0 + (d1 * d1 + (d2 * d2 + 0.01f)));
            vec scale = root * root * root;
            force[u][0] += d0 * scale;
            force[u][1] += d1 * scale;
            force[u][2] += d2 * scale;
        }
    }
}

void pairwise_forward(const Work *w) {
    for (long i = w->begin; i < w->end; i += TURNS * LANES) {
        vec force[TURNS][3];
        forces(w, i, force);
        for (int u = 0; u < TURNS; u++)
            for (int k = 0; k < 3; k++)
                store(w->y, 3, k, i + u * LANES, w->end, force[u][k] * force[u][k]);
    }
}

/* The adjoints of all forces, to be there before `pairwise_backward`. */
void pairwise_prepare(const Work *w) {
    for (long i = w->begin; i < w->end; i += TURNS * LANES) {
        vec force[TURNS][3];
        forces(w, i, force);
        for (int u = 0; u < TURNS; u++)
            for (int k = 0; k < 3; k++) {
                vec bar = load(w->y_adjoint, 3, k, i + u * LANES, w->end);
                store(w->scratch, 3, k, i + u * LANES, w->end, 2.0f * force[u][k] * bar);
            }
    }
}

/* Body i gets M (bar[j] - bar[i]) from each j, where M, the same for both, is the derivative of the
   force by the difference of the places: nothing is scattered. */
void pairwise_backward(const Work *w) {
    for (long i = w->begin; i < w->end; i += TURNS * LANES) {
        vec here[TURNS][3], bar[TURNS][3], sum[TURNS][3];
        for (int u = 0; u < TURNS; u++)
            for (int k = 0; k < 3; k++) {
                here[u][k] = load(w->x, 3, k, i + u * LANES, w->end);
                bar[u][k] = load(w->scratch, 3, k, i + u * LANES, w->end);
                sum[u][k] = splat(0);
            }
        for (long j = 0; j < w->items; j++) {
            const float *there = w->x + 3 * j, *other = w->scratch + 3 * j;
            UNROLLED for (int u = 0; u < TURNS; u++) {
                vec d0 = there[0] - here[u][0], d1 = there[1] - here[u][1], d2 = there[2] - here[u][2];
                vec f0 = other[0] - bar[u][0], f1 = other[1] - bar[u][1], f2 = other[2] - bar[u][2];
                vec root = inverse_root(d0 * d0 + (d1 * d1 + (d2 * d2 + 0.01f)));
                vec square = root * root, scale = square * root;
                vec along = (f0 * d0 + f1 * d1 + f2 * d2) * (3.0f * square);
                sum[u][0] += scale * (f0 - along * d0);
                sum[u][1] += scale * (f1 - along * d1);
                sum[u][2] += scale * (f2 - along * d2);
            }
        }
        for (int u = 0; u < TURNS; u++)
            for (int k = 0; k < 3; k++) add(w->x_adjoint, 3, k, i + u * LANES, w->end, sum[u][k]);
    }
}

/* What the functions of `vector.h` give, for the bench to measure their errors. */
void functions(const float *x, float *sines, float *cosines, float *inverse_roots, long number) {
    for (long i = 0; i < number; i += LANES) {
        vec v = load(x, 1, 0, i, number), cosine_of_v;
        store(sines, 1, 0, i, number, sine(v));
        sine_cosine(v, &cosine_of_v);
        store(cosines, 1, 0, i, number, cosine_of_v);
        store(inverse_roots, 1, 0, i, number, inverse_root(choose(v < 0, -v, v)));
    }
}
