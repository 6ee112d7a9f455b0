"""From Python functions to modules: SSA is built in one walk over the syntax tree.

Read `build` (the entry), `context` (the state), `statements` and `expressions` (a function for each
node), then `control_flow_joins`. The other files by subject:

* Names and Python objects: `scope`, `name_resolution`, `python_object_conversion`; what a kernel is
  specialised for: `compile_time_evaluation`, `unspecialised_numbers`, `cacheable_calls`.
* Values: `expression_values`, `operands`, `arithmetic`, `numeric_functions`, `conditions`; vectors:
  `matrices`, `linear_algebra`, `constructors`; `flattening` makes scalars of them.
* Memory: `kernel_arrays`, `indexing`, `references`, `assignments`; `quantised_fields`,
  `sparse_access`.
* Loops: `loops`, `loop_domains`, `parallel_loops`, `unrolled_loops`, `thread_block_loops`;
  `early_exits`.
* Calls: `calls` dispatches to `language_calls`, `builtins`, `inlined_calls` and `recursion`.
"""

from __future__ import annotations

from octants.frontend.build import Built, build
from octants.types.compile_time_reads import Read

__all__ = ["Built", "Read", "build"]
