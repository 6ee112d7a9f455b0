"""Finds updates of one element by many work items, to be collected in a register.

Before::

    items:  atomic<add, @loss, primal>(%x)

After::

    items:  sum = sum + %x
    at the end of the chunk:  atomic<add, @loss, primal>(sum)

The element is uniform if its indices are computed from constants, arguments, extents, and memory
that the task does not write. Nothing else in the task may read it afterwards, or change it in
another way; updates of the same kind at varying indices may. This changes the order of a float sum,
which is free among threads anyway. 16-bit numbers are collected in 32 bits.

An element that varies between iterations of a loop, but is uniform among the threads that run in
step, is reduced among these: `find_shared`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from octants.analysis.control_flow.uniformity import Uniformity
from octants.analysis.indices.affine_analysis import AffineExpressions
from octants.analysis.memory.access_aliasing import ElementAliasing
from octants.ir import ops
from octants.ir.array_aliasing import has_memory_of_others, may_alias
from octants.ir.core import Array, ArrayRef, Block, Companion, Operation, Task, Value
from octants.ir.scalar_semantics import identity_of
from octants.ir.slices import backward_slice
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType, f16, register_type, u1

_FUNCTIONS = {"sub": "add"} | {fn: fn for fn in ("add", "min", "max", "and", "or", "xor")}
_TOGETHER = ("add", "min", "max", "and", "or", "xor")
_MAXIMUM = 16  # registers are few
_FEW = 8


@dataclass(eq=False, slots=True)
class Reduction:
    """The updates of one element: by `fn`, of all `atomics`.

    `rematerialised` are the operations that recompute its indices after the last work item.
    """

    fn: str
    array: Array
    companion: Companion
    indices: list[Value]
    atomics: list[ops.Atomic]
    rematerialised: list[Operation]

    @property
    def dtype(self) -> DType:
        """The type in which it is collected."""
        return self.type_of(self.array)

    @staticmethod
    def type_of(array: Array) -> DType:
        """The type in which updates of an array are collected."""
        return register_type(array.dtype)


@dataclass(frozen=True, slots=True)
class Collect:
    """Says where the atomics of a reduction go: to a variable, by the handler of this type."""

    reduction: Reduction


@dataclass(frozen=True, slots=True)
class Deliver:
    """Says how a reduction ends: its element is updated by what was collected, if anything was."""

    reduction: Reduction


def neutral(fn: str, dtype: DType) -> Any:
    """The neutral element of a function, which preserves -0.0 and NaN too."""
    if dtype.is_float:
        return -0.0 if fn == "add" else math.nan
    return identity_of(fn, dtype)


def find_reductions(task: Task, noalias: bool = False) -> list[Reduction]:
    """The reductions of a parallel task.

    Args:
        task: the task.
        noalias: no two arrays of its kernel share memory.

    Returns:
        At most `_MAXIMUM` of them.
    """
    if not any(isinstance(op, ops.Atomic) for op in task.body.walk()):
        return []
    return list(_Finder(task, noalias).find())[:_MAXIMUM]


def find_shared(block: Block) -> set[Operation]:
    """The updates of a block whose element seems uniform among threads in step.

    Their results are not used.
    """
    updates = _unread_updates(block)
    if not updates:
        return set()
    facts = Uniformity(block)
    return {op for op in updates if not any(map(facts.varies, op.indices))}


def find_scattered(task: Task) -> set[Operation]:
    """The updates of elements that threads in step may share, and mostly do not.

    No index has the number of the work item as a term, and the results are not used. Each such
    update takes much code, so there are none if there would be many, or if each work item has an
    element of its own: that of its two indices in a grid, or of their neighbours.
    """
    updates = _unread_updates(task.body)
    if not updates:
        return set()
    aliasing = ElementAliasing(task)
    found = [
        op
        for op in updates
        if all(aliasing.item not in aliasing.expression(i).terms for i in op.indices)
    ]
    return {op for op in found if not aliasing.is_owned([op])} if len(found) <= _FEW else set()


def _unread_updates(block: Block) -> list[ops.Atomic]:
    """The updates that threads in step can combine, whose results are not used."""
    used = block.used()
    return [
        op
        for op in block.walk()
        if isinstance(op, ops.Atomic)
        and op.fn in _TOGETHER
        and op.array.dtype not in (u1, f16)
        and op.result not in used
    ]


class _Finder:
    def __init__(self, task: Task, noalias: bool) -> None:
        self.noalias = noalias
        self.affine = AffineExpressions(task)
        self.used = task.body.used()
        self.accesses: dict[ArrayRef, list[ops.Access]] = {}
        for op in task.body.walk():
            if isinstance(op, ops.Access):
                self.accesses.setdefault(op.ref, []).append(op)
        self.written = [
            ref
            for ref, group in self.accesses.items()
            if not all(isinstance(op, ops.Load) for op in group)
        ]
        self._uniform: dict[Value, bool] = {}

    def find(self) -> Iterator[Reduction]:
        for ref, group in self.accesses.items():
            for accesses in self._by_element(group):
                functions = {self._function(op) for op in accesses}
                fn = next(iter(functions))
                if fn is not None and len(functions) == 1 and self._is_alone(ref, fn):
                    yield from self._reductions(fn, accesses)

    def _by_element(self, group: list[ops.Access]) -> list[list[ops.Access]]:
        """The accesses to an array by element, if constants identify all elements."""
        found: dict[tuple[object, ...], list[ops.Access]] = {}
        for op in group:
            element = tuple(map(self._key, op.indices))
            if any(isinstance(index, Value) for index in element):
                return [group]
            found.setdefault(element, []).append(op)
        return list(found.values())

    def _function(self, op: ops.Access) -> str | None:
        """The function by which an access can be collected; None if it cannot."""
        if not isinstance(op, ops.Atomic) or op.array.dtype is u1 or op.result in self.used:
            return None
        return _FUNCTIONS.get(op.fn)

    def _reductions(self, fn: str, group: list[ops.Access]) -> Iterator[Reduction]:
        """A reduction for each element that is the same for all work items."""
        by_element: dict[tuple[object, ...], Reduction] = {}
        for op in group:
            assert isinstance(op, ops.Atomic)
            if all(map(self._is_uniform, op.indices)):
                element = tuple(map(self._key, op.indices))
                if element not in by_element:
                    rematerialised = backward_slice(op.indices, self.affine.definitions)
                    found = Reduction(fn, op.array, op.companion, op.indices, [], rematerialised)
                    by_element[element] = found
                by_element[element].atomics.append(op)
        yield from by_element.values()

    def _is_uniform(self, value: Value) -> bool:
        """Whether all work items see the same value, also after the task; it may be in memory."""
        if value not in self._uniform:
            op = self.affine.definitions.get(value)
            is_stable = op is not None and (
                not any(may_alias(op.ref, ref, self.noalias) for ref in self.written)
                if isinstance(op, ops.Load)
                else op.is_pure
            )
            self._uniform[value] = self.affine.is_uniform(value) or (
                op is not None and is_stable and all(map(self._is_uniform, op.operands))
            )
        return self._uniform[value]

    def _key(self, index: Value) -> object:
        """A key that equal indices share."""
        op = self.affine.definitions.get(index)
        return op.value if isinstance(op, ops.Constant) else index

    # -- other accesses ----------------------------------------------------------------------------

    def _is_alone(self, target: ArrayRef, fn: str) -> bool:
        """Whether no access by another array depends on when the updates happen."""
        if not has_memory_of_others(target[0]):
            return True
        return all(
            other == target
            or not may_alias(target, other, self.noalias)
            or all(self._commutes(op, target, fn) for op in group)
            for other, group in self.accesses.items()
        )

    def _commutes(self, op: ops.Access, target: ArrayRef, fn: str) -> bool:
        """Whether an access commutes with the updates, or reads before them in every work item."""
        if self._function(op) == fn:
            return True
        reads = isinstance(op, ops.Load)
        return reads and all(self.affine.precedes(op, update) for update in self.accesses[target])
