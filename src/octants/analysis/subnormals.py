"""Finds where instructions may flush subnormal numbers: f32 values that are surely none, and tasks.

These values may be zero, infinite or NaN. If a constant c that is not tiny is added to anything,
the sum is c or larger, or zero, or a multiple of the last digit of a smaller number that is about
-c. A sum of non-negative numbers with a positive one, or the greater of them, is at least as large
as that.
"""

from __future__ import annotations

from octants.ir import ops
from octants.ir.core import Block, Companion, Operation, Task, Value
from octants.types.scalars import f32

_SUMMAND = 2.0**-64
"""The least constant whose sums, rounded once, are zero or above 2**-113."""

_LEAST = 2.0**-120
"""The least bound that counts; the bounds of sums lose next to nothing where they are computed."""

_LINEAR = frozenset(("add", "sub", "mul", "neg", "abs"))
_SMOOTH = frozenset(("sin", "cos", "cos_beside_sin", "tanh", "exp", "exp2", "atan", "erf"))
_NOT_NEGATIVE = frozenset(("abs", "exp", "exp2", "sqrt"))


def normal_numbers(block: Block) -> set[Value]:
    """The f32 values of a block and its regions that are not subnormal."""
    known = _Known()
    for op in block.walk():
        if len(op.results) == 1 and op.results[0].type is f32:
            known.visit(op, op.results[0])
    return known.normal


def may_flush(task: Task) -> bool:
    """Whether subnormal results in a task may be zero, as `fast_math` allows for derivatives.

    The task adds to adjoints, and neither compares floats nor has an operation that makes a large
    number of a small one, such as a quotient, a root or a logarithm, except of integers.
    """
    if not any(_adds_to_adjoint(op) for op in task.body.walk()):
        return False
    of_integers: set[Value] = set()
    for op in task.body.walk():
        if isinstance(op, (ops.Constant, ops.Cast, ops.Unary, ops.Binary)) and all(
            value in of_integers or not value.type.is_float for value in op.operands
        ):
            of_integers.add(op.result)
        elif any(value.type.is_float for value in op.operands) and _may_magnify(op):
            return False
    return True


def _adds_to_adjoint(op: Operation) -> bool:
    return isinstance(op, ops.Write) and op.companion is Companion.ADJOINT


def _may_magnify(op: Operation) -> bool:
    """Whether an operation may differ by much for a float that is zero in place of a tiny one."""
    if isinstance(op, (ops.Unary, ops.Binary)):
        return op.fn not in _LINEAR and op.fn not in _SMOOTH
    return isinstance(op, (ops.Compare, ops.Cast, ops.Bitcast, ops.FloatToInt, ops.Call))


def normal_roots(task: Task) -> set[Value]:
    """The results of 1 / sqrt(x) of f32 in a task's body where x is never subnormal."""
    roots = [op for op in task.body.walk() if isinstance(op, ops.Unary) and op.fn == "rsqrt"]
    normal = normal_numbers(task.body) if roots else set()
    return {op.result for op in roots if op.x in normal}


class _Known:
    """The constants and lower bounds of f32 values, and those that are `normal`."""

    def __init__(self) -> None:
        self.constants: dict[Value, float] = {}
        self.least: dict[Value, float] = {}
        self.normal: set[Value] = set()

    def visit(self, op: Operation, result: Value) -> None:
        if isinstance(op, ops.Constant):
            self.constants[result] = op.value
        least = self._least(op)
        if least is not None:
            self.least[result] = least
        if self._is_sum(op) or (least is not None and least >= _LEAST):
            self.normal.add(result)

    def _is_sum(self, op: Operation) -> bool:
        """Whether a constant is added to something."""
        summands: list[Value] = []
        if isinstance(op, ops.Binary) and op.fn in ("add", "sub"):
            summands = [op.lhs, op.rhs]
        elif isinstance(op, ops.Fma):
            summands = [op.z]
        return any(abs(self.constants.get(value, 0.0)) >= _SUMMAND for value in summands)

    def _least(self, op: Operation) -> float | None:
        """A non-negative lower bound of a result, unless it is NaN."""
        if isinstance(op, ops.Constant):
            return op.value if op.value >= 0 else None
        if isinstance(op, ops.Unary):
            return 0.0 if op.fn in _NOT_NEGATIVE else None
        if isinstance(op, ops.Fma):
            return self._sum(self._product(op.x, op.y), self.least.get(op.z))
        if not isinstance(op, ops.Binary):
            return None
        if op.fn == "mul":
            return self._product(op.lhs, op.rhs)
        bounds = [self.least.get(value) for value in (op.lhs, op.rhs)]
        if op.fn == "add":
            return self._sum(*bounds)
        return self._greater(op, bounds) if op.fn == "max" else None

    def _greater(self, op: ops.Binary, bounds: list[float | None]) -> float | None:
        """The bound of a maximum: if one side is NaN, the other one is the result."""
        constants = [
            value for x in (op.lhs, op.rhs) if (value := self.constants.get(x)) is not None
        ]
        found = [bound for bound in bounds if bound is not None]
        candidates = [value for value in constants if value >= 0]
        return max([*candidates, *([min(found)] if len(found) == 2 else [])], default=None)

    def _product(self, x: Value, y: Value) -> float | None:
        both = x in self.least and y in self.least
        return 0.0 if both or x is y else None

    def _sum(self, one: float | None, other: float | None) -> float | None:
        return None if one is None or other is None else one + other
