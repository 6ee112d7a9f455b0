"""The tape of a work item: records on the worker's stack, which grows when it must.

A loop that pushes in each turn, and whose trips are known when it begins, reserves for all of them
there; its pushes then need no check. Positions are computed in 64 bits, whatever the type of a
loop's counter, and stay below `abi.MAXIMUM_TAPE`.

Where memory is refused to a work item that has changed nothing yet, the task ends there, and says
so: the runtime can run the item again. Else that is a failure.
"""

from __future__ import annotations

from octants import abi
from octants.codegen import messages
from octants.codegen.llvm import memory
from octants.codegen.llvm.function import FunctionText
from octants.codegen.message_formats import memory_message
from octants.codegen.recording import counted_pushes
from octants.ir import ops
from octants.ir.core import Record, Value


def push(f: FunctionText, op: ops.RecordPush) -> None:
    """Write an iteration that the record has room for."""
    if not op.record.slots:
        return
    if op.record.local:
        _push_local(f, op)
        return
    if not op.record.capacity:
        _write(f, op)
        return
    fits, further = f.fresh_label("fits"), f.fresh_label("further")
    f.branch_if(_is_held(f, op.record, f.wide(op.index)), fits, further, likely=True)
    f.start(fits)
    _write(f, op)
    f.branch(further)
    f.start(further)


def _write(f: FunctionText, op: ops.RecordPush) -> None:
    """Write an iteration; first let the tape grow, unless the loop has done it."""
    stride = f.tape.stride(op.record)
    begin = position(f, f.use(op.base), f.wide(op.index), stride)
    if op not in f.reserved:
        make_room(f, op, f.apply("add", "i64", begin, stride))
    start = f.tape.address(begin)
    for offset, slots in op.record.members().items():
        values = [op.values[slot] for slot in slots]
        f.tape.write(start, offset, memory.memory_type(f, values[0].type), together(f, values))


def _push_local(f: FunctionText, op: ops.RecordPush) -> None:
    """Write an iteration to memory of the work item's own."""
    for offset, slots in op.record.members().items():
        values = [op.values[slot] for slot in slots]
        stored_type = memory.memory_type(f, values[0].type)
        place = _local_member(f, op.record, offset, stored_type, f.wide(op.index))
        f.emit(f"store {stored_type} {together(f, values)}, ptr {place}")


def _pop_local(f: FunctionText, op: ops.RecordPop) -> None:
    for offset, slots in op.record.members().items():
        results = [op.results[slot] for slot in slots]
        stored_type = memory.memory_type(f, results[0].type)
        place = _local_member(f, op.record, offset, stored_type, f.wide(op.index))
        apart(f, results, f.assign(f"load {stored_type}, ptr {place}"))


def _local_member(f: FunctionText, record: Record, offset: int, type: str, index: str) -> str:
    """The place of a member of an iteration; the members of one kind stand together."""
    members = f.once(("local", record, offset), f"alloca [{record.local} x {type}], align 8")
    return f.assign(f"getelementptr inbounds {type}, ptr {members}, i64 {index}")


def together(f: FunctionText, values: list[Value]) -> str:
    """A value as it is stored, or booleans in the bits of a byte."""
    stored = memory.to_memory(f, values[0].type, f.use(values[0]))
    for bit, value in enumerate(values[1:], 1):
        stored = f.apply("or", "i8", stored, f.choose(f.use(value), "i8", 1 << bit, 0))
    return stored


def apart(f: FunctionText, results: list[Value], stored: str) -> None:
    """Take a value, or booleans, from what is stored."""
    if len(results) == 1:
        f.bind(results[0], memory.from_memory(f, results[0].type, stored))
        return
    for bit, result in enumerate(results):
        single = f.apply("and", "i8", stored, 1 << bit)
        f.bind(result, memory.from_memory(f, result.type, single))


def pop(f: FunctionText, op: ops.RecordPop) -> None:
    """Read an iteration back; where the record has no such, the last one that it has room for."""
    if op.record.local:
        _pop_local(f, op)
        return
    stride = f.tape.stride(op.record)
    if not stride:
        return
    index = f.wide(op.index)
    if op.record.capacity:
        held = _is_held(f, op.record, index)
        index = f.choose(held, "i64", index, op.record.capacity - 1)
    start = f.tape.address(position(f, f.use(op.base), index, stride))
    for offset, slots in op.record.members().items():
        results = [op.results[slot] for slot in slots]
        apart(f, results, f.tape.read(start, offset, memory.memory_type(f, results[0].type)))


def _is_held(f: FunctionText, record: Record, index: str) -> str:
    return f.apply("icmp ult", "i64", index, record.capacity)


def check(f: FunctionText, op: ops.RecordCheck) -> None:
    """Go on if the record holds so many iterations, else end the work item."""
    count = f.wide(op.count)
    holds, overflows = f.fresh_label("holds"), f.fresh_label("overflows")
    is_enough = f.apply("icmp sle", "i64", count, op.record.capacity)
    f.branch_if(is_enough, holds, overflows, likely=True)
    f.start(overflows)
    messages.overflow(f, op.record, count)
    f.leave()
    f.start(holds)


def end(f: FunctionText, op: ops.RecordEnd) -> None:
    """The position after so many iterations."""
    stride = f.tape.stride(op.record)
    f.bind(op.result, position(f, f.use(op.base), f.wide(op.count), stride))


def room(f: FunctionText, op: ops.RecordRoom) -> None:
    """What of the share the tape of one work item has for a loop."""
    f.bind(op.result, room_for(f, op, f.tape.stride(op.record)))


def room_for(f: FunctionText, op: ops.RecordRoom, stride: int) -> str:
    """How many pieces of so many bytes fit a part of what the worker's share has left."""
    if stride == 0:
        return str(abi.MAXIMUM_TAPE)
    left = f.tape.share()
    if f.use(op.taken) != "0":
        rest = f.assign(f"sub i64 {left}, {f.use(op.taken)}")
        most = f.text.declare("@llvm.smax.i64", "i64", "i64, i64")
        left = f.assign(f"call i64 {most}(i64 {rest}, i64 0)")
    count = f.assign(f"udiv i64 {left}, {op.parts * stride}")
    most = f.text.declare("@llvm.umax.i64", "i64", "i64, i64")
    return f.assign(f"call i64 {most}(i64 {count}, i64 1)")


def longest(f: FunctionText, op: ops.Longest) -> None:
    """The count of a work item that runs alone."""
    f.bind(op.result, f.use(op.count))


def make_room_now(f: FunctionText, op: ops.RecordReserve) -> None:
    """Let the tape grow for what is recorded later."""
    if op.record.slots:
        make_room(f, op, f.wide(op.end))


def reserve(f: FunctionText, loop: ops.For) -> None:
    """Make room for what a loop pushes in all its turns, where a push is for the turn itself."""
    for op, from_zero, condition in counted_pushes(f, loop):
        stride = f.tape.stride(op.record)
        if not stride:
            continue
        bound = _bound(f, loop, stride, from_zero=from_zero)
        nbytes = position(f, f.use(op.base), bound, stride)
        make_room(f, op, needed(f, nbytes, condition))
        f.reserved.add(op)


def needed(f: FunctionText, nbytes: str, condition: Value | None) -> str:
    """So many bytes, if they are needed."""
    return nbytes if condition is None else f.choose(f.use(condition), "i64", nbytes, 0)


def _bound(f: FunctionText, loop: ops.For, stride: int, *, from_zero: bool) -> str:
    """What the index of a loop's pushes stays below: its upper bound, or its turns.

    Where a position would overflow it is the least number that no tape holds.
    """
    bound = f.wide(loop.upper)
    if from_zero:
        bound = f.apply("sub", "i64", bound, f.wide(loop.lower))
    least = f.text.declare("@llvm.umin.i64", "i64", "i64, i64")
    return f.assign(f"call i64 {least}(i64 {bound}, i64 {abi.MAXIMUM_TAPE // stride + 1})")


def position(f: FunctionText, base: str, index: str, stride: int) -> str:
    """Where an iteration of so many bytes stands on the tape."""
    if stride == 0 or index == "0":
        return base
    product = f.apply("mul", "i64", index, stride)
    return product if base == "0" else f.apply("add", "i64", base, product)


def make_room(
    f: FunctionText, op: ops.RecordPush | ops.RecordReserve, nbytes: str, first: str = ""
) -> None:
    """Let the tape hold so many bytes.

    ``first`` is the work item with which to begin again, if it is not the one that asks.
    """

    def refused() -> None:
        if op in f.restartable and f.tape.give_up(first or f.item, nbytes):
            return
        messages.fail(f, memory_message(op.record.location), [f.share(nbytes)])

    f.tape.require(nbytes, refused)
