"""Loops within a work item: counted, conditional, unrolled."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from octants.fuzz.generator import array_elements, integers
from octants.fuzz.generator.bounded_expressions import fitting, within
from octants.fuzz.generator.context import ArrayInfo, Context, Productions, Variable

MAX_TRIPS = 5
MAX_NEST = 3


def counted(c: Context) -> bool | None:
    """A ``for`` over a range."""
    limit = _limit(c)
    top_level = c.serial and not c.run_time_loops
    if limit < 1 or (top_level and c.chance(0.5)):
        return None
    header, variable = _range(c, limit)
    c.note("for" if not c.loops else f"for nested {len(c.loops) + 1} deep")
    if top_level:
        c.note("serialised loop")  # where it would be parallel, should branches be decided early
        c.emit("qd.loop_config(serialize=True)")
    if c.chance(0.08):
        return _over_points(c)
    with c.block(f"for {variable.name} in {header}:", trips=limit * 0.7), inside(c, True):
        c.scopes[-1].append(variable)
        _body(c)
    return True


def _over_points(c: Context) -> bool:
    """A serial loop over two indices, or over those of an array."""
    fields = [a for a in c.shared.arrays if a.is_field and not a.cells]
    arrays = [a for a in fields if len(a.shape) == 2 and math.prod(a.shape) <= 8]
    first, second = (c.shared.fresh("k") for _ in range(2))
    extents: tuple[int, ...] = (2, c.integer(2, 3))
    over = f"qd.ndrange({extents[0]}, {extents[1]})"
    c.note("serial ndrange")
    if arrays and c.chance(0.5):
        array = c.pick(arrays)
        over, extents = array.name, array.shape
        c.note("serial struct-for")
    header = f"for {first}, {second} in {over}:"
    with c.block(header, trips=4.0), inside(c, True):
        for name, extent in zip((first, second), extents, strict=True):
            c.scopes[-1].append(_counter(name, 0, extent - 1))
        _body(c)
    return True


def long(c: Context) -> bool | None:
    """A loop of many iterations with a short body: the tape grows, into blocks if it is small."""
    trips = c.pick([12, 33, 70, 150])
    variables = c.variables("f", (), assignable=True)
    if len(variables) < 1 or c.trips * trips > 900 or (c.serial and not c.run_time_loops):
        return None
    c.note("long loop")
    name = c.shared.fresh("k")
    with c.block(f"for {name} in range({trips}):", trips=trips * 0.2), inside(c, True):
        for variable in c.rng.sample(variables, min(2, len(variables))):
            form = c.pick(["0.9 * {0} + 0.1 * qd.sin({1})", "qd.sin({0} + 0.05 * {1})"])
            element = array_elements.load(c, "f")
            elements = [] if element is None else [element.text] * 2
            other = c.pick([*(v.name for v in variables), f"(0.01 * {name})", *elements])
            c.emit(f"{variable.name} = {form.format(variable.name, other)}")
    return True


def features(c: Context) -> bool | None:
    """A sum of waves, which each iteration of the loop around it adds up again."""
    variables = c.variables("f", (), assignable=True)
    units, waves = c.integer(2, 4), c.integer(2, 5)
    if not variables or c.loops or not c.affordable(units * waves):
        return None
    if c.depth > 3 or (c.serial and not c.run_time_loops):
        return None
    c.note("sum of features")
    target = c.pick(variables).name
    value = fitting(c, 1.0, 1).text
    place = c.declare("s", "f", -1.0, 1.0, frozen=True)
    c.emit(f"{place.name} = {value}")
    total, unit, wave = (c.shared.fresh(kind) for kind in "skk")
    fn = c.pick(["qd.sin", "qd.cos", "qd.tanh"])
    with c.block(f"for {unit} in range({units}):", trips=units), inside(c, True):
        c.emit(f"{total} = {target if c.chance(0.5) else '0.1'}")
        with c.block(f"for {wave} in range({waves}):", trips=waves), inside(c, True):
            c.emit(f"{total} += 0.2 * ({unit} + 1) * {fn}(0.4 * ({wave} + 1) * {place.name})")
            if c.chance(0.3):
                with c.block(f"if {c.truth(1)}:", trips=0.5):
                    c.emit(f"{total} *= 0.5")
        c.emit(f"{target} = 0.5 * {target} + 0.3 * qd.sin({total})")
    return True


def unused_invariants(c: Context) -> bool | None:
    """A loop around operations that never run, and would have infinite derivatives if they did.

    They depend on nothing that changes in the loop, so that they may be computed before it.
    """
    variables = c.variables("f", (), assignable=True)
    if not variables or c.loops or not c.affordable(4.0) or c.depth > 3:
        return None
    if c.serial and not c.run_time_loops:
        return None
    c.note("operations of a loop that never run")
    target, counter, zero = c.pick(variables).name, c.shared.fresh("k"), c.shared.fresh("s")
    few = within(c, c.whole(1), 7).text
    c.emit(f"{zero} = {target} - qd.stop_grad({target})")
    term = c.pick(["1.0 / {0}", "qd.sqrt({0})", "{0} / {0}", "qd.log({0})"]).format(zero)
    if c.chance(0.3):
        with c.block(f"for {counter} in range(({few}) - 50):"), inside(c, True):
            c.emit(f"{target} = 0.5 * {target} + 0.1 * ({term})")
        return True
    with c.block(f"for {counter} in range(3):", trips=3), inside(c, True):
        with c.block(f"if {counter} + ({few}) > 50:", trips=0.1):
            c.emit(f"{target} = 0.5 * {target} + 0.1 * ({term})")
        c.emit(f"{target} = 0.9 * {target}")
    return True


def recurrences(c: Context) -> bool | None:
    """A recurrence whose steps add up other recurrences, or functions of other sums.

    The loop of the sum carries nothing else: its reverse needs records of the outer loop, and
    perhaps of the inner ones, but none of the sum's.
    """
    variables = c.variables("f", (), assignable=True)
    most, length = c.integer(2, 4), c.integer(2, 4)
    if not variables or c.loops or not c.affordable(0.5 * most * most * length):
        return None
    if c.depth > 3 or (c.serial and not c.run_time_loops):
        return None
    c.note("recurrence of sums of recurrences")
    target = c.pick(variables).name
    total, value, part, *counters = (c.shared.fresh(kind) for kind in "ssskkk")
    adds_sums = c.chance(0.4)
    if adds_sums:
        c.note("recurrence of sums of sums")
    step, term, number = counters
    fn = c.pick(["qd.sin", "qd.tanh", "qd.cos"])
    steps, terms = (integers.trip_bound(c, most).text for _ in range(2))
    with c.block(f"for {step} in range({steps}):", trips=most), inside(c, True):
        c.emit(f"{total} = 0.0")
        with c.block(f"for {term} in range({terms}):", trips=most), inside(c, True):
            c.emit(f"{value} = {target} + 0.1 * {term}")
            inner = f"{value} = 0.9 * {fn}({value}) + 0.02 * {number}"
            if adds_sums:
                c.emit(f"{part} = {value}")
                inner = f"{part} += 0.2 * {fn}(qd.sin({value} + 0.1 * {number}) + {target})"
            with c.block(f"for {number} in range({length}):", trips=length), inside(c, True):
                c.emit(inner)
            if adds_sums:
                c.emit(f"{value} = 0.5 * {value} + 0.3 * qd.sin({part})")
            c.emit(f"{total} += {round(1 / most, 3)} * {value}")
        c.emit(f"{target} = 0.5 * {target} + 0.3 * qd.sin({total})")
    return True


def pairs(c: Context) -> bool | None:
    """A sum over the rows of an array: what a work item has, with each of them."""
    arrays = [
        array
        for array, role in array_elements.readable(c, "f")
        if role.kind == "read" and array.shape and c.affordable(array.shape[0])
    ]
    if not arrays or c.loops or c.depth > 3 or (c.serial and not c.run_time_loops):
        return None
    array = c.pick(arrays)
    rows = array.shape[0]
    c.note("sum over pairs")
    total, name = c.shared.fresh("s"), c.shared.fresh("k")
    c.emit(f"{total} = {fitting(c, 1.0, 1).text}")
    bounds = [str(rows), f"{array.name}.shape[0]", f"qd.min({c.whole(0).text}, {rows})"]
    with c.block(f"for {name} in range({c.pick(bounds)}):", trips=rows), inside(c, True):
        c.scopes[-1].append(_counter(name, 0, rows - 1))
        _pair(c, array, name, total)
    c.scopes[-1].append(Variable(total, "f", -3.0, 3.0))
    return True


def _pair(c: Context, array: ArrayInfo, name: str, total: str) -> None:
    """The term that a row adds to the total."""
    rest = [str(c.integer(0, extent - 1)) for extent in array.shape[1:]]
    element = array.at(", ".join([name, *rest]))
    if array.element_shape:
        element += array_elements.component(c, array.element_shape)
    there = c.declare("s", "f", array.low, array.high, frozen=True)
    c.emit(f"{there.name} = {element}")
    share = f"{round(2 / array.shape[0], 3)} * qd.sin({there.name} * {fitting(c, 1.0, 1).text})"
    if c.chance(0.3):
        with c.block(f"if {c.truth(1)}:", trips=0.5):
            c.emit(f"{total} += {share}")
    else:
        c.emit(f"{total} {c.pick(['+', '-'])}= {share}")
    if c.chance(0.2):
        c.emit(f"{total} += {round(1 / array.shape[0], 3)} * {fitting(c, 1.0, 1).text}")


def _limit(c: Context) -> int:
    """How many trips a loop here may have; 0 for no loop."""
    if len(c.loops) >= MAX_NEST or c.depth > 5:
        return 0
    limit = MAX_TRIPS if not c.loops else 4
    while limit and not c.affordable(limit):
        limit -= 1
    return limit if limit >= 2 else 0


def _range(c: Context, limit: int) -> tuple[str, Variable]:
    """The text of a range, and its counter."""
    kind = c.rng.choices(["end", "span", "step", "down", "outer"], [5, 1.5, 1.2, 1, 1.5])[0]
    name = c.shared.fresh("k")
    outer = c.recent([v for v in c.variables("i") if v.low >= 0 and v.high <= 6])
    if kind == "outer" and outer is not None:
        c.note("bound from an outer index")
        high = min(int(outer.high) + 1, limit + 2)
        if c.chance(0.5) or outer.high + 1 > limit + 1:
            low = max(0, high - limit)
            return f"range({low}, qd.min({outer.name} + 1, {high}))", _counter(name, low, high - 1)
        return f"range({outer.name}, {high})", _counter(name, 0, high - 1)
    end = integers.trip_bound(c, limit)
    if kind == "span":
        start = c.integer(-2, 2)
        return f"range({start}, {start} + {end.text})", _counter(name, start, start + end.high - 1)
    if kind == "step":
        step = c.integer(2, 3)
        c.note("range with a step")
        return f"range(0, {step} * ({end.text}), {step})", _counter(name, 0, step * (end.high - 1))
    if kind == "down":
        step = c.pick([1, 1, 2])
        c.note("range with a negative step")
        return f"range({end.text}, 0, {-step})", _counter(name, 1, end.high)
    return f"range({end.text})", _counter(name, 0, end.high - 1)


def _counter(name: str, low: float, high: float) -> Variable:
    return Variable(name, "i", low, max(high, low), frozen=True)


@contextmanager
def inside(c: Context, may_continue: bool) -> Iterator[None]:
    """The context of the body of a loop at run time; it may skip an iteration by `continue`."""
    c.loops.append(may_continue)
    c.run_time_loops += 1
    try:
        yield
    finally:
        c.loops.pop()
        c.run_time_loops -= 1


def _body(c: Context) -> None:
    """The statements of a loop; most carry something on."""
    c.statements(c.integer(1, 2))
    variables = c.variables("f", (), assignable=True)
    if variables and c.chance(0.6):
        name = c.pick(variables).name
        c.note("loop-carried scalar")
        c.emit(f"{name} = 0.6 * {name} + {fitting(c, 1.6).text}")


# -- while -----------------------------------------------------------------------------------------


def conditional(c: Context) -> bool | None:
    """A ``while``."""
    limit = _limit(c)
    if limit < 2:
        return None
    form = c.pick([_counting, _counting, _decaying, _breaking])
    c.note("while")
    form(c, limit)
    return True


def _counting(c: Context, limit: int) -> None:
    bound = integers.trip_bound(c, limit)
    counter = c.declare("w", "i", 0, limit, frozen=True)
    c.emit(f"{counter.name} = 0")
    condition = f"{counter.name} < {bound.text}"
    if c.chance(0.5):
        c.note("while on data")
        extra = c.truth(1)
        condition = f"{condition} and ({extra})"
    first = c.chance(0.5)
    with c.block(f"while {condition}:", trips=limit * 0.7), inside(c, first):
        if first:
            c.emit(f"{counter.name} += 1")
        _body(c)
        if not first:
            c.emit(f"{counter.name} += 1")


def _decaying(c: Context, limit: int) -> None:
    """A loop whose trips depend on a float that shrinks."""
    start = fitting(c, 1.5, 1)
    variable = c.declare("h", "f", 0.0, 2.0, frozen=True)
    c.note("while on data")
    c.emit(f"{variable.name} = 0.3 + qd.abs({start.text})")
    ratio = {5: 0.55, 4: 0.5, 3: 0.4}.get(limit, 0.3)
    with c.block(f"while {variable.name} > 0.15:", trips=limit * 0.7), inside(c, True):
        c.emit(f"{variable.name} *= {ratio}")
        _body(c)


def _breaking(c: Context, limit: int) -> None:
    counter = c.declare("w", "i", 0, limit + 1, frozen=True)
    c.emit(f"{counter.name} = 0")
    c.note("while True with break")
    with c.block("while True:", trips=limit * 0.7), inside(c, True):
        c.emit(f"{counter.name} += 1")
        with c.block(f"if {counter.name} > {limit} or {c.truth(0)}:"):
            c.emit("break")
        _body(c)


# -- static ----------------------------------------------------------------------------------------


def unrolled(c: Context) -> bool | None:
    """``for k in static(range(n))``."""
    trips = c.integer(2, 3)
    if c.depth > 3 or not c.affordable(trips):
        return None
    name = c.shared.fresh("q")
    c.note("static for")
    loops, c.loops = c.loops, []
    with c.block(f"for {name} in qd.static(range({trips})):", trips=trips):
        c.scopes[-1].append(Variable(name, "i", 0, trips - 1, frozen=True))
        _body(c)
    c.loops = loops
    return True


# -- else ------------------------------------------------------------------------------------------


def _with_else(c: Context) -> bool | None:
    """A loop that may be left, and what runs if it is not."""
    limit = _limit(c)
    if limit < 2 or (c.serial and not c.run_time_loops) or not c.affordable(limit + 1):
        return None
    c.note("else of a loop")
    if c.chance(0.3):
        _counting(c, limit)
    else:
        name, bound = c.shared.fresh("k"), integers.trip_bound(c, limit)
        with c.block(f"for {name} in range({bound.text}):", trips=limit * 0.7), inside(c, True):
            c.scopes[-1].append(_counter(name, 0, limit - 1))
            with c.block(f"if {c.truth()}:"):
                c.emit("break")
            _body(c)
    with c.block("else:"):
        c.statements(1)
    return True


ELSE = Productions(statements=((3.0, _with_else),))
FEATURES = Productions(statements=((6.0, features), (6.0, recurrences), (3.0, unused_invariants)))
