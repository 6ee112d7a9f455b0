"""The reverse of subgroup operations that all lanes reach.

If a lane reads the value of another lane, that lane gets the adjoint. Lanes without a work item do
not take part: a lane that would read from one keeps its own value, and so its adjoint.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octants.autodiff.emit.reverser import Reverser
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Value
from octants.types.scalars import i32

SHIFTS = ("shuffle_up", "shuffle_down")
CHOICES = ("shuffle", "broadcast")
_MANY = 1 << 16  # more than there ever are


def is_known(op: ops.Subgroup, constants: dict[Value, Any]) -> bool:
    """Whether an operation has a reverse; ``constants`` maps constant values to numbers."""
    if op.fn in ("add", "inclusive_add"):
        return True
    if op.fn not in (*SHIFTS, *CHOICES, "shuffle_xor"):
        return False
    lane: int = constants.get(op.lane[0], -1)
    return 0 <= lane < _MANY


def contribution_of(reverser: Reverser, op: ops.Subgroup, adjoint: Value) -> Value:
    """The contribution to the adjoint of the operand, given the adjoint of the result."""
    return _CONTRIBUTIONS[op.fn](_Lanes(reverser.builder, op.lanes), reverser, op, adjoint)


class _Lanes:
    """Builds the number of a lane, and the count of lanes, in an aligned group."""

    def __init__(self, builder: Builder, lanes: int) -> None:
        self.builder = builder
        self.lanes = lanes

    def number(self) -> Value:
        """The number (i32) of the lane in its group."""
        build, one = self.builder, self.builder.constant(1, i32)
        return build.binary("sub", build.subgroup("inclusive_add", self.lanes, one), one)

    def count(self) -> Value:
        """How many lanes of the group have a work item (i32)."""
        return self.builder.subgroup("add", self.lanes, self.builder.constant(1, i32))

    def choose(self, condition: Value, value: Value) -> Value:
        """A value where a condition holds, else zero."""
        return self.builder.select(condition, value, self.builder.constant(0.0, value.type))


def _same(lanes: _Lanes, reverser: Reverser, op: ops.Subgroup, adjoint: Value) -> Value:
    """A sum or a pairwise exchange: the same operation on the adjoints."""
    given = [reverser.values[lane] for lane in op.lane]
    return lanes.builder.subgroup(op.fn, op.lanes, adjoint, *given)


def _shift(lanes: _Lanes, reverser: Reverser, op: ops.Subgroup, adjoint: Value) -> Value:
    """A shift: the adjoints shift back; a lane that read nothing keeps its own."""
    build, distance = lanes.builder, reverser.values[op.lane[0]]
    number, count = lanes.number(), lanes.count()
    has_before = build.compare("ge", number, distance)
    has_behind = build.compare("lt", build.binary("add", number, distance), count)
    is_up = op.fn == "shuffle_up"
    back = build.subgroup(SHIFTS[is_up], op.lanes, adjoint, distance)
    returned = lanes.choose(has_behind if is_up else has_before, back)
    own = build.select(
        has_before if is_up else has_behind, build.constant(0.0, adjoint.type), adjoint
    )
    return build.binary("add", returned, own)


def _choice(lanes: _Lanes, reverser: Reverser, op: ops.Subgroup, adjoint: Value) -> Value:
    """A broadcast: the lane that was read gets the sum of the adjoints."""
    build, lane = lanes.builder, reverser.values[op.lane[0]]
    is_there = build.compare("lt", lane, lanes.count())
    is_it = build.compare("eq", lanes.number(), lane)
    total = lanes.choose(is_it, build.subgroup("add", op.lanes, adjoint))
    return build.select(is_there, total, adjoint)


def _scan(lanes: _Lanes, _: Reverser, op: ops.Subgroup, adjoint: Value) -> Value:
    """An inclusive sum: the sum of the adjoints from the lane to the end of the group."""
    build, distance = lanes.builder, 1
    number, count = lanes.number(), lanes.count()
    while distance < op.lanes:
        step = build.constant(distance, i32)
        behind = build.subgroup("shuffle_down", op.lanes, adjoint, step)
        is_there = build.compare("lt", build.binary("add", number, step), count)
        adjoint = build.binary("add", adjoint, lanes.choose(is_there, behind))
        distance *= 2
    return adjoint


_CONTRIBUTIONS: dict[str, Callable[[_Lanes, Reverser, ops.Subgroup, Value], Value]] = {
    "add": _same,
    "shuffle_xor": _same,
    "shuffle_up": _shift,
    "shuffle_down": _shift,
    "shuffle": _choice,
    "broadcast": _choice,
    "inclusive_add": _scan,
}
