"""Finds data races: two work items access one element, and at least one of them stores plainly.

A pair of accesses is harmless if it is proved that two work items never access one element by it:
by the affine expressions of the indices (`access_aliasing`), or because the indices of all work
items, computed one by one (`index_enumeration`), are different. If these show that two work items
do, the pair is a certain race; otherwise only a launch can tell, whose memory or arguments decide.

Which pairs matter depends on the purpose. For a launch without a derivative, a plain store beside
another access makes the result undefined; but it is harmless if all store the same value, and
reading a sum to which others add may be intended. A derivative also depends on such a read, but
only in a task that changes something with a derivative.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from octants.analysis.indices.index_enumeration import Enumeration, Executions
from octants.analysis.memory.access_aliasing import ElementAliasing
from octants.analysis.memory.packed_word_races import PackedWords, overlapping
from octants.ir import ops
from octants.ir.cooperative_tasks import cooperates
from octants.ir.core import Array, Companion, Space, Task, Value
from octants.lazy_dataclass import dataclass

_MOST_PAIRS = 4096
_MOST_ITEMS_OF_WORDS = 1 << 20
"""The most work items whose accesses to shared words are computed, in about half a second."""

OWN = -1
"""The stamp of a store whose value no other work item stores."""

Matters = Callable[["Races", ops.Access, ops.Access], bool]
"""Whether a race in a pair of accesses matters."""


@dataclass(frozen=True, slots=True)
class RacePair:
    """Two accesses by which two work items race, certainly or perhaps.

    `items` are two work items that race, if it is certain. The first access is a store if one of
    them is.
    """

    one: ops.Access
    other: ops.Access
    items: tuple[int, int] | None = None

    @property
    def is_sure(self) -> bool:
        return self.items is not None


def races_of(task: Task, matters: Matters) -> list[RacePair]:
    """The pairs of accesses of a task by which work items may race, certain ones first."""
    if not task.is_parallel or cooperates(task):
        return []
    accesses: dict[Array, list[ops.Access]] = {}
    for op in task.body.walk():
        if isinstance(op, ops.Access) and op.companion is Companion.PRIMAL and _outlives(op.array):
            accesses.setdefault(op.array, []).append(op)
    suspects = [own for own in accesses.values() if _may_race(own)]
    if not suspects:
        return []
    races = Races(task)
    exchanged = [own for own in suspects if ops.CompareExchange in map(type, own)]
    packed = PackedWords(task) if exchanged else None
    words = [own for own in exchanged if packed and packed.take(own)]
    found = [race for own in suspects if own not in words for race in races.among(own, matters)]
    if packed:
        found += [race for own in words for race in races.among_words(own, packed, matters)]
    return sorted(found, key=lambda race: not race.is_sure)


def _outlives(array: Array) -> bool:
    return array.space in (Space.FIELD, Space.NDARRAY)


def _may_race(accesses: list[ops.Access]) -> bool:
    kinds = set(map(type, accesses))
    return ops.Store in kinds or (ops.Load in kinds and len(kinds) > 1)


class Races(ElementAliasing):
    """Facts about the races of one task."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._enumeration: Enumeration | None = None
        self._same: set[Value] | None = None
        self._proven: dict[tuple[tuple[Value, Value], ...], bool] = {}

    def among(self, accesses: list[ops.Access], matters: Matters) -> Iterator[RacePair]:
        """The pairs of accesses to one array that are not proved harmless."""
        pairs = [pair for pair in _pairs(accesses) if matters(self, *pair)]
        for one, other in pairs[:_MOST_PAIRS]:
            if not self._never_race(one, other):
                yield from self._race_of(one, other)
        if len(pairs) > _MOST_PAIRS:
            yield RacePair(*pairs[_MOST_PAIRS])

    def among_words(
        self, accesses: list[ops.Access], packed: PackedWords, matters: Matters
    ) -> Iterator[RacePair]:
        """The pairs of accesses to words by which two work items race, or may race."""
        array = accesses[0].array
        known = Enumeration(self.task, packed.shifts(), _MOST_ITEMS_OF_WORDS)
        for pair in overlapping(array, packed, known):
            change, read = pair.change, pair.read
            if not matters(self, change, read) or self._never_race(change, read, pair.positions):
                continue
            if pair.executions is None:
                yield RacePair(change, read)
                continue
            items = racing_items(*pair.executions, array.fixed_shape)
            if items is not None or not known.is_whole:
                is_sure = all(each.exact for each in pair.executions)
                yield RacePair(change, read, items if is_sure else None)

    def _never_race(
        self, one: ops.Access, other: ops.Access, more: tuple[tuple[Value, Value], ...] = ()
    ) -> bool:
        """Whether the affine expressions of the indices prove that no two work items race.

        ``more`` are pairs of values that are also equal if they do.
        """
        pairs = (*zip(one.indices, other.indices, strict=True), *more)
        if pairs not in self._proven:
            numbers = [tuple(map(self.number, pair)) for pair in pairs]
            differ = any(a != b for a, b in numbers if isinstance(a, int) and isinstance(b, int))
            self._proven[pairs] = differ or self._is_injective(pairs)
        return self._proven[pairs]

    def _race_of(self, one: ops.Access, other: ops.Access) -> Iterator[RacePair]:
        """The race of a pair, as far as computing all indices shows: none, certain, or possible."""
        if self._enumeration is None:
            self._enumeration = Enumeration(self.task)
        known = self._enumeration.found
        if self._enumeration.is_whole and len(self._enumeration.items) == 1:
            return
        first, second = known.get(one), known.get(other)
        if first is None or second is None:
            yield RacePair(one, other)
            return
        items = racing_items(first, second, one.array.fixed_shape)
        if items is None and self._enumeration.is_whole:
            return
        yield RacePair(one, other, items if first.exact and second.exact else None)

    # -- queries about a pair ----------------------------------------------------------------------

    def store_the_same(self, one: ops.Store, other: ops.Store) -> bool:
        """Whether two stores store the same value, whichever work items execute them."""
        first, second = self.definitions.get(one.value), self.definitions.get(other.value)
        if isinstance(first, ops.Constant) and isinstance(second, ops.Constant):
            return bool(first.value == second.value)
        return one.value is other.value and self.is_same_everywhere(one.value)

    def is_same_everywhere(self, value: Value) -> bool:
        """Whether all work items compute the same value, from memory that the task only reads."""
        if self._same is None:
            self._same = same_everywhere(self.task)
        return value in self._same


def same_everywhere(task: Task) -> set[Value]:
    """The values that all work items compute alike, from memory that the task only reads."""
    same: set[Value] = set()
    written = {op.array for op in task.body.walk() if isinstance(op, ops.Write)}
    for block in (task.domain, task.body):
        for op in block.walk() if block is not None else ():
            if isinstance(op, ops.Load):
                is_known = op.array not in written and same.issuperset(op.indices)
            else:
                is_pure = op.is_pure or isinstance(op, ops.Shape)
                is_known = is_pure and same.issuperset(op.operands)
            if is_known:
                same.update(op.results)
    return same


def _pairs(accesses: list[ops.Access]) -> Iterator[tuple[ops.Access, ops.Access]]:
    """The pairs of accesses that may race, stores first."""
    rank = {ops.Store: 0, ops.Load: 2}
    ordered = sorted(accesses, key=lambda op: rank.get(type(op), 1))
    for one, other in itertools.combinations_with_replacement(ordered, 2):
        is_store = isinstance(one, ops.Store)
        if is_store or (isinstance(other, ops.Load) and not isinstance(one, ops.Load)):
            yield one, other


def racing_items(
    one: Executions, other: Executions, shape: tuple[int, ...] | None
) -> tuple[int, int] | None:
    """Two work items that access the same element, one by each access.

    Args:
        one: the executions of the first access.
        other: those of the second.
        shape: the shape of the array, if it is fixed; indices out of bounds do not count.

    Returns:
        Two different work items, or None if there are none.
    """
    elements = _elements(one, shape), _elements(other, shape)
    if any(len(items) == 0 for items, _ in elements):
        return None
    rows = np.concatenate([rows for _, rows in elements])
    _, numbers = np.unique(_keys(rows), return_inverse=True)
    count = len(elements[0][0])
    low, high = _ends(numbers[:count], elements[0][0], len(rows))
    other_low, other_high = _ends(numbers[count:], elements[1][0], len(rows))
    both = (low <= high) & (other_low <= other_high)
    for a, b in ((low, other_high), (high, other_low)):
        met = np.flatnonzero(both & (a != b))
        if len(met):
            return int(a[met[0]]), int(b[met[0]])
    return None


def _elements(executions: Executions, shape: tuple[int, ...] | None) -> tuple[Any, Any]:
    """The work items of executions, and the indices of each as a row."""
    items = executions.items
    columns = [np.broadcast_to(index, len(items)) for index in executions.indices]
    rows = np.stack(columns, axis=1) if columns else np.zeros((len(items), 1), np.int64)
    if shape is None:
        return items, rows
    inside = np.ones(len(items), bool)
    for axis, extent in enumerate(shape):
        inside &= (rows[:, axis] >= 0) & (rows[:, axis] < extent)
    return items[inside], rows[inside]


def _keys(rows: Any) -> Any:
    """A number for each row, the same for equal rows."""
    first = rows.min(axis=0)
    keys = np.zeros(len(rows), np.int64)
    for column, extent in zip((rows - first).T, rows.max(axis=0) - first + 1, strict=True):
        if keys.max() >= np.iinfo(np.int64).max // int(extent) - 1:  # begin with smaller numbers
            keys = np.unique(keys, return_inverse=True)[1]
        keys = keys * extent + column
    return keys


def _ends(numbers: Any, items: Any, count: int) -> tuple[Any, Any]:
    """The least and the greatest work item at each element."""
    low = np.full(count, np.iinfo(np.int64).max)
    high = np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(low, numbers, items)
    np.maximum.at(high, numbers, items)
    return low, high


# -- which races matter ----------------------------------------------------------------------------


def matters_forward(races: Races, one: ops.Access, other: ops.Access) -> bool:
    """Whether a race makes the result of a launch undefined."""
    if not isinstance(one, ops.Store):
        return False
    return not (isinstance(other, ops.Store) and races.store_the_same(one, other))
