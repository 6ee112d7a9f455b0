"""Finds loops that run a block of another loop's iterations, as far as a record buffer holds them.

The gradient of a loop that may not fit its record buffer::

    %3: i64 = record_capacity<#r, 1>(%0)        the length of a block
    ...
    for(%zero, %blocks) { (%4: i64):            the *whole*: all iterations
      %5: i64 = binary<mul>(%4, %3)
      %6: i64 = binary<sub>(%count, %5)
      %7: i64 = binary<min>(%6, %3)
      for(%zero, %7) { ... }                    a block of them
    }
"""

from __future__ import annotations

from octants.ir import ops
from octants.ir.core import Block, Operation, Value


class BlocksOfLoops:
    """The loops in some code, and the loops of which they run blocks."""

    def __init__(self, code: Block) -> None:
        self._around: dict[Operation, ops.Loop | None] = {}
        self._definitions: dict[Value, Operation] = {}
        self._read(code, None)

    def _read(self, block: Block, loop: ops.Loop | None) -> None:
        for op in block.ops:
            self._around[op] = loop
            self._definitions.update((value, op) for value in op.results)
            inner = op if isinstance(op, ops.Loop) else loop
            for region in op.regions:
                self._definitions.update((value, op) for value in region.args)
                self._read(region, inner)

    def whole(self, loop: ops.Loop) -> ops.Loop:
        """The loop of whose iterations ``loop`` runs a block; ``loop`` if it runs all its own."""
        around = self._around.get(loop)
        while around is not None and self._is_block(loop, around):
            loop, around = around, self._around[around]
        return loop

    def _is_block(self, loop: ops.Loop, around: ops.Loop) -> bool:
        """Whether a loop runs as often as the capacity allows, or as the loop around has left."""
        size = self._definitions.get(loop.upper) if isinstance(loop, ops.For) else None
        while isinstance(size, ops.Cast):
            size = self._definitions.get(size.x)
        if not isinstance(size, ops.Binary) or size.fn != "min":
            return False
        counters = set(around.body.args)
        for length, rest in ((size.lhs, size.rhs), (size.rhs, size.lhs)):
            found = self._sources(length)
            is_fixed = counters.isdisjoint(found) and any(map(self._is_capacity, found))
            if is_fixed and not counters.isdisjoint(self._sources(rest)):
                return True
        return False

    def _is_capacity(self, value: Value) -> bool:
        return isinstance(self._definitions.get(value), ops.RecordCapacity)

    def _sources(self, value: Value) -> set[Value]:
        """A value, and the values from which it is computed."""
        found, left = {value}, [value]
        while left:
            op = self._definitions.get(left.pop())
            if op is not None:
                inner = [value for region in op.regions for value in region.yielded]
                new = {*op.operands, *inner} - found
                found |= new
                left += new
        return found
