"""Finds deep nests of ifs, whose branches do not export all they define (`branches`)."""

from __future__ import annotations

from dataclasses import field

from octants.analysis.memory.repeated_reads import RepeatedReads
from octants.autodiff.facts.hazardous_reads import ReadLog
from octants.ir import ops
from octants.ir.core import Block, Operation, Value
from octants.lazy_dataclass import dataclass

MAX_DEPTH = 16
"""The deepest nest of ifs whose branches export everything."""


@dataclass(eq=False, slots=True)
class DeepIfs:
    """The ifs of a body that are in deep nests, and the values that operations use.

    `used` leaves out values that are only yielded, which a reverse does not need. `varying` are the
    ifs around loops whose conditions depend on memory that would be read again.
    """

    ops: set[Operation] = field(default_factory=set)
    used: set[Value] = field(default_factory=set)
    varying: set[Operation] = field(default_factory=set)


def deep_ifs(body: Block, log: ReadLog | None) -> DeepIfs:
    """Find the ifs in nests deeper than `MAX_DEPTH`.

    Args:
        body: the body of a task; the depth is counted from the innermost loop.
        log: the log of its reads, if it has one.

    Returns:
        The ifs of these nests, and the values in use.
    """
    found = DeepIfs()
    _find_nests(body, 0, [], found.ops)
    if found.ops:
        for op in body.walk():
            if not isinstance(op, ops.Yield):
                found.used.update(op.operands)
        found.used.update(log.positions.values() if log is not None else ())
        inner = {each for op in found.ops for region in op.regions for each in region.ops}
        reads = RepeatedReads(op for op in found.ops if op not in inner)
        found.varying = {op for op in reads.control & found.ops if _holds_loops(op)}
    return found


def _holds_loops(op: Operation) -> bool:
    return any(isinstance(each, ops.Loop) for each in op.walk_regions())


def _find_nests(block: Block, depth: int, nest: list[Operation], found: set[Operation]) -> int:
    """Add the deep nests of a block at a depth to ``found``; gives the depth of its deepest if."""
    deepest = depth
    for op in block.ops:
        if not isinstance(op, ops.If):
            for region in op.regions:
                _find_nests(region, 0, [], found)
            continue
        around = nest if depth else []
        around.append(op)
        reached = max(_find_nests(region, depth + 1, around, found) for region in op.regions)
        if depth == 0 and reached > MAX_DEPTH:
            found.update(around)
        deepest = max(deepest, reached)
    return deepest
