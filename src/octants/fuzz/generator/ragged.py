"""Parallel loops whose work items load the bounds of their own loops.

GPUs sort such work items by their trip counts.
"""

from __future__ import annotations

import contextlib

from octants.fuzz.generator.bounded_expressions import fitting, within
from octants.fuzz.generator.context import ArrayInfo, Context, Productions, Role, Shared, Variable
from octants.fuzz.generator.racy_loops import Scalar

_TYPES = ("i32", "i32", "i32", "i64", "u8", "i8", "i16", "u32", "u64")
_LEAST, _MOST = -2, 6  # bounds
_LONG = 40
_RANGES = [
    *["{t}[{i}]"] * 4,
    *["{t}[{i}], {t}[{i} + 1]"] * 2,
    *["{t}[{p}[{i}]]"] * 2,
    *["qd.min({t}[{i}], {m})", "{t}[{i}] + {m}", "2 * {t}[{i}]", "{t}[{i}] // 2", "7 - {t}[{i}]"],
    *["qd.cast({t}[{i}], qd.i64)", "0, {t}[{i}], 2", "{t}[{i}], 0, -1", "-2, {t}[{i}]"],
    *["{t}[({i} * 3 + 1) % {n}]", "{t}[{p}[{p}[{i}]]]", "{t}[{i}] - {i} % 3", "{u}[{i}]"],
    *["{t}[{u}[{i}] % {n}]", "{m} * {t}[{i}], 9"],
]


def declare(shared: Shared) -> list[str]:
    """Make the arrays of the program: floats, sums, bounds, and indices."""
    rng, n = shared.rng, shared.extents[0]
    fields = rng.choice([True, False])

    def make(prefix: str, sort: str, count: int, *, constant: bool = True) -> ArrayInfo:
        array = ArrayInfo(shared.fresh(prefix), sort, (count,), (), fields, constant=constant)
        shared.arrays.append(array)
        return array

    shared.arrays = []
    make("x", "f", n)
    make("y", "f", n, constant=False)
    make("z", "f", 3, constant=False)
    dtype = rng.choice(_TYPES)
    low = 0 if dtype[0] == "u" else _LEAST
    lengths = [rng.randint(low, _MOST) for _ in range(n + 1)]
    if rng.random() < 0.3:
        lengths[rng.randrange(n)] = _LONG
    if rng.random() < 0.1:
        lengths = [3] * (n + 1)
    for prefix, kind, content in (
        ("t", dtype, lengths),
        ("u", "i32", [rng.randint(0, _MOST) for _ in range(n)]),
        ("p", "i32", [rng.randrange(n) for _ in range(n)]),
    ):
        array = make(prefix, "i", len(content), constant=prefix != "u")
        array.dtype, array.has_grad, array.content = f"qd.{kind}", False, content
    return []


def body(c: Context) -> list[Scalar]:
    """Write the loops of a kernel; gives the numbers that it is passed."""
    count = Variable(c.shared.fresh("m"), "i", 0, 3, frozen=True)
    c.scopes[0].append(count)
    for _ in range(c.pick([1, 1, 2])):
        _loop(c, count.name)
    return [(count, "qd.i32", c.integer(0, 3))]


def _loop(c: Context, count: str) -> None:
    """A parallel loop with a loop in each work item."""
    n, item, carried = c.shared.extents[0], c.shared.fresh("i"), c.shared.fresh("s")
    x, y, z, lengths, own, indices = (array.name for array in c.shared.arrays)
    c.roles = {x: Role("read"), z: Role("accumulate")}
    first = c.pick([0, 0, 0, 1])
    with c.block(f"for {item} in range({first}, {n}):", trips=float(n)):
        c.scopes[-1].append(Variable(item, "i", 0, n - 1, frozen=True))
        if c.chance(0.3):
            c.note("ragged: bounds change before they are loaded")
            c.emit(f"{own}[{item}] = ({own}[{item}] + {count}) % {_MOST}")
        c.emit(f"{carried} = {fitting(c, 1.0, 1).text}")
        names = {"i": item, "t": lengths, "u": own, "p": indices, "m": count, "n": n}
        _inner(c, c.pick(_RANGES).format(**names), carried)
        if c.chance(0.25):
            c.note("ragged: bounds change after they are loaded")
            c.emit(f"{own}[{item}] = ({own}[{item}] * 3 + 1) % {_MOST}")
        if c.chance(0.25):
            c.note("ragged: two loops")
            _inner(c, c.pick(_RANGES).format(**names), carried)
        c.emit(f"{y}[{item}] = {carried}")
        if c.chance(0.4):
            c.emit(f"{z}[{within(c, c.whole(0), 3).text}] += {_share(n)} * {carried}")
    c.roles = {}


def _inner(c: Context, bounds: str, carried: str) -> None:
    """A loop of a work item, perhaps with another one inside."""
    x, _, z, *_, indices = (array.name for array in c.shared.arrays)
    n, counter = c.shared.extents[0], c.shared.fresh("k")
    c.note(f"ragged: {'a span' if ',' in bounds else 'an end'}")
    with c.block(f"for {counter} in range({bounds}):", trips=3.0):
        c.scopes[-1].append(Variable(counter, "i", -9, _LONG + 9, frozen=True))
        with contextlib.ExitStack() as blocks:
            if c.chance(0.5):
                c.note("ragged: a loop inside")
                inside, end = c.shared.fresh("k"), c.pick(["2", "3", f"{counter} % 3"])
                blocks.enter_context(c.block(f"for {inside} in range({end}):", trips=1.5))
            extra = c.pick([f"0.01 * {counter}", f"{x}[{indices}[{counter} % {n}]]"])
            c.emit(f"{carried} = 0.8 * qd.sin({carried} + {extra}) + {fitting(c, 0.2, 1).text}")
            if c.chance(0.2):
                with c.block(f"if {carried} > 0.9:"):
                    c.emit("break")
        if c.chance(0.3):
            c.note("ragged: a sum in the loop")
            c.emit(f"{z}[{c.pick(['0', f'{counter} % 3'])}] += {_share(n)} * {carried}")


def _share(n: int) -> float:
    """A factor with which sums over work items stay small."""
    return round(1.0 / (10 * n), 5)


PRODUCTIONS = Productions(declare=declare)
