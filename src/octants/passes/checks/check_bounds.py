"""Asserts before each access to an array that its indices are in range: debug mode.

Before::

    array @x: f32, 1, ndarray, () [primal]
    serial {
      %0: i32 = constant<7>()
      %1: f32 = load<@x, primal>(%0)
      store<@x, primal>(%1, %0)
    }

After::

    serial {
      %0: i32 = constant<7>()
      %1: i32 = constant<0>()
      %2: i32 = shape<@x, 0>()
      %3: u1 = constant<True>()
      %4: u1 = compare<lt>(%0, %2)
      assert<bounds, 'index {} is out of bounds for axis 0 of `x`, whose extent is {}'>(%4, %0, %2)
      %5: f32 = load<@x, primal>(%0)
      store<@x, primal>(%5, %0)
    }

An index is checked once where a check of the same index dominates. Arrays that the compiler made
are not checked. The domain of a task is not either: the pass runs before the tasks are cut, when a
domain has nothing to load yet, or on a reverse module, whose domains load what the forward run
checked.
"""

from __future__ import annotations

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Array, Block, Module, Operation, Space, Value
from octants.types.scalars import i32, u64

_CHECKED = (Space.FIELD, Space.NDARRAY, Space.SHARED)
_Seen = frozenset[tuple[Array, int, Value]]


def check_bounds(module: Module) -> None:
    """Insert the checks, in place."""
    if module.body is not None:
        _Checker().block(module.body, frozenset())
    for task in module.tasks:
        _Checker().block(task.body, frozenset())


class _Checker:
    """Rebuilds blocks with checks; knows the constants, so that checks that hold are left out."""

    def __init__(self) -> None:
        self.builder = Builder()
        self._unsigned: dict[Value, Value] = {}  # the u64 that an index is a cast of

    def block(self, block: Block, seen: _Seen) -> None:
        """``seen`` has the checks that dominate the block: (array, axis, index)."""
        operations, block.ops = block.ops, []
        for op in operations:
            if isinstance(op, ops.Constant):
                self.builder.note_constant(op)
            elif isinstance(op, ops.Cast) and op.x.type is u64:
                self._unsigned[op.result] = op.x
            array = getattr(op, "array", None)
            if array is not None and array.space in _CHECKED and hasattr(op, "indices"):
                with self.builder.into(block):
                    seen = self._check(op, array, op.indices, seen)
            for region in op.regions:
                self.block(region, seen)
            block.ops.append(op)

    def _check(self, op: Operation, array: Array, indices: list[Value], seen: _Seen) -> _Seen:
        self.builder.location = op.location
        for axis, index in enumerate(indices):
            if (array, axis, index) not in seen:
                self._check_index(array, axis, index)
        return seen | {(array, axis, index) for axis, index in enumerate(indices)}

    def _check_index(self, array: Array, axis: int, index: Value) -> None:
        build = self.builder
        zero = build.constant(0, index.type)
        extent = build.cast(self._extent(array, axis), index.type)
        message = _message(array, axis)
        in_range = build.binary(
            "and", build.compare("ge", index, zero), build.compare("lt", index, extent)
        )
        build.assert_("bounds", message, in_range, [self._unsigned.get(index, index), extent])

    def _extent(self, array: Array, axis: int) -> Value:
        if axis < array.rank:
            return self.builder.shape(array, axis)
        return self.builder.constant(array.element_shape[axis - array.rank], i32)


def _message(array: Array, axis: int) -> str:
    which = f"axis {axis}" if axis < array.rank else f"component axis {axis - array.rank}"
    return f"index {{}} is out of bounds for {which} of `{array.name}`, whose extent is {{}}"
