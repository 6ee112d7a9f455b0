"""Builds operations at the end of a block, folding constants and identities on the way."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from octants.diagnostics.span import Span
from octants.ir import ops, reciprocals, scalar_semantics
from octants.ir.core import Array, Block, Companion, Operation, Value
from octants.types.scalars import DType, by_name, convert, i32, i64, u1, u64

PRIMAL = Companion.PRIMAL
_NEUTRAL_ZERO = ("add", "sub", "or", "xor", "shl", "shr", "ushr", "lsl", "lsr", "asr")


class Builder:
    """Appends to `block`; `location` is given to what is built.

    Where it `contracts`, `add_fresh` may round a product and a sum once.
    """

    def __init__(self, block: Block | None = None, *, contracts: bool = False) -> None:
        self.block = block if block is not None else Block()
        self.contracts = contracts
        self.location: Span | None = None
        self.constants: dict[Value, Any] = {}
        """The numbers of the constants that folding knows."""

    # -- positions ---------------------------------------------------------------------------------

    @contextmanager
    def into(self, block: Block) -> Iterator[Block]:
        """Build into another block within a ``with``, and restore the location at its end."""
        outer, location = self.block, self.location
        self.block = block
        try:
            yield block
        finally:
            self.block, self.location = outer, location

    def append(self, op: Operation) -> Operation:
        """Append an operation as it is."""
        if op.location is None:
            op.location = self.location
        self.block.ops.append(op)
        return op

    def constant_of(self, value: Value) -> Any:
        """The Python number of a constant that this builder built, or None."""
        return self.constants.get(value)

    def note_constant(self, op: ops.Constant) -> None:
        """Let folding know a constant that was appended by other means."""
        self.constants[op.result] = op.value

    # -- arithmetic --------------------------------------------------------------------------------

    def constant(self, value: Any, dtype: DType) -> Value:
        result = Value(dtype)
        self.append(ops.Constant(convert(value, dtype), results=[result]))
        self.constants[result] = convert(value, dtype)
        return result

    def unary(self, fn: str, x: Value) -> Value:
        folded = self._fold(fn, x.type, [x])
        if folded is not None:
            return folded
        return self.append(ops.Unary(fn, x, results=[Value(x.type)])).result

    def binary(self, fn: str, lhs: Value, rhs: Value) -> Value:
        folded = self._fold(fn, lhs.type, [lhs, rhs])
        if folded is None:
            folded = self._identity(fn, lhs, rhs)
        if folded is not None:
            return folded
        return self.append(ops.Binary(fn, lhs, rhs, results=[Value(lhs.type)])).result

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        """x * y + z, rounded once."""
        for one, other in ((x, y), (y, x)):
            if self.constants.get(one) == 1:
                return self.binary("add", other, z)
        return self.append(ops.Fma(x, y, z, results=[Value(x.type)])).result

    def add(self, lhs: Value, rhs: Value) -> Value:
        return self.binary("add", lhs, rhs)

    def add_fresh(self, before: Value, addend: Value) -> Value:
        """Build ``before + addend``; nothing else uses `addend`, so that the two may be fused."""
        last = self.block.ops[-1] if self.contracts and self.block.ops else None
        if isinstance(last, ops.Binary) and last.result is addend and last.fn == "mul":
            self.block.ops.pop()
            return self.fma(last.lhs, last.rhs, before)
        return self.add(before, addend)

    def compare(self, fn: str, lhs: Value, rhs: Value) -> Value:
        folded = self._fold(fn, u1, [lhs, rhs])
        if folded is not None:
            return folded
        return self.append(ops.Compare(fn, lhs, rhs, results=[Value(u1)])).result

    def select(self, condition: Value, on_true: Value, on_false: Value) -> Value:
        known = self.constants.get(condition)
        if known is not None:
            return on_true if known else on_false
        if on_true is on_false:
            return on_true
        op = ops.Select(condition, on_true, on_false, results=[Value(on_true.type)])
        return self.append(op).result

    def cast(self, x: Value, dtype: DType) -> Value:
        if x.type is dtype:
            return x
        known = self.constants.get(x)
        if known is not None:
            return self.constant(known, dtype)
        return self.append(ops.Cast(x, results=[Value(dtype)])).result

    def bitcast(self, x: Value, dtype: DType) -> Value:
        if x.type is dtype:
            return x
        return self.append(ops.Bitcast(x, results=[Value(dtype)])).result

    def word(self, x: Value) -> Value:
        """Build the u64 that holds a number: the bits of a float, the value of an integer."""
        bits = by_name(f"u{x.type.bits}") if x.type.is_float else x.type
        return self.cast(self.bitcast(x, bits), u64)

    def of_word(self, word: Value, dtype: DType) -> Value:
        """Build the number of a type from the u64 that `word` made of it."""
        bits = by_name(f"u{dtype.bits}") if dtype.is_float else dtype
        return self.bitcast(self.cast(word, bits), dtype)

    def float_to_int(self, x: Value, dtype: DType) -> Value:
        """A float whose whole part the type can hold, towards zero."""
        return self.append(ops.FloatToInt(x, results=[Value(dtype)])).result

    def call(self, fn: str, operands: Sequence[Value], dtype: DType) -> Value:
        """A function of `mathlib`, whose result is of a type."""
        return self.append(ops.Call(fn, list(operands), results=[Value(dtype)])).result

    def random_stream(self, task: int, item: Value) -> Value:
        return self.append(ops.RandomStream(task, item, results=[Value(u64)])).result

    def random(self, dtype: DType, stream: Value, draw: Value) -> Value:
        return self.append(ops.Random(stream, draw, results=[Value(dtype)])).result

    def _fold(self, fn: str, dtype: DType, operands: list[Value]) -> Value | None:
        if fn not in scalar_semantics.EXACT:
            return None
        known = [self.constants.get(value) for value in operands]
        if any(value is None for value in known):
            return None
        return self.constant(scalar_semantics.evaluate(fn, operands[0].type, *known), dtype)

    def _identity(self, fn: str, lhs: Value, rhs: Value) -> Value | None:
        """x + 0, x - 0, x * 1, x / 1, x / 2 and their mirror images, where no bit changes."""
        left, right = self.constants.get(lhs), self.constants.get(rhs)
        is_float = lhs.type.is_float
        if right is not None:
            if fn in ("mul", "div", "floordiv", "truncdiv") and right == 1:
                return lhs if not (is_float and fn in ("floordiv", "truncdiv")) else None
            if fn == "div" and reciprocals.is_exact(right, lhs.type):
                return self.binary("mul", lhs, self.constant(1.0 / right, lhs.type))
            if fn in _NEUTRAL_ZERO and right == 0:
                kept = fn == "sub" and math.copysign(1.0, right) > 0  # -0.0 - -0.0 is 0.0
                return lhs if not is_float or kept else None
            if fn == "mul" and right == 0 and not is_float:
                return rhs
            if fn == "and" and lhs.type is u1:
                return lhs if right else rhs
            if fn == "and" and right == convert(-1, lhs.type):
                return lhs
            if fn == "or" and lhs.type is u1:
                return rhs if right else lhs
        if left is not None and fn in ("add", "mul", "and", "or", "xor") and right is None:
            return self._identity(fn, rhs, lhs)
        return None

    # -- memory ------------------------------------------------------------------------------------

    def load(self, array: Array, indices: Sequence[Value], companion: Companion = PRIMAL) -> Value:
        op = ops.Load(array, companion, list(indices), results=[Value(array.dtype)])
        return self.append(op).result

    def store(
        self, array: Array, indices: Sequence[Value], value: Value, companion: Companion = PRIMAL
    ) -> None:
        self.append(ops.Store(array, companion, value, list(indices)))

    def atomic(
        self,
        fn: str,
        array: Array,
        indices: Sequence[Value],
        value: Value,
        companion: Companion = PRIMAL,
    ) -> Value:
        old = Value(array.dtype)
        self.append(ops.Atomic(fn, array, companion, value, list(indices), results=[old]))
        return old

    def compare_exchange(
        self, array: Array, indices: Sequence[Value], expected: Value, value: Value
    ) -> Value:
        old = Value(array.dtype)
        op = ops.CompareExchange(array, PRIMAL, expected, value, list(indices), results=[old])
        return self.append(op).result

    def shape(self, array: Array, axis: int) -> Value:
        """The extent of an axis, i32; a constant where the layout knows it."""
        if array.fixed_shape is not None:
            return self.constant(array.fixed_shape[axis], i32)
        return self.append(ops.Shape(array, axis, results=[Value(i32)])).result

    def print_(
        self,
        parts: tuple[str | tuple[str], ...],
        values: Sequence[Value],
        *,
        is_counted: bool = False,
    ) -> None:
        self.append(ops.Print(parts, list(values), is_counted))

    def assert_(
        self, kind: str, message: str, condition: Value, values: Sequence[Value] = ()
    ) -> None:
        if self.constants.get(condition) is not True:
            self.append(ops.Assert(kind, message, condition, list(values)))

    # -- cooperation -------------------------------------------------------------------------------

    def barrier(self, scope: str) -> None:
        self.append(ops.Barrier(scope))

    def fence(self, scope: str) -> None:
        self.append(ops.Fence(scope))

    def subgroup(self, fn: str, lanes: int, value: Value, lane: Value | None = None) -> Value:
        """Build an operation that lanes of a subgroup run together; shuffles have a ``lane``."""
        given = [] if lane is None else [lane]
        result = Value(u64 if fn == "ballot" else value.type)
        return self.append(ops.Subgroup(fn, lanes, value, given, results=[result])).result

    # -- control -----------------------------------------------------------------------------------
    # The regions are blocks that the caller has filled, their yields included.

    def yield_(self, values: Sequence[Value] = ()) -> None:
        self.append(ops.Yield(list(values)))

    def for_(self, lower: Value, upper: Value, inits: Sequence[Value], body: Block) -> ops.For:
        op = ops.For(lower, upper, list(inits), body, results=_fresh(inits))
        self.append(op)
        return op

    def while_(self, inits: Sequence[Value], condition: Block, body: Block) -> ops.While:
        op = ops.While(list(inits), condition, body, results=_fresh(inits))
        self.append(op)
        return op

    def if_(self, condition: Value, then: Block, orelse: Block) -> ops.If:
        op = ops.If(condition, then, orelse, results=_fresh(then.yielded))
        self.append(op)
        return op

    @contextmanager
    def only_if(self, condition: Value) -> Iterator[ops.If]:
        """Build the body of an if that has no else branch and no results."""
        op = ops.If(condition, Block(), Block())
        with self.into(op.then):
            yield op
            self.yield_()
        with self.into(op.orelse):
            self.yield_()
        self.append(op)

    def parallel_for(
        self, lower: Value, upper: Value, body: Block, options: dict[str, Any]
    ) -> ops.ParallelFor:
        op = ops.ParallelFor(options, lower, upper, body)
        self.append(op)
        return op

    # -- conveniences ------------------------------------------------------------------------------

    def index(self, value: int) -> Value:
        return self.constant(value, i32)

    def offset(self, value: int) -> Value:
        return self.constant(value, i64)


def _fresh(values: Sequence[Value]) -> list[Value]:
    return [Value(value.type, value.name) for value in values]
