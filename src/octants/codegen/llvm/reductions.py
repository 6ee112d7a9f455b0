"""Sums and extremes that many work items add to one place: collected in a register, added once.

Before::

    items:  atomic<add, @loss, primal>(%x)

After::

    items:  sum = sum + %x
    at the end of the chunk:  atomic<add, @loss, primal>(sum)

That is done where nothing else in the task looks at the place. It changes the order of a float sum,
which is anybody's guess among threads anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from octants.codegen.llvm.alias import Place, are_apart
from octants.ir import ops
from octants.ir.core import Array, Companion, Operation, Space, Task, Value
from octants.types.scalars import DType, f16, u1

_FUNCTIONS = {"add": "add", "sub": "add", "min": "min", "max": "max"}
_MAXIMUM = 16  # registers are few

Access = ops.Load | ops.Store | ops.Atomic | ops.CompareExchange


@dataclass(eq=False, slots=True)
class Reduction:
    """What is collected for one element: by `fn`, for all of `atomics`."""

    fn: str
    array: Array
    companion: Companion
    indices: list[Value]
    atomics: list[ops.Atomic]

    @property
    def dtype(self) -> DType:
        return self.array.dtype


def find_reductions(task: Task) -> list[Reduction]:
    """The reductions of a parallel task."""
    operations = list(task.body.walk())
    accesses: dict[Place, list[Access]] = {}
    for op in operations:
        if isinstance(op, Access):
            accesses.setdefault((op.array, op.companion), []).append(op)
    constants = {op.result: op.value for op in operations if isinstance(op, ops.Constant)}
    used = {value for op in operations for value in op.operands}
    found: list[Reduction] = []
    for place, group in accesses.items():
        if _is_alone(place, accesses):
            found.extend(_reductions(group, constants, used))
    return found[:_MAXIMUM]


def _is_alone(place: Place, accesses: dict[Place, list[Access]]) -> bool:
    """Whether no other array can be the same memory; fields that overlap would race already."""
    if place[0].space is not Space.NDARRAY:
        return True
    return all(other == place or are_apart(place, other) for other in accesses)


def _reductions(
    group: list[Access], constants: dict[Value, int], used: set[Value]
) -> Iterator[Reduction]:
    """One for each element, if the whole group is atomics of one function at known places."""
    by_element: dict[tuple[int, ...], Reduction] = {}
    functions = {_function(op, constants, used) for op in group}
    if len(functions) != 1 or None in functions:
        return
    for op in group:
        assert isinstance(op, ops.Atomic)
        element = tuple(constants[index] for index in op.indices)
        if element not in by_element:
            fn = _FUNCTIONS[op.fn]
            by_element[element] = Reduction(fn, op.array, op.companion, op.indices, [])
        by_element[element].atomics.append(op)
    yield from by_element.values()


def _function(op: Operation, constants: dict[Value, int], used: set[Value]) -> str | None:
    """By what an access can be collected; None if it cannot."""
    if not isinstance(op, ops.Atomic) or op.array.dtype in (f16, u1) or op.result in used:
        return None
    if not all(index in constants for index in op.indices):
        return None
    return _FUNCTIONS.get(op.fn)
