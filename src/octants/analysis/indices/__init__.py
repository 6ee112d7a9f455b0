"""Indices as numbers: affine expressions, ranges, and which are equal.

`affine_arithmetic`, `affine_analysis`, `facts_from_valid_indices` and `equal_indices` build on each
other. `distinct_iterations` and `array_strides` ask about a loop; `index_ranges` are regions of
arrays; `index_enumeration` computes all indices of a task.
"""
