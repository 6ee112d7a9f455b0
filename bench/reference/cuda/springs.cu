/* A sheet of masses and springs, one step for each launch, and its gradient as a gather.

   x and y hold the state after each step, y being x continued: positions and velocities, three
   numbers for each mass. State t is at t * 6 * items: positions first, then velocities. */
#include "work.cuh"

#define DT real(0.002)
#define STIFFNESS real(400)
#define REST real(1)
#define DAMPING real(0.999)

struct Vector {
    real x, y, z;
};

__device__ inline Vector load(const real *from, long long i) {
    return {from[3 * i], from[3 * i + 1], from[3 * i + 2]};
}

__device__ inline void store(real *to, long long i, const Vector &v) {
    to[3 * i] = v.x;
    to[3 * i + 1] = v.y;
    to[3 * i + 2] = v.z;
}

__device__ inline Vector difference(const Vector &a, const Vector &b) {
    return {a.x - b.x, a.y - b.y, a.z - b.z};
}

__device__ inline real dot(const Vector &a, const Vector &b) {
    return a.x * b.x + a.y * b.y + a.z * b.z;
}

__device__ inline Vector sum(const Vector &v, real scale, const Vector &d) {
    return {v.x + scale * d.x, v.y + scale * d.y, v.z + scale * d.z};
}

/* The mass next to i in direction k of four; -1 where the sheet ends. */
__device__ inline long long neighbour(const Work &w, long long i, int k) {
    int column = int(i % w.side), row = int(i / w.side), last = int(w.side) - 1;
    if (k == 0) return column > 0 ? i - 1 : -1;
    if (k == 1) return column < last ? i + 1 : -1;
    if (k == 2) return row > 0 ? i - w.side : -1;
    return row < last ? i + w.side : -1;
}

KERNEL springs_forward(Work w) {
    long long i = item(), size = 3 * w.items;
    if (i >= w.items) return;
    const real *x = w.y + 2 * size * w.step, *v = x + size;
    real *next = w.y + 2 * size * (w.step + 1);
    Vector here = load(x, i), force = {0, real(-9.8), 0};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        long long j = neighbour(w, i, k);
        if (j < 0) continue;
        Vector d = difference(load(x, j), here);
        force = sum(force, STIFFNESS * (1 - REST * rsqrt(dot(d, d))), d);
    }
    Vector velocity = sum(load(v, i), DT, force), zero = {};
    velocity = sum(zero, DAMPING, velocity);
    store(next + size, i, velocity);
    store(next, i, sum(here, DT, velocity));
}

/* The adjoint of the force on a mass, by those of what the step left. */
__device__ inline Vector force_adjoint(const real *next, long long size, long long i) {
    Vector zero = {}, bar = sum(load(next + size, i), DT, load(next, i));
    return sum(zero, DAMPING * DT, bar);
}

KERNEL springs_backward(Work w) {
    long long i = item(), size = 3 * w.items;
    if (i >= w.items) return;
    const real *x = w.y + 2 * size * w.step;
    real *bars = w.x_adjoint + 2 * size * w.step;
    const real *next = bars + 2 * size;
    Vector here = load(x, i), bar = load(next, i), mine = force_adjoint(next, size, i), zero = {};
    store(bars + size, i, sum(zero, 1 / DT, mine));
#pragma unroll
    for (int k = 0; k < 4; k++) {
        long long j = neighbour(w, i, k);
        if (j < 0) continue;
        Vector d = difference(load(x, j), here);
        Vector b = difference(force_adjoint(next, size, j), mine);
        real s = rsqrt(dot(d, d)), pull = REST * s;
        bar = sum(bar, STIFFNESS * (1 - pull), b);
        bar = sum(bar, STIFFNESS * pull * s * s * dot(d, b), d);
    }
    store(bars, i, bar);
}

/* Half the sum of the squares of the positions, which a gradient is taken of. */
KERNEL springs_loss(Work w) {
    long long i = item(), size = 3 * w.items;
    if (i >= w.items) return;
    Vector here = load(w.y + 2 * size * w.steps, i);
    atomicAdd(w.tape, real(0.5) * dot(here, here));
}

KERNEL springs_seed(Work w) {
    long long i = item(), size = 3 * w.items;
    if (i >= w.items) return;
    Vector zero = {};
    real *bars = w.x_adjoint + 2 * size * w.steps;
    store(bars, i, load(w.y + 2 * size * w.steps, i));
    store(bars + size, i, zero);
}
