"""Work items that work together, as threads of a GPU: a block of them is a block of threads.

A thread of the last block that has no work item has ended, and barriers do without it. The lanes of
a subgroup that have one are its first `text.Lanes.count`; others must not be asked for anything.
"""

from __future__ import annotations

from octants.codegen.llvm import arithmetic
from octants.codegen.llvm.function import HandlerTable
from octants.codegen.llvm.gpu.text import Lanes, ThreadText
from octants.codegen.llvm.text import identifier
from octants.diagnostics.cooperation_errors import WrongSharedArray
from octants.diagnostics.exceptions import InternalError
from octants.ir import ops
from octants.ir.cooperation import nbytes, shared_places, sizes
from octants.ir.core import ArrayRef, Task
from octants.ir.ops.cooperation import SCANS
from octants.types.scalars import DType

_WHOLE = 16  # bytes: updates of narrow types work on words


def begin_task(f: ThreadText, task: Task) -> None:
    """Give the block the arrays that its work items share; each companion is one of its own."""
    taken = 0
    for array, companion in shared_places(task):
        size = -(-nbytes(array) // _WHOLE) * _WHOLE
        name = f"octants_shared_{f.task}_{len(f.shared_arrays)}_{identifier(array.name)}"
        f.shared_arrays[ArrayRef(array, companion)] = f.gpu.shared_memory(f, name, size)
        taken += size
    if taken > f.gpu.shared_bytes:
        problem = f"those of this loop take {taken} bytes, and there are {f.gpu.shared_bytes}"
        way_out = "tangents take as much as what they are of; use fewer elements"
        raise WrongSharedArray(problem, way_out).at(task.location)


def begin_item(f: ThreadText, task: Task, item: str) -> None:
    """Find the lanes that have work items, in front of the work item with this number (i64)."""
    block_dim, subgroup_size = sizes(task)
    if subgroup_size != f.gpu.subgroup:
        raise InternalError(f"{task.name}: subgroups of {subgroup_size}, not {f.gpu.subgroup}")
    if not any(_needs_lanes(op) for op in task.body.walk()):
        return
    thread = f.gpu.thread_in_block(f)
    own = f.once("lane", f"and i32 {thread}, {subgroup_size - 1}")
    first = f.apply("sub", "i64", item, f.convert("zext", "i32", own, "i64"))
    rest = f.apply("sub", "i64", f.upper(), first)
    count = f.convert("trunc", "i64", _least(f, "i64", rest, str(subgroup_size)), "i32")
    if block_dim % subgroup_size:
        start = f.apply("sub", "i32", thread, own)
        count = _least(f, "i32", count, f.apply("sub", "i32", block_dim, start))
    missing = f.apply("sub", "i32", subgroup_size, count)
    mask = f.apply("lshr", "i32", (1 << subgroup_size) - 1, missing)
    f.lanes = Lanes(own, count, mask)


def end_item(f: ThreadText) -> None:
    """Let no thread begin with the next block while others still look at arrays of this one."""
    if f.shared_arrays:
        f.gpu.block_barrier(f)


def _least(f: ThreadText, type: str, one: str, other: str) -> str:
    is_less = f.apply("icmp slt", type, one, other)
    return f.choose(is_less, type, one, other)


def _needs_lanes(op: object) -> bool:
    return isinstance(op, ops.Subgroup) or (isinstance(op, ops.Barrier) and op.scope == "subgroup")


# -- operations ------------------------------------------------------------------------------------


def barrier(f: ThreadText, op: ops.Barrier) -> None:
    """An instruction that waits for the threads that have not ended."""
    if op.scope == "block":
        f.gpu.block_barrier(f)
    else:
        f.gpu.subgroup_barrier(f, _lanes(f).mask)


def fence(f: ThreadText, op: ops.Fence) -> None:
    """An instruction."""
    f.gpu.fence(f, op.scope)


def subgroup(f: ThreadText, op: ops.Subgroup) -> None:
    """Reads of other lanes' registers, in the order of the interpreter: the same bits."""
    if op.lane:
        f.bind(op.result, _shuffle(f, op))
    elif op.fn == "ballot":
        bits = f.gpu.ballot(f, f.use(op.value), _lanes(f).mask)
        f.bind(op.result, f.convert("zext", "i32", bits, "i64"))
    elif op.fn in SCANS:
        f.bind(op.result, _scan(f, op, op.fn.removeprefix("inclusive_")))
    elif op.value.type.is_bool:
        f.bind(op.result, _vote(f, op))
    else:
        f.bind(op.result, _reduce(f, op))


TABLE: HandlerTable = {ops.Barrier: barrier, ops.Fence: fence, ops.Subgroup: subgroup}


def _lanes(f: ThreadText) -> Lanes:
    assert f.lanes is not None
    return f.lanes


_SOURCES: dict[str, str] = {"shuffle_up": "sub", "shuffle_down": "add", "shuffle_xor": "xor"}


def _shuffle(f: ThreadText, op: ops.Subgroup) -> str:
    """The value of a lane; the own one where that has no work item."""
    lanes, source = _lanes(f), f.use(op.lane[0])
    if op.fn in _SOURCES:
        source = f.apply(_SOURCES[op.fn], "i32", lanes.own, source)
    is_there = f.apply("icmp ult", "i32", source, lanes.count)
    source = f.choose(is_there, "i32", source, lanes.own)
    return _read(f, op.value.type, f.use(op.value), source)


def _reduce(f: ThreadText, op: ops.Subgroup) -> str:
    """Neighbours first, then neighbouring pairs; the first lane of the group tells the others."""
    lanes, dtype, value, distance = _lanes(f), op.value.type, f.use(op.value), 1
    while distance < op.lanes:
        source = f.apply("add", "i32", lanes.own, distance)
        is_there = f.apply("icmp ult", "i32", source, lanes.count)
        other = _read(f, dtype, value, f.choose(is_there, "i32", source, lanes.own))
        both = arithmetic.combine(f, op.fn, dtype, value, other)
        value = f.choose(is_there, f.type(dtype), both, value)
        distance *= 2
    first = f.apply("and", "i32", lanes.own, -op.lanes)
    return _read(f, dtype, value, first)


def _scan(f: ThreadText, op: ops.Subgroup, fn: str) -> str:
    """Each lane takes in what the one 1, 2, 4, ... before it has."""
    lanes, dtype, value, distance = _lanes(f), op.value.type, f.use(op.value), 1
    inside = f.apply("and", "i32", lanes.own, op.lanes - 1)
    while distance < op.lanes:
        is_there = f.apply("icmp uge", "i32", inside, distance)
        before = f.apply("sub", "i32", lanes.own, distance)
        other = _read(f, dtype, value, f.choose(is_there, "i32", before, lanes.own))
        both = arithmetic.combine(f, fn, dtype, other, value)
        value = f.choose(is_there, f.type(dtype), both, value)
        distance *= 2
    return value


def _vote(f: ThreadText, op: ops.Subgroup) -> str:
    """What the bits of the group say: that some are set, all, or an odd number of them."""
    lanes = _lanes(f)
    group = lanes.mask
    if op.lanes < f.gpu.subgroup:
        first = f.apply("and", "i32", lanes.own, -op.lanes)
        group = f.apply("and", "i32", group, f.apply("shl", "i32", (1 << op.lanes) - 1, first))
    bits = f.apply("and", "i32", f.gpu.ballot(f, f.use(op.value), lanes.mask), group)
    if op.fn == "and":
        return f.apply("icmp eq", "i32", bits, group)
    if op.fn == "or":
        return f.apply("icmp ne", "i32", bits, 0)
    return f.convert("trunc", "i32", f.intrinsic("ctpop", "i32", [("i32", bits)]), "i1")


# -- registers of other lanes ----------------------------------------------------------------------


def _read(f: ThreadText, dtype: DType, value: str, lane: str) -> str:
    """A value of a lane (i32) that has a work item."""
    return read(f, dtype, value, lane, _lanes(f).mask)


def read(f: ThreadText, dtype: DType, value: str, lane: str, mask: str) -> str:
    """A value of a lane (i32) of those of a mask (i32), all of which come here."""
    register = f.type(dtype)
    if register in ("float", "i32"):
        return f.gpu.read_lane(f, register, value, lane, mask)
    if dtype.bits < 32:
        word = f.gpu.read_lane(f, "i32", f.convert("zext", register, value, "i32"), lane, mask)
        return f.convert("trunc", "i32", word, register)
    bits = value if register == "i64" else f.convert("bitcast", register, value, "i64")
    halves = []
    for part in (bits, f.apply("lshr", "i64", bits, 32)):
        word = f.gpu.read_lane(f, "i32", f.convert("trunc", "i64", part, "i32"), lane, mask)
        halves.append(f.convert("zext", "i32", word, "i64"))
    both = f.apply("or", "i64", halves[0], f.apply("shl", "i64", halves[1], 32))
    return both if register == "i64" else f.convert("bitcast", "i64", both, register)
