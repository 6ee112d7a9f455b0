"""Multiplies where the program divides by roots, or more than once by the same: `fast_math`.

Before::

    array @x: f32, 1, ndarray, () [primal]
    serial {
      %0: i32 = constant<0>()
      %1: f32 = load<@x, primal>(%0)
      %2: f32 = unary<sqrt>(%1)
      %3: f32 = binary<mul>(%1, %2)
      %4: i32 = constant<1>()
      %5: f32 = load<@x, primal>(%4)
      %6: f32 = binary<div>(%5, %3)
      %7: f32 = binary<add>(%6, %2)
      %8: f32 = binary<div>(%6, %7)
      %9: f32 = binary<div>(%5, %7)
      %10: f32 = binary<mul>(%8, %9)
      store<@x, primal>(%10, %0)
    }

After::

    serial {
      %0: i32 = constant<0>()
      %1: f32 = load<@x, primal>(%0)
      %2: f32 = unary<sqrt>(%1)
      %3: i32 = constant<1>()
      %4: f32 = load<@x, primal>(%3)
      %5: f32 = constant<-1.5>()
      %6: f32 = binary<pow>(%1, %5)
      %7: f32 = binary<mul>(%4, %6)
      %8: f32 = binary<add>(%7, %2)
      %9: f32 = constant<1.0>()
      %10: f32 = binary<div>(%9, %8)
      %11: f32 = binary<mul>(%7, %10)
      %12: f32 = binary<mul>(%4, %10)
      %13: f32 = binary<mul>(%11, %12)
      store<@x, primal>(%13, %0)
    }

Powers become roots and products again in `expand_powers`; until then they have one derivative, and
a simple one. That is done for f32, and before derivatives are taken: so a replay has the operations
of what it replays. A quotient that is rounded to an integer, or compared with something, is left
alone: it may be the number of a cell, and must not fall short of an integer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TypeGuard

from octants.analysis.reachability import reachable
from octants.compile_profile import staged
from octants.ir import ops, reciprocals
from octants.ir.builder import Builder
from octants.ir.core import Block, Module, Operation, Value
from octants.ir.ops.arithmetic import ROUNDINGS
from octants.ir.rewriting import rewrite
from octants.simplify import simplify
from octants.types.scalars import f32

_MOST = 5
"""Roots in a divisor: each adds its error."""
_DEPTH = 3
"""Products of products that are looked into for roots."""

_ADDED = ("add", "sub", "min", "max")
_ROUNDED = ("floordiv", "mod", "truncdiv", "truncmod")

Power = tuple[Value, int]
"""A base, and how many times its root is a factor."""


@staged("relax_divisions")
def relax_divisions(module: Module) -> None:
    """Relax them in every task, in place."""
    changed = [_Relaxing(task.body).run() for task in module.tasks]
    if any(changed):
        simplify(module)


class _Relaxing:
    """The facts about the body of a task while it is rewritten."""

    def __init__(self, body: Block) -> None:
        self._body = body
        self._definitions = {op.results[0]: op for op in body.walk() if len(op.results) == 1}
        self._constants = ops.constants_in(body)
        self._deciding = deciding(body)

    def run(self) -> bool:
        """Whether there was anything to change."""
        found: dict[Operation, Power] = {}
        for block in blocks_in(self._body):
            divisors = self._divisors(block)
            divisions = (op for op in block.ops if may_change(op, self._deciding))
            found |= {op: divisors[op.rhs] for op in divisions if op.rhs in divisors}
        multiply_by_reciprocals(self._body, found)
        return bool(found)

    def _divisors(self, block: Block) -> dict[Value, Power]:
        """The powers whose reciprocals replace divisions, by divisor."""
        counts = Counter(op.rhs for op in block.ops if may_change(op, self._deciding))
        found: dict[Value, Power] = {}
        for divisor, count in counts.items():
            root = self._root_in(divisor)
            halves = self._roots(divisor, root) if root is not None else None
            if root is not None and halves is not None and halves % 2 and halves <= _MOST:
                found[divisor] = root, halves
            elif count > 1 or self._is_known(divisor):
                found[divisor] = divisor, 2
        return found

    def _is_known(self, divisor: Value) -> bool:
        """Whether a divisor is a constant whose reciprocal is normal."""
        op = self._definitions.get(divisor)
        return isinstance(op, ops.Constant) and reciprocals.is_normal(op.value, divisor.type)

    def _root_in(self, value: Value, depth: int = _DEPTH) -> Value | None:
        """The operand of a root that is a factor of a value."""
        op = self._definitions.get(value)
        if isinstance(op, ops.Unary) and op.fn == "sqrt":
            return op.x
        if isinstance(op, ops.Binary) and op.fn == "mul" and depth:
            found = self._root_in(op.lhs, depth - 1)
            return self._root_in(op.rhs, depth - 1) if found is None else found
        return None

    def _roots(self, value: Value, base: Value, depth: int = _DEPTH) -> int | None:
        """How many times the root of a base is a factor; None if others are factors, too."""
        if value is base:
            return 2
        op = self._definitions.get(value)
        if isinstance(op, ops.Unary) and op.fn == "sqrt":
            return 1 if op.x is base else None
        if not isinstance(op, ops.Binary) or op.fn != "mul" or not depth:
            return None
        counts = [self._roots(factor, base, depth - 1) for factor in op.operands]
        return None if None in counts else sum(filter(None, counts))


def blocks_in(body: Block) -> list[Block]:
    """A body, and the blocks in it."""
    return [body, *(region for op in body.walk() for region in op.regions)]


def multiply_by_reciprocals(body: Block, divisions: Mapping[Operation, Power]) -> None:
    """Multiply by a reciprocal of a power in place of dividing; a block computes each once."""
    factors: dict[tuple[Block, Power], Value] = {}

    def multiply(builder: Builder, op: Operation) -> bool:
        if op not in divisions:
            return False
        assert isinstance(op, ops.Binary)
        power = divisions[op]
        key = builder.block, power
        if key not in factors:
            factors[key] = _reciprocal(builder, *power)
        builder.append(ops.Binary("mul", op.lhs, factors[key], results=op.results))
        return True

    if divisions:
        rewrite(body, multiply)


def _reciprocal(builder: Builder, base: Value, halves: int) -> Value:
    if halves == 1:
        return builder.unary("rsqrt", base)
    if halves == 2:
        return builder.binary("div", builder.constant(1.0, base.type), base)
    return builder.binary("pow", base, builder.constant(-halves / 2, base.type))


def may_change(op: Operation, kept: set[Value]) -> TypeGuard[ops.Binary]:
    """Whether an operation divides f32 with a result that is not one of those ``kept``."""
    is_division = isinstance(op, ops.Binary) and op.fn == "div" and op.result.type is f32
    return is_division and op.results[0] not in kept


def deciding(body: Block) -> set[Value]:
    """The values that are rounded to integers, or compared, at once or after additions."""
    sources: dict[Value, list[Value]] = {}
    decided: list[Value] = []
    for op in body.walk():
        if _decides(op):
            decided += op.operands
        elif _adds(op):
            sources[op.results[0]] = op.operands
    return reachable(decided, sources)


def _decides(op: Operation) -> bool:
    if isinstance(op, ops.Unary):
        return op.fn in ROUNDINGS
    if isinstance(op, ops.Binary):
        return op.fn in _ROUNDED
    return isinstance(op, ops.Compare) or (isinstance(op, ops.Cast) and not op.result.type.is_float)


def _adds(op: Operation) -> bool:
    if isinstance(op, ops.Unary):
        return op.fn in ("neg", "abs")
    if isinstance(op, ops.Binary):
        return op.fn in _ADDED
    return isinstance(op, (ops.Select, ops.Cast))
