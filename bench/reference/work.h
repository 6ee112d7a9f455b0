/* What every reference works on: the items of one call, and the arrays of its workload. */
#ifndef WORK_H
#define WORK_H

#ifndef REAL
#define REAL float
#endif
typedef REAL real;

/* Arrays are row-major over the items of all calls; adjoints of inputs are added to. */
typedef struct {
    long begin, end;         /* the items of this call */
    long items, steps;       /* all items; the trip count of loops */
    const int *count;        /* ragged: the trip count of each item */
    const real *x, *a;       /* inputs */
    real *y;                 /* outputs */
    const real *y_adjoint;
    real *x_adjoint, *a_adjoint;
    real *scratch;           /* pairwise: the adjoints of the forces, three for each item */
} Work;

#endif
