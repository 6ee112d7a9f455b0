"""Facts about what tasks record, for all targets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from octants.analysis.memory.repeated_reads import RepeatedReads
from octants.diagnostics.span import Span
from octants.ir import ops
from octants.ir.core import (
    CHECKPOINT,
    LOG,
    Block,
    Companion,
    Module,
    Operation,
    Record,
    Space,
    Task,
    Value,
)
from octants.types.scalars import i64

_ASKING = (ops.RecordPush, ops.RecordReserve)
_TAKES = {
    CHECKPOINT: "a checkpoint {} bytes",
    LOG: "each value that is read, and later overwritten, takes {} bytes",
}


def recorded_loops(module: Module) -> list[tuple[Span, str]]:
    """Return the location of each loop with records, and the bytes that it takes."""
    records = dict.fromkeys(op.record for op in module.walk() if isinstance(op, ops.RecordPush))
    found: dict[Span, dict[str, None]] = {}
    for record in sorted(records, key=lambda each: each.name == CHECKPOINT):
        if record.slots and record.location is not None:
            takes = _TAKES.get(record.name, "its record takes {} bytes an iteration")
            found.setdefault(record.location, {})[takes.format(record.offsets()[1])] = None
    return [(location, ", ".join(takes)) for location, takes in found.items()]


def restartable(body: Block) -> set[Operation]:
    """Return the operations that may lack space for records before the task changes anything."""
    found: set[Operation] = set()
    for op in body.ops:
        inside = [*op.walk()]
        if any(_changes_memory(each) or isinstance(each, ops.Print) for each in inside):
            break
        found.update(each for each in inside if isinstance(each, _ASKING))
    return found


def _changes_memory(op: Operation) -> bool:
    """Return whether an operation writes memory that is not the work item's own."""
    return isinstance(op, ops.Write) and op.array.space is not Space.LOCAL


def reserved_pushes(body: Block) -> set[Operation]:
    """Return the pushes of checkpoints whose space the first sweep has reserved."""
    found: set[Operation] = set()
    known: set[Record] = set()
    for op in body.walk():
        if isinstance(op, ops.RecordPush) and op.record.name == CHECKPOINT:
            if op.record in known:
                found.add(op)
            known.add(op.record)
    return found


def pushes_in_reserve(body: Block) -> set[Operation]:
    """Return the pushes to records for which the first sweep has surely reserved space.

    They are behind the last reservation. Before it, the first sweep may store a record. Those that
    depend on memory that is read again may go further than the first sweep has seen.
    """
    found: set[Operation] = set()
    reserved: set[Record] = set()
    behind = 0
    for number, op in enumerate(body.ops):
        inside = [*op.walk()]
        records = {each.record for each in inside if isinstance(each, ops.RecordReserve)}
        if records:
            reserved |= records
            found.clear()
            behind = number + 1
        elif reserved:
            found.update(
                each
                for each in inside
                if isinstance(each, ops.RecordPush) and each.record in reserved
            )
    return found - RepeatedReads(body.ops[behind:]).pushes if found else found


def known_positions(module: Module) -> dict[ops.RecordPush, Value]:
    """The positions of pushes whose base is computed from them: ``record_end(position, -number)``.

    Such bases are those of loops that write their iterations where others have left off.
    """
    bases: dict[Value, tuple[Record, Value, Value]] = {}
    zeros: set[Value] = set()
    negated: dict[Value, Value] = {}
    found: dict[ops.RecordPush, Value] = {}
    for op in module.walk():
        if isinstance(op, ops.Constant) and op.value == 0:
            zeros.add(op.result)
        elif isinstance(op, ops.Binary) and op.fn == "sub" and op.lhs in zeros:
            negated[op.result] = op.rhs
        elif isinstance(op, ops.RecordEnd) and op.count in negated:
            bases[op.result] = op.record, op.base, negated[op.count]
        elif isinstance(op, ops.RecordPush) and op.base in bases:
            record, position, number = bases[op.base]
            if record is op.record and number is op.index:
                found[op] = position
    return found


def records_in_variables(module: Module) -> set[Record]:
    """The local records whose iterations are all accessed by constant numbers."""
    constants = {op.result for op in module.walk() if isinstance(op, ops.Constant)}
    accesses = [op for op in module.walk() if isinstance(op, ops.RecordAccess) and op.record.local]
    others = {op.record for op in accesses if op.index not in constants}
    return {op.record for op in accesses} - others


def may_exceed_record_buffer(op: Operation) -> bool:
    """Return whether an operation may run out of space for records."""
    if not isinstance(op, _ASKING) or not op.record.slots:
        return False
    return isinstance(op, ops.RecordReserve) or not op.record.local


def can_retry(body: Block) -> bool:
    """Return whether work items that run out of space for records have surely changed nothing.

    The record buffer has capacity for everything that follows when adjoints begin to change. So
    only the first sweep matters, and whether it repeats the stores of the forward run.
    """
    if not any(
        _changes_memory(op) and op.companion is Companion.PRIMAL
        for op in body.walk()
        if isinstance(op, ops.Write)
    ):
        return True
    return _restarts(body)


def can_fail(module: Module) -> bool:
    """Return whether a task may end the launch, which takes a message."""
    if any(isinstance(op, ops.Assert) for op in module.walk()):
        return True
    return not all(_restarts(task.body) for task in module.tasks)


def may_be_skipped(module: Module, task: Task) -> bool:
    """Return whether a failure of an earlier task may skip this one."""
    before = module.tasks[: module.tasks.index(task)]
    asserts = (isinstance(op, ops.Assert) for each in before for op in each.body.walk())
    return any(asserts) or not all(_restarts(each.body) for each in before)


def _restarts(body: Block) -> bool:
    """Return whether a block can only run out of space for records before it changes anything."""
    asking = {op for op in body.walk() if may_exceed_record_buffer(op)}
    return asking <= restartable(body) | reserved_pushes(body)


class Written(Protocol):
    """A function under construction: which values are defined, and their operands.

    `kernel.widened` maps each i64 that is a cast to the value before it.
    """

    kernel: Any

    def has(self, value: Value) -> bool: ...

    def use(self, value: Value) -> Any: ...


def counted_pushes(
    f: Written, loop: ops.For
) -> Iterator[tuple[ops.RecordPush, bool, Value | None]]:
    """Yield the pushes of a loop whose index is the iteration, and whether that counts from zero.

    Else the index is the loop's counter. The third item is a condition for the push that does not
    depend on the iteration, if there is one.
    """
    counting = {loop.body.args[0]: False}
    for op in loop.body.ops:
        if _is_cast(op) and op.operands[0] in counting:
            counting[op.results[0]] = counting[op.operands[0]]
        elif _is_difference(f, op, loop) and op.operands[0] in counting:
            counting[op.results[0]] = True
        elif isinstance(op, ops.RecordPush) and op.index in counting and f.has(op.base):
            yield op, counting[op.index], None
        elif isinstance(op, ops.If) and f.has(op.condition):
            for push in op.then.ops:
                if isinstance(push, ops.RecordPush) and push.index in counting and f.has(push.base):
                    yield push, counting[push.index], op.condition


def _is_cast(op: Operation) -> bool:
    return isinstance(op, ops.Cast) and op.result.type is i64


def _is_difference(f: Written, op: Operation, loop: ops.For) -> bool:
    """Return whether an operation subtracts the lower bound of a loop, of any type, from an i64."""
    if not isinstance(op, ops.Binary) or op.fn != "sub" or op.result.type is not i64:
        return False
    if f.kernel.widened.get(op.rhs, op.rhs) is loop.lower:
        return True
    return f.has(op.rhs) and bool(f.use(op.rhs) == f.use(loop.lower))


def records_iterations(block: Block) -> bool:
    """Return whether the record buffer holds iterations of loops, and not only checkpoints."""
    return any(
        isinstance(op, ops.RecordPush)
        and not op.record.local
        and op.record.slots
        and op.record.name not in (CHECKPOINT, LOG)
        for op in block.walk()
    )
