"""Expressions of integers and truth values, with their ranges."""

from __future__ import annotations

from collections.abc import Callable

from octants.fuzz.generator import array_elements
from octants.fuzz.generator.bounded_expressions import modulo, two, within
from octants.fuzz.generator.context import Context, Expr

Maker = Callable[..., "Expr | None"]


def integer(c: Context, depth: int = 2) -> Expr:
    """An i32 expression within some hundreds."""
    made: Expr = c.choose(depth, SIMPLE, LEAVES, [*OPERATIONS, *c.shared.rows("integers")])
    return made if made.bound <= 500 else modulo(c, made, c.integer(3, 9))


def trip_bound(c: Context, limit: int) -> Expr:
    """The number of trips of a loop: constants, variables, arrays, arithmetic on them."""
    kind = c.pick(["constant", "variable", "array", "arithmetic"])
    if kind == "constant":
        c.note("bound from constant")
        trips = c.integer(1, limit)
        return Expr(str(trips), trips, trips)
    expression = None
    if kind == "variable":
        expression = _variable(c, 0)
    elif kind == "array":
        expression = _load(c, 0)
    if expression is None:
        expression = c.whole(1)
    if expression.low < -3 or expression.high > limit:
        expression = modulo(c, expression, limit + 1)
    c.note(f"bound from {kind}")
    return expression


# -- leaves ----------------------------------------------------------------------------------------


def _literal(c: Context, _: int) -> Expr:
    value = c.integer(0, 5)
    return Expr(str(value), value, value)


def _variable(c: Context, _: int) -> Expr | None:
    variable = c.recent(c.variables("i"))
    return variable.expr if variable else None


def _load(c: Context, _: int) -> Expr | None:
    return array_elements.load(c, "i")


def _from_float(c: Context, depth: int) -> Expr | None:
    inner = c.floating(min(depth, 1))
    if inner.bound > 50:
        return None
    c.note("cast of a float to i32")
    text = c.pick(["int({})", "qd.cast({}, qd.i32)", "qd.i32({})"])
    high = inner.bound + 1
    if c.chance(0.4):
        return Expr(text.format(f"qd.floor({inner.text})"), -high, high)
    return Expr(text.format(inner.text), -high, high)


def _long(c: Context, _: int) -> Expr | None:
    variable = c.recent(c.variables("l"))
    if variable is None:
        return None
    c.note("i64 in an expression")
    return variable.expr


def _extent(c: Context, _: int) -> Expr | None:
    arrays = [a for a in c.shared.arrays if a.is_field and len(a.shape) > 0]
    if not arrays:
        return None
    array = c.pick(arrays)
    axis = c.integer(0, len(array.shape) - 1)
    c.note("shape")
    return Expr(f"{array.name}.shape[{axis}]", array.shape[axis], array.shape[axis])


def _saturated(c: Context, depth: int) -> Expr | None:
    inner = c.floating(min(depth, 1))
    dtype = c.pick(["u8", "i8", "i16", "u32", "i64"])
    c.note(f"cast of a float to {dtype}")
    high = inner.bound + 1
    return Expr(f"qd.cast(qd.cast({inner.text}, qd.{dtype}), qd.i32)", -high, high)


def _random(c: Context, _: int) -> Expr | None:
    if not c.random_allowed:
        return None
    c.note("random integer")
    return Expr("qd.random(qd.i32) % 5", 0, 4)


SIMPLE: list[tuple[float, Maker]] = [(2.0, _literal), (6.0, _variable)]
LEAVES: list[tuple[float, Maker]] = [
    *SIMPLE,
    (0.7, lambda c, _: c.constant(int)),
    (2.0, _load),
    (0.5, _from_float),
    (0.6, _long),
    (0.3, _extent),
    (0.2, _saturated),
    (0.1, _random),
]


# -- operations ------------------------------------------------------------------------------------


def _leaf(c: Context, depth: int) -> Expr | None:
    made: Expr = c.try_table(LEAVES, depth)
    return made


def _sum(c: Context, depth: int) -> Expr | None:
    a, b = c.whole(depth), c.whole(depth)
    if c.chance(0.5):
        return Expr(f"({a.text} + {b.text})", a.low + b.low, a.high + b.high)
    return Expr(f"({a.text} - ({b.text}))", a.low - b.high, a.high - b.low)


def _product(c: Context, depth: int) -> Expr | None:
    a, b = c.whole(depth), c.whole(depth)
    bound = a.bound * b.bound
    low = 0.0 if a.low >= 0 and b.low >= 0 else -bound
    return Expr(f"({a.text}) * ({b.text})", low, bound)


def _quotient(c: Context, depth: int) -> Expr | None:
    a, divisor = c.whole(depth), c.integer(2, 5)
    c.note("integer //")
    variable = c.recent([v for v in c.variables("i") if v.name[0] not in "qz"])  # not known before
    if variable and c.chance(0.3):
        c.note("integer // by a variable, which may be 0")
        return Expr(f"({a.text}) // {variable.name}", -a.bound - 1, a.bound + 1)
    return Expr(f"({a.text}) // {divisor}", a.low // divisor, a.high // divisor)


def _remainder(c: Context, depth: int) -> Expr | None:
    return modulo(c, c.whole(depth), c.integer(2, 6))


def _bits(c: Context, depth: int) -> Expr | None:
    a, b = within(c, c.whole(depth), 16), within(c, c.whole(depth), 16)
    symbol = c.pick(["&", "|", "^"])
    c.note("bit operation")
    return Expr(f"(({a.text}) {symbol} ({b.text}))", 0, 15)


def _shift(c: Context, depth: int) -> Expr | None:
    a = c.whole(depth)
    c.note("shift")
    if c.chance(0.5):
        count = c.integer(1, 2)
        return Expr(f"(({a.text}) << {count})", a.low * 2**count, a.high * 2**count)
    return Expr(f"(({a.text}) >> {c.integer(1, 2)})", min(a.low, 0), max(a.high, 0))


def _invert(c: Context, depth: int) -> Expr | None:
    a = c.whole(depth)
    c.note("bit operation")
    return Expr(f"(~({a.text}))", -a.high - 1, -a.low - 1)


def _power(c: Context, depth: int) -> Expr | None:
    a = c.whole(depth)
    if a.bound > 20:
        return None
    c.note("integer **")
    return Expr(f"({a.text}) ** 2", 0, a.bound**2)


def _unsigned(c: Context, depth: int) -> Expr | None:
    """Arithmetic that wraps around."""
    a, b = c.whole(depth), c.whole(0)
    name, operator = c.pick(["qd.u32", "qd.u8", "qd.u16", "qd.i8"]), c.pick(["+", "-", "*"])
    c.note(f"wrapping {name[3:]}")
    inner = f"qd.cast({a.text}, {name}) {operator} qd.cast({b.text}, {name})"
    return Expr(f"qd.cast(({inner}) % qd.cast(7, {name}), qd.i32)", -7, 7)


def _extremum(c: Context, depth: int) -> Expr | None:
    a, b = c.whole(depth), c.whole(depth)
    name = c.pick(["qd.min", "qd.max", "min", "max"])
    low, high = min(a.low, b.low), max(a.high, b.high)
    return Expr(f"{name}({a.text}, {b.text})", low, high)


def _absolute(c: Context, depth: int) -> Expr | None:
    a = c.whole(depth)
    return Expr(f"abs({a.text})", 0, a.bound)


def _conditional(c: Context, depth: int) -> Expr | None:
    a, b = c.whole(depth), c.whole(depth)
    low, high = min(a.low, b.low), max(a.high, b.high)
    c.note("conditional expression")
    return Expr(f"({a.text} if {c.truth(1)} else {b.text})", low, high)


def _deciding(c: Context, depth: int) -> Expr | None:
    """An operand of ``and`` or ``or``: the left one may be known when the kernel is compiled."""
    fn, left, right = c.pick(["and", "or"]), c.integer(0, 2), c.integer(1, 5)
    if c.chance(0.4):
        c.note(f"{fn} of a known number")
        wrapped = f"(qd.u32({left}) {fn} {right}) * 65536 * 65536"
        return Expr(f"qd.cast({wrapped} // 65536 // 65536, qd.i32)", 0, right)
    a, b = c.whole(depth), c.whole(depth)
    c.note(f"{fn} of integers")
    low, high = min(a.low, b.low, 0), max(a.high, b.high, 0)
    return Expr(f"({a.text} {fn} {b.text})", low, high)


def _wide(c: Context, depth: int) -> Expr | None:
    a = c.whole(depth)
    name = c.pick(["qd.i64", "qd.i64", "qd.i16", "qd.i8", "qd.u32", "qd.u8"])
    c.note(f"cast through {name[3:]}")
    if name == "qd.i64":
        return Expr(f"qd.cast(qd.cast({a.text}, qd.i64) * 3, qd.i32)", a.low * 3, a.high * 3)
    if name in ("qd.i8", "qd.u8"):
        return Expr(f"qd.cast(qd.cast({a.text}, {name}), qd.i32)", -128, 255)
    return Expr(f"qd.cast(qd.cast({a.text}, {name}), qd.i32)", a.low, a.high)


OPERATIONS: list[tuple[float, Maker]] = [
    (3.0, _leaf),
    (4.0, _sum),
    (1.5, _product),
    (1.0, _quotient),
    (2.0, _remainder),
    (0.7, _bits),
    (0.5, _shift),
    (0.2, _invert),
    (1.0, _extremum),
    (0.4, _absolute),
    (0.6, _conditional),
    (0.5, _deciding),
    (0.5, _wide),
    (0.3, _power),
    (0.3, _unsigned),
]


# -- truth values ----------------------------------------------------------------------------------


def truth(c: Context, depth: int = 1) -> str:
    """A condition."""
    kind = c.rng.choices(
        ["float", "integer", "parity", "chain", "and", "or", "not", "flag"],
        [4.0, 2.0, 1.0, 0.7, 0.8, 0.8, 0.3, 0.6],
    )[0]
    if kind in ("and", "or") and depth > 0:
        c.note(f"short-circuit {kind}")
        return f"({c.truth(depth - 1)} {kind} {c.truth(depth - 1)})"
    if kind == "not" and depth > 0:
        return f"(not {c.truth(depth - 1)})"
    if kind == "chain":
        c.note("chained comparison")
        low = c.rng.uniform(-1.0, 0.3)
        middle = c.floating(1).text
        return f"{round(low, 3)} < {middle} <= {round(low + c.rng.uniform(0.4, 1.5), 3)}"
    if kind == "parity":
        return f"({c.whole(0).text}) % {c.integer(2, 3)} {c.pick(['==', '!='])} {c.integer(0, 1)}"
    if kind == "integer" and c.chance(0.15):
        c.note("comparison of an i32 and a float")
        return f"{c.whole(0).text} {c.pick(['<', '>='])} {c.floating(1).text}"
    if kind == "integer":
        return f"{c.whole(1).text} {c.pick(['<', '<=', '>', '>=', '==', '!='])} {c.whole(0).text}"
    if kind == "flag":
        variable = c.recent(c.variables("b"))
        if variable:
            c.note("truth value in a local")
            return variable.name
    c.note("comparison of floats")
    left, right = two(c, c.integer(0, 1))
    return f"{left.text} {c.pick(['<', '>', '<=', '>='])} {right.text}"
