"""Which parallel loops are run in lanes, and how many lanes there are."""

from __future__ import annotations

from octants.analysis.uniformity import Uniformity
from octants.ir import ops
from octants.ir.core import Array, Companion, Task
from octants.target import Target

_FEATURES = (("+avx512vl", 16), ("+avx2", 8), ("+neon", 4))
"""Of a target with so many lanes of 32 bits in a vector."""

_SCALAR = (ops.Print, ops.Assert, ops.RecordCheck)


def lanes_of_target(target: Target) -> int:
    """The lanes of a vector of 32 bits each; 0 where the target's vectors are none to rely on."""
    features = target.features.split(",")
    for feature, lanes in _FEATURES:
        if feature in features:
            return lanes
    return 0


def lanes_of(task: Task, target: Target, simd: bool) -> int:
    """How many lanes a task is run in; 0: one work item at a time.

    ``simd`` says whether that is wanted of loops that do not say it themselves.
    """
    wanted = task.options.get("simd")
    if not task.is_parallel or not (simd if wanted is None else wanted):
        return 0
    lanes = lanes_of_target(target)
    if lanes == 0 or not _can_run(task) or (wanted is None and _has_order(task)):
        return 0
    return lanes


def _can_run(task: Task) -> bool:
    """Whether all that a task does can be done for lanes."""
    for op in task.body.walk():
        if isinstance(op, _SCALAR):
            return False
        if isinstance(op, (ops.RecordPush, ops.RecordPop)) and op.record.capacity:
            return False
    return not Uniformity(task.body).has_odd_base


def _has_order(task: Task) -> bool:
    """Whether results tell in which order work items came to places that they share.

    That is nobody's guess among threads, but few work items run on one, in order.
    """
    used = {value for op in task.body.walk() for value in op.operands}
    functions: dict[tuple[Array, Companion], set[str]] = {}
    for op in task.body.walk():
        if isinstance(op, ops.CompareExchange):
            return True
        if isinstance(op, ops.Atomic):
            if op.result in used or op.fn == "exchange":
                return True
            fn = "add" if op.fn == "sub" else op.fn
            functions.setdefault((op.array, op.companion), set()).add(fn)
    return any(len(found) > 1 for found in functions.values())
