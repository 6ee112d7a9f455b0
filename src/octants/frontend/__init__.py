"""From Python functions to modules: SSA is built in one walk over the syntax tree.

Read `build` (the entry), `context` (the state), `statements` and `expressions` (a function for each
node), then `control_flow.control_flow_joins`. `scope` has the functions and loops that are being
built, `assignments` what both kinds of nodes assign. The folders, each with a tour of its own:

* `syntax`: the source of a function, before SSA is built of it.
* `compile_time`: Python objects, names of them, and what a kernel is specialised for.
* `values`: numbers, vectors, matrices and structs, with their operators and functions.
* `memory`: arrays, subscripts and references; sparse and quantised fields.
* `control_flow`: conditions, loops, and work items that cooperate.
* `calls`: words of the language, its library, inlined functions, recursion.
"""

from __future__ import annotations

from octants.frontend.build import Built, build
from octants.types.compile_time_reads import Read

__all__ = ["Built", "Read", "build"]
