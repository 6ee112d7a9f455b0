"""Stencils: work items that read, or add to, elements at constant distances from their own.

Boundaries are left out, wrap around, are clamped, or are tested. Where loops are folded, several
work items have one element.
"""

from __future__ import annotations

import contextlib

from octants.fuzz.generator.context import ArrayInfo, Context, Productions, Shared
from octants.fuzz.generator.racy_loops import Scalar

_ROWS = 4  # the most rows of a grid
_DISTANCES = [*[0] * 4, *[1, -1] * 3, 2, -2, 3]
_BOUNDARIES = ["left out", "wraps", "wraps", "wraps", "clamped", "tested", "folded"]


def declare(shared: Shared) -> list[str]:
    """Make the arrays of the program: two that are read, and two for results."""
    rng, n = shared.rng, shared.extents[0]
    is_grid = rng.random() < 0.5
    shape = (rng.randint(1, _ROWS), n) if is_grid else (n,)
    fields = rng.choice([True, False])
    arrays = [ArrayInfo(shared.fresh(prefix), "f", shape, (), fields) for prefix in "xwyz"]
    for array in arrays[:2]:
        array.constant = True
    shared.arrays = arrays
    return []


def body(c: Context) -> list[Scalar]:
    """Write the loops of a kernel."""
    for _ in range(c.pick([1, 1, 2])):
        _Loop(c).write()
    return []


class _Loop:
    """A parallel loop that is being written."""

    def __init__(self, c: Context) -> None:
        self.c = c
        self.inputs, self.targets = c.shared.arrays[:2], c.shared.arrays[2:]
        self.shape = self.targets[0].shape
        self.items = [c.shared.fresh(prefix) for prefix in "ij"[: len(self.shape)]]
        self.boundary = c.pick(_BOUNDARIES)
        self.by_shape = c.chance(0.5)
        self.distances = {item: [c.pick(_DISTANCES) for _ in range(4)] for item in self.items}

    def write(self) -> None:
        c = self.c
        c.note(f"stencil: boundary {self.boundary}")
        with c.block(self._header()):
            if self.boundary == "folded" or c.chance(0.5):
                c.note("stencil: adds to neighbours")
                for k in range(c.integer(2, 5)):
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
            ends.append((low, self._extent(item, high - extent if high > low else None, high)))
        if len(ends) == 1:
            return f"for {self.items[0]} in range({ends[0][0]}, {ends[0][1]}):"
        spans = ", ".join(f"({low}, {high})" for low, high in ends)
        return f"for {', '.join(self.items)} in qd.ndrange({spans}):"

    def _extent(self, item: str, more: int | None, number: int) -> str:
        """A bound: that of the shape and some ``more``, which is a ``number``."""
        if not self.by_shape or more is None:
            return str(number)
        return _moved(f"{self.targets[0].name}.shape[{self.items.index(item)}]", more)

    def _add(self, k: int) -> None:
        c = self.c
        target = self.targets[0 if c.chance(0.8) else 1]
        value = f"0.5 * qd.sin({self._element(c.pick(self.inputs), None)})"
        if c.chance(0.4):
            value = f"{value} * {self._element(self.inputs[0], None)}"
        with self._guard(k):
            c.emit(f"{self._element(target, k)} {c.pick(['+=', '+=', '+=', '-='])} {value}")

    def _value(self, k: int) -> str:
        read = self._element(self.inputs[0], k)
        other = self._element(self.inputs[1], self.c.pick([None, k, 0, 1]))
        return self.c.pick([f"0.3 * {read}", f"{read} * {other}", f"qd.sin({read}) * {other}"])

    def _guard(self, k: int) -> contextlib.AbstractContextManager[object]:
        """A test whether an element exists, or another condition, or none."""
        c, tests = self.c, list[str]()
        if self.boundary == "tested":
            for item, extent in zip(self.items, self.shape, strict=True):
                at = _moved(item, self.distances[item][k])
                tests += [f"{at} >= 0", f"{at} < {extent}"] if at != item else []
        if c.chance(0.2):
            c.note("stencil: under a condition")
            tests.append(f"{self._element(self.inputs[1], None)} > 0.2")
        if not tests:
            return contextlib.nullcontext()
        return c.block(f"if {' and '.join(tests)}:")

    def _element(self, array: ArrayInfo, k: int | None) -> str:
        """An element at the distance number ``k``, or the work item's own."""
        indices = []
        for item, extent in zip(self.items, self.shape, strict=True):
            distance = 0 if k is None else self.distances[item][k]
            if self.boundary == "tested" and k is not None and array in self.inputs[1:]:
                distance = 0  # which is not tested
            at = _moved(item, distance)
            if self.boundary == "folded" or (distance and self.boundary == "wraps"):
                at = f"{item} + {extent + distance}" if self.c.chance(0.5) else at
                at = f"({at}) % {self._extent(item, 0, extent)}"
            elif distance and self.boundary == "clamped":
                at = f"qd.max(qd.min({at}, {extent - 1}), 0)"
            indices.append(at)
        return array.at(", ".join(indices))


def _moved(item: str, distance: int) -> str:
    return item if distance == 0 else f"{item} {'+-'[distance < 0]} {abs(distance)}"


PRODUCTIONS = Productions(declare=declare)
