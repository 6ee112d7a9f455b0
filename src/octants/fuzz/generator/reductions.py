"""Serial loops that reduce: sums, counts, flags, extrema and where they are, several at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from octants.fuzz.generator import array_elements, integers, loops
from octants.fuzz.generator.bounded_expressions import fitting, within
from octants.fuzz.generator.context import Context, Productions, Variable

Part = Iterator[None]
"""The writer of a reduced value: its start, the statements of an iteration, then its results."""

_MOST = 24  # iterations
_CELLS = 9  # around a work item, with its own
_MOST_COST = 1500.0  # of a function that has such loops


def reduce(c: Context) -> bool | None:
    """A loop whose iterations add to some values, of which later statements know the results."""
    if c.loops or c.depth > 3 or (c.serial and not c.run_time_loops):
        return None
    counter, (header, most) = c.shared.fresh("k"), _range(c)
    cells = _CELLS if c.chance(0.3) else 1
    if c.cost + 2 * c.trips * _MOST * cells > _MOST_COST:
        return None
    c.note("reduction")
    table = c.pick([_SUMS, _PARTS])
    parts = [c.pick(table)(c, counter, most * cells) for _ in range(c.integer(1, 3))]
    for part in parts:
        next(part)
    with contextlib.ExitStack() as blocks:
        if cells > 1:
            _over_cells(c, blocks)
        blocks.enter_context(c.block(f"for {counter} in {header}:", trips=most))
        blocks.enter_context(loops.inside(c, may_continue=True))
        c.scopes[-1].append(Variable(counter, "i", 0, most, frozen=True))
        _term(c, counter)
        for part in parts:
            next(part)
        if (table is _PARTS or cells > 1) and c.chance(0.3):
            c.statements(1)
    for part in parts:
        next(part, None)
    return True


def _over_cells(c: Context, blocks: contextlib.ExitStack) -> None:
    """Loops over the neighbours of a cell, some of which may be outside of the grid."""
    c.note("reduction: over the neighbours of a cell")
    steps = [c.shared.fresh("k") for _ in range(2)]
    if c.chance(0.5):
        cell = c.shared.fresh("k")
        header = f"for {cell} in qd.grouped(qd.ndrange((-1, 2), (-1, 2))):"
        blocks.enter_context(c.block(header, trips=_CELLS))
        for axis, step in enumerate(steps):
            c.emit(f"{step} = {cell}[{axis}]")
            c.scopes[-1].append(Variable(step, "i", -1, 1, frozen=True))
    else:
        for step in steps:
            blocks.enter_context(c.block(f"for {step} in range(-1, 2):", trips=3.0))
            c.scopes[-1].append(Variable(step, "i", -1, 1, frozen=True))
    if c.chance(0.6):
        blocks.enter_context(c.block(f"if {c.truth(1)}:", trips=0.8))


def _range(c: Context) -> tuple[str, int]:
    """The text of a range from 0 or more, and the greatest counter."""
    few = integers.trip_bound(c, 5).text
    many = f"17 + ({within(c, c.whole(1), 5).text})"
    number = c.integer(17, 20)
    forms = [f"range({few})", f"range({number})", f"range({many})", f"range(1, {many})"]
    forms += [f"range(0, {many}, 2)", f"range({many}, 0, -1)", f"range({number}, {many})"]
    return c.pick(forms), _MOST


def _term(c: Context, counter: str) -> None:
    """A term that iterations reduce: an element of an array, or a wave."""
    arrays = [a for a, role in array_elements.readable(c, "f") if role.kind == "read" and a.shape]
    text = f"0.3 * {counter}"
    if arrays:
        array = c.pick(arrays)
        rest = [str(c.integer(0, extent - 1)) for extent in array.shape[1:]]
        element = array.at(", ".join([f"{counter} % {array.shape[0]}", *rest]))
        if array.element_shape:
            element += array_elements.component(c, array.element_shape)
        text = f"{element} + 0.1 * {counter}" if c.chance(0.5) else element
    value = fitting(c, 1.0, 1).text
    term = c.declare("s", "f", -1.0, 1.0, frozen=True)
    c.emit(f"{term.name} = qd.{c.pick(['sin', 'cos', 'tanh'])}({text} + {value})")


def _share(c: Context, most: int) -> str:
    """A term that an iteration adds to a sum."""
    return f"{round(1.5 / most, 3)} * ({fitting(c, 1.0, 1).text})"


def _condition(c: Context) -> str:
    term = c.scopes[-1][1]  # behind the counter
    return c.truth(1) if c.chance(0.4) else f"{term.name} > {round(c.rng.uniform(-0.5, 0.9), 2)}"


# -- what is reduced -------------------------------------------------------------------------------


def _sum(c: Context, _: str, most: int) -> Part:
    total = c.shared.fresh("s")
    c.emit(f"{total} = {fitting(c, 1.0, 1).text}")
    yield
    kind = c.pick(["always", "always", "if", "else"])
    if kind == "always":
        _add(c, total, most)
    else:
        with c.block(f"if {_condition(c)}:", trips=0.5):
            _add(c, total, most)
    if kind == "else":
        with c.block("else:", trips=0.5):
            _add(c, total, most)
    yield
    c.scopes[-1].append(Variable(total, "f", -3.0, 3.0))


def _add(c: Context, total: str, most: int) -> None:
    c.emit(f"{total} {c.pick(['+', '+', '-'])}= {_share(c, most)}")


def _sum_of_sums(c: Context, counter: str, most: int) -> Part:
    c.note("reduction: in an inner loop")
    total, inner = c.shared.fresh("s"), c.shared.fresh("k")
    c.emit(f"{total} = {fitting(c, 1.0, 1).text}")
    yield
    header = f"for {inner} in range({counter} % 3):"
    with c.block(header, trips=2.0), loops.inside(c, may_continue=True):
        _add(c, total, most)
    yield
    c.scopes[-1].append(Variable(total, "f", -6.0, 6.0))


def _flag(c: Context, _: str, most: int) -> Part:
    """Whether a condition held in an iteration so far, with sums before and behind it."""
    c.note("reduction: flag")
    flag, first, other = c.shared.fresh("b"), c.shared.fresh("s"), c.shared.fresh("s")
    c.emit(f"{flag} = {c.pick(['False', 'False', c.truth(0)])}")
    c.emit(f"{first} = 0.0")
    c.emit(f"{other} = {fitting(c, 1.0, 1).text}")
    yield
    reads = c.pick(["never", "before", "behind", "behind"])
    is_always_set = c.chance(0.2)  # so that it tells the first iteration from others
    if reads == "before":
        _add_where(c, flag, other, most)
    condition = "True" if is_always_set else _condition(c)
    with c.block(f"if {condition}:", trips=0.5):
        c.emit(f"{flag} = True")
        if c.chance(0.7):
            c.emit(f"{first} += {_share(c, most)}")
    if reads == "behind":
        _add_where(c, flag, other, most)
    yield
    c.scopes[-1].append(Variable(flag, "b", 0, 1))
    c.scopes[-1] += [Variable(name, "f", -3.0, 3.0) for name in (first, other)]


def _add_where(c: Context, flag: str, total: str, most: int) -> None:
    with c.block(f"if {c.pick(['', 'not '])}{flag}:", trips=0.5):
        _add(c, total, most)


def _count(c: Context, _: str, most: int) -> Part:
    c.note("reduction: count")
    name = c.shared.fresh("n")
    c.emit(f"{name} = 0")
    yield
    with c.block(f"if {_condition(c)}:", trips=0.5):
        c.emit(f"{name} += {c.integer(1, 2)}")
    yield
    c.scopes[-1].append(Variable(name, "i", 0, 2 * most))


def _extreme(c: Context, counter: str, most: int) -> Part:
    """The greatest or least value, and perhaps the iteration that has it."""
    c.note("reduction: extreme")
    is_max, with_index = c.chance(0.5), c.chance(0.6)
    value, index = c.shared.fresh("s"), c.shared.fresh("n")
    c.emit(f"{value} = {-2.0 if is_max else 2.0}")
    if with_index:
        c.emit(f"{index} = 0")
    yield
    candidate = fitting(c, 1.0, 1).text
    if with_index:
        with c.block(f"if {candidate} {'>' if is_max else '<'} {value}:", trips=0.5):
            c.emit(f"{value} = {candidate}")
            c.emit(f"{index} = {counter}")
    else:
        c.emit(f"{value} = qd.{'max' if is_max else 'min'}({value}, {candidate})")
    yield
    c.scopes[-1].append(Variable(value, "f", -2.0, 2.0))
    if with_index:
        c.scopes[-1].append(Variable(index, "i", 0, most))


def _product(c: Context, _: str, most: int) -> Part:
    c.note("reduction: product")
    name = c.shared.fresh("s")
    c.emit(f"{name} = 1.0")
    yield
    c.emit(f"{name} *= 1.0 + {_share(c, most)}")
    yield
    c.scopes[-1].append(Variable(name, "f", -5.0, 5.0))


def _vector(c: Context, counter: str, most: int) -> Part:
    c.note("reduction: vector")
    name = c.shared.fresh("v")
    c.emit(f"{name} = qd.Vector([{fitting(c, 1.0, 1).text}, 0.0, 0.0])")
    yield
    if c.chance(0.5):
        c.emit(f"{name}[{counter} % 3] += {_share(c, most)}")
    else:
        c.emit(f"{name} += qd.Vector([0.5, {fitting(c, 1.0, 1).text}, 1.0]) * ({_share(c, most)})")
    yield
    c.scopes[-1].append(Variable(name, "f", -3.0, 3.0, (3,)))


def _other_type(c: Context, counter: str, most: int) -> Part:
    """A sum of a stated type: of floats, or of integers that wrap."""
    dtype = c.pick(["qd.f64", "qd.f32", "qd.i64"])
    c.note("reduction: sum of a stated type")
    name = c.shared.fresh("d" if dtype != "qd.i64" else "l")
    c.emit(f"{name} = qd.cast(0, {dtype})")
    yield
    share = f"{counter} * 3" if dtype == "qd.i64" else _share(c, most)
    c.emit(f"{name} += qd.cast({share}, {dtype})")
    yield
    sort, bound = ("l", 3.0 * most * most) if dtype == "qd.i64" else ("d", 3.0)
    c.scopes[-1].append(Variable(name, sort, -bound, bound))


Maker = Callable[[Context, str, int], Part]
_SUMS: list[Maker] = [_sum, _sum, _flag, _count, _other_type]
"""Productions that threads may share, mostly."""
_PARTS: list[Maker] = [*_SUMS, _sum_of_sums, _extreme, _product, _vector]
# -- of pairs --------------------------------------------------------------------------------------


def reduce_pairs(c: Context) -> bool | None:
    """A sum over the rows of an array: of functions of each row and of one of the work item."""
    arrays = [a for a, role in array_elements.readable(c, "f") if role.kind == "read" and a.shape]
    numbers = [v for v in c.variables("i", ()) if v.frozen and v.low >= 0]
    pairs = [(a, v) for a in arrays for v in numbers if v.high < a.shape[0]]
    if c.loops or c.serial or not pairs:
        return None
    all_rows = [(a, v) for a, v in pairs if v.high == a.shape[0] - 1]
    array, row = c.pick(all_rows or pairs)
    extent = array.shape[0]
    if c.cost + 2 * c.trips * extent > _MOST_COST:
        return None
    total, counter = c.shared.fresh("s"), c.shared.fresh("k")
    rest = [str(c.integer(0, size - 1)) for size in array.shape[1:]]
    component = [str(c.integer(0, size - 1)) for size in array.element_shape]
    own, other = (
        array.at(", ".join([index, *rest])) + (f"[{', '.join(component)}]" if component else "")
        for index in (row.name, counter)
    )
    difference = f"({other} - {own})"
    forms = [
        f"{own} * {other}",
        f"{difference} / (1.0 + {difference} ** 2)",
        f"qd.sqrt(0.1 + {difference} * {difference}) * {own}",
        f"{own} * {own} + {other} * {counter}",
    ]
    c.note("reduction: pairs")
    c.emit(f"{total} = {fitting(c, 1.0, 1).text}")
    with (
        c.block(f"for {counter} in range({extent}):", trips=extent),
        loops.inside(c, may_continue=True),
    ):
        c.emit(f"{total} += {round(1.5 / extent, 3)} * qd.tanh({c.pick(forms)})")
    c.scopes[-1].append(Variable(total, "f", -3.0, 3.0))
    return True


PRODUCTIONS = Productions(statements=((30.0, reduce), (10.0, reduce_pairs)))
