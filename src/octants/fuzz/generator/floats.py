"""Expressions of floats, kept within bounds and away from the edges of domains."""

from __future__ import annotations

from collections.abc import Callable

from octants.fuzz.generator import array_elements, vectors
from octants.fuzz.generator.bounded_expressions import tame, two
from octants.fuzz.generator.context import Context, Expr

LIMIT = 6.0
Maker = Callable[..., "Expr | None"]


def expression(c: Context, depth: int = 2) -> Expr:
    """An expression of the run's float type, at most LIMIT in magnitude."""
    made: Expr = c.choose(depth, SIMPLE, LEAVES, [*OPERATIONS, *c.shared.rows("floats")])
    return tame(c, made, LIMIT)


# -- leaves ----------------------------------------------------------------------------------------


def literal(c: Context, _: int = 0) -> Expr:
    """A number with two digits."""
    value = round(c.rng.uniform(-1.5, 1.5), 2)
    return Expr(f"({value!r})" if value < 0 else repr(value), value, value)


def _variable(c: Context, _: int) -> Expr | None:
    variable = c.recent(c.variables("f"))
    return variable.expr if variable else None


def _table(c: Context, _: int) -> Expr | None:
    """An element of a tuple, by the index of an unrolled loop."""
    indices = [v for v in c.variables("i") if v.name[0] == "q"]
    if not indices:
        return None
    c.note("closure over a tuple")
    return Expr(f"TABLE[{c.pick(indices).name}]", -1.0, 1.0)


def _load(c: Context, _: int) -> Expr | None:
    return array_elements.load(c, "f")


def _component(c: Context, _: int) -> Expr | None:
    variable = c.recent(c.variables("f", None))
    if variable is None:
        return None
    text = variable.name + array_elements.component(c, variable.shape)
    return Expr(text, variable.low, variable.high)


def _from_integer(c: Context, depth: int) -> Expr | None:
    inner = c.whole(min(depth, 1))
    c.note("cast of an i32 to a float")
    if c.chance(0.4):
        factor = round(c.rng.uniform(0.05, 0.3), 2)
        return Expr(f"{factor} * ({inner.text})", factor * inner.low, factor * inner.high)
    text = c.pick(["float({})", "qd.cast({}, FP)", "FP({})"])
    return Expr(text.format(inner.text), inner.low, inner.high)


def _random(c: Context, _: int) -> Expr | None:
    if not c.random_allowed:
        return None
    c.note("random float")
    return Expr(c.pick(["qd.random()", "qd.random(FP)"]), 0.0, 1.0)


def _other_width(c: Context, _: int) -> Expr | None:
    variable = c.recent(c.variables("d"))
    if variable is None:
        return None
    if c.chance(0.3):
        c.note("floats of two widths in one expression")
        return variable.expr
    c.note("cast from another float")
    return Expr(f"qd.cast({variable.name}, FP)", variable.low, variable.high)


SIMPLE: list[tuple[float, Maker]] = [(1.5, literal), (7.0, _variable)]
LEAVES: list[tuple[float, Maker]] = [
    *SIMPLE,
    (0.7, lambda c, _: c.constant(float)),
    (0.7, _table),
    (3.0, _load),
    (2.0, _component),
    (0.8, _from_integer),
    (0.2, _random),
    (0.6, _other_width),
]


# -- operations ------------------------------------------------------------------------------------


def _sum(c: Context, depth: int) -> Expr | None:
    a, b = two(c, depth)
    if c.chance(0.1):
        b = c.whole(0)
        c.note("an i32 and a float in one expression")
    if c.chance(0.6):
        return Expr(f"({a.text} + {b.text})", a.low + b.low, a.high + b.high)
    return Expr(f"({a.text} - ({b.text}))", a.low - b.high, a.high - b.low)


def _product(c: Context, depth: int) -> Expr | None:
    a, b = two(c, depth)
    bound = a.bound * b.bound
    return Expr(f"({a.text}) * ({b.text})", -bound, bound)


_DIVISORS = (-4.0, 1.3, 2.0, 3.0, 7.5)


def _quotient(c: Context, depth: int) -> Expr | None:
    a, b = two(c, depth)
    c.note("division")
    if len(b.text) > 30 and len(b.text) % 2:  # no draw: the rest of the program stays as it was
        c.note("division by a constant")
        divisor = _DIVISORS[len(a.text) % len(_DIVISORS)]
        return Expr(f"({a.text}) / {divisor}", -a.bound, a.bound)
    if len(b.text) > 30 or c.chance(0.5):
        return Expr(f"({a.text}) / (1.2 + qd.abs({b.text}))", -a.bound, a.bound)
    squared = f"({b.text}) * ({b.text})"
    return Expr(f"({a.text}) / (0.7 + {squared})", -2 * a.bound, 2 * a.bound)


def _absolute(c: Context, depth: int) -> Expr | None:
    a = c.floating(depth)
    return Expr(f"{c.pick(['abs', 'qd.abs'])}({a.text})", 0.0, a.bound)


def _negative(c: Context, depth: int) -> Expr | None:
    a = c.floating(depth)
    return Expr(f"(-({a.text}))", -a.high, -a.low)


def _extremum(c: Context, depth: int) -> Expr | None:
    a, b = two(c, depth)
    name = c.pick(["qd.min", "qd.max", "min", "max"])
    c.note("min or max")
    low, high = min(a.low, b.low), max(a.high, b.high)
    if c.chance(0.2):
        return Expr(f"{name}({a.text}, {b.text}, {literal(c).text})", low - 1.5, high + 1.5)
    return Expr(f"{name}({a.text}, {b.text})", low, high)


def _power(c: Context, depth: int) -> Expr | None:
    a = tame(c, c.floating(depth), 2.0)
    c.note("power")
    if c.chance(0.4):
        exponent = c.integer(0, 3)
        return Expr(f"({a.text}) ** {exponent}", -(2.0**exponent), 2.0**exponent)
    exponent_text = tame(c, c.floating(depth), 1.5).text
    form = c.pick(["(0.4 + qd.abs({})) ** ({})", "qd.pow(0.4 + qd.abs({}), {})"])
    return Expr(form.format(a.text, exponent_text), 0.0, 4.0)


def _atan2(c: Context, depth: int) -> Expr | None:
    a, b = two(c, depth)
    c.note("atan2")
    return Expr(f"qd.atan2({a.text}, 0.6 + qd.abs({b.text}))", -1.6, 1.6)


def _remainder(c: Context, depth: int) -> Expr | None:
    a, b = two(c, depth)
    c.note("float %")
    if c.chance(0.5):
        modulus = round(c.rng.uniform(0.7, 2.0), 2)
        return Expr(f"({a.text}) % {modulus}", 0.0, modulus)
    return Expr(f"({a.text}) % (0.9 + qd.abs({b.text}))", 0.0, 0.9 + b.bound)


def _floor_quotient(c: Context, depth: int) -> Expr | None:
    a = c.floating(depth)
    divisor = round(c.rng.uniform(0.5, 2.0), 2)
    c.note("float //")
    return Expr(f"({a.text}) // {divisor}", -2 * a.bound - 1, 2 * a.bound)


def _rounding(c: Context, depth: int) -> Expr | None:
    a = c.floating(depth)
    name = c.pick(["qd.floor", "qd.ceil", "qd.round", "round", "qd.trunc"])
    c.note("rounding")
    return Expr(f"{name}({a.text})", a.low - 1, a.high + 1)


def _sign(c: Context, depth: int) -> Expr | None:
    c.note("sign")
    return Expr(f"qd.sign({c.floating(depth).text})", -1.0, 1.0)


def _select(c: Context, depth: int) -> Expr | None:
    a, b = two(c, depth)
    low, high = min(a.low, b.low), max(a.high, b.high)
    condition = c.truth(0)
    if c.chance(0.5):
        c.note("select")
        return Expr(f"qd.select({condition}, {a.text}, {b.text})", low, high)
    c.note("conditional expression")
    return Expr(f"({a.text} if {condition} else {b.text})", low, high)


FUNCTIONS: list[tuple[str, str, float]] = [
    # the function's name, the form with its operand made safe, the bound of the value
    *[("sin", "qd.sin({})", 1.0)] * 6,
    *[("cos", "qd.cos({})", 1.0)] * 2,
    ("tanh", "qd.tanh({})", 1.0),
    ("tan", "qd.tan(0.9 * qd.sin({}))", 1.3),
    ("asin", "qd.asin(0.8 * qd.sin({}))", 1.0),
    ("acos", "qd.acos(0.8 * qd.cos({}))", 2.6),
    ("exp", "qd.exp(qd.min({}, 1.2))", 3.4),
    ("exp", "qd.exp(-qd.abs({}))", 1.0),
    ("log", "qd.log(0.5 + qd.abs({}))", 2.0),
    ("sqrt", "qd.sqrt(0.3 + qd.abs({}))", 2.6),
    ("sqrt", "qd.sqrt(0.2 + ({}) ** 2)", 6.1),
    ("sinh", "qd.sinh(qd.sin({}))", 1.2),
    ("cosh", "qd.cosh(qd.sin({}))", 1.6),
    ("atan", "qd.atan({})", 1.6),
    ("asinh", "qd.asinh({})", 2.5),
    ("acosh", "qd.acosh(1.3 + qd.abs({}))", 2.8),
    ("atanh", "qd.atanh(0.8 * qd.sin({}))", 1.1),
    ("exp2", "qd.exp2(qd.min({}, 1.5))", 2.9),
    ("expm1", "qd.expm1(-qd.abs({}))", 1.0),
    ("log2", "qd.log2(0.5 + qd.abs({}))", 2.8),
    ("log10", "qd.log10(0.5 + qd.abs({}))", 1.0),
    ("log1p", "qd.log1p(qd.abs({}))", 2.0),
    ("cbrt", "qd.cbrt(0.4 + qd.abs({}))", 2.0),
    ("erf", "qd.erf({})", 1.0),
    ("clamp", "qd.math.clamp({}, -0.8, 1.1)", 1.1),
    ("fract", "qd.math.fract({})", 1.0),
    ("stop_grad", "qd.stop_grad(qd.sin({}))", 1.0),
    ("rsqrt", "qd.rsqrt(0.4 + qd.abs({}))", 1.6),
]


def _function(c: Context, depth: int) -> Expr | None:
    name, form, bound = c.pick(FUNCTIONS)
    c.note(name)
    return Expr(form.format(c.floating(depth).text), -bound, bound)


def _mix(c: Context, depth: int) -> Expr | None:
    a, b = two(c, depth)
    c.note("mix")
    bound = 2 * max(a.bound, b.bound)
    return Expr(f"qd.math.mix({a.text}, {b.text}, qd.sin({c.floating(depth).text}))", -bound, bound)


def _half(c: Context, depth: int) -> Expr | None:
    a, b = two(c, depth)
    c.note("arithmetic in f16")
    bound = a.bound * b.bound
    text = f"qd.cast(qd.cast({a.text}, qd.f16) * qd.cast({b.text}, qd.f16), FP)"
    return Expr(text, -bound - 1, bound + 1)


def _guarded(c: Context, _: int) -> Expr | None:
    """An operation whose other side has no value, or an infinite derivative, if it is not taken."""
    variable = c.recent([v for v in c.variables("f") if v.bound <= 6])
    if variable is None:
        return None
    form = c.pick(GUARDED)
    c.note("guarded operation")
    other = c.floating(0).text
    text = form.format(variable.name, other, round(c.rng.uniform(0.1, 0.6), 2))
    return Expr(f"({text})", -10.0, 10.0)


GUARDED = (
    "qd.select({0} > {2}, qd.sqrt({0}), {1})",
    "qd.select({0} > {2}, qd.log({0}), {1})",
    "qd.select(qd.abs({0}) > {2}, 0.5 / {0}, {1})",
    "qd.select(qd.abs({0}) < 0.8, qd.asin({0}), {1})",
    "qd.select({0} < {2}, {1}, {0} ** 1.5)",
    "qd.sqrt({0}) if {0} > {2} else {1}",
    "{1} if {0} < {2} else qd.log({0})",
    "0.4 / {0} if qd.abs({0}) > {2} else {1}",
    "qd.sqrt(qd.max({0}, 0.0))",
    "qd.sqrt(qd.abs({0} - {0}) + {2} * qd.abs({0}))",
)


def _from_truth(c: Context, _: int) -> Expr | None:
    c.note("cast of a truth value")
    return Expr(f"qd.cast({c.truth(0)}, FP)", 0.0, 1.0)


def _call(c: Context, _: int) -> Expr | None:
    return vectors.call(c, "f", ())


def _reduction(c: Context, depth: int) -> Expr | None:
    return vectors.reduction(c, depth)


OPERATIONS: list[tuple[float, Maker]] = [
    (4.0, _sum),
    (5.0, _product),
    (1.5, _quotient),
    (5.0, _function),
    (0.7, _absolute),
    (0.5, _negative),
    (1.0, _extremum),
    (0.8, _power),
    (0.4, _atan2),
    (0.3, _remainder),
    (0.15, _floor_quotient),
    (0.2, _rounding),
    (0.15, _sign),
    (1.2, _select),
    (0.2, _mix),
    (0.5, _guarded),
    (0.04, _half),
    (0.2, _from_truth),
    (1.5, _call),
    (1.2, _reduction),
]
