"""Kernels, their specialisations, and how they are launched, forward and in reverse.

Read `kernel`, `specialisation`, `bound_code`; then `warm_call` and `specialisation_guards`, which
make a repeated call fast. `derivative_variants` has the reverse and forward kernels of one kernel,
for `kernel_gradient` and for the tapes of `octants.ad`.
"""
