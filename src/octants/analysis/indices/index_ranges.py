"""Regions of arrays, as unions of index ranges: what a launch may read or write."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from octants.lazy_dataclass import dataclass

IndexRanges = tuple[tuple[int, int], ...]
ArrayRegion = tuple[IndexRanges, ...] | None
"""A union of index ranges; None is the whole array.

Index ranges are an inclusive interval for each axis. With an empty interval they have no elements.
"""

LARGEST_INDEX = 2**31 - 1
AnyRanges = TypeVar("AnyRanges")


@dataclass(frozen=True, slots=True)
class Accessed:
    """The regions of an array that a launch may read, and may write."""

    read: ArrayRegion
    written: ArrayRegion


def intersect(one: ArrayRegion, other: ArrayRegion) -> bool:
    """Whether two regions of one array may have an element in common."""
    if one is None or other is None:
        region = other if one is None else one
        return region is None or any(_overlap(ranges, ranges) for ranges in region)
    return any(_overlap(a, b) for a in one for b in other)


def _overlap(one: IndexRanges, other: IndexRanges) -> bool:
    for (low, high), (other_low, other_high) in zip(one, other, strict=True):
        if low > other_high or other_low > high or low > high or other_low > other_high:
            return False
    return True


def unite(one: ArrayRegion, other: ArrayRegion) -> ArrayRegion:
    """The union of two regions."""
    if one is None or other is None:
        return None
    return tuple(dict.fromkeys((*one, *other)))


def contains(region: ArrayRegion, part: ArrayRegion) -> bool:
    """Whether all index ranges of ``part`` surely lie in index ranges of ``region``."""
    if region is None or part is None:
        return region is None
    return all(any(_encloses(ranges, inner) for ranges in region) for inner in part)


def _encloses(ranges: IndexRanges, inner: IndexRanges) -> bool:
    return all(b[0] <= a[0] and a[1] <= b[1] for a, b in zip(inner, ranges, strict=True))


def common(one: tuple[IndexRanges, ...], other: tuple[IndexRanges, ...]) -> tuple[IndexRanges, ...]:
    """The index ranges of the intersection of two regions."""
    found = {
        tuple((max(a[0], b[0]), min(a[1], b[1])) for a, b in zip(ranges, cut, strict=True)): None
        for ranges in one
        for cut in other
        if _overlap(ranges, cut)
    }
    return tuple(found)


def within(region: ArrayRegion, shape: tuple[int, ...]) -> tuple[IndexRanges, ...]:
    """The index ranges of a region within the bounds of an array, or of its first axes."""
    everything = (tuple((0, extent - 1) for extent in shape),)
    return everything if region is None else common(everything, region)


def without(
    region: tuple[IndexRanges, ...], taken: tuple[IndexRanges, ...]
) -> tuple[IndexRanges, ...]:
    """The index ranges of a region minus another region."""
    for cut in taken:
        region = tuple(rest for ranges in region for rest in _without(ranges, cut))
    return region


def _without(ranges: IndexRanges, cut: IndexRanges) -> list[IndexRanges]:
    if not _overlap(ranges, cut):
        return [ranges]
    found = []
    for axis, ((low, high), (first, last)) in enumerate(zip(ranges, cut, strict=True)):
        if low < first:
            found.append((*ranges[:axis], (low, first - 1), *ranges[axis + 1 :]))
        if last < high:
            found.append((*ranges[:axis], (last + 1, high), *ranges[axis + 1 :]))
        ranges = (*ranges[:axis], (max(low, first), min(high, last)), *ranges[axis + 1 :])
    return found


def tidy(region: ArrayRegion) -> ArrayRegion:
    """The same elements in fewer index ranges: those that are one together are merged."""
    if region is None or len(region) < 2:
        return region
    parts: list[IndexRanges] = []
    for ranges in region:
        add(parts, ranges, _merged)
    return tuple(parts)


def add(
    parts: list[AnyRanges],
    ranges: AnyRanges,
    merged: Callable[[AnyRanges, AnyRanges], AnyRanges | None],
) -> None:
    """Add index ranges to a list, after merging them with those that ``merged`` can join."""
    position = 0
    while position < len(parts):
        joined = merged(parts[position], ranges)
        if joined is None:
            position += 1
        else:
            del parts[position]
            ranges, position = joined, 0
    parts.append(ranges)


def _merged(one: IndexRanges, other: IndexRanges) -> IndexRanges | None:
    """The index ranges that two form together, if they do."""
    pairs = list(zip(one, other, strict=True))
    different = [axis for axis, (a, b) in enumerate(pairs) if a != b]
    if not different:
        return one
    for inner, outer in ((one, other), (other, one)):
        if _encloses(outer, inner):
            return outer
    (low, high), (other_low, other_high) = pairs[different[0]]
    if len(different) > 1 or low > other_high + 1 or other_low > high + 1:
        return None
    if low > high or other_low > other_high:  # one of them has no elements
        return None
    united = min(low, other_low), max(high, other_high)
    return (*one[: different[0]], united, *one[different[0] + 1 :])


_MOST_ROWS = 16
Rows = range | None
"""The range of first indices of some elements; None if it is long or unknown."""


def rows_of(region: ArrayRegion) -> Rows:
    """The rows in which a region lies."""
    if not region or not region[0]:
        return None
    first, last = region[0][0]
    for ranges in region[1:]:
        first, last = min(first, ranges[0][0]), max(last, ranges[0][1])
    return range(first, last + 1) if last - first < _MOST_ROWS else None


class Regions:
    """The regions that a launch accesses, by position of the array: a function of its arguments.

    Args:
        text: the source of the function ``regions(a0, a1, ...)``; if its body names no argument,
            its result is constant.
        count: the number of arguments.
    """

    __slots__ = ("_call", "count", "named", "text")

    def __init__(self, text: str, count: int) -> None:
        self.text = text
        self.count = count
        self._call: Callable[..., Mapping[int, Accessed]] | None = None
        _, _, body = text.partition(":\n")
        found = {int(number) for number in re.findall(r"\ba(\d+)\b", body)}
        self.named: tuple[int, ...] = tuple(sorted(found))
        """The positions of the arguments on which the result depends."""

    def of(self, arguments: Sequence[Any]) -> Mapping[int, Accessed]:
        """The regions of a launch; none are known if its arguments are wrong, as it says itself."""
        try:
            return self(*arguments)
        except Exception:
            return {}

    def __call__(self, *arguments: Any) -> Mapping[int, Accessed]:
        if self._call is None:
            self._call = self._compile()
        return self._call(*arguments)

    @property
    def is_constant(self) -> bool:
        """Whether the result is the same for all arguments."""
        return not self.named

    def _compile(self) -> Callable[..., Mapping[int, Accessed]]:
        scope: dict[str, Any] = {"Accessed": Accessed, "FAR": LARGEST_INDEX}
        exec(self.text, scope)
        function: Callable[..., Mapping[int, Accessed]] = scope["regions"]
        if not self.is_constant:
            return function
        constant = function(*[None] * self.count)
        return lambda *_: constant

    def __reduce__(self) -> tuple[Any, ...]:
        return Regions, (self.text, self.count)
