/* Lorenz 96 with six variables, by the classical Runge-Kutta method, and its gradient.

   Like the loops of loops.cu: a checkpoint each BLOCK steps, and those between in memory of the
   thread's own: in registers there would be room for too few. */
#include "work.cuh"

#ifndef BLOCK
#define BLOCK 16
#endif
#define EACH(k) _Pragma("unroll") for (int k = 0; k < 6; k++)

struct Vector {
    real at[6];
};

__device__ inline Vector slope(const Vector &v) {
    Vector rate;
    EACH(k) rate.at[k] = (v.at[(k + 1) % 6] - v.at[(k + 4) % 6]) * v.at[(k + 5) % 6] - v.at[k] + 2;
    return rate;
}

/* The transposed Jacobian of `slope` at v, times a vector. */
__device__ inline Vector slope_adjoint(const Vector &v, const Vector &bar) {
    Vector result;
    EACH(k) result.at[k] = -bar.at[k];
    EACH(k) {
        result.at[(k + 1) % 6] += bar.at[k] * v.at[(k + 5) % 6];
        result.at[(k + 4) % 6] -= bar.at[k] * v.at[(k + 5) % 6];
        result.at[(k + 5) % 6] += bar.at[k] * (v.at[(k + 1) % 6] - v.at[(k + 4) % 6]);
    }
    return result;
}

__device__ inline Vector sum(const Vector &v, real scale, const Vector &d) {
    Vector result;
    EACH(k) result.at[k] = v.at[k] + scale * d.at[k];
    return result;
}

#define H real(0.01)

/* The points at which a step takes the slope, but for the first. */
struct Points {
    Vector second, third, fourth;
};

__device__ inline Vector step(const Vector &v, Points &points) {
    Vector k1 = slope(v);
    points.second = sum(v, H / 2, k1);
    Vector k2 = slope(points.second);
    points.third = sum(v, H / 2, k2);
    Vector k3 = slope(points.third);
    points.fourth = sum(v, H, k3);
    Vector k4 = slope(points.fourth), result;
    EACH(k) result.at[k] = v.at[k] + H / 6 * (k1.at[k] + 2 * (k2.at[k] + k3.at[k]) + k4.at[k]);
    return result;
}

__device__ inline Vector step(const Vector &v) {
    Points points;
    return step(v, points);
}

__device__ inline Vector step_adjoint(const Vector &v, const Vector &bar) {
    Points points;
    step(v, points);
    Vector zero = {}, third = sum(zero, H / 3, bar), sixth = sum(zero, H / 6, bar);
    Vector d4 = slope_adjoint(points.fourth, sixth);
    Vector d3 = slope_adjoint(points.third, sum(third, H, d4));
    Vector d2 = slope_adjoint(points.second, sum(third, H / 2, d3));
    Vector d1 = slope_adjoint(v, sum(sixth, H / 2, d2)), result;
    EACH(k) result.at[k] = bar.at[k] + d1.at[k] + d2.at[k] + d3.at[k] + d4.at[k];
    return result;
}

__device__ inline Vector load(const real *from, long long i) {
    Vector v;
    EACH(k) v.at[k] = from[6 * i + k];
    return v;
}

KERNEL ode_forward(Work w) {
    long long i = item();
    if (i >= w.items) return;
    Vector v = load(w.x, i);
    for (int t = 0; t < w.steps; t++) v = step(v);
    EACH(k) w.y[6 * i + k] = v.at[k];
}

KERNEL ode_backward(Work w) {
    long long i = item();
    if (i >= w.items) return;
    Vector v = load(w.x, i);
    int blocks = int(w.steps) / BLOCK;
    for (int b = 0; b < blocks; b++) {
        EACH(k) w.tape[(6 * b + k) * w.items + i] = v.at[k];
        for (int t = 0; t < BLOCK; t++) v = step(v);
    }
    Vector bar = load(w.y_adjoint, i);
    for (int b = blocks - 1; b >= 0; b--) {
        Vector at[BLOCK];
        EACH(k) at[0].at[k] = w.tape[(6 * b + k) * w.items + i];
#pragma unroll 1
        for (int t = 1; t < BLOCK; t++) at[t] = step(at[t - 1]);
#pragma unroll 1
        for (int t = BLOCK - 1; t >= 0; t--) bar = step_adjoint(at[t], bar);
    }
    EACH(k) w.x_adjoint[6 * i + k] += bar.at[k];
}
