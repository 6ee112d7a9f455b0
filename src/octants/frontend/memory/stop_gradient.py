"""``stop_grad(array)``: the loads that have no derivative.

As in Quadrants, a call stops the derivatives of what the block of statements that it stands in
loads, before it and after it, and in the blocks within: the body of a loop, a branch of an ``if``,
or the whole kernel. Functions, unrolled loops and ``if static(...)`` are parts of the block around
them.

Before, in a block with ``stop_grad(x)``::

    %1: f32 = load<@x, primal>(%0)

After::

    %2: f32 = load<@x, primal>(%0)
    %3: i32 = bitcast(%2)
    %1: f32 = bitcast(%3)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from octants.ir import ops
from octants.ir.core import Array, Block, Operation, Value
from octants.types import scalars


class Stops:
    """Collects loads and the arrays that are stopped while a kernel is built."""

    def __init__(self) -> None:
        self._around: tuple[set[Array], ...] = (set(),)  # of each block around, outermost first
        self._loads: list[tuple[Operation, tuple[set[Array], ...]]] = []
        self._is_used = False

    @contextmanager
    def block(self) -> Iterator[None]:
        """Build a block of statements."""
        outer = self._around
        self._around = (*outer, set())
        try:
            yield
        finally:
            self._around = outer

    def stop(self, array: Array) -> None:
        """Stop the derivatives of an array in the current block."""
        self._around[-1].add(array)
        self._is_used = True

    def note(self, load: Operation) -> None:
        """Remember where a load of a float was built."""
        self._loads.append((load, self._around))

    def apply(self, body: Block) -> None:
        """Take the loads of stopped arrays their derivatives, when all of the kernel is built."""
        if not self._is_used:
            return
        stopped = {
            load
            for load, around in self._loads
            if isinstance(load, ops.Load) and any(load.array in each for each in around)
        }
        _pass_through_integers(body, stopped)


def _pass_through_integers(block: Block, loads: set[ops.Load]) -> None:
    """Give each load another result, from which integers of the same bits lead to the old one."""
    operations, block.ops = block.ops, []
    for op in operations:
        for region in op.regions:
            _pass_through_integers(region, loads)
        block.ops.append(op)
        if op in loads:
            (result,) = op.results
            raw, bits = Value(result.type), Value(scalars.by_name(f"i{result.type.bits}"))
            op.results = [raw]
            there, back = ops.Bitcast(raw, results=[bits]), ops.Bitcast(bits, results=[result])
            there.location = back.location = op.location
            block.ops += [there, back]
