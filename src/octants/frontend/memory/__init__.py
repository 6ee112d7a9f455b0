"""Memory: the arrays of a kernel, and how it reads and writes them.

* `kernel_arrays` lists them. `indexing` makes `references` of subscripts, and these are read and
  written; `ndarray_views` are arrays that begin elsewhere.
* Fields that are not dense: `quantised_fields`; `sparse_access`, `sparse_functions` and
  `active_cells`; `sparse_matrix_entries`.
* Functions that change memory: `atomics_and_random`, `fill_loops`. What a kernel returns is memory,
  too: `returns`.
* `stop_gradient` marks loads without a derivative; `hidden_arrays` warns of arrays that a variable
  hides.
"""
