/* The workloads in plain C, one item after the other: what one writes without thinking of vectors.

   Reverse functions run an item forward, recording what its loop carries, and then go back. With
   -DREAL=double they are the reference that all results are compared with. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "work.h"

static real sine(real v) { return sizeof(real) == sizeof(float) ? (real)sinf(v) : (real)sin(v); }
static real cosine(real v) { return sizeof(real) == sizeof(float) ? (real)cosf(v) : (real)cos(v); }
static real root(real v) { return sizeof(real) == sizeof(float) ? (real)sqrtf(v) : (real)sqrt(v); }

void recurrence_forward(const Work *w) {
    for (long i = w->begin; i < w->end; i++) {
        real v = w->x[i];
        for (long t = 0; t < w->steps; t++) v = sine(v) * (real)0.95 + (real)0.01;
        w->y[i] = v;
    }
}

void recurrence_backward(const Work *w) {
    real *tape = malloc(w->steps * sizeof(real));
    for (long i = w->begin; i < w->end; i++) {
        real v = w->x[i];
        for (long t = 0; t < w->steps; t++) {
            tape[t] = v;
            v = sine(v) * (real)0.95 + (real)0.01;
        }
        real bar = w->y_adjoint[i];
        for (long t = w->steps - 1; t >= 0; t--) bar *= (real)0.95 * cosine(tape[t]);
        w->x_adjoint[i] += bar;
    }
    free(tape);
}

void affine_forward(const Work *w) {
    for (long i = w->begin; i < w->end; i++) {
        real v = w->x[i], a = w->a[i];
        for (long t = 0; t < w->steps; t++) v = v * a + (real)0.01;
        w->y[i] = v;
    }
}

void affine_backward(const Work *w) {
    real *tape = malloc(w->steps * sizeof(real));
    for (long i = w->begin; i < w->end; i++) {
        real v = w->x[i], a = w->a[i];
        for (long t = 0; t < w->steps; t++) {
            tape[t] = v;
            v = v * a + (real)0.01;
        }
        real bar = w->y_adjoint[i], a_bar = 0;
        for (long t = w->steps - 1; t >= 0; t--) {
            a_bar += bar * tape[t];
            bar *= a;
        }
        w->x_adjoint[i] += bar;
        w->a_adjoint[i] += a_bar;
    }
    free(tape);
}

void ragged_forward(const Work *w) {
    for (long i = w->begin; i < w->end; i++) {
        real v = w->x[i];
        for (int j = 0; j < w->count[i]; j++)
            for (int k = 0; k < j; k++) v = sine(v) * (real)0.95 + (real)0.01;
        w->y[i] = v;
    }
}

void ragged_backward(const Work *w) {
    real *tape = malloc((w->steps * w->steps / 2 + 1) * sizeof(real));
    for (long i = w->begin; i < w->end; i++) {
        real v = w->x[i];
        long top = 0;
        for (int j = 0; j < w->count[i]; j++)
            for (int k = 0; k < j; k++) {
                tape[top++] = v;
                v = sine(v) * (real)0.95 + (real)0.01;
            }
        real bar = w->y_adjoint[i];
        while (top > 0) bar *= (real)0.95 * cosine(tape[--top]);
        w->x_adjoint[i] += bar;
    }
    free(tape);
}

void nest_forward(const Work *w) {
    for (long i = w->begin; i < w->end; i++) {
        real x = w->x[i], v = x;
        for (int j = 0; j < w->count[i]; j++)
            for (int k = 0; k < j; k++)
                v = sine(v + (real)0.01 * k) * (real)0.9 + (real)0.05 * x;
        w->y[i] = v;
    }
}

void nest_backward(const Work *w) {
    real *tape = malloc((w->steps * w->steps / 2 + 1) * sizeof(real));
    for (long i = w->begin; i < w->end; i++) {
        real x = w->x[i], v = x;
        long top = 0;
        for (int j = 0; j < w->count[i]; j++)
            for (int k = 0; k < j; k++) {
                tape[top++] = v + (real)0.01 * k;
                v = sine(v + (real)0.01 * k) * (real)0.9 + (real)0.05 * x;
            }
        real bar = w->y_adjoint[i], x_bar = 0;
        while (top > 0) {
            x_bar += (real)0.05 * bar;
            bar *= (real)0.9 * cosine(tape[--top]);
        }
        w->x_adjoint[i] += x_bar + bar;
    }
    free(tape);
}

/* Lorenz 96 with six variables, by the classical Runge-Kutta method. */
static void slope(const real *v, real *rate) {
    for (int k = 0; k < 6; k++)
        rate[k] = (v[(k + 1) % 6] - v[(k + 4) % 6]) * v[(k + 5) % 6] - v[k] + 2;
}

/* bar = the transposed Jacobian of `slope` at v, times rate_bar. */
static void slope_adjoint(const real *v, const real *rate_bar, real *bar) {
    for (int k = 0; k < 6; k++) bar[k] = -rate_bar[k];
    for (int k = 0; k < 6; k++) {
        bar[(k + 1) % 6] += rate_bar[k] * v[(k + 5) % 6];
        bar[(k + 4) % 6] -= rate_bar[k] * v[(k + 5) % 6];
        bar[(k + 5) % 6] += rate_bar[k] * (v[(k + 1) % 6] - v[(k + 4) % 6]);
    }
}

static const real H = (real)0.01;

/* The points at which a step takes the slope; the slopes go to `rate`. */
static void stages(const real *v, real point[4][6], real rate[4][6]) {
    memcpy(point[0], v, sizeof(point[0]));
    slope(point[0], rate[0]);
    for (int s = 1; s < 4; s++) {
        for (int k = 0; k < 6; k++) point[s][k] = v[k] + (s < 3 ? H / 2 : H) * rate[s - 1][k];
        slope(point[s], rate[s]);
    }
}

static void ode_step(real *v) {
    real point[4][6], rate[4][6];
    stages(v, point, rate);
    for (int k = 0; k < 6; k++)
        v[k] += H / 6 * (rate[0][k] + 2 * rate[1][k] + 2 * rate[2][k] + rate[3][k]);
}

void ode_forward(const Work *w) {
    for (long i = w->begin; i < w->end; i++) {
        real v[6];
        memcpy(v, w->x + 6 * i, sizeof(v));
        for (long t = 0; t < w->steps; t++) ode_step(v);
        memcpy(w->y + 6 * i, v, sizeof(v));
    }
}

static void ode_step_adjoint(const real *v, real *bar) {
    real point[4][6], rate[4][6], rate_bar[6], point_bar[6], sum[6];
    stages(v, point, rate);
    memcpy(sum, bar, sizeof(sum));
    for (int k = 0; k < 6; k++) point_bar[k] = 0;
    for (int s = 3; s >= 0; s--) {
        real weight = (s == 0 || s == 3) ? H / 6 : H / 3, after = s == 2 ? H : H / 2;
        for (int k = 0; k < 6; k++) rate_bar[k] = weight * bar[k] + after * point_bar[k];
        slope_adjoint(point[s], rate_bar, point_bar);
        for (int k = 0; k < 6; k++) sum[k] += point_bar[k];
    }
    memcpy(bar, sum, sizeof(sum));
}

void ode_backward(const Work *w) {
    real(*tape)[6] = malloc(w->steps * sizeof(*tape));
    for (long i = w->begin; i < w->end; i++) {
        real v[6], bar[6];
        memcpy(v, w->x + 6 * i, sizeof(v));
        for (long t = 0; t < w->steps; t++) {
            memcpy(tape[t], v, sizeof(v));
            ode_step(v);
        }
        memcpy(bar, w->y_adjoint + 6 * i, sizeof(bar));
        for (long t = w->steps - 1; t >= 0; t--) ode_step_adjoint(tape[t], bar);
        for (int k = 0; k < 6; k++) w->x_adjoint[6 * i + k] += bar[k];
    }
    free(tape);
}

/* R = R + R U with U = [[0, -c, b], [c, 0, -a], [-b, a, 0]], three rows of R independently. */
static void turn(real r[3][3], real a, real b, real c) {
    for (int k = 0; k < 3; k++) {
        real p = r[k][0], q = r[k][1], s = r[k][2];
        r[k][0] = p + (q * c - s * b);
        r[k][1] = q + (s * a - p * c);
        r[k][2] = s + (p * b - q * a);
    }
}

void rotation_forward(const Work *w) {
    for (long i = w->begin; i < w->end; i++) {
        const real *rate = w->x + 3 * i;
        real scale = (real)0.001, r[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
        for (long t = 0; t < w->steps; t++) turn(r, scale * rate[0], scale * rate[1], scale * rate[2]);
        for (int k = 0; k < 3; k++) w->y[3 * i + k] = r[k][0] + r[k][2];
    }
}

void rotation_backward(const Work *w) {
    real(*tape)[3][3] = malloc(w->steps * sizeof(*tape));
    for (long i = w->begin; i < w->end; i++) {
        const real *rate = w->x + 3 * i;
        real scale = (real)0.001, r[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
        real a = scale * rate[0], b = scale * rate[1], c = scale * rate[2];
        for (long t = 0; t < w->steps; t++) {
            memcpy(tape[t], r, sizeof(r));
            turn(r, a, b, c);
        }
        real bar[3][3], rate_bar[3] = {0, 0, 0};
        for (int k = 0; k < 3; k++) {
            bar[k][0] = bar[k][2] = w->y_adjoint[3 * i + k];
            bar[k][1] = 0;
        }
        for (long t = w->steps - 1; t >= 0; t--) {
            for (int k = 0; k < 3; k++) {
                real *row = tape[t][k], p = bar[k][0], q = bar[k][1], s = bar[k][2];
                rate_bar[0] += q * row[2] - s * row[1];
                rate_bar[1] += s * row[0] - p * row[2];
                rate_bar[2] += p * row[1] - q * row[0];
            }
            turn(bar, -a, -b, -c);
        }
        for (int k = 0; k < 3; k++) w->x_adjoint[3 * i + k] += scale * rate_bar[k];
    }
    free(tape);
}

/* The force on body i, and with it what scales a difference of two bodies. */
static void force_on(const Work *w, long i, real *force) {
    const real *here = w->x + 3 * i;
    force[0] = force[1] = force[2] = 0;
    for (long j = 0; j < w->items; j++) {
        const real *there = w->x + 3 * j;
        real d0 = there[0] - here[0], d1 = there[1] - here[1], d2 = there[2] - here[2];
        real r2 = d0 * d0 + d1 * d1 + d2 * d2 + (real)0.01, scale = 1 / (r2 * root(r2));
        force[0] += d0 * scale;
        force[1] += d1 * scale;
        force[2] += d2 * scale;
    }
}

void pairwise_forward(const Work *w) {
    for (long i = w->begin; i < w->end; i++) {
        real force[3];
        force_on(w, i, force);
        for (int k = 0; k < 3; k++) w->y[3 * i + k] = force[k] * force[k];
    }
}

/* The adjoints of all forces, to be there before `pairwise_backward`. */
void pairwise_prepare(const Work *w) {
    for (long i = w->begin; i < w->end; i++) {
        real force[3];
        force_on(w, i, force);
        for (int k = 0; k < 3; k++) w->scratch[3 * i + k] = 2 * force[k] * w->y_adjoint[3 * i + k];
    }
}

/* Body i gets M (bar[j] - bar[i]) from each j, where M, the same for both, is the derivative of the
   force by the difference of the places. */
void pairwise_backward(const Work *w) {
    for (long i = w->begin; i < w->end; i++) {
        const real *here = w->x + 3 * i, *bar = w->scratch + 3 * i;
        real sum[3] = {0, 0, 0};
        for (long j = 0; j < w->items; j++) {
            const real *there = w->x + 3 * j, *other = w->scratch + 3 * j;
            real d0 = there[0] - here[0], d1 = there[1] - here[1], d2 = there[2] - here[2];
            real r2 = d0 * d0 + d1 * d1 + d2 * d2 + (real)0.01, scale = 1 / (r2 * root(r2));
            real f0 = other[0] - bar[0], f1 = other[1] - bar[1], f2 = other[2] - bar[2];
            real along = 3 * (f0 * d0 + f1 * d1 + f2 * d2) / r2;
            sum[0] += scale * (f0 - along * d0);
            sum[1] += scale * (f1 - along * d1);
            sum[2] += scale * (f2 - along * d2);
        }
        for (int k = 0; k < 3; k++) w->x_adjoint[3 * i + k] += sum[k];
    }
}
