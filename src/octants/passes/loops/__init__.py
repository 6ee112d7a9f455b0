"""Loops whose iterations are written side by side, by `unrolled_iterations`, or as one loop.

* `expose_invariants` and `unroll_triangular_nests` unroll short loops before derivatives are taken.
* `unroll_loops` and `unroll_shared_sums` unroll chunks of long ones.
* `unroll_vector_loops` unrolls short ones, if vectors become registers.
* `jam_loops` fuses the loops in the copies. `collapse_nests` makes one loop of two.
"""
