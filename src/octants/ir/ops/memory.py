"""Accesses to arrays, and what a task says to the host."""

from __future__ import annotations

import functools
from collections.abc import Callable

from octants.ir.core import (
    Array,
    ArrayRef,
    Companion,
    InvalidIR,
    Operation,
    Space,
    Value,
    attribute,
    operand,
    operands,
    operation,
)

_array_ref: Callable[[tuple[Array, Companion]], ArrayRef] = functools.partial(
    tuple.__new__, ArrayRef
)  # half the time of a call of the class, for what analyses do most

ATOMIC = frozenset(("add", "sub", "mul", "min", "max", "and", "or", "xor", "exchange"))


class Access(Operation):
    """The base of operations that read or write an element of an array."""

    __slots__ = ()
    array: Array
    companion: Companion
    indices: list[Value]

    @property
    def ref(self) -> ArrayRef:
        """The array, and which of its companions is read or written."""
        return _array_ref((self.array, self.companion))

    def verify(self) -> None:
        array, indices = self.array, self.indices
        if not array.has(self.companion):
            raise InvalidIR(f"{array.name} has no {self.companion.value}")
        if len(indices) != array.rank + len(array.element_shape):
            raise InvalidIR(f"{len(indices)} indices for {array.name} of rank {array.rank}")
        if any(index.type.name not in ("i32", "i64") for index in indices):
            raise InvalidIR(f"indices of {array.name} are i32 or i64: {indices}")


class Write(Access):
    """The base of those that write it: `value`, or what they make of it."""

    __slots__ = ()
    writes = True
    has_effects = True
    value: Value

    def verify(self) -> None:
        Access.verify(self)
        array, value = self.array, self.value
        if value.type is not array.dtype:
            raise InvalidIR(f"store of {value.type} into {array.name} of {array.dtype}")
        if array.space is Space.ARGUMENT and self.companion is Companion.PRIMAL:
            raise InvalidIR(f"store into the argument {array.name}")


@operation("load")
class Load(Access):
    """``%1: f32 = load<@x, primal>(%i, %j)``; indices are i32 or i64, those of the element last."""

    reads = True
    is_speculatable = True

    array: Array = attribute()
    companion: Companion = attribute()
    indices: list[Value] = operands()

    def verify(self) -> None:
        Access.verify(self)
        if self.result.type is not self.array.dtype:
            raise InvalidIR(f"load of {self.result.type} from {self.array.name}")


@operation("store")
class Store(Write):
    """``store<@x, primal>(%value, %i, %j)``"""

    array: Array = attribute()
    companion: Companion = attribute()
    value: Value = operand()
    indices: list[Value] = operands()


@operation("atomic")
class Atomic(Write):
    """``%old: f32 = atomic<add, @x, primal>(%value, %i)``; the result is the value before."""

    reads = True
    is_varying = True

    fn: str = attribute()
    array: Array = attribute()
    companion: Companion = attribute()
    value: Value = operand()
    indices: list[Value] = operands()

    def verify(self) -> None:
        Write.verify(self)
        if self.fn not in ATOMIC:
            raise InvalidIR(f"no atomic {self.fn}")


@operation("compare_exchange")
class CompareExchange(Write):
    """``%old: i32 = compare_exchange<@x, primal>(%expected, %value, %i)``: the value before."""

    reads = True
    is_varying = True

    array: Array = attribute()
    companion: Companion = attribute()
    expected: Value = operand()
    value: Value = operand()
    indices: list[Value] = operands()


@operation("shape")
class Shape(Operation):
    """``%0: i32 = shape<@x, 0>()``: the extent of an axis (of the array, not of its element)."""

    is_scalar = True
    is_speculatable = True

    array: Array = attribute()
    axis: int = attribute()

    def verify(self) -> None:
        if not 0 <= self.axis < self.array.rank:
            raise InvalidIR(f"shape: {self.array.name} has no axis {self.axis}")


@operation("print")
class Print(Operation):
    r"""``print<('x = ', ('.3f',), '\n'), False>(%x)``: a piece of text, with the end of its line.

    `parts` are literal strings and, where a value stands, tuples (format spec,); values are used in
    order. The host formats the pieces, and writes them one after the other. If `is_counted`, it
    writes the first of a launch only, and how many more there were.
    """

    reports = True
    has_effects = True
    is_tied = True

    parts: tuple[str | tuple[str], ...] = attribute()
    values: list[Value] = operands()
    is_counted: bool = attribute(default=False)


@operation("assert")
class Assert(Operation):
    """``assert<'assertion', 'x is {}'>(%condition, %x)``: stops the work item if not true.

    `kind` names the error class of the host ('assertion', 'bounds'); the message is a format string
    for the values. The first failing work item is the one reported; the launch then ends early.
    """

    reports = True
    has_effects = True
    is_tied = True

    kind: str = attribute()
    message: str = attribute()
    condition: Value = operand()
    values: list[Value] = operands()
