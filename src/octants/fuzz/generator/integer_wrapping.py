"""Integers near the ends of their types: in indices, divisors, shifts, and bounds of loops."""

from __future__ import annotations

import re
from typing import Any

from octants.fuzz.generator import array_elements, vectors
from octants.fuzz.generator.bounded_expressions import fitting, within
from octants.fuzz.generator.context import (
    ArrayInfo,
    Context,
    Expr,
    Productions,
    Role,
    Shared,
    Variable,
)
from octants.fuzz.generator.loops import inside

_LAST, _FIRST = 2147483647, -2147483648
_WHOLE = 1 << 32

# -- expressions that wrap -------------------------------------------------------------------------


def alias(c: Context, text: str) -> str:
    """The same i32 by a way on which it passes the ends of its type."""
    far = c.pick([_LAST, 1 << 30, 1999999999])
    rest = _WHOLE - far - _LAST
    ways = [
        f"({text} + {far} + {_LAST} + {rest // 2} + {rest - rest // 2})",
        f"({text} - {far} - {_LAST} - {_LAST} + {far} - 2)",
        f"({text} * 65537 - {text} * 65536)",
        f"({text} * 5 - ({text} << 2))",
        f"(~(-({text}) - 1))",
        f"({text} * 3 * 715827883 * 2 - {text})",
        f"qd.i32(qd.i64({text}) + {c.pick([_WHOLE, -_WHOLE, 3 * _WHOLE])})",
    ]
    c.note("an i32 by a way that wraps")
    return c.pick(ways)


def _run_time(c: Context) -> Expr | None:
    """A variable whose value no compiler knows: what is known is computed by Python's rules."""
    variable = c.recent([v for v in c.variables("i") if v.name[0] not in "qz"])
    return variable.expr if variable is not None else None


def _around(c: Context, _: int) -> Expr | None:
    inner = _run_time(c)
    return None if inner is None else Expr(alias(c, inner.text), inner.low, inner.high)


def _vanishing(c: Context, depth: int) -> Expr | None:
    """A product with 2^32, which is zero, beside something else."""
    inner, other = _run_time(c), c.whole(depth)
    if inner is None:
        return None
    factors = c.pick(["65536 * 65536", "1073741824 * 4", f"({_FIRST}) * 2"])
    c.note("a product that is zero modulo 2^32")
    return Expr(f"({inner.text} * {factors} + {other.text})", other.low, other.high)


def _divided(c: Context, depth: int) -> Expr:
    """A quotient or remainder by what may be zero, negative, or at the end of its type."""
    inner, divisor = c.whole(depth), _divisor(c)
    high = max(inner.bound, divisor.bound) + 1
    c.note("a divisor that may be zero or negative")
    return Expr(f"(({inner.text}) {c.pick(['%', '//'])} ({divisor.text}))", -high, high)


def _divisor(c: Context) -> Expr:
    variable = _run_time(c)
    if variable is None or c.chance(0.3):
        return c.pick([Expr("-1", -1, -1), Expr("-3", -3, -3), Expr("7", 7, 7)])
    name, low, high = variable.text, variable.low, variable.high
    return c.pick(
        [
            Expr(name, low, high),
            Expr(f"({name} * 0)", 0, 0),
            Expr(f"({name} - 1)", low - 1, high - 1),
            Expr(f"(-{name})", -high, -low),
        ]
    )


def _large(c: Context, _: int) -> Expr | None:
    """A small number of what is large, or wraps on its way."""
    inner, size = _run_time(c), c.integer(2, 5)
    if inner is None:
        return None
    number = c.pick([_LAST, 1999999999, 73856093, 1 << 30])
    kind = c.pick(["remainder", "product", "quotient", "bits", "shift", "least"])
    c.note(f"large: {kind}")
    if kind == "remainder":
        return Expr(f"(({inner.text} + {number}) % {size})", 0, size - 1)
    if kind == "product":
        return Expr(f"(({inner.text} * {number}) % {size})", 0, size - 1)
    if kind == "quotient":
        return Expr(f"(({inner.text} * {number}) // 1073741824)", -2, 1)
    if kind == "bits":
        return Expr(f"(({inner.text} * {number}) & {size})", 0, size)
    if kind == "shift":
        return Expr(f"((({inner.text}) << {c.pick([30, 31, 62, 63])}) >> 30)", -2, 1)
    return Expr(f"qd.min({inner.text} * {number}, 2) % {size}", 0, size - 1)


def _cut_off(c: Context, _: int) -> Expr:
    """One of two small numbers that are an i64 with higher bits before."""
    one, other = c.integer(0, 5), c.integer(0, 5)
    above = c.pick([_WHOLE, -_WHOLE, 3 * _WHOLE])
    c.note("an i32 that is cut off one of two i64")
    text = f"qd.select({c.truth(0)}, qd.i64({one + above}), qd.i64({other}))"
    return Expr(f"qd.i32({text})", min(one, other), max(one, other))


# -- elements --------------------------------------------------------------------------------------


def _store_around(c: Context) -> bool | None:
    """A store or an update of an own element, by an index that wraps."""
    options = [
        (array, role)
        for array, role in array_elements.writable(c, "f", ("own",))
        if len(role.rows) == role.axes
    ]
    if not options:
        return None
    array, role = c.pick(options)
    rows = [alias(c, row) if c.chance(0.6) else row for row in role.rows]
    rest = (
        array_elements.position(c, array, Role("own", (), role.axes))
        if _has_more(array, role)
        else ""
    )
    element = array.at(", ".join([*rows, *([rest] if rest else [])]))
    symbol = c.pick(["=", "+=", "-="])
    c.note("element by an index that wraps")
    if array.element_shape:
        value = f"0.3 * ({vectors.expression(c, array.element_shape)})"
    else:
        value = fitting(c, 1.0).text
    c.emit(f"{element} {symbol} {value}")
    return True


def _has_more(array: ArrayInfo, role: Role) -> bool:
    return len(array.shape) > role.axes


def _flat_rows(c: Context) -> bool | None:
    """A row of each work item in an array of one axis: ``x[i * n + j]``."""
    flat = next((array for array in c.shared.arrays if array.name.startswith("flat")), None)
    counters = [v for v in c.variables("i") if v.frozen and re.fullmatch(r"i\d+", v.name)]
    if flat is None or c.serial or c.loops or c.in_function or len(counters) != 1:
        return None
    if not _is_untouched(c, flat) or not c.affordable(3):
        return None
    width = flat.shape[0] // (int(counters[0].high) + 1)
    if width * (int(counters[0].high) + 1) != flat.shape[0]:
        return None
    c.roles[flat.name] = Role("flat")
    j = c.shared.fresh("k")
    stride = c.pick([str(width), f"({flat.name}.shape[0] // {int(counters[0].high) + 1})"])
    forwards, row = c.chance(0.7), counters[0].name
    column = j if forwards else f"({stride} - 1 - {j})"
    index = f"{row} * {stride} + {column}"
    index = alias(c, index) if c.chance(0.4) else index
    c.note("row of a work item in an array of one axis")
    with c.block(f"for {j} in range({stride}):", trips=width):
        c.scopes[-1].append(Variable(j, "i", 0, width - 1, frozen=True))
        if c.chance(0.3):
            with c.block(f"if {c.truth(1)}:", trips=0.5):
                _touch(c, flat, index)
        else:
            _touch(c, flat, index)
    return True


def _is_untouched(c: Context, array: ArrayInfo) -> bool:
    """Whether the task that is being written has not accessed an array so far."""
    for line in reversed(c.lines):
        if array.name in line:
            return False
        if line.startswith("    for "):
            return c.roles[array.name].kind != "flat"
    return False


def _touch(c: Context, flat: ArrayInfo, index: str) -> None:
    """Update, overwrite, or carry on what stands at an own element."""
    value = fitting(c, 1.0).text
    c.emit(
        c.pick(
            [
                f"{flat.name}[{index}] += {value}",
                f"{flat.name}[{index}] = {value}",
                f"{flat.name}[{index}] = 0.5 * qd.sin({flat.name}[{index}]) + 0.3 * ({value})",
            ]
        )
    )


# -- loops -----------------------------------------------------------------------------------------


def _wide_range(c: Context) -> bool | None:
    """A serial loop over few numbers that are far from each other."""
    if (
        not c.affordable(4)
        or c.depth > 3
        or len(c.loops) > 1
        or (c.serial and not c.run_time_loops)
    ):
        return None
    step = c.pick([1000000000, 858993459, 1431655765, -1000000000, -1717986918, _FIRST])
    bounds = (_FIRST, _LAST) if step > 0 else (_LAST, _FIRST)
    texts = [str(bound) for bound in bounds]
    variable = c.recent(c.variables("i"))
    if variable and variable.low >= 0 and variable.bound < 1000:
        sign = "+" if step > 0 else "-"
        texts[0] = f"({texts[0]} {sign} {variable.name})"
        texts[1] = f"({texts[1]} {'-' if step > 0 else '+'} {variable.name})"
    name, number = c.shared.fresh("k"), c.shared.fresh("s")
    c.note("range that spans more than 2^31")
    header = f"for {name} in range({texts[0]}, {texts[1]}, {step}):"
    with c.block(header, trips=4.0), inside(c, may_continue=True):
        c.emit(f"{number} = {name} // 536870912")
        c.scopes[-1].append(Variable(number, "i", -4, 3, frozen=True))
        c.statements(1)
        for carried in c.variables("f", (), assignable=True)[:1]:
            c.emit(f"{carried.name} = 0.6 * {carried.name} + 0.1 * {number}")
    return True


_HEADER = re.compile(r"^    for (i\d+) in range\((\d+)\):$", re.MULTILINE)
_PAIRS = re.compile(r"^    for (i\d+), (i\d+) in qd\.ndrange\((\d+), (\d+)\):$", re.MULTILINE)
_WIDE_STARTS = (_LAST, _LAST - 1, _FIRST - 2, _WHOLE - 2, -_WHOLE - 1, 1 << 40, -(1 << 62))


def _move_items(c: Context, body: str, parameters: list[str], values: list[Any]) -> str:
    """Let work items of parallel loops have numbers near the ends, or far from each other."""

    def wide(name: str, count: int) -> tuple[str, str]:
        """Bounds in i64 that are beyond 2^31, or pass it, and the number of a work item."""
        c.note("work items with numbers of 64 bits")
        if c.chance(0.2):  # which would wrap in an i32, but needs no more bits
            start = c.pick([0, 1, -3])
            number = f"{name}_far * 65536 * 65536 // 65536 // 65536 - ({start})"
            return f"qd.i64({start}), {start + count}", f"{name} = qd.i32({number})"
        start = c.pick([*_WIDE_STARTS, (1 << 63) - 1 - count])
        first, last = f"({start})", str(start + count)
        if c.chance(0.5):  # known at run time only
            first = f"{name}_first"
            last = f"{first} + {count}"
            parameters.append(f"{first}: qd.i64")
            values.append(start)
        return f"{first}, {last}", f"{name} = qd.i32({name}_far - {first})"

    def moved_pair(match: re.Match[str]) -> str:
        if not c.chance(0.5):
            return match[0]
        one, other = wide(match[1], int(match[3])), wide(match[2], int(match[4]))
        bounds = f"({one[0]}), ({other[0]})"
        header = f"    for {match[1]}_far, {match[2]}_far in qd.ndrange({bounds}):"
        return f"{header}\n        {one[1]}\n        {other[1]}"

    def moved(match: re.Match[str]) -> str:
        name, count = match[1], int(match[2])
        if not c.chance(0.7):
            return match[0]
        if c.chance(0.5):
            bounds, number = wide(name, count)
            return f"    for {name}_far in range({bounds}):\n        {number}"
        c.note("work items with numbers near the ends")
        far = f"{name}_far"
        start = c.pick([_FIRST, _LAST - count, 1 << 30])
        step = c.pick([1, 1, -1, (_WHOLE - 1) // (count + 1)])
        if step == 1:
            return (
                f"    for {far} in range({start}, {start + count}):\n"
                f"        {name} = {far} - ({start})"
            )
        if step == -1:
            start = max(start, _FIRST + count)
            return (
                f"    for {far} in range({start}, {start - count}, -1):\n"
                f"        {name} = {start} - {far}"
            )
        return (
            f"    for {far} in range({_FIRST}, {_FIRST + count * step}, {step}):\n"
            f"        {name} = qd.i32((qd.i64({far}) + {-_FIRST}) // {step})"
        )

    return _HEADER.sub(moved, _PAIRS.sub(moved_pair, body))


def _declare(shared: Shared) -> list[str]:
    """An array of one axis for the rows of work items."""
    first = shared.arrays[0].shape[0]
    width = shared.rng.choice([1, 2, 3])
    is_field = shared.rng.random() < 0.5
    shared.arrays.append(ArrayInfo(shared.fresh("flat"), "f", (first * width,), (), is_field))
    return []


def _index_of_any(c: Context, depth: int) -> Expr | None:
    """An index that fits an array of few elements, after it was large."""
    made = _large(c, depth)
    return None if made is None else within(c, made, 3)


PRODUCTIONS = Productions(
    integers=[
        (2.0, _around),
        (1.0, _vanishing),
        (1.5, _divided),
        (2.0, _large),
        (0.5, _index_of_any),
        (1.0, _cut_off),
    ],
    statements=[(2.0, _store_around), (2.5, _flat_rows), (1.5, _wide_range)],
    declare=_declare,
    kernel=_move_items,
)
