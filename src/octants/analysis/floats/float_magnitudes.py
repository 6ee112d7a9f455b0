"""Bounds the magnitudes of floats in the iterations of a loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octants.analysis.floats.float_ranges import ANY, Range, magnitude, result_range
from octants.ir import ops
from octants.ir.core import Operation, Value


class Magnitudes:
    """The magnitudes in a loop.

    Args:
        loop: the loop.
        constants: the numbers that constant values around it and in it hold.
    """

    def __init__(self, loop: ops.For, constants: Mapping[Value, Any]) -> None:
        self._loop, self._constants = loop, constants
        self._makers = {value: op for op in loop.body.ops for value in op.results}

    def later(self, value: Value) -> float:
        """The largest magnitude of a float after the first iteration; infinite if it is unknown.

        The operands of sines and cosines count as finite.
        """
        args = self._loop.body.args[1:]
        first: dict[Value, Range] = {}
        carried = {
            arg: self._range_of(end, first)
            for arg, end in zip(args, self._loop.body.yielded, strict=True)
        }
        return magnitude(self._range_of(value, carried))

    def _range_of(self, value: Value, known: dict[Value, Range]) -> Range:
        if value not in known:
            known[value] = ANY  # until it is known
            constant = self._constants.get(value)
            known[value] = (
                result_range(self._makers.get(value), lambda each: self._range_of(each, known))
                if constant is None
                else (constant, constant)
            )
        return known[value]

    # -- values that follow the counter -----------------------------------------------------------

    def is_steady(self, value: Value) -> bool:
        """Whether a float is monotonic in the counter, if it is a number at all.

        So its magnitude is largest in the first or the last of some iterations.
        """
        op = self._makers.get(value)
        if isinstance(op, ops.Cast):
            return self._range(op.x) is not None
        if isinstance(op, ops.Unary):
            return op.fn == "neg" and self.is_steady(op.x)
        if isinstance(op, ops.Binary) and op.fn in ("add", "sub", "mul"):
            return self._is_one_steady([op.lhs, op.rhs])
        if isinstance(op, ops.Fma):
            return self._is_fixed(op.z) and self._is_one_steady([op.x, op.y])
        return False

    def step(self, value: Value, most: int) -> int:
        """1 or -1 if an integer goes up or down with the counter, within ``most``; else 0."""
        found = self._range(value)
        if found is None or max(map(abs, found)) > most:
            return 0
        return 1 if found[1] >= found[0] else -1

    def _is_one_steady(self, values: list[Value]) -> bool:
        steady = [value for value in values if not self._is_fixed(value)]
        return len(steady) == 1 and self.is_steady(steady[0])

    def _is_fixed(self, value: Value) -> bool:
        if value in self._loop.body.args:
            return False
        return isinstance(self._makers.get(value), (ops.Constant, type(None)))

    def _range(self, value: Value) -> tuple[int, int] | None:
        """The first and last values of an integer that follows the counter; None if it may not."""
        found = self._ends(value)
        bits = value.type.bits - 1
        return found if found and -(1 << bits) <= min(found) and max(found) < 1 << bits else None

    def _ends(self, value: Value) -> tuple[int, int] | None:
        op: Operation | None = self._makers.get(value)
        loop = self._loop
        if value is loop.body.args[0]:
            lower, upper = (self._constants.get(each) for each in (loop.lower, loop.upper))
            if lower is None or upper is None:  # no wrapping: the counter itself
                bits = value.type.bits - 1
                return -(1 << bits), (1 << bits) - 1
            return lower, upper
        if value.type.is_float or not value.type.is_signed:
            return None
        if isinstance(op, ops.Cast):
            return None if op.x.type.is_float else self._range(op.x)
        if isinstance(op, ops.Binary) and op.fn in ("add", "sub"):
            known = [self._constants.get(each) for each in (op.lhs, op.rhs)]
            lhs = (known[0],) * 2 if known[0] is not None else self._range(op.lhs)
            rhs = (known[1],) * 2 if known[1] is not None else self._range(op.rhs)
            if known.count(None) == 1 and lhs and rhs:
                sign = 1 if op.fn == "add" else -1
                return lhs[0] + sign * rhs[0], lhs[1] + sign * rhs[1]
        return None
