"""Estimates the run time of code, in additions of registers.

The estimate decides how many work items run at a time and, with `lanes.time_estimate`, whether in
lanes.
"""

from __future__ import annotations

from octants.ir import ops
from octants.ir.core import Block, Module, Operation

DIVISION, LIBRARY, ATOMIC, STREAM, RANDOM = 6, 30, 20, 40, 10
DIVISIONS = ("div", "floordiv", "mod", "truncdiv", "truncmod")
CHEAP = ("neg", "abs", "sign", "floor", "ceil", "round", "trunc", "not", "popcount", "clz")
_LONG = 256

GRAIN = 16384
"""The work that is worth sharing with a thread that waits for work."""

UNINTERRUPTED = 64 * GRAIN
"""The work that a launch may do without polling for Ctrl-C: some milliseconds."""

UNKNOWN = 1 << 40
"""The cost of a loop with an unknown trip count: arbitrarily much."""


def operations_in(loop: ops.For) -> int:
    """The operations of an iteration, besides constants and yields."""
    return sum(not isinstance(op, (ops.Constant, ops.Yield)) for op in loop.body.walk())


class Costs:
    """The costs of the blocks of one module, or of one block.

    Args:
        code: the module or the block.
        unknown_trips: the trip count to assume for a loop whose trip count is unknown; without it,
            such a loop costs `UNKNOWN`.
    """

    def __init__(self, code: Module | Block, unknown_trips: int | None = None) -> None:
        self._unknown_trips = unknown_trips
        self._constants = ops.constants_in(code)
        self._blocks: dict[int, int] = {}

    def of(self, block: Block) -> int:
        """The cost of one run of a block, at most `UNKNOWN`."""
        known = self._blocks.get(id(block))
        if known is None:
            known = min(UNKNOWN, sum(self.of_operation(op) for op in block.ops))
            self._blocks[id(block)] = known
        return known

    def polls_each_iteration(self, body: Block) -> bool:
        """Whether a loop polls for Ctrl-C in each iteration.

        Loops with short bodies do not, because a poll would keep LLVM from vectorising them.
        """
        return self.of(body) > _LONG

    def grain(self, body: Block) -> int:
        """How many work items are worth a thread; 1 if each of them may take long."""
        return max(1, GRAIN // max(1, self.of(body)))

    def trips(self, op: ops.For) -> int | None:
        """The trip count of a loop, if it is known."""
        return op.trips(self._constants)

    def of_operation(self, op: Operation) -> int:
        """The cost of one run of an operation, with its regions."""
        if isinstance(op, ops.For):
            return self._loop(self.trips(op), op.body)
        if isinstance(op, ops.While):
            return self._loop(None, op.body)
        if isinstance(op, ops.If):
            return 1 + (self.of(op.then) + self.of(op.orelse)) // 2
        return _scalar(op)

    def _loop(self, trips: int | None, body: Block) -> int:
        trips = self._unknown_trips if trips is None else trips
        return UNKNOWN if trips is None else 1 + trips * (1 + self.of(body))


def _scalar(op: Operation) -> int:
    if isinstance(op, ops.Unary):
        return 1 if op.fn in CHEAP else LIBRARY
    if isinstance(op, ops.Binary):
        if op.fn in DIVISIONS:
            return DIVISION
        return LIBRARY if op.fn in ("pow", "atan2") else 1
    if isinstance(op, ops.Write) and op.reads:
        return ATOMIC
    if isinstance(op, ops.RandomStream):
        return STREAM
    if isinstance(op, ops.Random):
        return RANDOM
    return 0 if isinstance(op, (ops.Constant, ops.Yield)) else 1
