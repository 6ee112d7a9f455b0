"""The derivatives of the scalar operations: one table, for forward and reverse mode.

A rule is the linear map of one operand. In forward mode it maps the tangent of the operand to its
contribution to the tangent of the result; in reverse mode it maps the adjoint of the result to the
contribution to the adjoint of the operand. For scalars both are the same multiplication.
Conventions where no derivative exists (all finite): |x|' = sign(x), with 0 at 0; sqrt, rsqrt and
cbrt have derivative 0 at 0; at a tie of min and max the first operand is taken; pow(a, b) has
derivative 0 in a where b = 0, and 0 in b where a <= 0; roundings, floor division and comparisons
have derivative 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Operation, Value
from octants.types.scalars import DType, f32, f64


def adjoint_type(dtype: DType) -> DType:
    """The type in which derivatives of a float are computed: f16 ones accumulate in f32."""
    return f64 if dtype is f64 else f32


class Point:
    """Operands and result of the operation to which a rule is applied, in derivative type."""

    __slots__ = ("_builder", "_operands", "_result", "type")

    def __init__(self, builder: Builder, operands: list[Value], result: Value) -> None:
        self._builder = builder
        self._operands = operands
        self._result = result
        self.type = adjoint_type(result.type)

    @property
    def a(self) -> Value:
        return self._builder.cast(self._operands[0], self.type)

    @property
    def b(self) -> Value:
        return self._builder.cast(self._operands[1], self.type)

    @property
    def y(self) -> Value:
        return self._builder.cast(self._result, self.type)

    @property
    def condition(self) -> Value:
        return self._operands[0]

    def number(self, value: float) -> Value:
        return self._builder.constant(value, self.type)

    def add(self, a: Value, b: Value) -> Value:
        return self._builder.binary("add", a, b)

    def sub(self, a: Value, b: Value) -> Value:
        return self._builder.binary("sub", a, b)

    def mul(self, a: Value, b: Value) -> Value:
        return self._builder.binary("mul", a, b)

    def div(self, a: Value, b: Value) -> Value:
        return self._builder.binary("div", a, b)

    def neg(self, a: Value) -> Value:
        return self._builder.unary("neg", a)

    def fn(self, name: str, *operands: Value) -> Value:
        build = self._builder.unary if len(operands) == 1 else self._builder.binary
        return build(name, *operands)

    def square(self, a: Value) -> Value:
        return self.mul(a, a)

    def compare(self, fn: str, a: Value, b: Value) -> Value:
        return self._builder.compare(fn, a, b)

    def where(self, condition: Value, on_true: Value, on_false: Value) -> Value:
        return self._builder.select(condition, on_true, on_false)

    def only_if(self, condition: Value, value: Value) -> Value:
        return self.where(condition, value, self.number(0.0))

    def unless(self, condition: Value, value: Value) -> Value:
        return self.where(condition, self.number(0.0), value)

    def is_nonzero(self, value: Value) -> Value:
        return self.compare("ne", value, self.number(0.0))

    def is_positive(self, value: Value) -> Value:
        return self.compare("gt", value, self.number(0.0))


Rule = Callable[[Point, Value], Value]
"""Maps (the operation, an incoming tangent or adjoint) to the outgoing one."""


def _through(_: Point, g: Value) -> Value:
    return g


def _rsqrt(p: Point, g: Value) -> Value:
    cube = p.mul(p.square(p.y), p.y)
    return p.only_if(p.is_positive(p.a), p.mul(g, p.mul(p.number(-0.5), cube)))


def _pow_base(p: Point, g: Value) -> Value:
    power = p.fn("pow", p.a, p.sub(p.b, p.number(1.0)))
    return p.only_if(p.is_nonzero(p.b), p.mul(g, p.mul(p.b, power)))


def _pow_exponent(p: Point, g: Value) -> Value:
    positive = p.is_positive(p.a)
    safe = p.where(positive, p.a, p.number(1.0))
    return p.only_if(positive, p.mul(g, p.mul(p.y, p.fn("log", safe))))


def _atan2(p: Point, g: Value, numerator: Value) -> Value:
    """The numerator over the sum of squares, scaled so that these neither over- nor underflow.

    Large operands are scaled after the division and small ones before it, so that neither the
    numerator nor the quotient underflows unless the derivative does.
    """
    size = p.add(p.fn("abs", p.a), p.fn("abs", p.b))
    down, up = (2.0**-513, 2.0**508) if p.type is f64 else (2.0**-65, 2.0**60)
    is_large, one = p.compare("gt", size, p.number(8.0)), p.number(1.0)
    scale = p.where(is_large, p.number(down), p.number(up))
    norm = p.add(p.square(p.mul(scale, p.a)), p.square(p.mul(scale, p.b)))
    quotient = p.div(p.mul(p.where(is_large, one, p.number(up * up)), numerator), norm)
    after = p.where(is_large, p.number(down), one)
    return p.only_if(p.is_positive(norm), p.mul(g, p.mul(after, p.mul(after, quotient))))


def _one_minus_square(p: Point) -> Value:
    """``1 - a**2`` without cancellation near one."""
    return p.mul(p.sub(p.number(1.0), p.a), p.add(p.number(1.0), p.a))


def _inverse_hyperbolic(p: Point, g: Value, square: Value) -> Value:
    """``g / sqrt(square)``, where the square would overflow by the root that it approaches."""
    size = p.fn("abs", p.a)
    is_large = p.compare("gt", size, p.number(2.0**60))
    return p.div(g, p.where(is_large, size, p.fn("sqrt", square)))


def _first(fn: str) -> Rule:
    """min and max: whether the first operand is the one taken; a NaN is not."""

    def taken(p: Point, g: Value) -> Value:
        second_is_nan = p.compare("ne", p.b, p.b)
        return p.only_if(p.fn("or", p.compare(fn, p.a, p.b), second_is_nan), g)

    return taken


def _second(fn: str) -> Rule:
    def taken(p: Point, g: Value) -> Value:
        second_is_nan = p.compare("ne", p.b, p.b)
        return p.unless(p.fn("or", p.compare(fn, p.a, p.b), second_is_nan), g)

    return taken


def _scaled_log(base: float) -> Rule:
    return lambda p, g: p.div(g, p.mul(p.a, p.number(math.log(base))))


_UNARY: dict[str, Rule] = {
    "neg": lambda p, g: p.neg(g),
    "abs": lambda p, g: p.mul(g, p.fn("sign", p.a)),
    "sqrt": lambda p, g: p.only_if(p.is_positive(p.y), p.div(p.mul(p.number(0.5), g), p.y)),
    "rsqrt": _rsqrt,
    "cbrt": lambda p, g: p.only_if(
        p.is_nonzero(p.y), p.div(g, p.mul(p.number(3.0), p.square(p.y)))
    ),
    "sin": lambda p, g: p.mul(g, p.fn("cos", p.a)),
    "cos": lambda p, g: p.neg(p.mul(g, p.fn("sin", p.a))),
    "cos_beside_sin": lambda p, g: p.neg(p.mul(g, p.fn("sin", p.a))),
    "tan": lambda p, g: p.mul(g, p.add(p.number(1.0), p.square(p.y))),
    "asin": lambda p, g: p.div(g, p.fn("sqrt", _one_minus_square(p))),
    "acos": lambda p, g: p.neg(p.div(g, p.fn("sqrt", _one_minus_square(p)))),
    "atan": lambda p, g: p.div(g, p.add(p.number(1.0), p.square(p.a))),
    "sinh": lambda p, g: p.mul(g, p.fn("cosh", p.a)),
    "cosh": lambda p, g: p.mul(g, p.fn("sinh", p.a)),
    "tanh": lambda p, g: p.mul(g, p.sub(p.number(1.0), p.square(p.y))),
    "asinh": lambda p, g: _inverse_hyperbolic(p, g, p.add(p.square(p.a), p.number(1.0))),
    "acosh": lambda p, g: _inverse_hyperbolic(p, g, p.neg(_one_minus_square(p))),
    "atanh": lambda p, g: p.div(g, _one_minus_square(p)),
    "exp": lambda p, g: p.mul(g, p.y),
    "exp2": lambda p, g: p.mul(g, p.mul(p.y, p.number(math.log(2.0)))),
    "expm1": lambda p, g: p.mul(g, p.fn("exp", p.a)),
    "log": lambda p, g: p.div(g, p.a),
    "log2": _scaled_log(2.0),
    "log10": _scaled_log(10.0),
    "log1p": lambda p, g: p.div(g, p.add(p.number(1.0), p.a)),
    "erf": lambda p, g: p.mul(
        g, p.mul(p.number(2.0 / math.sqrt(math.pi)), p.fn("exp", p.neg(p.square(p.a))))
    ),
}

_BINARY: dict[str, tuple[Rule | None, Rule | None]] = {
    "add": (_through, _through),
    "sub": (_through, lambda p, g: p.neg(g)),
    "mul": (lambda p, g: p.mul(g, p.b), lambda p, g: p.mul(g, p.a)),
    "div": (
        lambda p, g: p.div(g, p.b),
        lambda p, g: p.neg(p.div(p.mul(p.div(g, p.b), p.a), p.b)),
    ),
    "approximate_div": (
        lambda p, g: p.fn("approximate_div", g, p.b),
        lambda p, g: p.neg(
            p.fn("approximate_div", p.mul(p.fn("approximate_div", g, p.b), p.a), p.b)
        ),
    ),
    "mod": (_through, lambda p, g: p.neg(p.mul(g, p.fn("floor", p.div(p.a, p.b))))),
    "truncmod": (_through, lambda p, g: p.neg(p.mul(g, p.fn("trunc", p.div(p.a, p.b))))),
    "pow": (_pow_base, _pow_exponent),
    "atan2": (lambda p, g: _atan2(p, g, p.b), lambda p, g: p.neg(_atan2(p, g, p.a))),
    "min": (_first("le"), _second("le")),
    "max": (_first("ge"), _second("ge")),
}

_SQUARE: tuple[Rule | None, ...] = (lambda p, g: p.mul(p.add(g, g), p.a), None)

_FMA: tuple[Rule | None, ...] = (*_BINARY["mul"], _through)

_SELECT: tuple[Rule | None, ...] = (
    None,
    lambda p, g: p.only_if(p.condition, g),
    lambda p, g: p.unless(p.condition, g),
)


def rules_of(op: Operation) -> tuple[Rule | None, ...]:
    """The rule of each operand of a scalar operation; None where the derivative is zero."""
    if not op.results or not op.results[0].type.is_float:
        return (None,) * len(op.operands)
    if isinstance(op, ops.Unary):
        return (_UNARY.get(op.fn),)
    if isinstance(op, ops.Binary):
        if op.fn == "mul" and op.lhs is op.rhs:
            return _SQUARE
        return _BINARY.get(op.fn, (None, None))
    if isinstance(op, ops.Fma):
        return (*_SQUARE, _through) if op.x is op.y else _FMA
    if isinstance(op, ops.Select):
        return _SELECT
    if isinstance(op, ops.Cast) and op.x.type.is_float:
        return (_through,)
    return (None,) * len(op.operands)


def has_unbounded_derivative(op: Operation) -> bool:
    """Whether a rule of the operation may give an infinity or a NaN for a zero adjoint."""
    if isinstance(op, ops.Unary):
        return op.fn not in ("neg", "abs", "sin", "cos", "atan", "tanh")
    if isinstance(op, ops.Fma):
        return True
    return isinstance(op, ops.Binary) and op.fn not in ("add", "sub", "min", "max")
