"""Stencils: work items that read, or add to, elements at constant distances from their own.

Boundaries are left out, wrap around, are clamped, or are tested, in some loops each side in another
way. Where loops are folded, several work items have one element. Some loops begin at a
number that is passed, so that their first work items fill a part of the lanes only.
"""

from __future__ import annotations

import contextlib
from typing import Any

from octants.fuzz.generator.context import ArrayInfo, Context, Productions, Shared, Variable
from octants.fuzz.generator.racy_loops import Scalar

_ROWS = 4  # the most rows of a grid
_DISTANCES = [*[0] * 8, *[1, -1] * 6, *[2, -2] * 3, 3, -3, 7, -8]
_INSIDE = ["wraps", *["clamped", "tested"] * 3]
_LANES = 8
_BOUNDARIES = ["left out", "wraps", "wraps", "clamped", "tested", "folded", *["mixed"] * 3]


def declare(shared: Shared) -> list[str]:
    """Make the arrays of the program: two that are read, and two for results."""
    rng, n = shared.rng, shared.extents[0]
    is_grid = rng.random() < 0.3
    shape = (rng.randint(1, _ROWS), n) if is_grid else (n,)
    fields = rng.random() < 0.3
    arrays = [ArrayInfo(shared.fresh(prefix), "f", shape, (), fields) for prefix in "xwyz"]
    for array in arrays[:2]:
        array.constant = True
    shared.arrays = arrays
    return []


def body(c: Context) -> list[Scalar]:
    """Write the loops of a kernel."""
    beginning = Variable(c.shared.fresh("m"), "i", 0, _LANES, frozen=True)
    for _ in range(c.pick([1, 1, 2])):
        _Loop(c, beginning.name).write()
    is_used = any(beginning.name in line for line in c.lines)
    return [(beginning, "qd.i32", c.integer(0, _LANES))] if is_used else []


class _Loop:
    """A parallel loop that is being written."""

    def __init__(self, c: Context, argument: str) -> None:
        self.c = c
        self.inputs, self.targets = c.shared.arrays[:2], c.shared.arrays[2:]
        self.shape = self.targets[0].shape
        self.items = [c.shared.fresh(prefix) for prefix in "ij"[: len(self.shape)]]
        self.boundary = c.pick(_BOUNDARIES)
        self.is_mixed = self.boundary == "mixed"
        self.sides = dict.fromkeys((-1, 1), self.boundary)
        if self.is_mixed:
            self.sides = {side: c.pick(_INSIDE) for side in (-1, 1)}
        self.by_shape = c.chance(0.8 if self.is_mixed else 0.5)
        distances = [d for d in _DISTANCES if d or not self.is_mixed]
        self.distances = {item: [c.pick(distances) for _ in range(4)] for item in self.items}
        self.counters = list(self.items)
        self.beginning = ""
        if self.is_mixed or c.chance(0.3):
            c.note("stencil: begins anywhere")
            self.beginning = argument
            self.counters[-1] = c.shared.fresh("t")

    def write(self) -> None:
        c = self.c
        c.note(f"stencil: boundary {self.boundary}")
        with c.block(self._header()):
            if self.beginning:
                c.emit(f"{self.items[-1]} = {self.counters[-1]} - {self.beginning}")
            if self.boundary == "folded" or c.chance(0.7 if self.is_mixed else 0.5):
                c.note("stencil: adds to neighbours")
                if self.is_mixed:
                    self._add(None)
                for k in range(c.integer(3, 4) if self.is_mixed else c.integer(2, 5)):
                    self._add(k % 4)
            else:
                c.note("stencil: reads neighbours")
                total = c.shared.fresh("s")
                c.emit(f"{total} = 0.1")
                for k in range(c.integer(2, 5)):
                    with self._guard(k % 4):
                        c.emit(f"{total} += {self._value(k % 4)}")
                own = self.targets[c.integer(0, 1)].at(", ".join(self.items))
                c.emit(f"{own} {c.pick(['=', '=', '+='])} {total}")

    def _header(self) -> str:
        ends = []
        if self.by_shape:
            self.c.note("stencil: bounds of an array's shape")
        for item, extent in zip(self.items, self.shape, strict=True):
            low, high = 0, extent
            if self.boundary == "left out":
                low = max(0, -min(self.distances[item]))
                high = max(low, extent - max(0, *self.distances[item]))
            elif self.boundary == "folded":
                high = extent + 3
            end = self._extent(item, high - extent if high > low else None, high)
            if self.beginning and item == self.items[-1]:
                ends.append(f"{self.beginning} + {low}, {self.beginning} + {end}")
            else:
                ends.append(f"{low}, {end}")
        if len(ends) == 1:
            return f"for {self.counters[0]} in range({ends[0]}):"
        spans = ", ".join(f"({span})" for span in ends)
        return f"for {', '.join(self.counters)} in qd.ndrange({spans}):"

    def _extent(self, item: str, more: int | None, number: int) -> str:
        """A bound: that of the shape and some ``more``, which is a ``number``."""
        if not self.by_shape or more is None:
            return str(number)
        return _moved(f"{self.targets[0].name}.shape[{self.items.index(item)}]", more)

    def _add(self, k: int | None) -> None:
        c = self.c
        target = self.targets[0 if self.is_mixed or c.chance(0.8) else 1]
        value = f"0.5 * qd.sin({self._element(c.pick(self.inputs), None)})"
        if c.chance(0.4):
            value = f"{value} * {self._element(self.inputs[0], None)}"
        with self._guard(k):
            c.emit(f"{self._element(target, k)} {c.pick(['+=', '+=', '-='])} {value}")

    def _value(self, k: int) -> str:
        read = self._element(self.inputs[0], k)
        other = self._element(self.inputs[1], self.c.pick([None, k, 0, 1]))
        return self.c.pick([f"0.3 * {read}", f"{read} * {other}", f"qd.sin({read}) * {other}"])

    def _guard(self, k: int | None) -> contextlib.AbstractContextManager[object]:
        """A test whether an element exists, or another condition, or none."""
        c, tests = self.c, list[str]()
        if k is not None:
            for item, extent in zip(self.items, self.shape, strict=True):
                tests += self._tests(item, extent, self.distances[item][k])
        if c.chance(0.03 if self.is_mixed else 0.2):
            c.note("stencil: under a condition")
            tests.append(f"{self._element(self.inputs[1], None)} > 0.2")
        if not tests:
            return contextlib.nullcontext()
        return c.block(f"if {' and '.join(tests)}:")

    def _tests(self, item: str, extent: int, distance: int) -> list[str]:
        """Tests whether an element at a distance exists: for the most part of one side."""
        at, end = _moved(item, distance), self._extent(item, 0, extent)
        if distance == 0 or self._boundary(distance) != "tested":
            return []
        if self.c.chance(0.2):
            return [f"{at} >= 0", f"{at} < {end}"]
        if distance < 0:
            return [self.c.pick([f"{at} >= 0", f"{item} >= {-distance}"])]
        return [self.c.pick([f"{at} < {end}", f"{item} < {_moved(end, -distance)}"])]

    def _boundary(self, distance: int) -> str:
        return self.sides[-1 if distance < 0 else 1]

    def _clamped(self, item: str, extent: int, distance: int) -> str:
        """The index at a distance, or the first or last one: for the most part of one side."""
        at, end = _moved(item, distance), self._extent(item, -1, extent - 1)
        if self.c.chance(0.2):
            return f"qd.max(qd.min({at}, {end}), 0)"
        return f"qd.max({at}, 0)" if distance < 0 else f"qd.min({at}, {end})"

    def _element(self, array: ArrayInfo, k: int | None) -> str:
        """An element at the distance number ``k``, or the work item's own."""
        indices = []
        for item, extent in zip(self.items, self.shape, strict=True):
            distance = 0 if k is None else self.distances[item][k]
            boundary = self._boundary(distance)
            if boundary == "tested" and k is not None and array in self.inputs[1:]:
                distance = 0  # which is not tested
            at = _moved(item, distance)
            if boundary == "folded" or (distance and boundary == "wraps"):
                at = f"{item} + {extent + distance}" if self.c.chance(0.5) else at
                at = f"({at}) % {self._extent(item, 0, extent)}"
            elif distance and boundary == "clamped":
                at = self._clamped(item, extent, distance)
            indices.append(at)
        return array.at(", ".join(indices))


def _moved(item: str, distance: int) -> str:
    return item if distance == 0 else f"{item} {'+-'[distance < 0]} {abs(distance)}"


def _finish(shared: Shared, lines: list[str], launches: list[Any]) -> tuple[list[str], list[Any]]:
    """Launch kernels whose loops begin anywhere from other numbers, too."""
    more = []
    if "stencil: begins anywhere" in shared.features:
        shared.features["stencil: launched from other numbers"] += 1
        for name, arguments in launches:
            for number in shared.rng.sample(range(_LANES), shared.rng.choice([3, _LANES])):
                given = (number if type(a) is int else a for a in arguments)
                more.append((name, tuple(given)))
    return lines, [*launches, *more]


PRODUCTIONS = Productions(declare=declare, finish=_finish)
