"""Which elements of its arrays a launch may read and write, as far as arguments tell.

The answer is a generated function of the arguments: intervals of indices are computed from
constants, scalar arguments, extents, and the bounds of loops; what depends on anything else covers
its whole axis. With integers that leave 32 bits on the way, everything does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from octants.ir import ops
from octants.ir.core import Array, Block, Companion, Module, Operation, Space, Value

Box = tuple[tuple[int, int], ...]
Region = tuple[Box, ...] | None
"""Boxes of elements, by inclusive intervals of the indices of each axis; None is the whole array.

A box with an empty interval has no elements.
"""

FARTHEST = 2**31 - 1
_COUNTING = ("i32", "i64")
_MOST_BOXES = 6


@dataclass(frozen=True, slots=True)
class Accessed:
    """What a launch does with an array: what it may read, and what it may write."""

    read: Region
    written: Region


def intersect(one: Region, other: Region) -> bool:
    """Whether two regions of one array may have an element in common."""
    if one is None or other is None:
        return one != () and other != ()
    return any(_boxes_meet(a, b) for a in one for b in other)


def _boxes_meet(one: Box, other: Box) -> bool:
    for (low, high), (other_low, other_high) in zip(one, other, strict=True):
        if low > other_high or other_low > high or low > high or other_low > other_high:
            return False
    return True


def unite(one: Region, other: Region) -> Region:
    """What is in one region or in the other."""
    if one is None or other is None:
        return None
    return tuple(dict.fromkeys((*one, *other)))


def tidy(region: Region) -> Region:
    """The same elements in fewer boxes: those that are one box together become one."""
    if region is None or len(region) < 2:
        return region
    boxes: list[Box] = []
    for box in region:
        position = 0
        while position < len(boxes):
            merged = _merged(boxes[position], box)
            if merged is None:
                position += 1
            else:
                del boxes[position]
                box, position = merged, 0
        boxes.append(box)
    return tuple(boxes)


def _merged(one: Box, other: Box) -> Box | None:
    """The box that two boxes are together, if they are one."""
    pairs = list(zip(one, other, strict=True))
    different = [axis for axis, (a, b) in enumerate(pairs) if a != b]
    if not different:
        return one
    for inner, outer in ((one, other), (other, one)):
        if all(b[0] <= a[0] and a[1] <= b[1] for a, b in zip(inner, outer, strict=True)):
            return outer
    (low, high), (other_low, other_high) = pairs[different[0]]
    if len(different) > 1 or low > other_high + 1 or other_low > high + 1:
        return None
    if low > high or other_low > other_high:  # one of them has no elements
        return None
    united = min(low, other_low), max(high, other_high)
    return (*one[: different[0]], united, *one[different[0] + 1 :])


def make_regions(
    module: Module,
    count: int,
    scalar: Callable[[Array], str],
    extent: Callable[[Array, int], str],
) -> Callable[..., Mapping[int, Accessed]]:
    """A function of ``count`` arguments: what a launch accesses, by position of the array.

    In generated code argument k is ``ak``; ``scalar`` and ``extent`` give the expressions of a
    scalar argument and of an extent of an ndarray.
    """
    return _Generator(module, count, scalar, extent).generate()


Interval = tuple[str, str]


class _Generator:
    def __init__(
        self,
        module: Module,
        count: int,
        scalar: Callable[[Array], str],
        extent: Callable[[Array, int], str],
    ) -> None:
        self.module = module
        self.count = count
        self.scalar = scalar
        self.extent = extent
        self.lines: list[str] = []
        self.names: list[str] = []
        self.intervals: dict[Value, Interval | None] = {}
        self.boxes: dict[tuple[Array, bool], dict[str, None] | None] = {}

    def generate(self) -> Callable[..., Mapping[int, Accessed]]:
        for task in self.module.tasks:
            if task.domain is not None:
                self.block(task.domain)
                lower, upper = (self.intervals.get(value) for value in task.domain.yielded)
                self.counter(task.body.args[0], lower, upper)
            self.block(task.body)
        arguments = ", ".join(f"a{k}" for k in range(self.count))
        checked = ", ".join(self.names)
        lines = [f"def regions({arguments}):", *(f"    {line}" for line in self.lines)]
        if self.names:
            lines.append(f"    if max({checked}, 0) > FAR or min({checked}, 0) < -FAR:")
            lines.append(f"        return {self.result(everything=True)}")
        lines.append(f"    return {self.result()}")
        scope: dict[str, Any] = {"Accessed": Accessed, "FAR": FARTHEST}
        exec("\n".join(lines), scope)
        function: Callable[..., Mapping[int, Accessed]] = scope["regions"]
        if any(f"a{k}" in " ".join(self.lines) for k in range(self.count)):
            return function
        constant = function(*[None] * self.count)
        return lambda *_: constant

    def result(self, everything: bool = False) -> str:
        """The dictionary that is returned, as an expression."""
        entries = []
        for position, array in enumerate(self.module.arrays):
            if array.space in (Space.FIELD, Space.NDARRAY):
                read, written = (self.region(array, w, everything) for w in (False, True))
                entries.append(f"{position}: Accessed({read}, {written})")
        return "{" + ", ".join(entries) + "}"

    def region(self, array: Array, written: bool, everything: bool) -> str:
        boxes = self.boxes.get((array, written), {})
        if boxes is None or (everything and boxes):
            return "None"
        return "(" + "".join(f"{box}, " for box in boxes) + ")"

    # -- accesses -------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        for op in block.ops:
            handler = _HANDLERS.get(type(op))
            if handler is not None:
                handler(self, op)
            elif hasattr(op, "array") and hasattr(op, "indices"):
                self.access(op)
            self.regions_of(op)

    def regions_of(self, op: Operation) -> None:
        if isinstance(op, ops.For):
            self.counter(op.body.args[0], self.get(op.lower), self.get(op.upper))
        for region in op.regions:
            self.block(region)

    def access(self, op: Any) -> None:
        array: Array = op.array
        if op.companion is not Companion.PRIMAL or array.space not in (Space.FIELD, Space.NDARRAY):
            return
        indices = op.indices[: array.rank]
        if not isinstance(op, ops.Store):  # an atomic is both: its result reads
            self.add_box(array, False, indices)
        if not isinstance(op, ops.Load):
            self.add_box(array, True, indices)

    def add_box(self, array: Array, written: bool, indices: Iterable[Value]) -> None:
        """Note an access."""
        intervals = [self.get(index) for index in indices]
        boxes = self.boxes.setdefault((array, written), {})
        if boxes is None:
            return
        if not any(intervals):
            self.boxes[array, written] = None
            return
        pairs = ((f"({x[0]}, {x[1]})" if x else "(0, FAR)") for x in intervals)
        boxes["(" + "".join(f"{pair}, " for pair in pairs) + ")"] = None
        if len(boxes) > _MOST_BOXES:
            self.boxes[array, written] = None

    # -- intervals ------------------------------------------------------------------------------

    def get(self, value: Value) -> Interval | None:
        return self.intervals.get(value)

    def name(self, low: str, high: str) -> Interval:
        """Give an interval names in the generated code."""
        number = len(self.lines)
        self.lines.append(f"l{number} = {low}")
        self.names.append(f"l{number}")
        if low == high:
            return f"l{number}", f"l{number}"
        self.lines.append(f"h{number} = {high}")
        self.names.append(f"h{number}")
        return f"l{number}", f"h{number}"

    def counter(self, value: Value, lower: Interval | None, upper: Interval | None) -> None:
        """The interval of a loop's counter."""
        if lower is not None and upper is not None:
            self.intervals[value] = self.name(lower[0], f"{upper[1]} - 1")

    def constant(self, op: ops.Constant) -> None:
        if op.result.type.is_integer:
            self.intervals[op.result] = (f"({op.value})", f"({op.value})")

    def shape(self, op: ops.Shape) -> None:
        expression = self.extent(op.array, op.axis)
        self.intervals[op.result] = self.name(expression, expression)

    def load(self, op: ops.Load) -> None:
        array = op.array
        if array.space is not Space.ARGUMENT:
            return self.access(op)
        if not array.element_shape and array.dtype.is_integer:
            expression = self.scalar(array)
            self.intervals[op.result] = self.name(expression, expression)
        return None

    def cast(self, op: ops.Cast) -> None:
        known = self.get(op.x)
        if known is not None and op.result.type.name in _COUNTING:
            self.intervals[op.result] = known

    def select(self, op: ops.Select) -> None:
        one, other = self.get(op.on_true), self.get(op.on_false)
        if one is not None and other is not None and op.result.type.name in _COUNTING:
            low, high = f"min({one[0]}, {other[0]})", f"max({one[1]}, {other[1]})"
            self.intervals[op.result] = self.name(low, high)

    def binary(self, op: ops.Binary) -> None:
        lhs, rhs = self.get(op.lhs), self.get(op.rhs)
        if op.result.type.name not in _COUNTING:  # narrower ones wrap
            return
        if op.fn == "mod" and rhs is not None and rhs[0] == rhs[1]:
            self.remainder(op, lhs, rhs[0])
            return
        rule = _RULES.get(op.fn)
        if lhs is None or rhs is None or rule is None:
            return
        pair = rule(lhs, rhs)
        if pair is not None:
            self.intervals[op.result] = self.name(*pair)

    def remainder(self, op: ops.Binary, lhs: Interval | None, by: str) -> None:
        """``x % by`` with a known ``by``; where it is not positive, nothing is known."""
        if lhs is not None and lhs[0] == lhs[1]:
            exact = f"{lhs[0]} % {by} if {by} > 0 else FAR + 1"
            self.intervals[op.result] = self.name(exact, exact)
        else:
            self.intervals[op.result] = self.name("0", f"{by} - 1 if {by} > 0 else FAR + 1")


def _times(lhs: Interval, rhs: Interval) -> tuple[str, str] | None:
    if lhs[0] == lhs[1]:
        lhs, rhs = rhs, lhs
    if rhs[0] != rhs[1]:
        return None
    products = f"{lhs[0]} * {rhs[0]}", f"{lhs[1]} * {rhs[0]}"
    if lhs[0] == lhs[1]:
        return products[0], products[0]
    return f"min({', '.join(products)})", f"max({', '.join(products)})"


def _quotient(lhs: Interval, rhs: Interval) -> tuple[str, str] | None:
    if rhs[0] != rhs[1]:
        return None
    by = rhs[0]
    return tuple(f"({x} // {by} if {by} > 0 else FAR + 1)" for x in lhs)  # type: ignore[return-value]


_RULES: dict[str, Callable[[Interval, Interval], tuple[str, str] | None]] = {
    "add": lambda a, b: (f"{a[0]} + {b[0]}", f"{a[1]} + {b[1]}"),
    "sub": lambda a, b: (f"{a[0]} - {b[1]}", f"{a[1]} - {b[0]}"),
    "mul": _times,
    "floordiv": _quotient,
    "min": lambda a, b: (f"min({a[0]}, {b[0]})", f"min({a[1]}, {b[1]})"),
    "max": lambda a, b: (f"max({a[0]}, {b[0]})", f"max({a[1]}, {b[1]})"),
}

_HANDLERS: dict[type[Operation], Callable[[_Generator, Any], None]] = {
    ops.Constant: _Generator.constant,
    ops.Shape: _Generator.shape,
    ops.Load: _Generator.load,
    ops.Cast: _Generator.cast,
    ops.Select: _Generator.select,
    ops.Binary: _Generator.binary,
}
