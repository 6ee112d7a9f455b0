"""Write a work item's records to its record buffer, and read them back.

A loop that pushes in each iteration, and whose trip count is known when it begins, reserves the
record buffer for all iterations there; its pushes need no check. Positions are computed in 64 bits,
whatever the type of the loop's counter, and stay below `abi.MAXIMUM_RECORD_BUFFER`.

A work item that runs out of space for records before it has changed anything ends there, and the
runtime can retry it. Later it is a failure. A `Record.local` is in memory of the work item.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octants import abi
from octants.codegen import messages
from octants.codegen.function_emitter import FunctionEmitter
from octants.codegen.instruction_writer import Code, Operand, UnaddressedElement, register
from octants.codegen.message_formats import memory_message
from octants.codegen.recording_facts import counted_pushes, may_exceed_record_buffer
from octants.ir import ops
from octants.ir.core import Operation, Record, Value
from octants.types.scalars import i64, u32, u64


def push(f: FunctionEmitter, op: ops.RecordPush) -> None:
    """Write an iteration if the record's capacity allows it."""
    if not op.record.slots:
        return
    if op.record.local:
        _push_local(f, op)
    elif op.record.capacity:
        f.code.branch(_is_held(f, op.record, f.wide(op.index)), lambda: _write(f, op))
    else:
        _write(f, op)


def _write(f: FunctionEmitter, op: ops.RecordPush) -> None:
    """Write an iteration; check the record buffer first, unless the loop has reserved it."""
    stride = f.record_buffer.stride(op.record)
    start = position_of(f, op, f.wide(op.index), stride)

    def write() -> None:
        f.record_buffer.write(
            f.record_buffer.address(start), op.record, [f.use(value) for value in op.values]
        )

    if op in f.reserved:
        write()
    else:
        ensure_capacity(f, op, added(f.code, start, f.code.constant(stride, i64)))
        f.if_active(write)


def pop(f: FunctionEmitter, op: ops.RecordPop) -> None:
    """Read an iteration back; the last one that the record can hold if it holds fewer."""
    if not op.record.slots:
        return
    if op.record.local:
        _pop_local(f, op)
        return
    index = f.wide(op.index)
    if op.record.capacity:
        last = f.code.constant(op.record.capacity - 1, i64)
        index = f.code.choose(_is_held(f, op.record, index), i64, index, last)
    start = f.record_buffer.address(
        position(f, f.use(op.base), index, f.record_buffer.stride(op.record))
    )
    for result, found in zip(op.results, f.record_buffer.read(start, op.record), strict=True):
        f.bind(result, found)


def _is_held(f: FunctionEmitter, record: Record, index: Operand) -> Operand:
    return f.code.compare("lt", u64, index, f.code.constant(record.capacity, u64))


# -- memory of the work item --------------------------------------------------------------------


def _push_local(f: FunctionEmitter, op: ops.RecordPush) -> None:
    """Write an iteration to local memory; adjacent truth values are the bits of one number."""
    code, index = f.code, f.wide(op.index)
    for slots in op.record.members().values():
        operands = [f.use(op.values[slot]) for slot in slots]
        address, dtype = _local(f, op.record, slots, index)
        stored = operands[0]
        if len(slots) > 1:
            bits = [
                code.choose(operand, u32, code.constant(1 << bit, u32), code.constant(0, u32))
                for bit, operand in enumerate(operands)
            ]
            stored = bits[0]
            for each in bits[1:]:
                stored = code.apply("or", u32, stored, each)
        code.store(address, dtype, stored)


def _pop_local(f: FunctionEmitter, op: ops.RecordPop) -> None:
    code, index = f.code, f.wide(op.index)
    for slots in op.record.members().values():
        address, dtype = _local(f, op.record, slots, index)
        stored = code.load(address, dtype)
        if len(slots) == 1:
            f.bind(op.results[slots[0]], stored)
            continue
        for bit, slot in enumerate(slots):
            single = code.apply("and", u32, stored, code.constant(1 << bit, u32))
            f.bind(op.results[slot], code.compare("ne", u32, single, code.constant(0, u32)))


def _local(
    f: FunctionEmitter, record: Record, slots: list[int], index: Operand
) -> tuple[UnaddressedElement, Any]:
    """Return the element of a member of an iteration, and its type.

    Drivers turn the element of an array of one element into a register.
    """
    dtype = register(record.slots[slots[0]]) if len(slots) == 1 else u32
    if record in f.kernel.in_variables:
        number, zero = f.code.known(index), f.code.constant(0, u32)
        return UnaddressedElement(f.local_array((record, slots[0], number), dtype, 1), zero), dtype
    array = f.local_array((record, slots[0]), dtype, record.local)
    if f.code.has_wide_elements:
        return UnaddressedElement(array, index, is_wide=True), dtype
    return UnaddressedElement(array, f.code.convert(index, i64, u32)), dtype


# -- counts and capacities ----------------------------------------------------------------------


def check(f: FunctionEmitter, op: ops.RecordCheck) -> None:
    """Continue if the record can hold so many iterations, else end the work item."""
    count, code = f.wide(op.count), f.code

    def overflows() -> None:
        messages.overflow(f, op.record, count)
        f.leave()

    capacity = code.constant(op.record.capacity, i64)
    code.branch(code.compare("gt", i64, count, capacity), overflows, rare=True)


def end(f: FunctionEmitter, op: ops.RecordEnd) -> None:
    """Bind the position after so many iterations."""
    stride = f.record_buffer.stride(op.record)
    f.bind(op.result, position(f, f.use(op.base), f.wide(op.count), stride))


def capacity(f: FunctionEmitter, op: ops.RecordCapacity) -> None:
    """Bind the capacity for a loop that one work item's quota leaves."""
    f.bind(op.result, capacity_for(f, op, f.record_buffer.stride(op.record)))


def capacity_for(f: FunctionEmitter, op: ops.RecordCapacity, stride: int) -> Operand:
    """Return how many pieces of ``stride`` bytes fit a fraction of the quota that is left."""
    code, nbytes = f.code, op.parts * stride
    if nbytes == 0:
        return code.constant(abi.MAXIMUM_RECORD_BUFFER, i64)
    rest, zero, one = f.record_buffer.quota(), code.constant(0, i64), code.constant(1, i64)
    if code.known(f.use(op.taken)) != 0:
        rest = code.apply("sub", i64, rest, f.use(op.taken))
        rest = code.choose(code.compare("gt", i64, rest, zero), i64, rest, zero)
    count = code.apply("quotient", u64, rest, code.constant(nbytes, u64))
    return code.choose(code.compare("gt", i64, count, one), i64, count, one)


def longest(f: FunctionEmitter, op: ops.Longest) -> None:
    """Bind the trip count: a work item with its own record buffer has no others to agree with."""
    f.bind(op.result, f.use(op.count))


def reserve_now(f: FunctionEmitter, op: ops.RecordReserve) -> None:
    """Reserve space for later records."""
    if op.record.slots:
        ensure_capacity(f, op, f.wide(op.end))


# -- loops that push in each iteration ----------------------------------------------------------


def reserve(f: FunctionEmitter, loop: ops.For, *, runs: bool) -> None:
    """Reserve space for all pushes of a loop whose index is the iteration.

    ``runs`` is true where the loop has at least one iteration.
    """
    for op, from_zero, condition in counted_pushes(f, loop):
        if op in f.reserved or not may_exceed_record_buffer(op):
            continue
        stride = f.record_buffer.stride(op.record)
        bound = _bound(f, loop, stride, from_zero=from_zero, runs=runs)
        nbytes = position(f, f.use(op.base), bound, stride)
        ensure_capacity(f, op, needed(f, nbytes, condition))
        f.reserved.add(op)


def needed(f: FunctionEmitter, nbytes: Operand, condition: Value | None) -> Operand:
    """Return so many bytes, or zero if a condition does not hold."""
    if condition is None:
        return nbytes
    return f.code.choose(f.use(condition), i64, nbytes, f.code.constant(0, i64))


def _bound(
    f: FunctionEmitter, loop: ops.For, stride: int, *, from_zero: bool, runs: bool
) -> Operand:
    """Return an upper bound of a push's index: the loop's upper bound, or its trip count."""
    code, lower, upper = f.code, f.wide(loop.lower), f.wide(loop.upper)
    bound = limited(code, code.apply("sub", i64, upper, lower) if from_zero else upper, stride)
    if runs:
        return bound
    has_turn = code.compare("lt", i64, lower, upper)
    return code.choose(has_turn, i64, bound, code.constant(0, i64))


def limited(code: Code, bound: Operand, stride: int) -> Operand:
    """Clamp an iteration count to the least that no record buffer holds: no position overflows."""
    most = code.constant(abi.MAXIMUM_RECORD_BUFFER // stride + 1, i64)
    return code.choose(code.compare("lt", u64, bound, most), i64, bound, most)


def position(f: FunctionEmitter, base: Operand, index: Operand, stride: int) -> Operand:
    """Return the position of an iteration in the record buffer."""
    code = f.code
    if stride == 0 or code.known(index) == 0:
        return base
    return added(code, base, code.apply("mul", i64, index, code.constant(stride, i64)))


def position_of(f: FunctionEmitter, op: ops.RecordPush, index: Operand, stride: int) -> Operand:
    """Return the position of the iteration that is pushed."""
    known = f.kernel.positions.get(op)
    return position(f, f.use(op.base), index, stride) if known is None else f.use(known)


def added(code: Code, base: Operand, distance: Operand) -> Operand:
    """Return the position ``distance`` bytes (i64) after another one."""
    return distance if code.known(base) == 0 else code.apply("add", i64, base, distance)


def ensure_capacity(
    f: FunctionEmitter,
    op: ops.RecordPush | ops.RecordReserve,
    nbytes: Operand,
    first: Operand | None = None,
) -> None:
    """Ensure that the record buffer holds ``nbytes``.

    ``first`` is the work item (i64) at which to retry, if it is not the one that runs out.
    """

    def refused() -> None:
        item = f.item_number() if first is None else first
        if op in f.restartable and f.record_buffer.give_up(item, nbytes):
            return
        messages.fail(f, memory_message(op.record.location), [f.item_quota(nbytes)])

    f.record_buffer.require(nbytes, refused)


TABLE: dict[type[Operation], Callable[[Any, Any], Any]] = {
    ops.RecordPush: push,
    ops.RecordPop: pop,
    ops.RecordEnd: end,
    ops.RecordCapacity: capacity,
    ops.Longest: longest,
    ops.RecordReserve: reserve_now,
    ops.RecordCheck: check,
}
