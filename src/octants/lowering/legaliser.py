"""A builder of legal operations: what the target lacks is built by rules."""

from __future__ import annotations

from typing import Any

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Block, Operation, Value
from octants.lowering import conversions, floats, integers, random_draws
from octants.lowering.legal_operations import Legal, Rule, family
from octants.mathlib.ir_number import Number
from octants.types.scalars import DType, f16, f32, u64

_RULES: dict[str, dict[str, Rule]] = {
    "signed": integers.SIGNED,
    "unsigned": integers.UNSIGNED,
    "u1": integers.TRUTHS,
    "float": floats.RULES,
}


class Legaliser(Builder):
    """Builds for a target. Within one operation that is lowered nothing is computed twice."""

    def __init__(self, legal: Legal, block: Block | None = None) -> None:
        super().__init__(block)
        self.legal = legal
        self._built: dict[tuple[Any, ...], Value] = {}

    def constant(self, value: Any, dtype: DType) -> Value:
        return self._once(
            (repr(value), dtype), lambda *_: super(Legaliser, self).constant(value, dtype)
        )

    def unary(self, fn: str, x: Value) -> Value:
        if (fn, x.type) in self.legal.functions:
            return self._once((fn, x), super().unary)
        return self._by_rule(fn, x)

    def binary(self, fn: str, lhs: Value, rhs: Value) -> Value:
        if (fn, lhs.type) in self.legal.functions:
            return self._once((fn, lhs, rhs), super().binary)
        return self._by_rule(fn, lhs, rhs)

    def compare(self, fn: str, lhs: Value, rhs: Value) -> Value:
        if (fn, lhs.type) in self.legal.functions:
            return self._once((fn, lhs, rhs), super().compare)
        return self._by_rule(fn, lhs, rhs)

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        if x.type in self.legal.fma:
            return super().fma(x, y, z)
        return floats.fused(self.legal, *self._numbers(x, y, z)).value

    def cast(self, x: Value, dtype: DType) -> Value:
        pair = x.type, dtype
        is_legal = x.type is dtype or pair in self.legal.casts or set(pair) == {f16, f32}
        if is_legal or self.constant_of(x) is not None:
            return super().cast(x, dtype)
        return conversions.convert(Number(self, x), dtype).value

    def random_stream(self, task: int, item: Value) -> Value:
        words = (ops.LaunchConstant(name, results=[Value(u64)]) for name in ("seed", "launch"))
        seed, launch = (self.append(word).result for word in words)
        item_number, *launched = self._numbers(item, seed, launch)
        return random_draws.stream(item_number, task, *launched).value

    def random(self, dtype: DType, stream: Value, draw: Value) -> Value:
        begin, number = self._numbers(stream, draw)
        return random_draws.drawn(begin, number, dtype).value

    def operation(self, op: Operation, operands: list[Value]) -> Value | None:
        """The result of an operation of other operands; None where it has no rules."""
        self._built.clear()
        if isinstance(op, ops.Unary):
            return self.unary(op.fn, *operands)
        if isinstance(op, ops.Binary):
            return self.binary(op.fn, *operands)
        if isinstance(op, ops.Compare):
            return self.compare(op.fn, *operands)
        if isinstance(op, ops.Fma):
            return self.fma(*operands)
        if isinstance(op, ops.Cast):
            return self.cast(operands[0], op.result.type)
        if isinstance(op, ops.RandomStream):
            return self.random_stream(op.task, *operands)
        if isinstance(op, ops.Random):
            return self.random(op.result.type, *operands)
        return None

    def _numbers(self, *values: Value) -> list[Number]:
        return [Number(self, value) for value in values]

    def _by_rule(self, fn: str, *operands: Value) -> Value:
        numbers, dtype = self._numbers(*operands), operands[0].type
        if dtype.is_float and fn in floats.BY_TARGET:
            return floats.BY_TARGET[fn](self.legal, *numbers).value
        if dtype is f16:
            return floats.rule_of_f16(fn)(*numbers).value
        return _RULES[family(dtype)][fn](*numbers).value

    def _once(self, key: tuple[Any, ...], build: Any) -> Value:
        found = self._built.get(key)
        if found is None:
            found = self._built[key] = build(*key)
        return found
