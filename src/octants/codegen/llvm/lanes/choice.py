"""Which parallel loops are run in lanes, and how many lanes there are."""

from __future__ import annotations

from octants.analysis.uniformity import Uniformity
from octants.ir import ops
from octants.ir.core import Array, Companion, Task
from octants.target import Target

_FEATURES = (("+avx512vl", 16), ("+avx2", 8), ("+neon", 4))
"""Of a target with so many lanes of 32 bits in a vector."""

_MOST_VECTORS = 4
_FEW = 2  # values that a loop carries, and work items

_SCALAR = (ops.Print, ops.Assert, ops.RecordCheck)


def lanes_of_target(target: Target) -> int:
    """The lanes of a vector of 32 bits each; 0 where the target's vectors are none to rely on."""
    features = target.features.split(",")
    for feature, lanes in _FEATURES:
        if feature in features:
            return lanes
    return 0


def most_lanes(target: Target) -> int:
    """The lanes of the widest tiles."""
    return lanes_of_target(target) * _MOST_VECTORS


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
    count = _count(task)
    if count is not None and count <= _FEW and wanted is None:
        return 0
    lanes *= _vectors(task)
    while count is not None and lanes >= 2 * max(count, _FEW):
        lanes //= 2
    return lanes


def _count(task: Task) -> int | None:
    """How many work items there are, if that is known."""
    assert task.domain is not None
    constants = {op.result: op.value for op in task.domain.ops if isinstance(op, ops.Constant)}
    lower, upper = (constants.get(bound) for bound in task.domain.yielded)
    return None if lower is None or upper is None else max(0, upper - lower)


def _vectors(task: Task) -> int:
    """How many vectors make a tile: several where a loop would wait for one result after another.

    That is so where it carries few values; many would not fit the registers. Where lanes make
    different numbers of turns, more lanes wait for the slowest.
    """
    facts, most, widest = Uniformity(task.body), 0, 32
    for op in task.body.walk():
        if isinstance(op, (ops.For, ops.While)):
            carried = [arg for arg in op.body.args if facts.varies(arg)]
            most = max(most, len(carried))
            widest = max([widest, *(arg.type.bits for arg in carried if arg.type.is_float)])
    if most == 0:
        return 1
    parts = any(facts.diverges(op) for op in task.body.walk())
    wanted = _MOST_VECTORS if most <= _FEW else 2 if most <= 2 * _FEW else 1
    return max(1, min(2 if parts else _MOST_VECTORS, wanted) * 32 // widest)


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
