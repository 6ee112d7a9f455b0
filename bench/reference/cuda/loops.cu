/* Loops over one number for each work item, and their gradients.

   A reverse kernel runs the loop forward, keeping a checkpoint each BLOCK steps, whose words are
   interleaved over the items; going back it runs a block again from its checkpoint into registers.
   The number of steps is a multiple of BLOCK. */
#include "work.cuh"

#ifndef BLOCK
#define BLOCK 16
#endif

struct Recurrence {
    real bar;
    __device__ static real step(real v, real) { return sin(v) * real(0.95) + real(0.01); }
    __device__ void reverse(real v, real, real &) { bar *= real(0.95) * cos(v); }
};

struct Affine {
    real bar;
    __device__ static real step(real v, real a) { return v * a + real(0.01); }
    __device__ void reverse(real v, real a, real &a_bar) {
        a_bar += bar * v;
        bar *= a;
    }
};

template <class Loop> __device__ inline void forward(const Work &w) {
    long long i = item();
    if (i >= w.items) return;
    real v = w.x[i], a = w.a ? w.a[i] : real(0);
#pragma unroll 16
    for (int t = 0; t < w.steps; t++) v = Loop::step(v, a);
    w.y[i] = v;
}

template <class Loop> __device__ inline void backward(const Work &w) {
    long long i = item();
    if (i >= w.items) return;
    real v = w.x[i], a = w.a ? w.a[i] : real(0), a_bar = 0;
    int blocks = int(w.steps) / BLOCK;
    for (int b = 0; b < blocks; b++) {
        w.tape[b * w.items + i] = v;
#pragma unroll
        for (int k = 0; k < BLOCK; k++) v = Loop::step(v, a);
    }
    Loop loop{w.y_adjoint[i]};
    for (int b = blocks - 1; b >= 0; b--) {
        real at[BLOCK];
        at[0] = w.tape[b * w.items + i];
#pragma unroll
        for (int k = 1; k < BLOCK; k++) at[k] = Loop::step(at[k - 1], a);
#pragma unroll
        for (int k = BLOCK - 1; k >= 0; k--) loop.reverse(at[k], a, a_bar);
    }
    w.x_adjoint[i] += loop.bar;
    if (w.a) w.a_adjoint[i] += a_bar;
}

KERNEL recurrence_forward(Work w) { forward<Recurrence>(w); }
KERNEL recurrence_backward(Work w) { backward<Recurrence>(w); }
KERNEL affine_forward(Work w) { forward<Affine>(w); }
KERNEL affine_backward(Work w) { backward<Affine>(w); }

/* Loops whose gradients need nothing of what they computed. */

KERNEL decay_forward(Work w) {
    long long i = item();
    if (i >= w.items) return;
    real v = w.x[i];
#pragma unroll 16
    for (int t = 0; t < w.steps; t++) v = real(0.95) * v + real(0.01);
    w.y[i] = v;
}

KERNEL decay_backward(Work w) {
    long long i = item();
    if (i >= w.items) return;
    real bar = w.y_adjoint[i];
#pragma unroll 16
    for (int t = 0; t < w.steps; t++) bar *= real(0.95);
    w.x_adjoint[i] += bar;
}

KERNEL harmonics_forward(Work w) {
    long long i = item();
    if (i >= w.items) return;
    real x = w.x[i], sum = 0;
#pragma unroll 16
    for (int k = 0; k < w.steps; k++) sum += sin(x * real(k));
    w.y[i] = sum;
}

KERNEL harmonics_backward(Work w) {
    long long i = item();
    if (i >= w.items) return;
    real x = w.x[i], slope = 0;
#pragma unroll 16
    for (int k = 0; k < w.steps; k++) slope += real(k) * cos(x * real(k));
    w.x_adjoint[i] += slope * w.y_adjoint[i];
}
