"""Sums and extremes that many work items add to one place: collected in a register, added once.

Before::

    items:  atomic<add, @loss, primal>(%x)

After::

    items:  sum = sum + %x
    at the end of the chunk:  atomic<add, @loss, primal>(sum)

A place is one for all work items if its indices are computed from constants, arguments, extents,
and from what is in memory that the task does not write.
Nothing else in the task may look at it afterwards, or change it in another way; updates of the same
kind at places that vary may. This changes the order of a float sum, which is anybody's guess among
threads anyway. Numbers of 16 bits are collected in 32.

What varies from one turn of a loop to the next, but is one place for all threads that run in step,
is summed up among these: `find_shared`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from octants.analysis.affine_forms import Forms
from octants.analysis.noalias import are_apart
from octants.analysis.uniformity import Uniformity
from octants.ir import ops
from octants.ir.core import Array, ArrayRef, Block, Companion, Operation, Space, Task, Value
from octants.ir.semantics import identity_of
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType, f16, f32, u1

_FUNCTIONS = {"sub": "add"} | {fn: fn for fn in ("add", "min", "max", "and", "or", "xor")}
_TOGETHER = ("add", "min", "max", "and", "or", "xor")
_MAXIMUM = 16  # registers are few
_FEW = 8


@dataclass(eq=False, slots=True)
class Reduction:
    """What is collected for one element: by `fn`, for all of `atomics`.

    `recipe` computes its indices again, after the last work item.
    """

    fn: str
    array: Array
    companion: Companion
    indices: list[Value]
    atomics: list[ops.Atomic]
    recipe: list[Operation]

    @property
    def dtype(self) -> DType:
        """The type in which it is collected."""
        return self.type_of(self.array)

    @staticmethod
    def type_of(array: Array) -> DType:
        """The type in which numbers of an array are collected."""
        return f32 if array.dtype is f16 else array.dtype


@dataclass(frozen=True, slots=True)
class Collect:
    """Has the atomics of a reduction go to a variable; written by who is in the table for it."""

    reduction: Reduction


@dataclass(frozen=True, slots=True)
class Deliver:
    """Updates the place of a reduction by what was collected, if anything was."""

    reduction: Reduction


def neutral(fn: str, dtype: DType) -> Any:
    """What leaves any number as it is, -0.0 and NaN too."""
    if dtype.is_float:
        return -0.0 if fn == "add" else math.nan
    return identity_of(fn, dtype)


def find_reductions(task: Task, apart: bool = False) -> list[Reduction]:
    """The reductions of a parallel task; ``apart`` says that no two arrays share memory."""
    if not any(isinstance(op, ops.Atomic) for op in task.body.walk()):
        return []
    return list(_Finder(task, apart).find())[:_MAXIMUM]


def find_shared(block: Block) -> set[Operation]:
    """The updates of a task whose place is one for threads that work in step, as far as it seems.

    Nobody asks what was there before.
    """
    used = {value for op in block.walk() for value in op.operands}
    updates = [
        op
        for op in block.walk()
        if isinstance(op, ops.Atomic)
        and op.fn in _TOGETHER
        and op.array.dtype not in (u1, f16)
        and op.result not in used
    ]
    if not updates:
        return set()
    facts = Uniformity(block)
    return {op for op in updates if not any(map(facts.varies, op.indices))}


def find_scattered(task: Task) -> set[Operation]:
    """Updates at places of which threads that work in step may have the same, and mostly many.

    They do not have the number of the work item as a summand of an index. Nobody asks what was
    there before. Each takes much code, so that there are none where there would be many.
    """
    used = {value for op in task.body.walk() for value in op.operands}
    updates = [
        op
        for op in task.body.walk()
        if isinstance(op, ops.Atomic)
        and op.fn in _TOGETHER
        and op.array.dtype not in (u1, f16)
        and op.result not in used
    ]
    if not updates:
        return set()
    forms = Forms(task)
    found: set[Operation] = {
        op for op in updates if all(forms.item not in forms.form(i).terms for i in op.indices)
    }
    return found if len(found) <= _FEW else set()


class _Finder:
    def __init__(self, task: Task, apart: bool) -> None:
        self.apart = apart
        self.forms = Forms(task)
        self.used = {value for op in task.body.walk() for value in op.operands}
        self.accesses: dict[ArrayRef, list[ops.Access]] = {}
        for op in task.body.walk():
            if isinstance(op, ops.Access):
                self.accesses.setdefault(op.ref, []).append(op)
        self.written = [
            place
            for place, group in self.accesses.items()
            if not all(isinstance(op, ops.Load) for op in group)
        ]

    def find(self) -> Iterator[Reduction]:
        for place, group in self.accesses.items():
            for part in self._parts(group):
                functions = {self._function(op) for op in part}
                fn = next(iter(functions))
                if fn is not None and len(functions) == 1 and self._is_alone(place, fn):
                    yield from self._reductions(fn, part)

    def _parts(self, group: list[ops.Access]) -> list[list[ops.Access]]:
        """Accesses to an array by their elements, where constants tell all of these."""
        parts: dict[tuple[object, ...], list[ops.Access]] = {}
        for op in group:
            element = tuple(map(self._key, op.indices))
            if any(isinstance(index, Value) for index in element):
                return [group]
            parts.setdefault(element, []).append(op)
        return list(parts.values())

    def _function(self, op: ops.Access) -> str | None:
        """By what an access can be collected; None if it cannot."""
        if not isinstance(op, ops.Atomic) or op.array.dtype is u1 or op.result in self.used:
            return None
        return _FUNCTIONS.get(op.fn)

    def _reductions(self, fn: str, group: list[ops.Access]) -> Iterator[Reduction]:
        """One for each element that is the same for all work items."""
        by_element: dict[tuple[object, ...], Reduction] = {}
        for op in group:
            assert isinstance(op, ops.Atomic)
            if all(map(self._is_uniform, op.indices)):
                element = tuple(map(self._key, op.indices))
                if element not in by_element:
                    recipe = list(dict.fromkeys(self._recipe(op.indices)))
                    found = Reduction(fn, op.array, op.companion, op.indices, [], recipe)
                    by_element[element] = found
                by_element[element].atomics.append(op)
        yield from by_element.values()

    def _is_uniform(self, value: Value) -> bool:
        """Whether all work items see the same value, also afterwards; it may be in memory."""
        op = self.forms.definitions.get(value)
        if self.forms.is_uniform(value):
            return True
        if isinstance(op, ops.Load):
            place = op.ref
            is_kept = all(are_apart(place, other, self.apart) for other in self.written)
            return is_kept and all(map(self._is_uniform, op.indices))
        return op is not None and op.is_pure and all(map(self._is_uniform, op.operands))

    def _key(self, index: Value) -> object:
        """What tells equal indices."""
        op = self.forms.definitions.get(index)
        return op.value if isinstance(op, ops.Constant) else index

    def _recipe(self, indices: list[Value]) -> Iterator[Operation]:
        """The operations that compute uniform values, in order."""
        for index in indices:
            op = self.forms.definitions[index]
            yield from self._recipe(op.operands)
            yield op

    # -- who else is there -------------------------------------------------------------------------

    def _is_alone(self, place: ArrayRef, fn: str) -> bool:
        """Whether nobody looks, who should see the updates; fields that overlap would race."""
        if place[0].space is not Space.NDARRAY:
            return True
        return all(
            other == place
            or are_apart(place, other, self.apart)
            or all(self._minds_nothing(op, place, fn) for op in group)
            for other, group in self.accesses.items()
        )

    def _minds_nothing(self, op: ops.Access, place: ArrayRef, fn: str) -> bool:
        """Whether an access commutes with the updates, or reads before them in every work item."""
        if self._function(op) == fn:
            return True
        reads = isinstance(op, ops.Load)
        return reads and all(self.forms.precedes(op, update) for update in self.accesses[place])
