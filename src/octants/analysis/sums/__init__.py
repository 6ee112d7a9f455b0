"""Sums, which may be reordered: who adds to what, and in which loops.

* In parallel loops, to one element: `reductions`; to varying ones: `privatisation`,
  `gatherable_sums`; to several together: `sum_groups`, `sums_of_products`.
* In serial loops: `serial_sums`.
"""
