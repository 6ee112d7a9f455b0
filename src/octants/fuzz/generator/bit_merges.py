"""Integers of all widths whose bits come from several numbers, chosen by masks and conditions."""

from __future__ import annotations

from collections.abc import Callable

from octants.fuzz.generator import integer_widths
from octants.fuzz.generator.context import (
    ArrayInfo,
    Context,
    Productions,
    Role,
    Shared,
    Variable,
)
from octants.fuzz.generator.integer_widths import HIGH, LOW, NAMES
from octants.fuzz.generator.racy_loops import Scalar


def _bits(name: str) -> int:
    return int(name[1:])


def _cast(text: str, name: str) -> str:
    return f"qd.cast({text}, qd.{name})"


def _operand(c: Context, name: str) -> str:
    """A variable of a type, or an expression cast to it."""
    variable = c.recent(c.variables(f"int:{name}"))
    if variable is not None and c.chance(0.6):
        return variable.name
    return _cast(integer_widths.expression(c, 1), name)


# -- masks -----------------------------------------------------------------------------------------


def mask(c: Context, name: str, counter: str | None = None) -> str:
    """A mask of a type; bits of it depend on a ``counter``, if there is one."""
    make: Callable[[Context, str, str], str] = c.pick(MASKS)
    position = counter if counter is not None and c.chance(0.7) else c.whole(0).text
    return make(c, name, position)


def _constant(c: Context, name: str, _: str) -> str:
    bits, (first, width) = _bits(name), _field(c, name)
    run = ((1 << width) - 1) << first
    value = c.pick([run, ~run, 0x5555555555555555, 0, -1, 1 << (bits - 1)]) & ((1 << bits) - 1)
    c.note("mask: constant")
    if name[0] == "i":
        value -= (value >> (bits - 1)) << bits
    return _literal(value, name)


def _literal(value: int, name: str) -> str:
    """A number of a type, without a literal that i32 does not hold."""
    if -(2**31) <= value < 2**31:
        return f"qd.{name}({value})"
    high, low = value >> 16, value & 0xFFFF
    return f"({_literal(high, name)} * 65536 + {low})"


def _moved(c: Context, name: str, position: str) -> str:
    _, width = _field(c, name)
    c.note("mask: moved")
    run = _literal((1 << min(width, _bits(name) - 1)) - 1, name)
    return f"({run} << ({position} & {_bits(name) - 1}))"


def _of_a_condition(c: Context, name: str, _: str) -> str:
    """All bits or none."""
    c.note("mask: of a condition")
    form = c.pick(["(-{})", "({} * -1)", "(0 - {})", "(~({} - 1))"])
    return form.format(_cast(f"({c.truth(0)})", name))


def _of_a_number(c: Context, name: str, _: str) -> str:
    c.note("mask: of a number")
    return _operand(c, name)


def _of_another_width(c: Context, name: str, position: str) -> str:
    """A mask of another type, whose sign may be extended."""
    other = c.pick([each for each in NAMES if each != name])
    c.note("mask: of another width")
    return _cast(c.pick([_constant, _moved, _of_a_number])(c, other, position), name)


MASKS = (_constant, _constant, _moved, _moved, _of_a_condition, _of_a_number, _of_another_width)


def _field(c: Context, name: str) -> tuple[int, int]:
    """The first bit of a field, and how many bits it has."""
    bits = _bits(name)
    first = c.pick([0, 0, c.integer(0, bits - 1), bits // 2])
    return first, c.pick([bits - first, c.integer(1, bits - first)])


# -- merges ----------------------------------------------------------------------------------------


def merge(c: Context, old: str, name: str, counter: str | None = None) -> str:
    """Some bits of ``old``, the others from elsewhere."""
    make: Callable[[Context, str, str, str | None], str] = c.pick(MERGES)
    return make(c, old, name, counter)


def _by_and_or(c: Context, old: str, name: str, counter: str | None) -> str:
    m, new = mask(c, name, counter), _operand(c, name)
    c.note("merge: and, or")
    pair = [f"({old} & ~{m})", f"({new} & {m})"]
    c.rng.shuffle(pair)
    return f"({pair[0]} {c.pick('||^+')} {pair[1]})"


def _by_xor(c: Context, old: str, name: str, counter: str | None) -> str:
    m, new = mask(c, name, counter), _operand(c, name)
    c.note("merge: xor")
    base, other = c.pick([(old, new), (new, old)])
    return f"({base} ^ (({base} ^ {other}) & {m}))"


def _of_three(c: Context, old: str, name: str, counter: str | None) -> str:
    one, two = mask(c, name, counter), mask(c, name, counter)
    c.note("merge: of three")
    rest = f"~({one} | {two})"
    second = c.pick([f"{two}", f"({two} & ~{one})"])
    a, b = _operand(c, name), _operand(c, name)
    return f"(({old} & {rest}) | ({a} & {one}) | ({b} & {second}))"


def _of_fields(c: Context, old: str, name: str, _: str | None) -> str:
    """Some bits in the place of others."""
    first, width = _field(c, name)
    run, new = _literal((1 << min(width, _bits(name) - 1)) - 1, name), _operand(c, name)
    c.note("merge: field")
    source = c.pick([new, f"({new} >> {c.integer(0, _bits(name) - 1)})"])
    return f"(({old} & ~({run} << {first})) | (({source} & {run}) << {first}))"


def _by_rotation(c: Context, old: str, name: str, counter: str | None) -> str:
    bits = _bits(name)
    count = str(c.integer(1, bits - 1))
    if counter is not None:
        count = f"(({counter} & {bits // 2 - 1}) + 1)"
    c.note("merge: rotation")
    keeps = f"({_literal(1, name)} << {count}) - 1"
    return f"(({old} << {count}) | (({old} >> ({bits} - {count})) & ({keeps})))"


def _by_choice(c: Context, old: str, name: str, counter: str | None) -> str:
    """One of two merges, of which one may change nothing."""
    first = _by_and_or(c, old, name, counter)
    second = c.pick([old, _by_xor(c, old, name, counter), _operand(c, name)])
    if c.chance(0.5):
        first, second = second, first
    condition = _test_of_bits(c, old, name) if c.chance(0.5) else f"({c.truth(0)})"
    c.note("merge: choice")
    form = c.pick(["qd.select({0}, {1}, {2})", "({1} if {0} else {2})"])
    return form.format(condition, _cast(first, name), _cast(second, name))


def _test_of_bits(c: Context, of: str, name: str) -> str:
    m = mask(c, name)
    c.note("test of bits")
    form = c.pick(["(({0} & {1}) != 0)", "(({0} & {1}) == {1})", "(({0} | {1}) == {0})"])
    return form.format(of, m)


MERGES = (_by_and_or, _by_and_or, _by_xor, _of_three, _of_fields, _by_rotation, _by_choice)


# -- statements ------------------------------------------------------------------------------------


def _variable(c: Context) -> Variable | None:
    return c.recent([v for name in NAMES for v in c.variables(f"int:{name}", (), assignable=True)])


def _change(c: Context, element: str, name: str, counter: str | None = None) -> None:
    """A merge into a local, often under a condition."""
    value = _cast(merge(c, element, name, counter), name)
    if c.chance(0.35):
        c.emit(f"{element} = {value}")
        return
    condition = _test_of_bits(c, element, name) if c.chance(0.4) else c.truth(0)
    c.note("merge under a condition")
    with c.block(f"if {condition}:"):
        c.emit(f"{element} = {value}")
    if c.chance(0.4):
        with c.block("else:"):
            c.emit(f"{element} = {_cast(merge(c, element, name, counter), name)}")


def _merge(c: Context) -> bool | None:
    variable = _variable(c)
    if variable is None:
        return None
    _change(c, variable.name, variable.sort[4:])
    return True


def _loop_of_merges(c: Context) -> bool | None:
    variable, trips = _variable(c), c.integer(2, 9)
    if variable is None or not c.affordable(trips):
        return None
    counter = c.shared.fresh("k")
    c.note("loop of merges")
    with c.serial_loop(counter, trips):
        for _ in range(c.integer(1, 2)):
            _change(c, variable.name, variable.sort[4:], counter)
    return True


def _vector(c: Context) -> bool | None:
    """A local vector, into whose components a loop merges bits; then their sum."""
    count, name = c.integer(2, 5), c.pick(NAMES)
    if not c.affordable(3 * count):
        return None
    vector, counter = c.shared.fresh("v"), c.shared.fresh("k")
    parts = ", ".join(_operand(c, name) for _ in range(count))
    c.note("vector of merges")
    c.emit(f"{vector} = qd.Vector([{parts}])")
    steps = c.pick([count, 2 * count])
    with c.serial_loop(counter, steps):
        at = c.pick([f"{counter} % {count}", f"({counter} * 3 + 1) % {count}"])
        _change(c, f"{vector}[{at}]", name, counter)
        if c.chance(0.5):
            _change(c, f"{vector}[{c.integer(0, count - 1)}]", name, counter)
    total = " ^ ".join(f"{vector}[{k}] * {2 * k + 1}" for k in range(count))
    variable = Variable(c.shared.fresh("o"), f"int:{name}", LOW, HIGH)
    c.emit(f"{variable.name} = {_cast(total, name)}")
    c.scopes[-1].append(variable)
    return True


def _merged(c: Context) -> str | None:
    variable = _variable(c)
    if variable is None:
        return None
    return merge(c, variable.name, variable.sort[4:])


def _remainder(c: Context) -> str | None:
    """A remainder that is not negative, as programs write it that expect one of C."""
    variable = _variable(c)
    if variable is None:
        return None
    name = variable.sort[4:]
    last = (1 << min(_bits(name) - (name[0] == "i"), 31)) - 1
    divisor = c.pick(["3", *(_literal(n, name) for n in (7, last, last - 2, last // 2 + 2))])
    x = c.pick([variable.name, f"({variable.name} - {c.integer(1, 9)})"])
    c.note("remainder of a remainder")
    return f"((({x}) % {divisor} + {divisor}) % {divisor})"


def _whole(c: Context) -> bool | None:
    """A local of any type that is computed from a merge, or a remainder."""
    text = c.pick([_merged, _merged, _remainder])(c)
    if text is None:
        return None
    name = c.pick(NAMES)
    variable = Variable(c.shared.fresh("o"), f"int:{name}", LOW, HIGH)
    symbol = c.pick(["+", "-", "*", "^", ">>"])
    other = str(c.integer(0, 7)) if symbol == ">>" else _operand(c, name)
    c.emit(f"{variable.name} = {_cast(f'({text}) {symbol} {other}', name)}")
    c.scopes[-1].append(variable)
    return True


STATEMENTS: list[tuple[float, Callable[[Context], bool | None]]] = [
    (4.0, _merge),
    (2.5, _loop_of_merges),
    (2.0, _vector),
    (2.5, _whole),
    (1.5, integer_widths.declare_local),
    (1.0, integer_widths.assign),
]


# -- programs --------------------------------------------------------------------------------------


def declare(shared: Shared) -> list[str]:
    """Make the arrays of the program: integers to read and to write, and floats."""
    rng, n = shared.rng, shared.extents[0]
    fields = rng.choice([True, False])
    shared.arrays = []
    for prefix, constant in (("x", True), ("y", False)):
        name = shared.fresh(prefix)
        shared.arrays.append(ArrayInfo(name, "f", (n,), (), fields, constant=constant))
    for number in range(rng.randint(3, 5)):
        dtype, constant = f"qd.{rng.choice(NAMES) if number != 2 else 'u64'}", number < 2
        array = ArrayInfo(shared.fresh("t"), "w", (n,), (), fields, LOW, HIGH, constant, dtype)
        array.has_grad = False
        shared.arrays.append(array)
    return []


def body(c: Context) -> list[Scalar]:
    """Write a loop of a kernel; gives the numbers that it is passed."""
    n, item = c.shared.extents[0], c.shared.fresh("i")
    count = Variable(c.shared.fresh("m"), "i", 0, 4, frozen=True)
    c.scopes[0].append(count)
    x, y, *others = c.shared.arrays
    c.roles = {x.name: Role("own", (item,), 1)}
    c.roles |= {array.name: Role("own", (item,), 1) for array in others}
    with c.block(f"for {item} in range({n}):", trips=float(n)):
        c.scopes[-1].append(Variable(item, "i", 0, n - 1, frozen=True))
        for _ in range(3):
            integer_widths.declare_local(c)
        locals_ = c.scopes[-1][1:4]
        for _ in range(c.integer(2, 7)):
            c.try_table(STATEMENTS)
        whole = [v for v in c.scopes[-1] if v.sort.startswith("int:")]  # all bits of all locals
        terms = [f"{_cast(v.name, 'u64')} * {2 * k + 3}" for k, v in enumerate(whole)]
        c.emit(f"{others[2].at(item)} = {' ^ '.join(terms)}")
        for array in others[3:]:
            value = merge(c, c.pick(locals_).name, c.pick(NAMES))
            c.emit(f"{array.at(item)} = {_cast(value, array.dtype[3:])}")
        weight = f"1.5 + 0.01 * qd.cast({_cast(c.pick(locals_).name, 'i8')}, FP)"
        c.emit(f"{y.at(item)} = qd.sin({x.at(item)}) * ({weight})")
    c.roles = {}
    return [(count, "qd.i32", c.integer(0, 4))]


PRODUCTIONS = Productions(declare=declare)
