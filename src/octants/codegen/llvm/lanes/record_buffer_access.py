"""Access the record buffer of lanes: members of records are vectors, so each lane has its column.

All lanes share positions; an iteration takes as many times the bytes as there are lanes. Where all
lanes are in the same iteration a member is one vector in memory.
"""

from __future__ import annotations

from octants.codegen import record_buffer_access
from octants.codegen.llvm import memory_formats as scalar_memory
from octants.codegen.llvm.lanes import memory
from octants.codegen.llvm.lanes.function_text import LaneText
from octants.codegen.llvm.lanes.memory import LaneAddress
from octants.codegen.llvm.worker_record_buffer import WorkerRecordBuffer, pack, unpack
from octants.codegen.recording_facts import counted_pushes
from octants.ir import ops
from octants.ir.core import Record


def _stride(f: LaneText, record: Record) -> int:
    """Return the bytes of an iteration."""
    return f.record_buffer.stride(record) * f.lanes


def push(f: LaneText, op: ops.RecordPush) -> None:
    """Write an iteration; grow the record buffer first, unless the loop has reserved it."""
    stride = _stride(f, op.record)
    if not stride:
        return
    index = f.wide(op.index)
    position = record_buffer_access.position_of(f, op, index, stride)
    if op not in f.reserved:
        last = position
        if f.is_vector(position):
            last = record_buffer_access.position(f, f.use(op.base), f.largest(index), stride)
        _ensure_capacity(f, op, index, f.apply("add", "i64", last, stride))
    start = _start(f, position)
    suffix = f.kernel.scopes.suffix(None)
    for offset, slots in op.record.members().items():
        dtype = op.record.slots[slots[0]]
        stored = pack(f, dtype, [f.use(op.values[slot]) for slot in slots])
        address = _member(f, start, offset, dtype.size)
        stored_as = scalar_memory.memory_type(f, dtype)
        memory.store_to(f, address, stored_as, stored, dtype.size, suffix, private=True)


def pop(f: LaneText, op: ops.RecordPop) -> None:
    """Read an iteration back."""
    stride = _stride(f, op.record)
    if not stride:
        return
    index = f.wide(op.index)
    start = _start(f, record_buffer_access.position(f, f.use(op.base), index, stride))
    suffix = f.kernel.scopes.suffix(None)
    for offset, slots in op.record.members().items():
        dtype = op.record.slots[slots[0]]
        address = _member(f, start, offset, dtype.size)
        stored_as = scalar_memory.memory_type(f, dtype)
        stored = memory.load_from(f, address, stored_as, dtype.size, suffix, private=True)
        for slot, operand in zip(slots, unpack(f, dtype, len(slots), stored), strict=True):
            result = op.results[slot]
            if f.is_vector(operand) and not f.varies(result):
                operand = f.element(f.type(dtype), operand, "0")
            f.bind(result, operand)


def _start(f: LaneText, position: str) -> str:
    """Return the address of a position: one number, or one for each lane."""
    if not f.is_vector(position):
        return str(f.record_buffer.address(position))
    assert isinstance(f.record_buffer, WorkerRecordBuffer)
    start = f.record_buffer.start()
    return f.assign_vector(f"getelementptr i8, ptr {start}, {f.vector('i64')} {position}")


def _member(f: LaneText, start: str, offset: int, size: int) -> LaneAddress:
    """Return the addresses of the lanes' values of a member."""
    if not f.is_vector(start):
        head = f.assign(f"getelementptr i8, ptr {start}, i64 {offset * f.lanes}")
        return LaneAddress(head, size)
    numbers = ", ".join(f"i64 {offset * f.lanes + lane * size}" for lane in range(f.lanes))
    pointers = f"{f.vector('ptr')} {start}, {f.vector('i64')} <{numbers}>"
    return LaneAddress(f.assign_vector(f"getelementptr i8, {pointers}"), None)


def end(f: LaneText, op: ops.RecordEnd) -> None:
    """Bind the position after the iterations of the lane with the most."""
    count = f.largest(f.wide(op.count))
    f.bind(
        op.result, record_buffer_access.position(f, f.use(op.base), count, _stride(f, op.record))
    )


def capacity(f: LaneText, op: ops.RecordCapacity) -> None:
    """Bind the capacity for a loop in each lane's column of the record buffer."""
    f.bind(op.result, record_buffer_access.capacity_for(f, op, _stride(f, op.record)))


def longest(f: LaneText, op: ops.Longest) -> None:
    """Bind the trip count of the lane with the most."""
    f.bind(op.result, f.largest(f.use(op.count)))


def reserve_now(f: LaneText, op: ops.RecordReserve) -> None:
    """Grow the record buffer for later records, for the lane that needs most."""
    if op.record.slots:
        end = f.wide(op.end)
        _ensure_capacity(f, op, end, f.largest(end))


def reserve(f: LaneText, loop: ops.For) -> None:
    """Reserve space for all pushes of a loop, as `codegen.record_buffer_access.reserve` does."""
    for op, from_zero, condition in counted_pushes(f, loop):
        stride = _stride(f, op.record)
        if (
            stride == 0
            or op in f.reserved
            or (condition is not None and f.is_vector(f.use(condition)))
        ):
            continue
        bound = f.wide(loop.upper)
        if from_zero:
            bound = f.apply("sub", "i64", bound, f.wide(loop.lower))
        least = record_buffer_access.limited(f.code, f.largest(bound), stride)
        nbytes = record_buffer_access.position(f, f.use(op.base), least, stride)
        _ensure_capacity(f, op, bound, record_buffer_access.needed(f, nbytes, condition))
        f.reserved.add(op)


def _ensure_capacity(
    f: LaneText, op: ops.RecordPush | ops.RecordReserve, counts: str, nbytes: str
) -> None:
    """Grow the record buffer if needed; a failure names the lane that needed most."""
    outer, first = f.item, f.item_number()
    wanting = f.mask
    if f.is_vector(counts):
        wanting = f.both(f.mask, f.apply("icmp eq", "i64", counts, f.largest(counts)))
    f.item = f.item_of(wanting)
    record_buffer_access.ensure_capacity(f, op, nbytes, first)
    f.item = outer
