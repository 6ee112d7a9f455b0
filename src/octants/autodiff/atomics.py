"""The reverse of atomic updates.

An update returns what was in its place before, and leaves a result there. So the adjoint that is
found in the place is that of the result, and the one that is left there that of what was before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from octants.autodiff.adjoints import Adjoints
from octants.autodiff.entry_builder import EntryBuilder
from octants.autodiff.errors import no_rule
from octants.autodiff.facts import Facts
from octants.autodiff.memory import Memory
from octants.autodiff.rules import adjoint_type
from octants.autodiff.values import Values
from octants.ir import ops
from octants.ir.core import Array, Block, Companion, Value

ADJOINT = Companion.ADJOINT


class Reverser(Protocol):
    """What a reverse of operations needs of the backward sweep."""

    builder: EntryBuilder
    facts: Facts
    values: Values
    memory: Memory
    adjoints: Adjoints


def reverse_atomic(reverser: Reverser, op: ops.Atomic) -> None:
    """Emit the adjoint statements of an atomic update."""
    _REVERSE[op.fn](reverser, op)


def reverse_compare_exchange(_: Reverser, op: ops.CompareExchange) -> None:
    """Refuse: who wins depends on data in a way that no rule knows."""
    remedy = "keep the data-dependent exchange out of the differentiated kernel"
    raise no_rule(f"compare-and-swap on `{op.array.name}`", op.location, remedy)


def _place(reverser: Reverser, op: ops.Atomic) -> tuple[Array, list[Value]]:
    return reverser.memory.arrays[op.array], [reverser.values[index] for index in op.indices]


def _reverse_add(reverser: Reverser, op: ops.Atomic) -> None:
    builder = reverser.builder
    array, indices = _place(reverser, op)
    kind = adjoint_type(array.dtype)
    adjoint = builder.cast(builder.load(array, indices, ADJOINT), kind)
    share = adjoint if op.fn == "add" else builder.unary("neg", adjoint)
    reverser.adjoints.add(op.value, share)
    returned = reverser.adjoints.get(op.result)
    if returned is not None:
        share = builder.cast(returned, array.dtype)
        builder.atomic("add", array, indices, share, ADJOINT)


def _reverse_extremum(reverser: Reverser, op: ops.Atomic) -> None:
    """The adjoint goes to the winner: the new value, or what was there before."""
    is_known = reverser.facts.is_logged(op) or op.array in reverser.facts.ordering.mixed
    if is_known or reverser.adjoints.get(op.result) is not None:
        _reverse_known_extremum(reverser, op)
    else:
        _reverse_final_extremum(reverser, op)


def _reverse_final_extremum(reverser: Reverser, op: ops.Atomic) -> None:
    """By what all updates left: one that equals it takes the adjoint, else the prior value does."""
    builder = reverser.builder
    array, indices = _place(reverser, op)
    final = reverser.memory.read(op, "extremum")
    kind = adjoint_type(array.dtype)
    then, orelse = Block(), Block()
    with builder.into(then):
        zero = builder.constant(0, array.dtype)
        taken = builder.atomic("exchange", array, indices, zero, ADJOINT)
        builder.yield_([builder.cast(taken, kind)])
    with builder.into(orelse):
        builder.yield_([builder.constant(0, kind)])
    wins = builder.compare("eq", final, reverser.values[op.value])
    reverser.adjoints.add(op.value, builder.if_(wins, then, orelse).result)


def _reverse_known_extremum(reverser: Reverser, op: ops.Atomic) -> None:
    """By what was there before: at equality that is the winner."""
    builder = reverser.builder
    array, indices = _place(reverser, op)
    kind = adjoint_type(array.dtype)
    compared = "le" if op.fn == "min" else "ge"
    stays = builder.compare(compared, reverser.values[op.result], reverser.values[op.value])
    adjoint = builder.cast(builder.load(array, indices, ADJOINT), kind)
    zero = builder.constant(0, kind)
    left = builder.select(stays, adjoint, zero)
    reverser.adjoints.add(op.value, builder.select(stays, zero, adjoint))
    _leave(reverser, op, left)


def _reverse_mul(reverser: Reverser, op: ops.Atomic) -> None:
    """The product rule, by what was there before."""
    builder = reverser.builder
    array, indices = _place(reverser, op)
    kind = adjoint_type(array.dtype)
    before, value = (builder.cast(reverser.values[x], kind) for x in (op.result, op.value))
    adjoint = builder.cast(builder.load(array, indices, ADJOINT), kind)
    reverser.adjoints.add(op.value, builder.binary("mul", adjoint, before))
    _leave(reverser, op, builder.binary("mul", adjoint, value))


def _leave(reverser: Reverser, op: ops.Atomic, adjoint: Value) -> None:
    """Set the adjoint of a place to that of its prior content, which the update returned."""
    builder = reverser.builder
    array, indices = _place(reverser, op)
    returned = reverser.adjoints.get(op.result)
    if returned is not None:
        adjoint = builder.binary("add", adjoint, returned)
    builder.store(array, indices, builder.cast(adjoint, array.dtype), ADJOINT)


def _reverse_exchange(reverser: Reverser, op: ops.Atomic) -> None:
    builder = reverser.builder
    array, indices = _place(reverser, op)
    kind = adjoint_type(array.dtype)
    adjoint = builder.load(array, indices, ADJOINT)
    reverser.adjoints.add(op.value, builder.cast(adjoint, kind))
    _leave(reverser, op, builder.constant(0, kind))


_REVERSE: dict[str, Callable[[Reverser, ops.Atomic], None]] = {
    "add": _reverse_add,
    "sub": _reverse_add,
    "min": _reverse_extremum,
    "max": _reverse_extremum,
    "mul": _reverse_mul,
    "exchange": _reverse_exchange,
}
