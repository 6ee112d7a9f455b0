"""Sums into arrays: cheaper updates, and more threads for one sum.

In the order in which they run:

* `section_arrays` gives accesses that never alias names of their own.
* `gather_sums` has scattered sums gathered, with `own_sums` and `factor_pair_sums`.
* `sum_in_registers` takes sums out of loops, `demote_atomics` makes updates plain,
  `skip_unchanged_updates` leaves out some.
* `fix_summation_order` makes sums reproducible, by `ordered_reductions`.
* `fuse_product_sums` rounds once. `split_sums` divides work items over lanes or over the threads
  of a block (`split_sums_over_lanes`, `split_sums_over_blocks`), with the code of
  `split_work_items`.
"""
