"""The adjoint statements of atomic updates.

An update returns the prior content of its element, and leaves a result there. So the adjoint that
the reverse finds in the element is that of the result; it leaves that of the prior content there.
"""

from __future__ import annotations

from collections.abc import Callable

from octants.autodiff.derivative_rules import adjoint_type
from octants.autodiff.emit.reverser import Reverser
from octants.autodiff.errors import no_rule_of_exchange
from octants.ir import ops
from octants.ir.core import Array, Block, Companion, Value

ADJOINT = Companion.ADJOINT


def reverse_atomic(reverser: Reverser, op: ops.Atomic) -> None:
    """Emit the adjoint statements of an atomic update."""
    _REVERSE[op.fn](reverser, op)


def reverse_compare_exchange(_: Reverser, op: ops.CompareExchange) -> None:
    """Raise an error: no rule covers how the winner depends on data.

    Raises:
        OctantsCompilationError: always.
    """
    raise no_rule_of_exchange(op)


class _AdjointElement:
    """The adjoint of the element that an update writes."""

    def __init__(self, reverser: Reverser, op: ops.Atomic) -> None:
        self._reverser = reverser
        self._op = op
        self._array: Array = reverser.memory.arrays[op.array]
        self._indices = reverser.values.mapped(op.indices)
        self.kind = adjoint_type(self._array.dtype)

    def load(self) -> Value:
        builder = self._reverser.builder
        return builder.cast(builder.load(self._array, self._indices, ADJOINT), self.kind)

    def update(self, fn: str, value: Value) -> Value:
        """Update it atomically by a value cast to its type; gives its prior content."""
        contribution = self._reverser.builder.cast(value, self._array.dtype)
        return self._reverser.builder.atomic(fn, self._array, self._indices, contribution, ADJOINT)

    def leave(self, adjoint: Value) -> None:
        """Set it to the adjoint of the prior content, which includes that of the returned value."""
        builder = self._reverser.builder
        returned = self._reverser.adjoints.get(self._op.result)
        if returned is not None:
            adjoint = builder.binary("add", adjoint, returned)
        contribution = builder.cast(adjoint, self._array.dtype)
        builder.store(self._array, self._indices, contribution, ADJOINT)


def _reverse_add(reverser: Reverser, op: ops.Atomic) -> None:
    element = _AdjointElement(reverser, op)
    adjoint = element.load()
    reverser.adjoints.add(
        op.value, adjoint if op.fn == "add" else reverser.builder.unary("neg", adjoint)
    )
    returned = reverser.adjoints.get(op.result)
    if returned is not None:
        element.update("add", returned)


def _reverse_extremum(reverser: Reverser, op: ops.Atomic) -> None:
    """The adjoint goes to the winner: the new value, or the prior content."""
    is_known = reverser.facts.is_saved(op) or op.array in reverser.facts.ordering.mixed
    if is_known or reverser.adjoints.get(op.result) is not None:
        _reverse_known_extremum(reverser, op)
    else:
        _reverse_final_extremum(reverser, op)


def _reverse_final_extremum(reverser: Reverser, op: ops.Atomic) -> None:
    """Find the winner by the final content: the first value that equals it takes the adjoint."""
    builder, element = reverser.builder, _AdjointElement(reverser, op)
    final = reverser.memory.read(op, "extremum")
    then, orelse = Block(), Block()
    with builder.into(then):
        taken = element.update("exchange", builder.constant(0, op.array.dtype))
        builder.yield_([builder.cast(taken, element.kind)])
    with builder.into(orelse):
        builder.yield_([builder.constant(0, element.kind)])
    wins = builder.compare("eq", final, reverser.values[op.value])
    reverser.adjoints.add(op.value, builder.if_(wins, then, orelse).result)


def _reverse_known_extremum(reverser: Reverser, op: ops.Atomic) -> None:
    """Find the winner by the prior content, which wins a tie."""
    builder, element = reverser.builder, _AdjointElement(reverser, op)
    compared = "le" if op.fn == "min" else "ge"
    stays = builder.compare(compared, reverser.values[op.result], reverser.values[op.value])
    adjoint, zero = element.load(), builder.constant(0, element.kind)
    left = builder.select(stays, adjoint, zero)
    reverser.adjoints.add(op.value, builder.select(stays, zero, adjoint))
    element.leave(left)


def _reverse_mul(reverser: Reverser, op: ops.Atomic) -> None:
    """The product rule, with the prior content."""
    builder, element = reverser.builder, _AdjointElement(reverser, op)
    before, value = (builder.cast(reverser.values[x], element.kind) for x in (op.result, op.value))
    adjoint = element.load()
    reverser.adjoints.add(op.value, builder.binary("mul", adjoint, before))
    element.leave(builder.binary("mul", adjoint, value))


def _reverse_exchange(reverser: Reverser, op: ops.Atomic) -> None:
    element = _AdjointElement(reverser, op)
    reverser.adjoints.add(op.value, element.load())
    element.leave(reverser.builder.constant(0, element.kind))


_REVERSE: dict[str, Callable[[Reverser, ops.Atomic], None]] = {
    "add": _reverse_add,
    "sub": _reverse_add,
    "min": _reverse_extremum,
    "max": _reverse_extremum,
    "mul": _reverse_mul,
    "exchange": _reverse_exchange,
}
