"""Facts about modules and tasks, for passes, autodiff and code generation; nothing is changed here.

The analyses that only one part of the compiler needs are in that part; for example, what a
derivative needs to know of a task is in `octants.autodiff`. The files by subject:

* Indices and aliasing: `affine_arithmetic`, `affine_analysis`, `facts_from_valid_indices`,
  `equal_indices` (each builds on the one before), `access_aliasing`.
* What a launch accesses: `index_ranges`, `accessed_regions`. Races: `races`, `index_enumeration`.
* Serial loops: `serial_sums`, `strip_mined_loops`, `repeated_reads`. Parallel loops: `uniformity`,
  `reductions`, `privatisation`, `gatherable_sums`, `concurrent_tasks`; `lanes` decides which loops
  run in vector lanes.
* Values: `float_magnitudes`, `subnormals`, `replay_strictness`. Run time: `cost_model`. Graphs:
  `reachability`.
"""
