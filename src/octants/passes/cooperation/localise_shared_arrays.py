"""Makes accesses to an array that work items share plain ones to another array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Array, Block, Companion, Operation, Space
from octants.ir.rewriting import rewrite

PRIMAL = Companion.PRIMAL


def localise(block: Block, local_array_of: Callable[[Array, Companion], Array]) -> None:
    """Redirect accesses to shared arrays to `local_array_of` these, in place; drop fences."""

    def localise_one(build: Builder, op: Operation) -> bool:
        array: Array | None = getattr(op, "array", None)
        if array is None or array.space is not Space.SHARED:
            return isinstance(op, ops.Fence)
        _LOCAL[type(op)](build, op, local_array_of(array, getattr(op, "companion", PRIMAL)))
        return True

    rewrite(block, localise_one)


def _load(build: Builder, op: ops.Load, array: Array) -> None:
    build.append(ops.Load(array, PRIMAL, op.indices, results=op.results))


def _store(build: Builder, op: ops.Store, array: Array) -> None:
    build.store(array, op.indices, op.value)


def _atomic(build: Builder, op: ops.Atomic, array: Array) -> None:
    load = ops.Load(array, PRIMAL, op.indices, results=op.results)
    build.append(load)
    new = op.value
    if op.fn != "exchange":
        new = build.binary(op.fn, load.result, op.value)
    build.store(array, op.indices, new)


def _compare_exchange(build: Builder, op: ops.CompareExchange, array: Array) -> None:
    load = ops.Load(array, PRIMAL, op.indices, results=op.results)
    build.append(load)
    is_equal = build.compare("eq", load.result, op.expected)
    build.store(array, op.indices, build.select(is_equal, op.value, load.result))


def _shape(build: Builder, op: ops.Shape, array: Array) -> None:
    build.append(ops.Shape(array, op.axis, results=op.results))


_LOCAL: dict[type[Operation], Callable[[Builder, Any, Array], None]] = {
    ops.Load: _load,
    ops.Store: _store,
    ops.Atomic: _atomic,
    ops.CompareExchange: _compare_exchange,
    ops.Shape: _shape,
}
