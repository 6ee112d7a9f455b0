"""Adds constants after scaled sums instead of before, where fewer additions do: `fast_math`.

Before::

    kernel @k
    array @x: f32, 1, ndarray, () [primal]
    serial @k_0 {
      %0: i32 = constant<0>()
      %1: i32 = constant<1>()
      %2: f32 = load<@x, primal>(%0)
      %3: f32 = constant<2.0>()
      %4: f32 = constant<0.5>()
      %5: f32 = unary<sin>(%2)
      %6: f32 = fma(%5, %2, %2)
      %7: f32 = binary<add>(%6, %3)
      %8: f32 = fma(%4, %7, %2)
      %9: f32 = fma(%8, %8, %8)
      %10: f32 = binary<add>(%9, %3)
      %11: f32 = fma(%4, %10, %2)
      store<@x, primal>(%8, %0)
      store<@x, primal>(%11, %1)
      yield()
    }

After::

    kernel @k
    array @x: f32, 1, ndarray, () [primal]
    serial @k_0 {
      %0: i32 = constant<0>()
      %1: i32 = constant<1>()
      %2: f32 = load<@x, primal>(%0)
      %3: f32 = constant<2.0>()
      %4: f32 = constant<0.5>()
      %5: f32 = unary<sin>(%2)
      %6: f32 = fma(%5, %2, %2)
      %7: f32 = constant<1.0>()
      %8: f32 = binary<add>(%2, %7)
      %9: f32 = fma(%4, %6, %8)
      %10: f32 = fma(%9, %9, %9)
      %11: f32 = fma(%4, %10, %8)
      store<@x, primal>(%9, %0)
      store<@x, primal>(%11, %1)
      yield()
    }

A constant is added to a sum, and that is scaled and added to something else: then the constant may
be scaled and added to that something, where several such sums have it in common. The stages of a
Runge-Kutta method are like that. It is only done with sums that have been rounded already, to whose
size the error is what it was: a difference of two numbers that are exact keeps all its digits.
"""

from __future__ import annotations

import math

from octants.ir import ops
from octants.ir.core import Block, Module, Operation, Value, rebuild
from octants.types.scalars import convert, f32, f64

Term = tuple[Value, float]
"""A value, and what it is multiplied by."""


def defer_constants(module: Module) -> None:
    """Rewrite each block in which that saves additions, in place."""
    for task in module.tasks:
        constants: dict[Value, float] = {}
        users: dict[Value, list[Operation]] = {}
        blocks = [task.body]
        for op in task.body.walk():
            blocks += op.regions
            if isinstance(op, ops.Constant) and op.result.type in (f32, f64):
                constants[op.result] = op.value
            for value in op.operands:
                users.setdefault(value, []).append(op)
        for block in blocks:
            _Deferrer(block, constants, users).rewrite()


class _Deferrer:
    """Rewrites a block; `owed` is what is still to be added to some of its values."""

    def __init__(
        self,
        block: Block,
        constants: dict[Value, float],
        users: dict[Value, list[Operation]],
    ) -> None:
        self._block, self._constants, self._users = block, constants, users
        self._makers = {value: op for op in block.ops for value in op.results}
        self._may_owe: set[Value] = set()
        self._owed: dict[Value, float] = {}
        self._without: dict[Value, Value] = {}
        self._paid: dict[Term, Value] = {}
        self._ops: list[Operation] = []

    def rewrite(self) -> None:
        """Do it if there are fewer additions afterwards."""
        if not any(self._constant_of(op) is not None for op in self._block.ops):
            return
        inside = set(self._block.ops)
        for op in reversed(self._block.ops):
            if self._terms(op) and self._do_without(op.result, inside):
                self._may_owe.add(op.result)
        starts = 0
        for op in self._block.ops:
            constant = self._constant_of(op)
            if constant is not None and op.result in self._may_owe:
                starts += 1
                self._start(op, constant)
            elif self._owed.keys().isdisjoint(op.operands):
                self._ops.append(op)
            else:
                self._carry_on(op)
        if len(self._paid) < starts:
            self._block.ops[:] = self._ops

    # -- what may be deferred ---------------------------------------------------------------------

    def _constant_of(self, op: Operation) -> Value | None:
        """The constant that an operation adds to what has been rounded."""
        if not isinstance(op, ops.Binary) or op.fn != "add":
            return None
        for sum_, constant in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
            if constant in self._constants and math.isfinite(self._constants[constant]):
                maker = self._makers.get(sum_)
                is_rounded = isinstance(maker, ops.Fma)
                if isinstance(maker, ops.Binary):
                    is_rounded = maker.fn in ("add", "sub", "mul")
                return constant if is_rounded else None
        return None

    def _terms(self, op: Operation) -> list[Term]:
        """What an operation adds up, as far as it does only that."""
        if isinstance(op, ops.Unary):
            return [(op.x, -1.0)] if op.fn == "neg" else []
        if isinstance(op, ops.Fma):
            return [*self._product(op.x, op.y), (op.z, 1.0)]
        if isinstance(op, ops.Binary) and op.fn in ("add", "sub"):
            return [(op.lhs, 1.0), (op.rhs, 1.0 if op.fn == "add" else -1.0)]
        if isinstance(op, ops.Binary) and op.fn == "mul":
            return self._product(op.lhs, op.rhs)
        return []

    def _product(self, x: Value, y: Value) -> list[Term]:
        known = self._constants
        return [(x, known[y])] if y in known else [(y, known[x])] if x in known else []

    def _do_without(self, value: Value, inside: set[Operation]) -> bool:
        """Whether all who use a value can do so before everything has been added to it.

        They are sums to which it can be added later, or those that can have it from another term.
        """
        users = self._users.get(value, [])
        return bool(users) and all(
            op in inside
            and op.operands.count(value) == [each for each, _ in self._terms(op)].count(value)
            and (op.result in self._may_owe or (isinstance(op, ops.Fma) and op.z is not value))
            for op in users
        )

    # -- how --------------------------------------------------------------------------------------

    def _start(self, op: Operation, constant: Value) -> None:
        """Leave out an addition."""
        (rest,) = (value for value in op.operands if value is not constant)
        self._without[op.result] = self._without.get(rest, rest)
        self._owed[op.result] = self._owed.get(rest, 0.0) + self._constants[constant]

    def _carry_on(self, op: Operation) -> None:
        """Build an operation of values to which something is still to be added."""
        terms = self._terms(op)
        owed = sum(factor * self._owed.get(value, 0.0) for value, factor in terms)
        given = [self._without.get(value, value) for value in op.operands]
        if op.result in self._may_owe:
            self._owed[op.result] = owed
        else:
            given[2] = self._pay(given[2], owed, op)
        self._ops.append(rebuild(op, given, results=op.results))

    def _pay(self, value: Value, owed: float, op: Operation) -> Value:
        """Add to a value, once, what sums lack that are added to it."""
        owed = convert(owed, value.type)
        if (value, owed) not in self._paid:
            constant, total = Value(value.type), Value(value.type)
            self._ops += [
                ops.Constant(owed, results=[constant], location=op.location),
                ops.Binary("add", value, constant, results=[total], location=op.location),
            ]
            self._paid[value, owed] = total
        return self._paid[value, owed]
