"""Facts about modules and tasks, for passes, autodiff and code generation; nothing is changed here.

The analyses that only one part of the compiler needs are in that part; for example, what a
derivative needs to know of a task is in `octants.autodiff`. The folders, each with a tour of its
own:

* `indices`: affine expressions, ranges, equality. Most other analyses build on it.
* `memory`: aliasing, races, and what launches access.
* `sums`: updates that may be reordered. `floats`: ranges, rounding and slow paths.
* `control_flow`: uniformity, and the shapes of loops.
* `lanes`: which loops run in vector lanes.

`cost_model` estimates run time, `reachability` follows edges between values.
"""
