"""Decides which array references of a kernel may be the same memory.

No two fields share memory, nor do an array and its gradient, nor two sections of a partition. An
ndarray, whether it is an argument or referred to by name, may be the memory of another ndarray, of
a field that was exported, or of the gradient of either, also as a view of another type. All other
arrays, and the record buffer, belong to the launch alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from octants.ir.core import Array, ArrayRef, Module, Space


def may_alias(first: ArrayRef | None, second: ArrayRef | None, noalias: bool = False) -> bool:
    """Whether an access by one array reference may touch what the other refers to.

    Args:
        first: an array and a companion, or None for the record buffer.
        second: likewise.
        noalias: no two arrays of the module, nor their companions, share memory.
    """
    if first is None or second is None:
        return first is second
    if first[0].whole is second[0].whole:
        return first[1] is second[1] and not are_sections(first[0], second[0])
    return not noalias and has_memory_of_others(first[0]) and has_memory_of_others(second[0])


def may_alias_another(target: ArrayRef, others: Iterable[ArrayRef], noalias: bool) -> bool:
    """Whether one of some array references, besides the target itself, may be the same memory."""
    return any(other != target and may_alias(target, other, noalias) for other in others)


def are_sections(one: Array, other: Array) -> bool:
    """Whether two arrays are different sections of a partition, so that they share no element."""
    return one is not other and one.partition is not None and one.partition is other.partition


def sections(module: Module) -> list[Array]:
    """The sections that a module accesses."""
    arrays = (getattr(op, "array", None) for op in module.walk())
    return list(dict.fromkeys(a for a in arrays if a is not None and a.partition is not None))


def has_memory_of_others(array: Array) -> bool:
    """Whether other arrays may have the memory of an array: of an ndarray, or an exported field."""
    return array.space is Space.NDARRAY or array.exported
