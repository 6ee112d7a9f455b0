/* What every kernel works on: one problem, with its arrays in the memory of the GPU. */
#pragma once

#ifndef REAL
#define REAL float
#endif
typedef REAL real;

/* Arrays are row-major over the items; adjoints of inputs are added to. */
struct Work {
    long long items, steps;    /* work items; the trip count of loops */
    const real *x, *a;         /* inputs */
    real *y;                   /* outputs */
    const real *y_adjoint;
    real *x_adjoint, *a_adjoint;
    real *tape;                /* checkpoints: word w of item i is at w * items + i */
    long long step, side;      /* springs: which step this is; masses in a row of the sheet */
};

#define KERNEL extern "C" __global__ void
__device__ inline long long item() { return blockIdx.x * (long long)blockDim.x + threadIdx.x; }
