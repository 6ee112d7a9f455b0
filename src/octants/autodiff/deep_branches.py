"""Which ifs are so deep within each other that they do not hand out all that they define.

See `branches`, which emits ifs.
"""

from __future__ import annotations

from dataclasses import field

from octants.autodiff.hazards import Log
from octants.ir import ops
from octants.ir.core import Block, Operation, Value
from octants.lazy_dataclass import dataclass

MOST_AROUND = 16
"""So many ifs may be within each other and hand out all that they define."""


@dataclass(eq=False, slots=True)
class DeepIfs:
    """The ifs of a body that are in nests of many, and the values that operations use.

    `used` leaves out what is only yielded: a reverse does not need that.
    """

    ops: set[Operation] = field(default_factory=set)
    used: set[Value] = field(default_factory=set)


def deep_ifs(body: Block, log: Log | None) -> DeepIfs:
    """Find the ifs that are within too many others, with all of those; a loop is a new start."""
    found = DeepIfs()
    _find_nests(body, 0, [], found.ops)
    if found.ops:
        for op in body.walk():
            if not isinstance(op, ops.Yield):
                found.used.update(op.operands)
        found.used.update(log.positions.values() if log is not None else ())
    return found


def _find_nests(block: Block, depth: int, nest: list[Operation], found: set[Operation]) -> int:
    """Note the nests in a block that is so deep in one; the depth of the deepest if."""
    deepest = depth
    for op in block.ops:
        if not isinstance(op, ops.If):
            for region in op.regions:
                _find_nests(region, 0, [], found)
            continue
        around = nest if depth else []
        around.append(op)
        reached = max(_find_nests(region, depth + 1, around, found) for region in op.regions)
        if depth == 0 and reached > MOST_AROUND:
            found.update(around)
        deepest = max(deepest, reached)
    return deepest
