"""Finds which local vectors of a task can share an array, one after the other.

A vector is a list of values, the components that an `ops.Extract` or an `ops.Insert` uses or makes.
Loops and ifs carry components one by one. Two values are versions of one component if one becomes
the other where it is used for the last time: as an operand of an insertion, as what a loop starts
with, as what a block yields. Vectors that have versions of most components in common share an
array, so that an insertion changes one element. Sharing is a matter of speed, not of soundness:
`passes.spill_vectors` tracks what an array holds.
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


@dataclass(eq=False, slots=True)
class Storage:
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
        self.of: dict[Operation, Storage] = {}
        self.within: dict[Operation, dict[Storage, None]] = {}
        self.loops: dict[Operation, tuple[Operation, ...]] = {}
        self.origin: dict[Value, tuple[Operation, ...]] = {}
        self.constants: set[Value] = set()
        self._around: dict[Operation, tuple[tuple[Operation, int], ...]] = {}
        self._order: dict[Operation, int] = {}
        self._users: dict[Value, list[Operation]] = {}
        self._versions: _Partition[Value] = _Partition()
        accesses = [op for op in body.walk() if isinstance(op, Access)]
        if accesses:
            self._index(body, (), ())
            for op in list(self._order):
                self._join(op)
            self._share(accesses)

    def version(self, value: Value) -> Value:
        """The value that represents all versions of a component."""
        return self._versions.find(value)

    # -- where values are defined and used ---------------------------------------------------------

    def _index(
        self,
        block: Block,
        loops: tuple[Operation, ...],
        around: tuple[tuple[Operation, int], ...],
    ) -> None:
        self.origin.update((arg, loops) for arg in block.args)
        for op in block.ops:
            self._order[op] = len(self._order)
            self.loops[op], self._around[op] = loops, around
            self.origin.update((value, loops) for value in op.results)
            if isinstance(op, ops.Constant):
                self.constants.add(op.result)
            for value in op.operands:
                self._users.setdefault(value, []).append(op)
            inner = (*loops, op) if isinstance(op, ops.Loop) else loops
            for number, region in enumerate(op.regions):
                self._index(region, inner, (*around, (op, number)))

    def _ends_at(self, value: Value, op: Operation) -> bool:
        """Whether no operation uses a value after this one, also not in the next iteration."""
        if value in self.constants or self.origin[value] != self.loops[op]:
            return False
        return not any(
            user is not op and self._order[user] > self._order[op] and not self._excludes(user, op)
            for user in reversed(self._users[value])
        )

    def _excludes(self, one: Operation, other: Operation) -> bool:
        """Whether two operations are in different branches of an if."""
        for (op, region), (same, second) in zip(
            self._around[one], self._around[other], strict=False
        ):
            if op is not same:
                return False
            if region != second:
                return isinstance(op, ops.If)
        return False

    # -- versions of components --------------------------------------------------------------------

    def _join(self, op: Operation) -> None:
        """Let values be versions of one component where one becomes the other."""
        if isinstance(op, ops.Insert):
            self._continue(op.components, op.results, op)
        elif isinstance(op, ops.If):
            for branch in (op.then, op.orelse):
                self._continue(branch.yielded, op.results, branch.ops[-1])
        elif isinstance(op, ops.Loop):
            carried = op.carried
            for k, arg in enumerate(carried):
                self._versions.join(arg, op.results[k])
                if isinstance(op, ops.While):
                    self._versions.join(arg, op.condition.args[k])
            self._continue(op.inits, carried, op)
            arguments = set(carried)
            fresh = [
                None if value in arguments and value is not arg else value
                for value, arg in zip(op.body.yielded, carried, strict=True)
            ]
            self._continue(fresh, carried, op.body.ops[-1])

    def _continue(
        self, before: Sequence[Value | None], after: Sequence[Value], op: Operation
    ) -> None:
        """Join values with what they become in an operation, unless they live on."""
        counts = Counter(before)
        for value, become in zip(before, after, strict=True):
            if value is not None and counts[value] == 1 and self._ends_at(value, op):
                self._versions.join(value, become)

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
        storages: dict[int, Storage] = {}
        for op in accesses:
            root = alike.find(owner[op])
            if root not in storages:
                storages[root] = Storage(op.components[0].type, len(op.components))
            storage = self.of[op] = storages[root]
            storage.accesses.append(op)
            for around, _ in self._around[op]:
                self.within.setdefault(around, {})[storage] = None
        for key, number in vectors.items():
            root = alike.find(number)
            if root in storages:
                self._add_components(storages[root], key)

    def _add_components(self, storage: Storage, key: tuple[Value, ...]) -> None:
        for k, value in enumerate(key):
            if value not in self.constants and storage.component.setdefault(value, k) != k:
                storage.component[value] = -1

    def component(self, storage: Storage, value: Value) -> int | None:
        """Which component of the vectors in a storage a value is a version of."""
        found = storage.component.get(self.version(value), -1)
        return found if found >= 0 else None


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
