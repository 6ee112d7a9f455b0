"""Finds where instructions may flush subnormal numbers: f32 values that are surely none, and tasks.

These values may be zero, infinite or NaN. If a constant c that is not tiny is added to anything,
the sum is c or larger, or zero, or a multiple of the last digit of a smaller number that is about
-c. A sum of non-negative numbers with a positive one, or the greater of them, is at least as large
as that.
"""

from __future__ import annotations

from octants.analysis.reachability import reachable
from octants.ir import ops
from octants.ir.core import Block, Companion, Operation, Record, Space, Task, Value
from octants.types.scalars import f32

_SUMMAND = 2.0**-64
"""The least constant whose sums, rounded once, are zero or above 2**-113."""

_LEAST = 2.0**-120
"""The least bound that counts; the bounds of sums lose next to nothing where they are computed."""

_LINEAR = frozenset(("add", "sub", "mul", "neg", "abs"))
_ODD = frozenset(("sin", "tanh", "atan", "erf"))
_SMOOTH = _ODD | {"cos", "cos_beside_sin", "exp", "exp2"}
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
    number of a small one, except of integers: a quotient, a root, a logarithm or the like, or a
    product with a product that may be subnormal.
    """
    if not any(_adds_to_adjoint(op) for op in task.body.walk()):
        return False
    products = _Products(task.body)
    for op in task.body.walk():
        if products.is_of_integers(op):
            products.note_of_integers(op)
        elif _may_magnify(op) and any(value.type.is_float for value in op.operands):
            return False
        else:
            products.visit(op)
    return not products.may_magnify()


def _adds_to_adjoint(op: Operation) -> bool:
    return isinstance(op, ops.Write) and op.companion is Companion.ADJOINT


def _may_magnify(op: Operation) -> bool:
    """Whether an operation may differ by much for a float that is zero in place of a tiny one."""
    if isinstance(op, (ops.Unary, ops.Binary)):
        return op.fn not in _LINEAR and op.fn not in _SMOOTH
    return isinstance(op, (ops.Compare, ops.Cast, ops.Bitcast, ops.FloatToInt, ops.Call))


class _Products:
    """Finds products that may be subnormal while a product with another factor is not.

    In ``G * m * M * x * x`` the product of G and m may be that small, and so may a derivative.
    Integers, cosines and most constants are `plain` factors, neither large nor small. An adjoint
    that a loop carries counts as normal: to flush those of contracting loops is the purpose.
    """

    def __init__(self, block: Block) -> None:
        self._pushes: dict[Record, list[ops.RecordPush]] = {}
        for op in block.walk():
            if isinstance(op, ops.RecordPush):
                self._pushes.setdefault(op.record, []).append(op)
        self._of_integers: set[Value] = set()
        self._plain: set[Value] = set()
        self._pairs: list[tuple[Value, Value]] = []
        self._small: list[Value] = []
        self._carried: list[Value] = []
        self._adjoints: list[Value] = []
        self._users: dict[Value, list[Value]] = {}
        self._scaled: set[Value] = set()  # results that are small where an operand is

    def is_of_integers(self, op: Operation) -> bool:
        """Whether an operation makes a number of integers and constants."""
        if not isinstance(op, (ops.Constant, ops.Cast, ops.Unary, ops.Binary)):
            return False
        for value in op.operands:
            if value.type.is_float and value not in self._of_integers:
                return False
        return True

    def note_of_integers(self, op: Operation) -> None:
        """Note the result of an operation that is of integers."""
        self._of_integers.update(op.results)
        if not isinstance(op, ops.Constant) or _SUMMAND < abs(op.value) < 1 / _SUMMAND:
            self._plain.update(op.results)

    def visit(self, op: Operation) -> None:
        """Note what another operation makes of small numbers."""
        self._link(op.operands, op.results)
        if isinstance(op, (ops.Unary, ops.Binary, ops.Fma, ops.Select)):
            self._compute(op, getattr(op, "fn", ""))
        elif isinstance(op, ops.Loop):
            self._carried += [*op.carried, *op.results]
            for sources in (op.inits, op.body.yielded):
                for source, arg, result in zip(sources, op.carried, op.results, strict=True):
                    self._link([source], [arg, result])
        elif isinstance(op, ops.If):
            self._scaled.update(op.results)
            for region in op.regions:
                for source, result in zip(region.yielded, op.results, strict=True):
                    self._link([source], [result])
        elif isinstance(op, ops.Load):
            if op.companion is Companion.ADJOINT:
                self._adjoints.append(op.result)
            elif op.array.space is Space.LOCAL:
                self._small.append(op.result)
        elif isinstance(op, ops.RecordPop):
            pushed = [push.values for push in self._pushes.get(op.record, ())]
            for result, *values in zip(op.results, *pushed, strict=True):
                is_plain = bool(values) and self._plain.issuperset(values)
                (self._plain.add if is_plain else self._small.append)(result)

    def _compute(self, op: ops.Unary | ops.Binary | ops.Fma | ops.Select, fn: str) -> None:
        if fn not in _SMOOTH or fn in _ODD:
            self._scaled.add(op.result)
        if fn.startswith("cos") or (fn not in _SMOOTH and self._plain.issuperset(op.operands)):
            self._plain.add(op.result)
        elif fn == "mul" or isinstance(op, ops.Fma):
            one, other = op.operands[:2]
            self._pairs.append((one, other))
            if one not in self._plain and other not in self._plain:
                self._small.append(op.result)

    def _link(self, sources: list[Value], targets: list[Value]) -> None:
        for source in sources:
            known = self._users.get(source)
            if known is None:
                self._users[source] = [*targets]
            else:
                known += targets

    def may_magnify(self) -> bool:
        """Whether a product that may be subnormal has a factor that may be large."""
        adjoints = reachable(self._adjoints, self._users)
        carried = [value for value in self._carried if value not in adjoints]
        small = reachable([*self._small, *carried], self._users, self._scaled)
        return any(
            one is not other
            and (
                (one in small and other not in self._plain)
                or (other in small and one not in self._plain)
            )
            for one, other in self._pairs
        )


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
