"""Operations on scalars: pure, the same on every backend, defined by `ir.scalar_semantics`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octants.ir.core import (
    Block,
    InvalidIR,
    Module,
    Operation,
    Task,
    Value,
    attribute,
    operand,
    operands,
    operation,
)

FLOAT_FUNCTIONS = frozenset(
    "sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp exp2 expm1 log log2"
    " log10 log1p cbrt erf".split()
)
SLOPES = frozenset(("cos_beside_sin",))
"""Functions of which derivatives are made, where less will do than the usual function gives."""

ESTIMATES = frozenset(("sin_estimate", "cos_estimate", "exp2_estimate"))
"""Functions of f32 that some machines have an instruction for, to some digits: lowered code."""

BOUNDED = {f"{fn}_bounded": fn for fn in ("sin", "cos", "cos_beside_sin", "tan")}
"""Functions of angles that surely need no slow path (see `passes.arithmetic.bound_angles`)."""

SINES = frozenset(
    ("sin", "cos", "cos_beside_sin", "sin_bounded", "cos_bounded", "cos_beside_sin_bounded")
)
"""Sines and cosines: bounded, and slow for huge angles unless these are bounded."""

ROUNDINGS = frozenset(("floor", "ceil", "round", "trunc"))
BIT_COUNTS = frozenset(("popcount", "clz"))
UNARY = FLOAT_FUNCTIONS | SLOPES | ROUNDINGS | BIT_COUNTS | {"neg", "abs", "sign", "not"}

QUOTIENTS = frozenset(("approximate_div",))
"""The functions that some machines have an instruction for, to some digits."""

FLOAT_ONLY = frozenset(("div", "atan2", "mul_error"))
BITWISE = frozenset(("and", "or", "xor"))
SHIFTS = frozenset(("shl", "shr", "ushr"))
ARITHMETIC = frozenset(
    ("add", "sub", "mul", "floordiv", "mod", "truncdiv", "truncmod", "pow", "min", "max")
)
BINARY = FLOAT_ONLY | BITWISE | SHIFTS | ARITHMETIC
PARTIAL = frozenset(("quotient", "remainder", "lsl", "lsr", "asr"))
"""Functions of integers as machines have them, defined for some operands only: lowered code."""

COMPARE = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))


def _once(check: Callable[[Any], None]) -> Callable[[Any], None]:
    """Check each function with each combination of types only once, for `Operation.verify`."""
    known: set[tuple[Any, ...]] = set()

    def verify(self: Any) -> None:
        signature = (self.fn, self.results[0].type, *[value.type for value in self.operands])
        if signature not in known:
            check(self)
            known.add(signature)

    return verify


class Pure(Operation):
    """The base of operations whose results depend on their operands and attributes alone."""

    __slots__ = ()
    is_pure = True
    is_scalar = True
    is_speculatable = True


@operation("constant")
class Constant(Pure):
    """``%0: f32 = constant<0.5>()``"""

    value: Any = attribute()

    def verify(self) -> None:
        if self.result.type.is_bool != isinstance(self.value, bool):
            raise InvalidIR(f"constant {self.value!r} of type {self.result.type}")


def constants_in(code: Block | Module) -> dict[Value, Any]:
    """The numbers that the constants of a block and its regions are, or those of a module."""
    return {op.result: op.value for op in code.walk() if isinstance(op, Constant)}


def known_work_items(task: Task) -> int | None:
    """The number of work items, if both ends of a domain are constants; a serial task has one."""
    if task.domain is None:
        return 1
    numbers = constants_in(task.domain)
    lower, upper = (numbers.get(value) for value in task.domain.yielded[:2])
    return None if lower is None or upper is None else max(0, int(upper - lower))


def has_few_items(task: Task, most: int) -> bool:
    """Whether a task is known to have work items, and at most so many."""
    return 0 < (known_work_items(task) or 0) <= most


@operation("unary")
class Unary(Pure):
    """``%1: f32 = unary<sin>(%0)``; the result has the type of the operand.

    `round` goes to the even neighbour at a tie; `sign(0)` is 0; `not` is bitwise, logical on u1.
    `cos_beside_sin` is the cosine, which may share the work of the sine of the same number.
    """

    fn: str = attribute()
    x: Value = operand()

    @_once
    def verify(self) -> None:
        _require(self.fn in UNARY | ESTIMATES | BOUNDED.keys(), f"no unary function {self.fn}")
        _require(self.result.type is self.x.type, f"unary {self.fn} changes the type")
        dtype = self.x.type
        if self.fn in FLOAT_FUNCTIONS | SLOPES | ESTIMATES | BOUNDED.keys():
            _require(dtype.is_float, f"{self.fn} of {dtype}")
        elif self.fn in BIT_COUNTS:
            _require(dtype.is_integer, f"{self.fn} of {dtype}")
        elif self.fn == "not":
            _require(not dtype.is_float, f"not of {dtype}")
        else:
            _require(not dtype.is_bool, f"{self.fn} of u1")


@operation("binary")
class Binary(Pure):
    """``%2: f32 = binary<add>(%0, %1)``; operands and result have one type.

    `floordiv` and `mod` are Python's, `truncdiv` and `truncmod` C's. An integer divided by zero
    gives 0 and leaves the dividend as the remainder; INT_MIN // -1 wraps. `shr` keeps the sign,
    `ushr` does not; shift counts are taken modulo the width. `min` and `max` ignore a NaN, and
    give the first operand of two equal ones (of -0.0 and 0.0). An
    integer power with a negative exponent is the power in exact arithmetic, truncated towards zero.
    `mul_error` is what the rounding of `mul` has taken away: a * b - mul(a, b), rounded once.
    `approximate_div` is a quotient of f32 to two units of the last digit (see
    `passes.arithmetic.approximate_quotients`).

    `quotient` and `remainder` are `truncdiv` and `truncmod` where the divisor is not zero and the
    quotient fits the type; `lsl`, `asr` and `lsr` are `shl`, `shr` and `ushr` by less than the
    width. Only `octants.lowering` builds these.
    """

    fn: str = attribute()
    lhs: Value = operand()
    rhs: Value = operand()

    @_once
    def verify(self) -> None:
        dtype = self.lhs.type
        _require(self.fn in BINARY | PARTIAL | QUOTIENTS, f"no binary function {self.fn}")
        _require(dtype is self.rhs.type, f"{self.fn} of {dtype} and {self.rhs.type}")
        _require(dtype is self.result.type, f"{self.fn} of {dtype} gives {self.result.type}")
        if self.fn in FLOAT_ONLY | QUOTIENTS:
            _require(dtype.is_float, f"{self.fn} of {dtype}")
        if self.fn in SHIFTS or self.fn in PARTIAL:
            _require(dtype.is_integer, f"{self.fn} of {dtype}")
        if self.fn in BITWISE:
            _require(not dtype.is_float, f"{self.fn} of {dtype}")
        if self.fn in ARITHMETIC:
            _require(not dtype.is_bool, f"{self.fn} of u1")


@operation("fma")
class Fma(Pure):
    """``%3: f32 = fma(%0, %1, %2)``: %0 * %1 + %2, rounded once; of f32 or f64."""

    x: Value = operand()
    y: Value = operand()
    z: Value = operand()

    def verify(self) -> None:
        dtype = self.result.type
        _require(dtype.is_float and dtype.bits >= 32, f"fma of {dtype}")
        _require(self.x.type is self.y.type is self.z.type is dtype, "fma mixes types")


@operation("compare")
class Compare(Pure):
    """``%2: u1 = compare<lt>(%0, %1)``; a NaN is unequal to everything."""

    fn: str = attribute()
    lhs: Value = operand()
    rhs: Value = operand()

    @_once
    def verify(self) -> None:
        _require(self.fn in COMPARE, f"no comparison {self.fn}")
        _require(self.lhs.type is self.rhs.type, f"{self.lhs.type} against {self.rhs.type}")
        _require(self.result.type.is_bool, "a comparison gives u1")


@operation("select")
class Select(Pure):
    """``%3: f32 = select(%c, %0, %1)``: both operands are evaluated, one is taken."""

    condition: Value = operand()
    on_true: Value = operand()
    on_false: Value = operand()

    def verify(self) -> None:
        _require(self.condition.type.is_bool, "select on a value that is not u1")
        _require(self.on_true.type is self.on_false.type is self.result.type, "select mixes types")


@operation("cast")
class Cast(Pure):
    """``%1: i32 = cast(%0)``, as `types.scalars.convert`: integers wrap, floats saturate.

    To u1: whether the operand is not zero.
    """

    x: Value = operand()


@operation("bitcast")
class Bitcast(Pure):
    """``%1: i32 = bitcast(%0)``: the same bits, read as another type of the same width."""

    x: Value = operand()

    def verify(self) -> None:
        _require(self.x.type.bits == self.result.type.bits, "bitcast changes the width")


@operation("random_stream")
class RandomStream(Operation):
    """``%1: u64 = random_stream<2>(%item)``: where the draws of a work item begin.

    A function of the seed, the launch, the task and the work item (i32 or i64); see
    `ir.random_draws`.
    """

    is_scalar = True
    is_costly = True

    task: int = attribute()
    item: Value = operand()


@operation("random")
class Random(Pure):
    """``%2: f32 = random(%stream, %draw)``: a uniform draw of a stream, by its number (i32).

    A float is in [0, 1), an integer covers its range.
    """

    stream: Value = operand()
    draw: Value = operand()


@operation("call")
class Call(Operation):
    """``%2: i32 = call<integer_power>(%0, %1)``: a function of `octants.mathlib`.

    It is that of the name and of the type of the first operand. Only lowered code has these.
    """

    is_pure = True
    is_scalar = True
    is_costly = True

    fn: str = attribute()
    given: list[Value] = operands()


@operation("float_to_int")
class FloatToInt(Operation):
    """``%1: i32 = float_to_int(%0)``: towards zero, of a float whose whole part the type can hold.

    Only lowered code has these.
    """

    is_pure = True
    is_scalar = True

    x: Value = operand()

    def verify(self) -> None:
        _require(self.x.type.is_float, f"float_to_int of {self.x.type}")
        _require(self.result.type.is_integer, f"float_to_int gives {self.result.type}")


@operation("launch_constant")
class LaunchConstant(Operation):
    """``%0: u64 = launch_constant<seed>()``: the seed, or the number (launch), of a launch.

    Only lowered code has these.
    """

    is_scalar = True
    is_speculatable = True

    name: str = attribute()


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidIR(message)
