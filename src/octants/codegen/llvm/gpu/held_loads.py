"""Keep loads before the branches that use them.

LLVM moves a load into the branch that alone uses it. That saves the load where the branch is not
taken, but a thread then waits for the loads of one branch after the other:
`passes.code_motion.hoist_loads` has put them where they are. An empty piece of assembly that may
write memory holds them.
"""

from __future__ import annotations

from octants.analysis.floats import slow_paths
from octants.codegen.llvm import control_flow
from octants.codegen.llvm.function_text import FunctionText
from octants.codegen.llvm.gpu.function_text import ThreadText
from octants.ir import ops
from octants.ir.core import Operation, Task


def if_(f: FunctionText, op: ops.If) -> None:
    """Write two branches, behind the loads that are held before them."""
    if isinstance(f, ThreadText) and op in f.holding:
        f.emit('call void asm sideeffect "", "~{memory}"()')
    if not f.machine.estimates:
        control_flow.if_(f, op)
    elif slow_paths.is_shared(op):
        outer, f.in_slow_path = f.in_slow_path, True
        control_flow.if_(f, op, likely=True)
        f.in_slow_path = outer
    else:
        control_flow.if_(f, op, likely=slow_paths.repeats_iterations(op))


def find_holding(task: Task) -> set[Operation]:
    """Return the branches, outside of loops, behind loads that branches alone use."""
    used = {value for op in task.body.ops for value in op.operands}
    found: set[Operation] = set()
    holds = False
    for op in task.body.ops:
        if isinstance(op, ops.Load):
            holds = holds or op.result not in used
        elif isinstance(op, ops.If) and holds:
            found.add(op)
            holds = False
    return found
