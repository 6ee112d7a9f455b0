"""Finds data races for numbers that share a word: quantised fields (see
`frontend.memory.quantised_fields`).

A number is stored by a loop that exchanges the word until no other work item has changed it
meanwhile. So two work items race only if one reads the bits that another one changes::

    %7: u32 = load<@q, primal>(%i)
    %13: u32, %14: u1 = while(%7, %8) {...} {
      %30: u32 = binary<and>(%18, %12)                     # the other bits of the word
      %31: u32 = binary<or>(%30, %29)                      # and those of the number
      %32: u32 = compare_exchange<@q, primal>(%18, %31, %i)
      ...

Words are where `index_enumeration` says. Where it does not know them - `range(size)` with an
argument, or too many work items - numbers may race, unless their positions follow from affine
expressions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from octants.analysis.indices.index_enumeration import Enumeration, Executions
from octants.ir import ops
from octants.ir.core import Array, Operation, Task, Value
from octants.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class WordBits:
    """Some bits of a word: those of a mask, moved up by what is known when the kernel runs."""

    mask: int
    shift: Value | None = None


class UnknownAccess(Exception):
    """An access that is not one of a quantised field."""


class PackedWords:
    """The accesses of a task to arrays of words.

    `reads` and `changes` are the bits that accesses read and change, by array. A change is that of
    the load before its loop, since it happens for certain if the load does.
    """

    def __init__(self, task: Task) -> None:
        self._users: dict[Value, list[Operation]] = {}
        self._definitions: dict[Value, Operation] = {}
        for op in task.body.walk():
            self._definitions.update((result, op) for result in op.results)
            for operand in op.operands:
                self._users.setdefault(operand, []).append(op)
        self.reads: dict[Array, list[tuple[ops.Access, WordBits]]] = {}
        self.changes: dict[Array, list[tuple[ops.Access, ops.Access, WordBits]]] = {}

    def take(self, accesses: Sequence[ops.Access]) -> bool:
        """Note the accesses to one array; whether all of them are those of a quantised field."""
        array = accesses[0].array
        self.reads[array], self.changes[array] = [], []
        try:
            for op in accesses:
                if isinstance(op, ops.Load):
                    self._take_load(op)
                elif not isinstance(op, ops.CompareExchange):
                    return False
        except UnknownAccess:
            return False
        exchanged = {exchange for _, exchange, _ in self.changes[array]}
        return exchanged == {op for op in accesses if isinstance(op, ops.CompareExchange)}

    def shifts(self) -> dict[Operation, list[Value]]:
        """The shifts of the bits of accesses that are known only when the kernel runs."""
        found: dict[Operation, list[Value]] = {}
        noted = [pair for own in self.reads.values() for pair in own]
        noted += [(load, bits) for own in self.changes.values() for load, _, bits in own]
        for op, bits in noted:
            if bits.shift is not None:
                found.setdefault(op, []).append(bits.shift)
        return found

    def positions(self, bits: WordBits) -> list[Value]:
        """Values that are equal wherever two shifts are: the position along each axis of a word.

        Positions outside of the word do not count, as elements out of bounds do not.
        """
        if bits.shift is None:
            return []
        found, position = [], self._factor_of(bits.shift)
        while position is not None:
            inner, outer, total = position, None, self._definitions.get(position)
            if isinstance(total, ops.Binary) and total.fn == "add":
                inner, outer = total.rhs, self._factor_of(total.lhs)
            index = self._definitions.get(inner)
            if not isinstance(index, ops.Cast):
                break
            found.append(index.x)
            if inner is position:
                return found
            position = outer
        return [bits.shift]

    def _factor_of(self, value: Value) -> Value | None:
        """The other factor of a product with a constant."""
        op = self._definitions.get(value)
        if isinstance(op, ops.Binary) and op.fn == "mul":
            return op.lhs if isinstance(self._definitions.get(op.rhs), ops.Constant) else None
        return None

    # -- bits --------------------------------------------------------------------------------------

    def _take_load(self, load: ops.Load) -> None:
        for user in self._users.get(load.result, ()):
            if isinstance(user, ops.While):
                self._take_loop(load, user)
            else:
                bits = self._read(user, load.result)
                self.reads[load.array].append((load, bits))

    def _take_loop(self, load: ops.Load, loop: ops.While) -> None:
        position = [init is load.result for init in loop.inits].index(True)
        held = loop.body.args[position]
        for op in loop.body.walk():
            if isinstance(op, ops.CompareExchange) and op.expected is held:
                is_same = op.array is load.array and op.indices == load.indices
                if not is_same:
                    raise UnknownAccess
                for bits in self._changed(held, op.value):
                    self.changes[load.array].append((load, op, bits))
        for user in self._users.get(loop.results[position], ()):
            self.reads[load.array].append((load, self._read(user, loop.results[position])))

    def _read(self, user: Operation, word: Value) -> WordBits:
        """The bits of a word that an operation reads."""
        if not isinstance(user, ops.Binary) or user.lhs is not word:
            raise UnknownAccess
        if user.fn == "and":
            return WordBits(self._number(user.rhs))
        if user.fn != "ushr":
            raise UnknownAccess
        masks = [self._mask(each, user.result) for each in self._users.get(user.result, ())]
        whole = (1 << word.type.bits) - 1
        mask = whole if None in masks else _union(mask for mask in masks if mask is not None)
        shift = self._definitions.get(user.rhs)
        if isinstance(shift, ops.Constant):
            return WordBits(mask << shift.value & whole)
        if mask == whole:
            raise UnknownAccess
        return WordBits(mask, user.rhs)

    def _mask(self, user: Operation, value: Value) -> int | None:
        if isinstance(user, ops.Binary) and user.fn == "and" and user.lhs is value:
            return self._number(user.rhs)
        return None

    def _changed(self, word: Value, value: Value) -> Iterator[WordBits]:
        """The bits of a word that are not those of ``word`` in ``value``."""
        while value is not word:
            either = self._definitions.get(value)
            if isinstance(either, ops.Select):  # of the component that is chosen
                yield from self._changed(word, either.on_true)
                value = either.on_false
                continue
            if isinstance(either, ops.Binary) and either.fn == "or":
                constant = self._definitions.get(either.rhs)
                if either.lhs is word and isinstance(constant, ops.Constant):
                    yield WordBits(constant.value)
                    return
                value = either.lhs
            kept = self._definitions.get(value)
            if not isinstance(kept, ops.Binary) or kept.fn != "and":
                raise UnknownAccess
            yield self._not_in(kept.rhs)
            value = kept.lhs

    def _not_in(self, mask: Value) -> WordBits:
        """The bits that a mask does not keep."""
        op = self._definitions.get(mask)
        if isinstance(op, ops.Constant):
            return WordBits(~op.value & ((1 << mask.type.bits) - 1))
        moved = self._definitions.get(op.x) if isinstance(op, ops.Unary) else None
        if not isinstance(moved, ops.Binary) or moved.fn != "shl":
            raise UnknownAccess
        return WordBits(self._number(moved.lhs), moved.rhs)

    def _number(self, value: Value) -> int:
        op = self._definitions.get(value)
        if not isinstance(op, ops.Constant):
            raise UnknownAccess
        return int(op.value)


@dataclass(frozen=True, slots=True)
class SharedBits:
    """A change and a read that may be of the same bits: by which executions, if they are known.

    The bits are different unless each pair of `positions` is one of equal values.
    """

    change: ops.Access
    read: ops.Access
    executions: tuple[Executions, Executions] | None = None
    positions: tuple[tuple[Value, Value], ...] = ()


def overlapping(array: Array, packed: PackedWords, known: Enumeration) -> Iterator[SharedBits]:
    """The pairs of a change and a read of an array that may be of the same bits."""
    for load, exchange, changed in packed.changes[array]:
        for other, read in packed.reads[array]:
            if (changed.shift is None) != (read.shift is None):
                yield SharedBits(exchange, other)
            elif changed.mask & read.mask:
                first, second = _executions(known, load, changed), _executions(known, other, read)
                both = None if first is None or second is None else (first, second)
                one, two = packed.positions(changed), packed.positions(read)
                positions = tuple(zip(one, two, strict=True)) if len(one) == len(two) else ()
                yield SharedBits(exchange, other, both, positions)


def _executions(known: Enumeration, op: ops.Access, bits: WordBits) -> Executions | None:
    found = known.found.get(op)
    if found is None or bits.shift is None:
        return found
    shift: Any = known.others[op].get(bits.shift)
    if shift is None:
        return None
    return Executions(found.items, [*found.indices, shift], found.exact)


def _union(masks: Iterable[int]) -> int:
    total = 0
    for mask in masks:
        total |= mask
    return total
