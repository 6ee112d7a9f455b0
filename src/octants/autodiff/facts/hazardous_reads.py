"""Finds and logs reads that cannot be repeated after a launch because the kernel writes there.

A bare reverse kernel runs on the memory that the forward launch left ("after"). A load from an
array that its own task or a later one writes would read another value: a hazard. Under a tape, such
a task is reversed on the memory from before it ("before"): its first sweep repeats the stores and
saves what the loads read. A load outside of loops runs at most once in a work item, so its result
is used throughout, and the ifs around it yield it; what loads in loops read is logged.
"""

from __future__ import annotations

from dataclasses import field

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import copy_block, copy_operation
from octants.ir.core import Array, Block, Companion, Operation, Task, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import i64

_MOST_IFS = 8
"""The most ifs around a read that yield what it reads."""


def writers(task: Task) -> dict[Array, list[Operation]]:
    """The operations of a task that write primal arrays, by array."""
    found: dict[Array, list[Operation]] = {}
    for op in task.body.walk():
        if isinstance(op, ops.Write) and op.companion is Companion.PRIMAL:
            found.setdefault(op.array, []).append(op)
    return found


@dataclass(eq=False, slots=True)
class ReadLog:
    """A task whose hazardous reads are saved: they have positions in a log, or run once.

    `body` is a copy of the task's body that carries the next position through its control flow.
    `positions` maps each logged read to its position (i64), `end` is the number of logged reads.
    `once` maps each other read to a value outside of all ifs, which dominates whatever follows: the
    result of the read, or that of an if around it. An atomic on a `shared` array would return
    another value if it ran again.
    """

    body: Block
    positions: dict[Operation, Value] = field(default_factory=dict)
    once: dict[Operation, Value] = field(default_factory=dict)
    end: Value | None = None
    shared: frozenset[Array] = frozenset()


def thread_log(
    body: Block, arrays: frozenset[Array], shared: frozenset[Array] | None = None
) -> ReadLog:
    """Copy a body so that every read of some arrays has a position in a log.

    Args:
        body: the body of a task, which is not changed.
        arrays: the arrays whose reads are logged.
        shared: the arrays whose atomics are logged in any case. By default, all reads are.

    Returns:
        The copy, with the positions.
    """
    threader = _Threader(arrays, shared)
    new = copy_block(body, {})
    log = ReadLog(new, threader.positions, threader.once, shared=shared or frozenset())
    builder = Builder()
    start = builder.constant(0, i64)
    log.end = threader.block(new, start)
    new.ops[:0] = builder.block.ops
    return log


class _Threader:
    """Adds the next position of the log to the carried values of loops around logged reads.

    Ifs around other reads yield what these read.
    """

    def __init__(self, arrays: frozenset[Array], shared: frozenset[Array] | None) -> None:
        self.arrays = arrays
        self.shared = shared
        self.positions: dict[Operation, Value] = {}
        self.once: dict[Operation, Value] = {}
        self._in_loop = False
        self._ifs = 0  # around what is visited

    def _is_hazard(self, op: Operation) -> bool:
        if not isinstance(op, ops.Access) or not op.reads:
            return False
        return op.array in self.arrays and op.companion is Companion.PRIMAL

    def _holds(self, *blocks: Block) -> bool:
        return any(self._is_hazard(op) for block in blocks for op in block.walk())

    def _runs_once(self, op: Operation) -> bool:
        """Whether the result of a read that is being visited may be used throughout, unlogged."""
        if self.shared is None or self._in_loop or self._ifs > _MOST_IFS:
            return False
        return not isinstance(op, ops.Write) or op.array not in self.shared

    def block(self, block: Block, position: Value) -> Value:
        """Give positions to the reads of a block, in place; gives the position after it."""
        builder = Builder(Block())
        for op in block.ops:
            if isinstance(op, ops.While) and self._holds(op.condition):
                op = self._rotate(builder, op)
                position = self._read_condition(builder, position)
            if op.REGIONS and self._holds(*op.regions):
                position = self._control(op, position)
                builder.block.ops.append(op)
                continue
            builder.block.ops.append(op)
            if not self._is_hazard(op):
                continue
            if self._runs_once(op):
                self.once[op] = op.results[0]
            else:
                self.positions[op] = position
                position = builder.binary("add", position, builder.constant(1, i64))
        block.ops[:] = builder.block.ops
        return position

    def _rotate(self, builder: Builder, op: ops.While) -> ops.While:
        """Evaluate the condition before the loop and at the end of each iteration instead."""
        go = _inline(builder, op.condition, op.inits)
        args = [Value(arg.type, arg.name) for arg in (*op.condition.args, go)]
        condition = Block(args, [ops.Yield([args[-1]])])
        last = op.body.ops.pop()
        with builder.into(op.body):
            again = _inline(builder, op.condition, last.operands)
            builder.yield_([*last.operands, again])
        op.body.args.append(Value(go.type))
        results = [*op.results, Value(go.type)]
        return ops.While([*op.inits, go], condition, op.body, results=results, location=op.location)

    def _read_condition(self, builder: Builder, position: Value) -> Value:
        """Give positions to the reads that `_rotate` moved before the loop."""
        pending = builder.block.ops
        start = next(
            (k for k, op in enumerate(pending) if self._lacks_position(op)),
            len(pending),
        )
        tail = Block([], [*pending[start:], ops.Yield([])])
        del pending[start:]
        position = self.block(tail, position)
        pending.extend(tail.ops[:-1])
        return position

    def _lacks_position(self, op: Operation) -> bool:
        if self._is_hazard(op):
            return op not in self.positions and op not in self.once
        return any(self._lacks_position(inner) for region in op.regions for inner in region.ops)

    def _control(self, op: Operation, position: Value) -> Value:
        """Carry the position through an operation with regions; gives the position after it."""
        if isinstance(op, ops.If):
            return self._branches(op, position)
        was_in_loop, self._in_loop = self._in_loop, True
        result = Value(i64)
        if isinstance(op, (ops.For, ops.While)):
            op.inits = [*op.inits, position]
            for region in op.regions:
                region.args.append(Value(i64))
            _yield_too(op.body, [self.block(op.body, op.body.args[-1])])
        self._in_loop = was_in_loop
        op.results = [*op.results, result]
        return result

    def _branches(self, op: ops.If, position: Value) -> Value:
        """Let an if yield the position after it, and what its branches read once."""
        ends, found = [], []
        self._ifs += 1
        for region in op.regions:
            before = set(self.once)
            ends.append(self.block(region, position))
            found.append({read: value for read, value in self.once.items() if read not in before})
        self._ifs -= 1
        reads = [*found[0], *found[1]]
        results = [Value(self.once[read].type) for read in reads]
        for region, end, own in zip(op.regions, ends, found, strict=True):
            builder = Builder(Block())
            yielded = [
                own.get(read) or builder.constant(0, result.type)
                for read, result in zip(reads, results, strict=True)
            ]
            region.ops[-1:-1] = builder.block.ops
            _yield_too(region, [*yielded, end])
        self.once.update(zip(reads, results, strict=True))
        after = Value(i64)
        op.results = [*op.results, *results, after]
        return after


def _inline(builder: Builder, block: Block, args: list[Value]) -> Value:
    """Copy the operations of a condition to the builder; gives the value that it yields."""
    values = dict(zip(block.args, args, strict=True))
    for op in block.ops[:-1]:
        builder.append(copy_operation(op, values))
    return values.get(block.yielded[0], block.yielded[0])


def _yield_too(block: Block, values: list[Value]) -> None:
    terminator = block.ops[-1]
    assert isinstance(terminator, ops.Yield)
    terminator.values = [*terminator.values, *values]
