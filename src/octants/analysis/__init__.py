"""Facts about modules and tasks, for passes, autodiff and code generation; nothing is changed here.

The analyses that only one part of the compiler needs are in that part; for example, what a
derivative needs to know of a task is in `octants.autodiff`. The files by subject:

* Indices and aliasing: `affine`, `affine_expressions`, `in_bounds`, `equal_indices` (each builds
  on the one before), `aliasing_writes`, `noalias`.
* What a launch accesses: `index_ranges`, `accessed_regions`. Races: `races`, `enumeration`.
* Serial loops: `serial_sums`, `blocks_of_loops`. Parallel loops: `uniformity`, `reductions`,
  `privatisation`, `pair_loops`, `concurrent_tasks`; `lanes` decides which loops run in vector
  lanes.
* Values: `magnitudes`, `subnormals`, `replay_strictness`. Run time: `costs`. Graphs:
  `reachability`.
"""
