"""Finds values that decide control flow, so that each replay must compute them bit by bit."""

from __future__ import annotations

from collections.abc import Collection

from octants.ir import ops
from octants.ir.core import ArrayRef, Block, Companion, Operation, Space, Task, Value
from octants.ir.ops.arithmetic import SINES

_ABRUPT = frozenset(
    ("floor", "ceil", "round", "trunc", "sign", "floordiv", "mod", "truncdiv", "truncmod")
)
_DECIDING = (ops.For, ops.If, ops.Random, ops.RandomStream)

APPROXIMATE_TRIG = "approximate_trig"
"""The option of a reversed task whose replays need not reproduce sines and cosines bit by bit."""


def sines_and_cosines(block: Block) -> set[Value]:
    """The sines and cosines in a block."""
    every = (op for op in block.walk() if isinstance(op, ops.Unary))
    return {op.result for op in every if op.fn in SINES}


def may_round_differently(task: Task, option: str, numbers: Collection[Value]) -> bool:
    """Whether some floats of a finished task may be rounded differently.

    Args:
        task: the task.
        option: the option that says so of a reversed task, whose records do not show it.
        numbers: the floats.
    """
    if task.options.get(option):
        return True
    records = (ops.RecordPush, ops.RecordPop)
    return not any(isinstance(op, records) for op in task.body.walk()) and may_differ_in_replay(
        task.body, numbers
    )


def may_differ_in_replay(block: Block, numbers: Collection[Value]) -> bool:
    """Whether no replay, and no other task, must reproduce some floats of a block bit by bit."""
    flow = _Flow(numbers)
    flow.spread(block)
    stored = (Space.TEMPORARY, Companion.PRIMAL)  # which other tasks may read
    return not flow.decides and not any((x.space, which) == stored for x, which in flow.refs)


def decides(block: Block, numbers: Collection[Value]) -> bool:
    """Whether a branch, trip count, index or random draw in a block may depend on some floats.

    It may if they are compared, or rounded to an integer. It also may if they take part in updates
    other than sums, because a reverse kernel finds the winner by its bits, and if they are stored
    in an array that the block reads, for a run that repeats the store. Stored values are followed
    to loads from the array.
    """
    flow = _Flow(numbers)
    flow.spread(block)
    return flow.decides


class _Flow:
    """The values and array references that depend on some numbers."""

    def __init__(self, numbers: Collection[Value]) -> None:
        self.values = set(numbers)
        self.refs: set[ArrayRef] = set()
        self.decides = False

    def spread(self, block: Block) -> None:
        """Follow the numbers through a block, until they decide something or reach no more."""
        size = -1
        while size != (size := len(self.values) + len(self.refs)) and not self.decides:
            self._visit(block)

    def _visit(self, block: Block) -> None:
        for number, op in enumerate(block.ops):
            if isinstance(op, ops.Access):
                self._visit_access(op, block.ops[number : number + 3])
            elif isinstance(op, _DECIDING):
                self.decides |= not self.values.isdisjoint(_deciding(op))
            if op.REGIONS:
                for region in op.regions:
                    self._visit(region)
                self._join(op)
            elif not self.values.isdisjoint(op.operands):
                self.values.update(op.results)
                self.decides |= _is_abrupt(op)

    def _visit_access(self, op: ops.Access, three: list[Operation]) -> None:
        """Note what an access decides, and what memory holds; two operations follow it."""
        if isinstance(op, ops.Write) and op.value in self.values:
            self.refs.add(op.ref)
        if op.ref in self.refs and op.results:
            self.values.update(op.results)
            is_read = isinstance(op, ops.Load) and not _is_update(three)
            self.decides |= is_read and op.companion is Companion.PRIMAL
        self.decides |= not self.values.isdisjoint(op.indices)

    def _join(self, op: Operation) -> None:
        """Propagate the yields of regions to results and to the next iteration."""
        blocks = [op.then, op.orelse] if isinstance(op, ops.If) else [op.body]  # type: ignore[attr-defined]
        for number, result in enumerate(op.results):
            ends = [block.yielded[number] for block in blocks]
            starts: list[Value] = []
            if isinstance(op, ops.Loop):
                ends.append(op.inits[number])
                starts.append(op.body.args[number - len(op.inits)])
            if isinstance(op, ops.While):
                starts.append(op.condition.args[number])
            if not self.values.isdisjoint(ends):
                self.values.update((result, *starts))
        if isinstance(op, ops.While):
            self.decides |= op.condition.yielded[0] in self.values


def _deciding(op: Operation) -> list[Value]:
    """Return the operands that decide a trip count, a branch, or a random draw."""
    if isinstance(op, ops.For):
        return [op.lower, op.upper]
    return [op.condition] if isinstance(op, ops.If) else op.operands


def _is_abrupt(op: Operation) -> bool:
    """Whether other bits of a float may change a result by more than rounding."""
    if isinstance(op, ops.Atomic):
        return op.fn not in ("add", "sub")
    if isinstance(op, (ops.Unary, ops.Binary)) and op.fn in _ABRUPT:
        return True
    return (op.reads and op.writes) or any(not v.type.is_float for v in op.results)


def _is_update(three: list[Operation]) -> bool:
    """Whether three operations add to an element, with no other use of its content."""
    if len(three) < 3:
        return False
    load, add, store = three
    if not (isinstance(load, ops.Load) and isinstance(store, ops.Store)):
        return False
    is_sum = isinstance(add, ops.Binary) and add.fn in ("add", "sub") and add.lhs is load.result
    is_there = load.indices == store.indices and store.value in add.results
    return is_sum and is_there and load.ref == store.ref
