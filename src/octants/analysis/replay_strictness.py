"""What decides which way a computation takes, so that each replay must find the same bits of it."""

from __future__ import annotations

from collections.abc import Collection

from octants.ir import ops
from octants.ir.core import ArrayRef, Block, Companion, Operation, Space, Task, Value

_ABRUPT = frozenset(
    ("floor", "ceil", "round", "trunc", "sign", "floordiv", "mod", "truncdiv", "truncmod")
)


FREE_WAVES = "free_waves"
"""The option of a reversed task in which no replay must find sines and cosines to the bit."""

_WAVES = ("sin", "cos", "cos_beside_sin")


def waves(block: Block) -> set[Value]:
    """The sines and cosines in a block."""
    every = (op for op in block.walk() if isinstance(op, ops.Unary))
    return {op.result for op in every if op.fn in _WAVES}


def is_free(task: Task, option: str, numbers: Collection[Value]) -> bool:
    """Whether some floats of a finished task may be rounded in other ways.

    ``option`` is what says so of a reversed task, whose records do not tell.
    """
    if task.options.get(option):
        return True
    records = (ops.RecordPush, ops.RecordPop)
    return not any(isinstance(op, records) for op in task.body.walk()) and may_differ_in_replay(
        task.body, numbers
    )


def may_differ_in_replay(block: Block, numbers: Collection[Value]) -> bool:
    """Whether no replay, and no other task, must find some floats of a block to the bit."""
    return not decides(block, numbers) and not _is_kept(block, numbers)


def decides(block: Block, numbers: Collection[Value]) -> bool:
    """Whether a branch, a trip count, a place or a random draw in a block may hang on some floats.

    It may on what is compared, or rounded to an integer. So it may on updates other than sums, as a
    reverse run asks for the winner by its bits, and on what is stored in an array that the block
    reads, for a run that stores it again. What is stored is followed to loads from the array.
    """
    flow = _Flow(numbers)
    size = -1
    while size != flow.size:  # what loops carry, and what memory holds, comes round
        size = flow.size
        flow.visit(block)
    return flow.decides


def _is_kept(block: Block, numbers: Collection[Value]) -> bool:
    """Whether some floats in a block go into values of a launch that other tasks may read."""
    flow = _Flow(numbers)
    size = -1
    while size != flow.size:
        size = flow.size
        flow.visit(block)
    kept = (Space.TEMPORARY, Companion.PRIMAL)
    return any((array.space, companion) == kept for array, companion in flow.places)


class _Flow:
    """The values and the arrays that hang on some numbers."""

    def __init__(self, numbers: Collection[Value]) -> None:
        self.values = set(numbers)
        self.places: set[ArrayRef] = set()
        self.decides = False

    @property
    def size(self) -> int:
        return len(self.values) + len(self.places)

    def visit(self, block: Block) -> None:
        for number, op in enumerate(block.ops):
            self._look(op, _is_update(block.ops[number : number + 3]))
            for region in op.regions:
                self.visit(region)
            if op.regions:
                self._join(op)
            elif not self.values.isdisjoint(op.operands):
                self.values.update(op.results)
                self.decides |= _is_abrupt(op)

    def _look(self, op: Operation, is_update: bool) -> None:
        """Whether an operation decides something; what memory holds."""
        deciding: list[Value] = []
        if isinstance(op, ops.Access):
            deciding = op.indices
            place = op.ref
            if isinstance(op, ops.Write) and op.value in self.values:
                self.places.add(place)
            if place in self.places and op.results:
                self.values.update(op.results)
                is_read = isinstance(op, ops.Load) and not is_update
                self.decides |= is_read and op.companion is Companion.PRIMAL
        elif isinstance(op, ops.For):
            deciding = [op.lower, op.upper]
        elif isinstance(op, ops.If):
            deciding = [op.condition]
        elif isinstance(op, (ops.Random, ops.RandomStream)):
            deciding = op.operands
        self.decides |= not self.values.isdisjoint(deciding)

    def _join(self, op: Operation) -> None:
        """From what regions begin with, and yield, to results and to the next iteration."""
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


def _is_abrupt(op: Operation) -> bool:
    """Whether other bits of a float may make quite another result."""
    if isinstance(op, ops.Atomic):
        return op.fn not in ("add", "sub")
    if isinstance(op, (ops.Unary, ops.Binary)) and op.fn in _ABRUPT:
        return True
    return (op.reads and op.writes) or any(not v.type.is_float for v in op.results)


def _is_update(three: list[Operation]) -> bool:
    """Whether operations are those of an addition to an element, which looks at nothing else."""
    if len(three) < 3:
        return False
    load, add, store = three
    if not (isinstance(load, ops.Load) and isinstance(store, ops.Store)):
        return False
    is_sum = isinstance(add, ops.Binary) and add.fn in ("add", "sub") and add.lhs is load.result
    is_there = load.indices == store.indices and store.value in add.results
    return is_sum and is_there and load.ref == store.ref
