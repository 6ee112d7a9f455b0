"""Finds which local vectors of a task can share an array, one after the other.

A vector is a list of values, the components that an `ops.Extract` or an `ops.Insert` uses or makes.
Loops and ifs carry components one by one. Two values are versions of one component if one becomes
the other, as an operand of an insertion, as what a loop starts with, as what a block yields, and if
they are never needed at the same time. Vectors that have versions of most components in common
share an array, so that an insertion changes one element. Sharing is a matter of speed, not of
soundness: `passes.storage.spill_vectors` tracks what an array holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import field
from typing import Generic, TypeVar

from octants.ir import ops
from octants.ir.core import Block, Operation, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType

Access = ops.Extract | ops.Insert
Item = TypeVar("Item", bound=Hashable)
_Path = tuple[tuple[Operation, int], ...]  # operations around another one, and where regions begin
_Span = tuple[int, int]


@dataclass(eq=False, slots=True)
class VectorGroup:
    """Vectors that can share an array, by the operations that access them.

    `component` has the versions of each component; those that belong to several are left out.
    """

    dtype: DType
    count: int
    accesses: list[Access] = field(default_factory=list)
    component: dict[Value, int] = field(default_factory=dict)


class VectorStorage:
    """The storages of a task's body; `of` has that of each access."""

    def __init__(self, body: Block) -> None:
        self.of: dict[Operation, VectorGroup] = {}
        self.within: dict[Operation, dict[VectorGroup, None]] = {}
        self.loops: dict[Operation, tuple[Operation, ...]] = {}
        self.origin: dict[Value, tuple[Operation, ...]] = {}
        self.constants: set[Value] = set()
        self._around: dict[Operation, _Path] = {}
        self._now = 0
        self._begin: dict[Operation, int] = {}
        self._end: dict[Operation, int] = {}
        self._defined: dict[Value, tuple[int, int]] = {}
        self._users: dict[Value, list[Operation]] = {}
        self._spans: dict[Value, list[_Span]] = {}
        self._versions: _Partition[Value] = _Partition()
        accesses = [op for op in body.walk() if isinstance(op, Access)]
        if accesses:
            self._index(body, (), ())
            for op in sorted(self._end, key=self._end.__getitem__):
                self._join(op)
            self._share(accesses)

    def version(self, value: Value) -> Value:
        """The value that represents all versions of a component."""
        return self._versions.find(value)

    # -- where values live -------------------------------------------------------------------------

    def _index(self, block: Block, loops: tuple[Operation, ...], around: _Path) -> None:
        """Number the operations, and note where values are defined and used."""
        self._defined.update((arg, (self._now, len(around))) for arg in block.args)
        self.origin.update((arg, loops) for arg in block.args)
        for op in block.ops:
            begin = self._begin[op] = self._now
            self._now += 1
            self.loops[op], self._around[op] = loops, around
            if isinstance(op, ops.Constant):
                self.constants.add(op.result)
            for value in op.operands:
                self._users.setdefault(value, []).append(op)
            inner = (*loops, op) if isinstance(op, ops.Loop) else loops
            for region in op.regions:
                self._index(region, inner, (*around, (op, self._now)))
            self._end[op] = self._now if op.regions else begin
            self._defined.update((value, (self._end[op], len(around))) for value in op.results)
            self.origin.update((value, loops) for value in op.results)

    def _life(self, value: Value) -> list[_Span]:
        """The spans of numbers in which a value is used later."""
        begin, depth = self._defined[value]
        spans: list[_Span] = []
        for user in self._users.get(value, ()):
            first = begin
            for op, region in self._around[user][depth:]:
                if isinstance(op, ops.Loop):
                    spans.append((first, self._end[op]))
                    break
                spans.append((first, self._begin[op]))
                first = region
            else:
                spans.append((first, self._begin[user]))
        return _merged(spans)

    # -- versions of components --------------------------------------------------------------------

    def _join(self, op: Operation) -> None:
        """Let values be versions of one component where one becomes the other."""
        if isinstance(op, ops.Insert):
            self._continue(op.components, op.results)
        elif isinstance(op, ops.If):
            for branch in (op.then, op.orelse):
                self._continue(branch.yielded, op.results)
        elif isinstance(op, ops.Loop):
            carried = op.carried
            for k, arg in enumerate(carried):
                self._unite(arg, op.results[k])
                if isinstance(op, ops.While):
                    self._unite(arg, op.condition.args[k])
            self._continue(op.inits, carried)
            self._continue(op.body.yielded, carried)

    def _continue(self, before: Sequence[Value], after: Sequence[Value]) -> None:
        """Unite values with what they become, unless both are needed at one time."""
        for value, become in zip(before, after, strict=True):
            one, other = self._versions.find(value), self._versions.find(become)
            if value in self.constants or one is other:
                continue
            if not _overlap(self._lives(one), self._lives(other)):
                self._unite(one, other)

    def _lives(self, version: Value) -> list[_Span]:
        if version not in self._spans:
            self._spans[version] = self._life(version)
        return self._spans[version]

    def _unite(self, one: Value, other: Value) -> None:
        first, second = self._versions.find(one), self._versions.find(other)
        if first is not second:
            spans = _merged([*self._lives(first), *self._lives(second)])
            self._versions.join(first, second)
            self._spans[self._versions.find(first)] = spans

    # -- arrays ------------------------------------------------------------------------------------

    def _share(self, accesses: Iterable[Access]) -> None:
        vectors: dict[tuple[Value, ...], int] = {}
        owner: dict[Operation, int] = {}
        for op in accesses:
            own = [op.components] if isinstance(op, ops.Extract) else [op.components, op.results]
            for values in own:
                key = tuple(self.version(value) for value in values)
                owner[op] = vectors.setdefault(key, len(vectors))
        alike: _Partition[int] = _Partition()
        holders: dict[tuple[Value, int, int], list[int]] = {}
        for key, number in vectors.items():
            found = Counter(
                other
                for k, value in enumerate(key)
                if value not in self.constants
                for other in holders.get((value, k, len(key)), ())
            )
            for other, common in found.items():
                if 2 * common >= len(key):
                    alike.join(other, number)
            for k, value in enumerate(key):
                holders.setdefault((value, k, len(key)), []).append(number)
        storages: dict[int, VectorGroup] = {}
        for op in accesses:
            root = alike.find(owner[op])
            if root not in storages:
                storages[root] = VectorGroup(op.components[0].type, len(op.components))
            storage = self.of[op] = storages[root]
            storage.accesses.append(op)
            for around, _ in self._around[op]:
                self.within.setdefault(around, {})[storage] = None
        for key, number in vectors.items():
            root = alike.find(number)
            if root in storages:
                self._add_components(storages[root], key)

    def _add_components(self, storage: VectorGroup, key: tuple[Value, ...]) -> None:
        for k, value in enumerate(key):
            if value not in self.constants and storage.component.setdefault(value, k) != k:
                storage.component[value] = -1

    def component(self, storage: VectorGroup, value: Value) -> int | None:
        """Which component of the vectors in a storage a value is a version of."""
        found = storage.component.get(self.version(value), -1)
        return found if found >= 0 else None


def _merged(spans: list[_Span]) -> list[_Span]:
    """The same numbers in as few spans as possible, in order."""
    found: list[_Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif begin < end:
            found.append((begin, end))
    return found


def _overlap(one: list[_Span], other: list[_Span]) -> bool:
    """Whether any number is in both lists of spans."""
    left, right = iter(one), iter(other)
    a, b = next(left, None), next(right, None)
    while a is not None and b is not None:
        if a[0] < b[1] and b[0] < a[1]:
            return True
        if a[1] <= b[1]:
            a = next(left, None)
        else:
            b = next(right, None)
    return False


class _Partition(Generic[Item]):
    """Disjoint sets of things."""

    def __init__(self) -> None:
        self._parent: dict[Item, Item] = {}

    def find(self, item: Item) -> Item:
        """The member that represents the set of a thing."""
        root = item
        while root in self._parent:
            root = self._parent[root]
        while item in self._parent:
            self._parent[item], item = root, self._parent[item]
        return root

    def join(self, one: Item, other: Item) -> None:
        """Unite the sets of two things."""
        first, second = self.find(one), self.find(other)
        if first != second:
            self._parent[second] = first
