"""The tape of the lanes: members of records lie lane by lane, so that each lane has a column.

A position is that of all lanes, and an iteration takes as many times the bytes as there are lanes.
Where all lanes are at the same iteration a member is one vector in memory.
"""

from __future__ import annotations

from octants.codegen import records
from octants.codegen.llvm import memory as scalar_memory
from octants.codegen.llvm.lanes import memory
from octants.codegen.llvm.lanes.function import LaneText
from octants.codegen.llvm.lanes.memory import LaneAddress
from octants.codegen.llvm.worker_tape import WorkerTape, apart, together
from octants.codegen.recording_facts import counted_pushes
from octants.ir import ops
from octants.ir.core import Record


def _stride(f: LaneText, record: Record) -> int:
    """The bytes that an iteration takes."""
    return f.tape.stride(record) * f.lanes


def push(f: LaneText, op: ops.RecordPush) -> None:
    """Write an iteration; first let the tape grow, unless the loop has done it."""
    stride = _stride(f, op.record)
    if not stride:
        return
    index = f.wide(op.index)
    if op not in f.reserved:
        last = records.position(f, f.use(op.base), f.largest(index), stride)
        _make_room(f, op, index, f.apply("add", "i64", last, stride))
    start = _start(f, f.use(op.base), index, stride)
    suffix = f.kernel.scopes.suffix(None)
    for offset, slots in op.record.members().items():
        dtype = op.record.slots[slots[0]]
        stored = together(f, dtype, [f.use(op.values[slot]) for slot in slots])
        place = _member(f, start, offset, dtype.size)
        stored_as = scalar_memory.memory_type(f, dtype)
        memory.store_to(f, place, stored_as, stored, dtype.size, suffix)


def pop(f: LaneText, op: ops.RecordPop) -> None:
    """Read an iteration back."""
    stride = _stride(f, op.record)
    if not stride:
        return
    start = _start(f, f.use(op.base), f.wide(op.index), stride)
    suffix, mask = f.kernel.scopes.suffix(None), f.mask
    if not f.is_vector(start):
        f.mask = None  # what other lanes read is there, and is of no consequence
    for offset, slots in op.record.members().items():
        dtype = op.record.slots[slots[0]]
        place = _member(f, start, offset, dtype.size)
        stored_as = scalar_memory.memory_type(f, dtype)
        stored = memory.load_from(f, place, stored_as, dtype.size, suffix)
        for slot, operand in zip(slots, apart(f, dtype, len(slots), stored), strict=True):
            f.bind(op.results[slot], operand)
    f.mask = mask


def _start(f: LaneText, base: str, index: str, stride: int) -> str:
    """Where an iteration begins: one address, or one for each lane."""
    position = records.position(f, base, index, stride)
    if not f.is_vector(position):
        return str(f.tape.address(position))
    assert isinstance(f.tape, WorkerTape)
    start = f.tape.start()
    return f.assign_vector(f"getelementptr i8, ptr {start}, {f.vector('i64')} {position}")


def _member(f: LaneText, start: str, offset: int, size: int) -> LaneAddress:
    """Where the lanes' values of a member are."""
    if not f.is_vector(start):
        head = f.assign(f"getelementptr i8, ptr {start}, i64 {offset * f.lanes}")
        return LaneAddress(head, size)
    numbers = ", ".join(f"i64 {offset * f.lanes + lane * size}" for lane in range(f.lanes))
    places = f"{f.vector('ptr')} {start}, {f.vector('i64')} <{numbers}>"
    return LaneAddress(f.assign_vector(f"getelementptr i8, {places}"), None)


def end(f: LaneText, op: ops.RecordEnd) -> None:
    """The position after as many iterations as the lane that has made most."""
    count = f.largest(f.wide(op.count))
    f.bind(op.result, records.position(f, f.use(op.base), count, _stride(f, op.record)))


def room(f: LaneText, op: ops.RecordRoom) -> None:
    """What of the share each lane's column of the tape has for a loop."""
    f.bind(op.result, records.room_for(f, op, _stride(f, op.record)))


def longest(f: LaneText, op: ops.Longest) -> None:
    """The count of the lane that has most."""
    f.bind(op.result, f.largest(f.use(op.count)))


def make_room_now(f: LaneText, op: ops.RecordReserve) -> None:
    """Let the tape grow for what is recorded later, by the lane that reaches furthest."""
    if op.record.slots:
        end = f.wide(op.end)
        _make_room(f, op, end, f.largest(end))


def reserve(f: LaneText, loop: ops.For) -> None:
    """Make room for what a loop pushes in all its turns, as `codegen.llvm.records.reserve`."""
    for op, from_zero, condition in counted_pushes(f, loop):
        stride = _stride(f, op.record)
        if stride == 0 or (condition is not None and f.is_vector(f.use(condition))):
            continue
        bound = f.wide(loop.upper)
        if from_zero:
            bound = f.apply("sub", "i64", bound, f.wide(loop.lower))
        least = records.limited(f.code, f.largest(bound), stride)
        nbytes = records.position(f, f.use(op.base), least, stride)
        _make_room(f, op, bound, records.needed(f, nbytes, condition))
        f.reserved.add(op)


def _make_room(
    f: LaneText, op: ops.RecordPush | ops.RecordReserve, counts: str, nbytes: str
) -> None:
    """Let the tape grow if it must; who asked for most is who is told of if that is refused."""
    outer, first = f.item, f.item_number()
    wanting = f.mask
    if f.is_vector(counts):
        wanting = f.both(f.mask, f.apply("icmp eq", "i64", counts, f.largest(counts)))
    f.item = f.item_of(wanting)
    records.make_room(f, op, nbytes, first)
    f.item = outer
