"""What work items record on a tape, and read back.

A loop that pushes in each turn, and whose trips are known when it begins, asks for the room of all
of them there; its pushes then need no check. Positions are computed in 64 bits, whatever the type
of a loop's counter, and stay below `abi.MAXIMUM_TAPE`.

Where memory is refused to a work item that has changed nothing yet, it ends there, and says so: the
runtime can run it again. Else that is a failure. A `Record.local` is in memory of the work item's.
"""

from __future__ import annotations

from typing import Any

from octants import abi
from octants.codegen import messages
from octants.codegen.code import Code, Element, Operand, register
from octants.codegen.function import FunctionEmitter
from octants.codegen.message_formats import memory_message
from octants.codegen.recording_facts import asks_for_room, counted_pushes
from octants.ir import ops
from octants.ir.core import Record, Value
from octants.types.scalars import i64, u32, u64


def push(f: FunctionEmitter, op: ops.RecordPush) -> None:
    """Write an iteration that the record has room for."""
    if not op.record.slots:
        return
    if op.record.local:
        _push_local(f, op)
    elif op.record.capacity:
        f.code.branch(_is_held(f, op.record, f.wide(op.index)), lambda: _write(f, op))
    else:
        _write(f, op)


def _write(f: FunctionEmitter, op: ops.RecordPush) -> None:
    """Write an iteration; ask for room first, unless the loop has done it."""
    stride = f.tape.stride(op.record)
    start = position(f, f.use(op.base), f.wide(op.index), stride)

    def write() -> None:
        f.tape.write(f.tape.address(start), op.record, [f.use(value) for value in op.values])

    if op in f.reserved:
        write()
    else:
        make_room(f, op, added(f.code, start, f.code.constant(stride, i64)))
        f.if_active(write)


def pop(f: FunctionEmitter, op: ops.RecordPop) -> None:
    """Read an iteration back; where the record has no such, the last one that it has room for."""
    if not op.record.slots:
        return
    if op.record.local:
        _pop_local(f, op)
        return
    index = f.wide(op.index)
    if op.record.capacity:
        last = f.code.constant(op.record.capacity - 1, i64)
        index = f.code.choose(_is_held(f, op.record, index), i64, index, last)
    start = f.tape.address(position(f, f.use(op.base), index, f.tape.stride(op.record)))
    for result, found in zip(op.results, f.tape.read(start, op.record), strict=True):
        f.bind(result, found)


def _is_held(f: FunctionEmitter, record: Record, index: Operand) -> Operand:
    return f.code.compare("lt", u64, index, f.code.constant(record.capacity, u64))


# -- memory of the work item's own --------------------------------------------------------------


def _push_local(f: FunctionEmitter, op: ops.RecordPush) -> None:
    """Truth values that stand together are the bits of one number."""
    code, index = f.code, f.wide(op.index)
    for slots in op.record.members().values():
        operands = [f.use(op.values[slot]) for slot in slots]
        place, dtype = _local(f, op.record, slots, index)
        stored = operands[0]
        if len(slots) > 1:
            bits = [
                code.choose(operand, u32, code.constant(1 << bit, u32), code.constant(0, u32))
                for bit, operand in enumerate(operands)
            ]
            stored = bits[0]
            for each in bits[1:]:
                stored = code.apply("or", u32, stored, each)
        code.store(place, dtype, stored)


def _pop_local(f: FunctionEmitter, op: ops.RecordPop) -> None:
    code, index = f.code, f.wide(op.index)
    for slots in op.record.members().values():
        place, dtype = _local(f, op.record, slots, index)
        stored = code.load(place, dtype)
        if len(slots) == 1:
            f.bind(op.results[slots[0]], stored)
            continue
        for bit, slot in enumerate(slots):
            single = code.apply("and", u32, stored, code.constant(1 << bit, u32))
            f.bind(op.results[slot], code.compare("ne", u32, single, code.constant(0, u32)))


def _local(
    f: FunctionEmitter, record: Record, slots: list[int], index: Operand
) -> tuple[Element, Any]:
    """Where a member of an iteration is, and its type."""
    dtype = register(record.slots[slots[0]]) if len(slots) == 1 else u32
    array = f.local_array((record, slots[0]), dtype, record.local)
    return Element(array, f.code.convert(index, i64, u32)), dtype


# -- counts and capacities ----------------------------------------------------------------------


def check(f: FunctionEmitter, op: ops.RecordCheck) -> None:
    """Go on if the record holds so many iterations, else end the work item."""
    count, code = f.wide(op.count), f.code

    def overflows() -> None:
        messages.overflow(f, op.record, count)
        f.leave()

    capacity = code.constant(op.record.capacity, i64)
    code.branch(code.compare("gt", i64, count, capacity), overflows, rare=True)


def end(f: FunctionEmitter, op: ops.RecordEnd) -> None:
    """The position after so many iterations."""
    stride = f.tape.stride(op.record)
    f.bind(op.result, position(f, f.use(op.base), f.wide(op.count), stride))


def room(f: FunctionEmitter, op: ops.RecordRoom) -> None:
    """What of the share the tape of one work item has for a loop."""
    f.bind(op.result, room_for(f, op, f.tape.stride(op.record)))


def room_for(f: FunctionEmitter, op: ops.RecordRoom, stride: int) -> Operand:
    """How many pieces of so many bytes fit a part of what the share has left."""
    code, nbytes = f.code, op.parts * stride
    if nbytes == 0:
        return code.constant(abi.MAXIMUM_TAPE, i64)
    rest, zero, one = f.tape.share(), code.constant(0, i64), code.constant(1, i64)
    if code.known(f.use(op.taken)) != 0:
        rest = code.apply("sub", i64, rest, f.use(op.taken))
        rest = code.choose(code.compare("gt", i64, rest, zero), i64, rest, zero)
    count = code.apply("quotient", u64, rest, code.constant(nbytes, u64))
    return code.choose(code.compare("gt", i64, count, one), i64, count, one)


def longest(f: FunctionEmitter, op: ops.Longest) -> None:
    """The count of a work item that has a tape of its own."""
    f.bind(op.result, f.use(op.count))


def reserve_now(f: FunctionEmitter, op: ops.RecordReserve) -> None:
    """Have room for what is recorded later."""
    if op.record.slots:
        make_room(f, op, f.wide(op.end))


# -- loops that push in each turn ---------------------------------------------------------------


def reserve(f: FunctionEmitter, loop: ops.For, *, runs: bool) -> None:
    """Have room for what a loop pushes in all its turns, where a push is for the turn itself.

    ``runs`` says that this stands where the loop has one turn at least.
    """
    for op, from_zero, condition in counted_pushes(f, loop):
        if not asks_for_room(op):
            continue
        stride = f.tape.stride(op.record)
        bound = _bound(f, loop, stride, from_zero=from_zero, runs=runs)
        nbytes = position(f, f.use(op.base), bound, stride)
        make_room(f, op, needed(f, nbytes, condition))
        f.reserved.add(op)


def needed(f: FunctionEmitter, nbytes: Operand, condition: Value | None) -> Operand:
    """So many bytes, if they are needed."""
    if condition is None:
        return nbytes
    return f.code.choose(f.use(condition), i64, nbytes, f.code.constant(0, i64))


def _bound(
    f: FunctionEmitter, loop: ops.For, stride: int, *, from_zero: bool, runs: bool
) -> Operand:
    """What the index of a loop's pushes stays below: its upper bound, or its turns."""
    code, lower, upper = f.code, f.wide(loop.lower), f.wide(loop.upper)
    bound = limited(code, code.apply("sub", i64, upper, lower) if from_zero else upper, stride)
    if runs:
        return bound
    has_turn = code.compare("lt", i64, lower, upper)
    return code.choose(has_turn, i64, bound, code.constant(0, i64))


def limited(code: Code, bound: Operand, stride: int) -> Operand:
    """A number of iterations, or the least that no tape holds: no position overflows."""
    most = code.constant(abi.MAXIMUM_TAPE // stride + 1, i64)
    return code.choose(code.compare("lt", u64, bound, most), i64, bound, most)


def position(f: FunctionEmitter, base: Operand, index: Operand, stride: int) -> Operand:
    """Where an iteration of so many bytes stands on the tape."""
    code = f.code
    if stride == 0 or code.known(index) == 0:
        return base
    return added(code, base, code.apply("mul", i64, index, code.constant(stride, i64)))


def added(code: Code, base: Operand, distance: Operand) -> Operand:
    """A position so many bytes, an i64, after another one."""
    return distance if code.known(base) == 0 else code.apply("add", i64, base, distance)


def make_room(
    f: FunctionEmitter,
    op: ops.RecordPush | ops.RecordReserve,
    nbytes: Operand,
    first: Operand | None = None,
) -> None:
    """Have the tape hold so many bytes.

    ``first`` is the work item (i64) with which to begin again, if it is not the one that asks.
    """

    def refused() -> None:
        item = f.item_number() if first is None else first
        if op in f.restartable and f.tape.give_up(item, nbytes):
            return
        messages.fail(f, memory_message(op.record.location), [f.share(nbytes)])

    f.tape.require(nbytes, refused)
