"""Integers of all widths over their whole range, with atomics of all kinds, bit casts, and f16."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace

from octants.fuzz.generator import array_elements
from octants.fuzz.generator.bounded_expressions import fitting, modulo
from octants.fuzz.generator.context import ArrayInfo, Context, Expr, Productions, Shared, Variable

NAMES = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
LOW, HIGH = -(2.0**31), 2.0**31
Maker = Callable[..., "str | None"]


def declare(shared: Shared) -> list[str]:
    """Arrays of integers of any width, sort w, and of f16."""
    rng = shared.rng
    shape = shared.arrays[0].shape
    for number in range(rng.randint(1, 3)):
        is_field = rng.random() < 0.5
        name, dtype = shared.fresh("t" if is_field else "y"), f"qd.{rng.choice(NAMES)}"
        constant = number == 1 and rng.random() < 0.5
        shared.arrays.append(
            ArrayInfo(name, "w", shape, (), is_field, LOW, HIGH, constant, dtype, has_grad=False)
        )
        shared.features[f"array of {dtype[3:]}"] += 1
    if rng.random() < 0.4:
        name = shared.fresh("e")
        has_grad = rng.random() < 0.3
        shared.features["array of f16"] += 1
        shared.arrays.append(
            ArrayInfo(name, "d", shape, (), True, dtype="qd.f16", has_grad=has_grad)
        )
    return []


# -- expressions -----------------------------------------------------------------------------------


def expression(c: Context, depth: int = 2) -> str:
    """An integer of some width."""
    made: str = c.choose(depth, SIMPLE, LEAVES, OPERATIONS)
    return made


def _variable(c: Context, _: int) -> str | None:
    variable = c.recent([v for name in NAMES for v in c.variables(f"int:{name}")])
    return variable.name if variable else None


def _cast(c: Context, _: int) -> str:
    name = c.pick(NAMES)
    c.note(f"conversion to {name}")
    return f"qd.cast({c.whole(1).text}, qd.{name})"


def _literal(c: Context, _: int) -> str:
    if c.chance(0.4):
        return str(c.integer(0, 7))
    name = c.pick(NAMES)
    bits = int(name[1:]) - (name[0] == "i")
    return f"qd.{name}({c.pick([0, 1, 100, 2**bits - 1])})" if bits < 32 else f"qd.{name}(1000)"


def _load(c: Context, _: int) -> str | None:
    options = array_elements.readable(c, "w")
    if not options:
        return None
    array, role = c.pick(options)
    c.note("load of an integer of any width")
    return array.at(array_elements.position(c, array, role))


def _arithmetic(c: Context, depth: int) -> str:
    symbol = c.pick(["+", "-", "*", "*", "&", "|", "^", "//", "%"])
    c.note(f"{symbol} of widths")
    left, right = expression(c, depth), expression(c, depth)
    if symbol in ("//", "%") and not RUN_TIME.search(right):
        right = f"{right} | 1"  # a constant divisor that is zero is an error
    return f"(({left}) {symbol} ({right}))"


LARGE = (2**31, 2**32 - 1, 3 * 10**9, 2**40 + 1, 2**63 - 1, 2**63, 2**64 - 1)


def _with_large_literal(c: Context, depth: int) -> str | None:
    """A literal that i32 does not hold, with something that is not known when it is compiled."""
    other, literal = expression(c, depth), c.pick(LARGE)
    if not RUN_TIME.search(other):
        return None
    c.note("literal beyond i32")
    if c.chance(0.3):
        return f"{c.pick(['qd.min', 'qd.max'])}({other}, {literal})"
    symbol = c.pick(["+", "-", "*", "&", "|", "^", "//", "%"])
    pair = [f"({other})", str(literal)]
    c.rng.shuffle(pair)
    if symbol in ("//", "%"):
        pair = [f"({other})", str(literal)]
    return f"({pair[0]} {symbol} {pair[1]})"


def _shift(c: Context, depth: int) -> str:
    c.note("shift of widths")
    count = c.pick([str(c.integer(0, 7)), f"({c.whole(0).text} & 7)"])
    return f"(({expression(c, depth)}) {c.pick(['<<', '>>'])} {count})"


def _unary(c: Context, depth: int) -> str:
    form = c.pick(["(~({}))", "(-({}))", "abs({})", "(({}) ** 2)"])
    return form.format(expression(c, depth))


def _extremum(c: Context, depth: int) -> str:
    name = c.pick(["qd.min", "qd.max"])
    return f"{name}({expression(c, depth)}, {expression(c, depth)})"


def _reached_bound(c: Context, depth: int) -> str:
    """A choice by whether an extremum of one type is one of its operands."""
    name, extremum = c.pick(["i8", "u8", "i16", "u16", "i32", "i64"]), c.pick(["qd.min", "qd.max"])
    other = expression(c, 0) if c.chance(0.4) else c.integer(0 if name[0] == "u" else -3, 3)
    of = [f"qd.cast({each}, qd.{name})" for each in (expression(c, 0), other)]
    symbol = c.pick(["==", "==", "!=", "<", ">="])
    c.note("extremum compared with its operand")
    condition = f"{extremum}({of[0]}, {of[1]}) {symbol} {c.pick(of)}"
    return f"({expression(c, depth)} if {condition} else {extremum}({of[0]}, {of[1]}))"


def _choice(c: Context, depth: int) -> str:
    a, b = expression(c, depth), expression(c, depth)
    c.note("choice of widths")
    if c.chance(0.5):
        return f"qd.select({_comparison(c)}, {a}, {b})"
    return f"({a} if {c.truth(0)} else {b})"


def _comparison(c: Context) -> str:
    symbol = c.pick(["<", "<=", ">", ">=", "==", "!="])
    c.note("comparison of widths")
    return f"({expression(c, 1)}) {symbol} ({expression(c, 0)})"


def _bit_cast(c: Context, depth: int) -> str:
    """The same bits as another type; those of a float that is exact."""
    bits = c.pick(["8", "16", "32", "64"])
    c.note("bit_cast")
    if bits in ("32", "64") and c.chance(0.5):
        inside = f"qd.cast(qd.cast({expression(c, 0)}, qd.i16), qd.f{bits})"
        return f"qd.bit_cast({inside}, qd.{c.pick('iu')}{bits})"
    inside = f"qd.cast({expression(c, depth)}, qd.{c.pick('iu')}{bits})"
    return f"qd.bit_cast({inside}, qd.{c.pick('iu')}{bits})"


RUN_TIME = re.compile(r"(?<!qd\.)\b[a-z]\w*\d")
"""The name of a variable or an array."""

SIMPLE: list[tuple[float, Maker]] = [(4.0, _variable), (1.0, _literal), (0.5, _cast)]
LEAVES: list[tuple[float, Maker]] = [*SIMPLE, (3.0, _load), (1.0, _cast)]
OPERATIONS: list[tuple[float, Maker]] = [
    (4.0, _arithmetic),
    (0.6, _with_large_literal),
    (1.0, _shift),
    (1.0, _unary),
    (1.0, _extremum),
    (1.0, _reached_bound),
    (1.0, _choice),
    (0.7, _bit_cast),
]


def _as_integer(c: Context, depth: int) -> Expr:
    """Brought into the range of the other integers."""
    c.note("integer of any width in an expression")
    whole = Expr(f"qd.cast({expression(c, depth)}, qd.i32)", LOW, HIGH)
    return modulo(c, whole, c.integer(2, 7))


def _as_float(c: Context, depth: int) -> Expr:
    c.note("integer of any width as a float")
    name = c.pick(["i8", "u8"])
    return Expr(f"0.01 * qd.cast(qd.cast({expression(c, depth)}, qd.{name}), FP)", -1.3, 2.6)


# -- statements ------------------------------------------------------------------------------------


def declare_local(c: Context) -> bool:
    """A new local of some width."""
    name = c.pick(NAMES)
    value = expression(c)
    variable = Variable(c.shared.fresh("o"), f"int:{name}", LOW, HIGH)
    c.note(f"local of {name}")
    if c.chance(0.5):
        c.emit(f"{variable.name}: qd.{name} = {fitted(c, value, name)}")
    else:
        c.emit(f"{variable.name} = qd.cast({value}, qd.{name})")
    c.scopes[-1].append(variable)
    return True


def assign(c: Context) -> bool | None:
    """An assignment to a local, or an update of it."""
    options = [v for name in NAMES for v in c.variables(f"int:{name}", (), assignable=True)]
    variable = c.recent(options)
    if variable is None:
        return None
    symbol = c.pick(["=", "+=", "-=", "*=", "&=", "|=", "^=", "//=", "%="])
    c.note("assignment to an integer of any width")
    c.emit(f"{variable.name} {symbol} {expression(c, 1)}")
    return True


def _write(c: Context) -> bool | None:
    """A store to, or an update of, what the work item owns."""
    options = array_elements.writable(c, "w", ("own", "free"))
    if not options:
        return None
    array, role = c.pick(options)
    element = array.at(array_elements.position(c, array, role))
    symbol = c.pick(["=", "=", "+=", "-=", "&=", "|=", "^="])
    c.note(f"{symbol} on an array of {array.dtype[3:]}")
    c.note(f"{symbol} on an array of integers")
    c.emit(f"{element} {symbol} {fitted(c, expression(c), array.dtype[3:])}")
    return True


def fitted(c: Context, text: str, name: str) -> str:
    """An expression that is stored as an integer type: cast, if it is a number that does not fit.

    The language refuses to store numbers that are known when a kernel is compiled and do not fit.
    """
    number, bits = _number(c, text), int(name[1:])
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if name[0] == "i" else (0, 2**bits - 1)
    if number is None or low <= number <= high:
        return text
    c.note("cast of a number that does not fit")
    return f"qd.cast({text}, qd.{name})"


def _number(c: Context, text: str) -> int | None:
    """The value of an expression of literals, constants and extents of fields; None for others."""
    known: dict[str, object] = dict(c.shared.constants)
    known |= {a.name: SimpleNamespace(shape=a.shape) for a in c.shared.arrays if a.is_field}
    names = {"qd": FOLDED, "abs": abs, "int": int, "min": min, "max": max}
    try:
        found = eval(text, {"__builtins__": {}}, known | names)
    except (ArithmeticError, AttributeError, NameError, TypeError, ValueError, IndexError):
        return None
    return int(found) if isinstance(found, int) else None


FOLDED = SimpleNamespace(min=min, max=max, select=lambda condition, a, b: a if condition else b)
"""Functions that give a number of numbers, and no value of a type."""

ATOMICS = {"add": ("add", "sub")}


def _atomic(c: Context) -> bool | None:
    """An atomic of the kind that the task does on this array, or any on what it owns."""
    shared = array_elements.writable(c, "w", ("accumulate",))
    owned = array_elements.writable(c, "w", ("own", "free"))
    if not shared and not owned:
        return None
    array, role = c.pick(shared or owned)
    element = array.at(array_elements.position(c, array, role))
    fn = role.fn if shared else c.pick(FNS)
    fn = c.pick(ATOMICS.get(fn, (fn,)))
    c.note(f"atomic_{fn} of integers")
    call = f"qd.atomic_{fn}({element}, {expression(c, 1)})"
    if shared or c.chance(0.5):
        c.emit(call)
        return True
    name = array.dtype[3:]
    variable = Variable(c.shared.fresh("o"), f"int:{name}", LOW, HIGH)
    c.note("result of an integer atomic")
    c.emit(f"{variable.name} = {call}")
    c.scopes[-1].append(variable)
    return True


FNS = ("add", "min", "max", "mul", "and", "or", "xor")


def _half_local(c: Context) -> bool:
    value = fitting(c, 3.9).text
    variable = c.declare("d", "d", -4.0, 4.0)
    c.note("local of f16")
    c.emit(f"{variable.name} = qd.cast({value}, qd.f16)")
    return True


def returned(name: str) -> Callable[[Context], str]:
    """The maker of a return statement."""
    return lambda c: f"return qd.cast({expression(c, 1)}, qd.{name})"


PRODUCTIONS = Productions(
    floats=((0.7, _as_float),),
    integers=((2.0, _as_integer),),
    statements=(
        (2.5, declare_local),
        (2.0, assign),
        (2.0, _write),
        (1.5, _atomic),
        (0.5, _half_local),
    ),
    declare=declare,
    returns=tuple((f"qd.{name}", returned(name)) for name in NAMES),
)
