"""Builds reads and writes of a local vector by a run-time index.

A short vector is read by a chain of selects and written by one select for each component; a long
one by `ops.Extract` and `ops.Insert`.
"""

from __future__ import annotations

from collections.abc import Sequence

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Value

LONG = 8  # components


def extract(build: Builder, index: Value, components: Sequence[Value]) -> Value:
    """The component at an index; the first one if the index is out of range."""
    if all(component is components[0] for component in components):
        return components[0]
    if _is_simple(build, index, components):
        return extract_by_selects(build, index, components)
    op = ops.Extract(index, list(components), results=[Value(components[0].type)])
    return build.append(op).result


def insert(build: Builder, index: Value, value: Value, components: Sequence[Value]) -> list[Value]:
    """The components with a value in place of the one at an index, if that is in range."""
    if _is_simple(build, index, components):
        return insert_by_selects(build, index, value, components)
    results = [Value(value.type) for _ in components]
    return build.append(ops.Insert(index, value, list(components), results=results)).results


def _is_simple(build: Builder, index: Value, components: Sequence[Value]) -> bool:
    return len(components) < LONG or build.constant_of(index) is not None


def extract_by_selects(build: Builder, index: Value, components: Sequence[Value]) -> Value:
    """The same as `extract`, in time proportional to the number of components."""
    result = components[0]
    for k in range(1, len(components)):
        result = build.select(is_equal(build, index, k), components[k], result)
    return result


def insert_by_selects(
    build: Builder, index: Value, value: Value, components: Sequence[Value]
) -> list[Value]:
    """The same as `insert`, in time proportional to the number of components."""
    return [
        build.select(is_equal(build, index, k), value, component)
        for k, component in enumerate(components)
    ]


def is_equal(build: Builder, index: Value, number: int) -> Value:
    """Whether a run-time index is ``number``."""
    return build.compare("eq", index, build.constant(number, index.type))


def is_inside(build: Builder, index: Value, count: int) -> Value:
    """Whether an index is one of ``count`` components."""
    zero = build.constant(0, index.type)
    is_below = build.compare("lt", index, build.constant(count, index.type))
    if index.type.is_signed:
        return build.binary("and", build.compare("ge", index, zero), is_below)
    return is_below


def or_first(build: Builder, index: Value, count: int) -> Value:
    """An index, or 0 if it is out of range."""
    if build.constant_of(index) is not None:
        return index
    return build.select(is_inside(build, index, count), index, build.constant(0, index.type))
