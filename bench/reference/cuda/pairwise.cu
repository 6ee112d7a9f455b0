/* Softened gravity between all pairs of bodies, y = force * force, and its gradient as a gather.

   A block of threads has BODIES bodies; SPLIT threads share the pairs of each of them, and add up
   what they found in shared memory. All bodies pass through there in tiles. The number of bodies
   is a multiple of that of threads, BODIES * SPLIT. */
#include "work.cuh"

#ifndef BODIES
#define BODIES 64
#endif
#ifndef SPLIT
#define SPLIT 8
#endif
#define THREADS (BODIES * SPLIT)
#define SOFTENING real(0.01)

struct alignas(16) Vector {
    real x, y, z, none;
};

__device__ inline Vector load(const real *from, long long i) {
    return {from[3 * i], from[3 * i + 1], from[3 * i + 2], 0};
}

__device__ inline Vector difference(const Vector &a, const Vector &b) {
    return {a.x - b.x, a.y - b.y, a.z - b.z, 0};
}

__device__ inline real dot(const Vector &a, const Vector &b) {
    return a.x * b.x + a.y * b.y + a.z * b.z;
}

__device__ inline void add(Vector &sum, real scale, const Vector &v) {
    sum.x += scale * v.x;
    sum.y += scale * v.y;
    sum.z += scale * v.z;
}

/* The body of this thread, and which of those threads it is that share its pairs. */
__device__ inline long long body() { return blockIdx.x * (long long)BODIES + threadIdx.x % BODIES; }
__device__ inline int part() { return threadIdx.x / BODIES; }

/* The sum over the threads of a body, for the first of them. */
__device__ inline Vector total(const Vector &mine, Vector *shared) {
    __syncthreads();
    shared[threadIdx.x] = mine;
    __syncthreads();
    Vector sum = mine;
    for (int p = 1; p < SPLIT; p++) add(sum, 1, shared[(p * BODIES + threadIdx.x) % THREADS]);
    return sum;
}

__device__ inline Vector force(const Work &w, Vector *tile) {
    Vector here = load(w.x, body()), sum = {};
    for (long long start = 0; start < w.items; start += THREADS) {
        __syncthreads();
        tile[threadIdx.x] = load(w.x, start + threadIdx.x);
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < BODIES; k++) {
            Vector d = difference(tile[part() * BODIES + k], here);
            real s = rsqrt(dot(d, d) + SOFTENING);
            add(sum, s * s * s, d);
        }
    }
    return total(sum, tile);
}

KERNEL pairwise_forward(Work w) {
    __shared__ Vector tile[THREADS];
    Vector f = force(w, tile);
    if (part()) return;
    real *y = w.y + 3 * body();
    y[0] = f.x * f.x;
    y[1] = f.y * f.y;
    y[2] = f.z * f.z;
}

/* The adjoints of the forces go to the tape. */
KERNEL pairwise_prepare(Work w) {
    __shared__ Vector tile[THREADS];
    Vector f = force(w, tile);
    if (part()) return;
    Vector y = load(w.y_adjoint, body());
    real *bar = w.tape + 3 * body();
    bar[0] = 2 * f.x * y.x;
    bar[1] = 2 * f.y * y.y;
    bar[2] = 2 * f.z * y.z;
}

/* A pair (i, j) has the adjoint J (bar_j - bar_i) for x_i, where J = s^3 - 3 s^5 d d^T is symmetric
   and the same for (j, i). */
KERNEL pairwise_backward(Work w) {
    __shared__ Vector tile[THREADS], bars[THREADS];
    Vector here = load(w.x, body()), bar = load(w.tape, body()), sum = {};
    for (long long start = 0; start < w.items; start += THREADS) {
        __syncthreads();
        tile[threadIdx.x] = load(w.x, start + threadIdx.x);
        bars[threadIdx.x] = load(w.tape, start + threadIdx.x);
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < BODIES; k++) {
            Vector d = difference(tile[part() * BODIES + k], here);
            Vector b = difference(bars[part() * BODIES + k], bar);
            real s = rsqrt(dot(d, d) + SOFTENING), cube = s * s * s;
            add(sum, cube, b);
            add(sum, real(-3) * dot(d, b) * (cube * s * s), d);
        }
    }
    sum = total(sum, tile);
    if (part()) return;
    real *result = w.x_adjoint + 3 * body();
    result[0] += sum.x;
    result[1] += sum.y;
    result[2] += sum.z;
}
