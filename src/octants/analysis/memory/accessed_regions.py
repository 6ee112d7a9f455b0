"""Finds the regions of arrays that a launch may read and write, as functions of its arguments.

The result is a generated function: index ranges are computed from constants, scalar arguments,
extents, and the bounds of loops; an index that depends on anything else covers its whole axis. If
an integer leaves 32 bits on the way, whole arrays count. Neighbouring constant indices form one
interval, and if an array still has many index ranges, the closest are joined.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable
from typing import Any

from octants.analysis.indices.index_ranges import LARGEST_INDEX, Regions, add
from octants.ir import ops
from octants.ir.core import Array, Block, Companion, Module, Operation, Space, Value

_COUNTING = ("i32", "i64")
_MOST_REGIONS = 6


def make_regions(
    module: Module,
    count: int,
    scalar: Callable[[Array], str],
    extent: Callable[[Array, int], str],
    reads: Collection[Operation] | None = None,
) -> Regions:
    """Generate the function from arguments to accessed regions.

    Args:
        module: the kernel.
        count: the number of arguments of the function; in generated code argument k is ``ak``.
        scalar: gives the expression of a scalar argument.
        extent: gives the expression of an extent of an ndarray.
        reads: the operations that count as reads; by default every read.

    Returns:
        The function, whose result is keyed by the position of the array in the module.
    """
    return _Generator(module, count, scalar, extent, reads).generate()


Interval = tuple[str, str]
Ranges = tuple[Interval, ...]
_EVERYTHING = ("0", "FAR")


class _Generator:
    def __init__(
        self,
        module: Module,
        count: int,
        scalar: Callable[[Array], str],
        extent: Callable[[Array, int], str],
        reads: Collection[Operation] | None,
    ) -> None:
        self.module = module
        self.count = count
        self.scalar = scalar
        self.extent = extent
        self.reads = None if reads is None else set(reads)
        self.lines: list[str] = []
        self.names: list[str] = []
        self.intervals: dict[Value, Interval | None] = {}
        self.regions: dict[tuple[Array, bool], list[Ranges] | None] = {}

    def generate(self) -> Regions:
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
        return Regions("\n".join(lines), self.count)

    def result(self, everything: bool = False) -> str:
        """The dictionary that is returned, as an expression."""
        entries = []
        for position, array in enumerate(self.module.arrays):
            if array.space in (Space.FIELD, Space.NDARRAY):
                read, written = (self.region(array, w, everything) for w in (False, True))
                entries.append(f"{position}: Accessed({read}, {written})")
        return "{" + ", ".join(entries) + "}"

    def region(self, array: Array, written: bool, everything: bool) -> str:
        regions = self.regions.get((array, written), [])
        if regions is None or (everything and regions):
            return "None"
        return _tuple(_tuple(f"({low}, {high})" for low, high in ranges) for ranges in regions)

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
        if isinstance(op, ops.If):
            for result, *values in zip(op.results, *(r.yielded for r in op.regions), strict=True):
                self.choice(result, *values)

    def access(self, op: Any) -> None:
        array: Array = op.array
        if op.companion is not Companion.PRIMAL or array.space not in (Space.FIELD, Space.NDARRAY):
            return
        indices = op.indices[: array.rank]
        # An atomic reads, too.
        if op in self.reads if self.reads is not None else not isinstance(op, ops.Store):
            self.add_access(array, False, indices)
        if not isinstance(op, ops.Load):
            self.add_access(array, True, indices)

    def add_access(self, array: Array, written: bool, indices: Iterable[Value]) -> None:
        """Add the elements that an access may touch to the region of its array."""
        intervals = [self.get(index) for index in indices]
        regions = self.regions.setdefault((array, written), [])
        if regions is None:
            return
        if not any(intervals):
            self.regions[array, written] = None
            return
        add(regions, tuple(interval or _EVERYTHING for interval in intervals), _merged)
        if len(regions) > _MOST_REGIONS:
            one, other = min(itertools.combinations(regions, 2), key=_distance)
            regions.remove(one)
            regions.remove(other)
            add(regions, tuple(map(self.hull, one, other)), _merged)

    def hull(self, one: Interval, other: Interval) -> Interval:
        """The interval that contains two intervals."""
        if one == other or other == _EVERYTHING:
            return other
        if one == _EVERYTHING:
            return one
        if _is_constant(*one, *other):
            ends = [*map(_number, one), *map(_number, other)]
            return f"({min(ends)})", f"({max(ends)})"
        return self.name(f"min({one[0]}, {other[0]})", f"max({one[1]}, {other[1]})")

    # -- intervals ------------------------------------------------------------------------------

    def get(self, value: Value) -> Interval | None:
        return self.intervals.get(value)

    def name(self, low: str, high: str) -> Interval:
        """Give the ends of an interval names in the generated code."""
        number = len(self.lines)
        self.lines.append(f"l{number} = {low}")
        self.names.append(f"l{number}")
        if low == high:
            return f"l{number}", f"l{number}"
        self.lines.append(f"h{number} = {high}")
        self.names.append(f"h{number}")
        return f"l{number}", f"h{number}"

    def counter(self, value: Value, lower: Interval | None, upper: Interval | None) -> None:
        """Note the interval of a loop's counter."""
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
            expression = f"int({self.scalar(array)})"  # an integer of numpy would wrap
            self.intervals[op.result] = self.name(expression, expression)
        return None

    def cast(self, op: ops.Cast) -> None:
        known = self.get(op.x)
        if known is None or op.result.type.name not in _COUNTING:
            return
        if _is_constant(*known) and max(abs(_number(end)) for end in known) > LARGEST_INDEX:
            return  # the conversion may wrap; intervals with names are checked
        self.intervals[op.result] = known

    def select(self, op: ops.Select) -> None:
        self.choice(op.result, op.on_true, op.on_false)

    def extract(self, op: ops.Extract) -> None:
        self.choice(op.result, *op.components)

    def choice(self, result: Value, *values: Value) -> None:
        """Note the interval of a value that is one of several values."""
        intervals = [known for known in map(self.get, values) if known is not None]
        if len(intervals) == len(values) and result.type.name in _COUNTING:
            self.intervals[result] = functools.reduce(self.hull, intervals)

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
        """``x % by`` with a known ``by``; if that is not positive, the interval is unknown."""
        if lhs is not None and lhs[0] == lhs[1]:
            exact = f"{lhs[0]} % {by} if {by} > 0 else FAR + 1"
            self.intervals[op.result] = self.name(exact, exact)
        else:
            self.intervals[op.result] = self.name("0", f"{by} - 1 if {by} > 0 else FAR + 1")


def _tuple(items: Iterable[str]) -> str:
    return "(" + "".join(f"{item}, " for item in items) + ")"


def _is_constant(*ends: str) -> bool:
    return all(end.startswith("(") for end in ends)


def _merged(one: Ranges, other: Ranges) -> Ranges | None:
    """The index ranges that two form together, if their text shows that they do."""
    different = [axis for axis, pair in enumerate(zip(one, other, strict=True)) if len({*pair}) > 1]
    if not different:
        return one
    axis = different[0]
    if len(different) > 1 or not _is_constant(*one[axis], *other[axis]):
        return None
    (low, high), (first, last) = (sorted(map(_number, ranges[axis])) for ranges in (one, other))
    if low > last + 1 or first > high + 1:
        return None
    return (*one[:axis], (f"({min(low, first)})", f"({max(high, last)})"), *one[axis + 1 :])


def _number(end: str) -> int:
    return int(end[1:-1])


def _distance(pair: tuple[Ranges, Ranges]) -> int:
    """How different two index ranges are: few axes count less than many, and so do later ones."""
    axes = enumerate(zip(*map(reversed, pair), strict=True))
    return sum(4**axis for axis, (one, other) in axes if one != other)


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
    ops.Extract: _Generator.extract,
    ops.Binary: _Generator.binary,
}
