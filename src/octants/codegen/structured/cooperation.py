"""Work items that work together: what lanes exchange, and who of them is there.

The lanes of a subgroup that have a work item are its first `Lanes.count`; others are asked for
nothing. Barriers of a block are written by `blocks`.
"""

from __future__ import annotations

from octants.codegen.code import Operand, ThreadCode
from octants.codegen.structured import arithmetic
from octants.codegen.structured.body import Body, HandlerTable, Lanes, register
from octants.codegen.structured.words import from_word, to_word, word_of
from octants.diagnostics.cooperation_errors import WrongSharedArray
from octants.diagnostics.exceptions import InternalError
from octants.ir import ops
from octants.ir.cooperation import shared_places, sizes, words
from octants.ir.core import Task
from octants.ir.ops.cooperation import SCANS
from octants.target import Blocks
from octants.types.scalars import DType, f32, i32, i64, u1, u32, u64


def check(task: Task, blocks: Blocks) -> None:
    """Raise an error if the machine's blocks are not those of a task, or have too little room."""
    size, room = blocks.subgroup_size, blocks.shared_bytes
    if sizes(task)[1] != size:
        raise InternalError(f"{task.name}: subgroups of {sizes(task)[1]}, not {size}")
    taken = sum(words(array) * word_of(array.dtype).size for array, _ in shared_places(task))
    if taken > room:
        problem = f"those of this loop take {taken} bytes here, and there are {room}"
        way_out = "tangents take as much as what they are of, and no number less than 4 bytes"
        raise WrongSharedArray(problem, f"use fewer elements: {way_out}").at(task.location)


def find_lanes(code: ThreadCode, task: Task, item: Operand, upper: Operand) -> Lanes:
    """The lane of a thread with this work item, and how many lanes have one."""
    block_dim, size = sizes(task)
    thread = code.thread_in_block()
    own = code.lane() if size > 1 else code.constant(0, u32)
    first = code.apply("sub", i64, item, code.convert(own, u32, i64))
    count = _least(code, code.apply("sub", i64, upper, first), code.constant(size, i64))
    if block_dim % size:
        start = code.convert(code.apply("sub", u32, thread, own), u32, i64)
        rest = code.apply("sub", i64, code.constant(block_dim, i64), start)
        count = _least(code, count, rest)
    return Lanes(own, code.convert(count, i64, u32))


def _least(code: ThreadCode, a: Operand, b: Operand) -> Operand:
    return code.choose(code.compare("lt", i64, a, b), i64, a, b)


# -- operations ---------------------------------------------------------------------------------


def barrier(body: Body, op: ops.Barrier) -> None:
    """Of a subgroup, by those who come here."""
    assert op.scope == "subgroup", "those of blocks are written with the task"
    body.code.barrier(op.scope)


def fence(body: Body, op: ops.Fence) -> None:
    """An instruction."""
    body.code.fence(op.scope)


def subgroup(body: Body, op: ops.Subgroup) -> None:
    """Reads of other lanes' registers, in the order of the interpreter: the same bits."""
    assert body.lanes is not None
    if op.lanes == 1:  # who is alone asks nobody
        found = body.use(op.value)
        found = body.code.convert(found, u1, u64) if op.fn == "ballot" else found
    elif op.lane:
        found = _shuffle(body, body.lanes, op)
    elif op.fn == "ballot":
        found = body.code.ballot(body.use(op.value))
    elif op.fn in SCANS:
        found = _scan(body, body.lanes, op, op.fn.removeprefix("inclusive_"))
    elif op.value.type.is_bool:
        found = _vote(body.code, body.lanes, op, body.use(op.value))
    else:
        found = _reduce(body, body.lanes, op)
    body.bind(op.result, found)


TABLE: HandlerTable = {ops.Barrier: barrier, ops.Fence: fence, ops.Subgroup: subgroup}


_SOURCES = {"shuffle_up": "sub", "shuffle_down": "add", "shuffle_xor": "xor"}


def _shuffle(body: Body, lanes: Lanes, op: ops.Subgroup) -> Operand:
    """The value of a lane; the own one where that has no work item."""
    code, source = body.code, body.code.convert(body.use(op.lane[0]), i32, u32)
    if op.fn in _SOURCES:
        source = code.apply(_SOURCES[op.fn], u32, lanes.own, source)
    is_there = code.compare("lt", u32, source, lanes.count)
    source = code.choose(is_there, u32, source, lanes.own)
    return read(code, op.value.type, body.use(op.value), source)


def _reduce(body: Body, lanes: Lanes, op: ops.Subgroup) -> Operand:
    """Neighbours first, then neighbouring pairs; the first lane of the group tells the others."""
    code, dtype, value, distance = body.code, op.value.type, body.use(op.value), 1
    while distance < op.lanes:
        source = code.apply("add", u32, lanes.own, code.constant(distance, u32))
        is_there = code.compare("lt", u32, source, lanes.count)
        other = read(code, dtype, value, code.choose(is_there, u32, source, lanes.own))
        both = arithmetic.combine(body, op.fn, dtype, value, other)
        value = code.choose(is_there, register(dtype), both, value)
        distance *= 2
    return read(code, dtype, value, _first(code, lanes, op.lanes))


def _first(code: ThreadCode, lanes: Lanes, count: int) -> Operand:
    """The first lane of the own group of so many."""
    return code.apply("and", u32, lanes.own, code.constant((1 << 32) - count, u32))


def _scan(body: Body, lanes: Lanes, op: ops.Subgroup, fn: str) -> Operand:
    """Each lane takes in what the one 1, 2, 4, ... before it has."""
    code, dtype, value, distance = body.code, op.value.type, body.use(op.value), 1
    inside = code.apply("and", u32, lanes.own, code.constant(op.lanes - 1, u32))
    while distance < op.lanes:
        step = code.constant(distance, u32)
        is_there = code.compare("ge", u32, inside, step)
        before = code.apply("sub", u32, lanes.own, step)
        other = read(code, dtype, value, code.choose(is_there, u32, before, lanes.own))
        both = arithmetic.combine(body, fn, dtype, other, value)
        value = code.choose(is_there, register(dtype), both, value)
        distance *= 2
    return value


def _vote(code: ThreadCode, lanes: Lanes, op: ops.Subgroup, value: Operand) -> Operand:
    """What the bits of the group say: that some are set, all, or an odd number of them."""
    group = code.convert(_first(code, lanes, op.lanes), u32, u64)
    group = code.apply("shl", u64, code.constant((1 << op.lanes) - 1, u64), group)
    if op.fn == "and":  # no lane says no
        value = code.apply("not", u1, value)
    bits = code.apply("and", u64, code.ballot(value), group)
    none, zero = code.compare("eq", u64, bits, code.constant(0, u64)), code.constant(0, u32)
    if op.fn in ("and", "or"):
        return none if op.fn == "and" else code.apply("not", u1, none)
    high = code.convert(code.apply("ushr", u64, bits, code.constant(32, u64)), u64, u32)
    odd = code.apply("xor", u32, high, code.convert(bits, u64, u32))
    odd = code.apply("and", u32, code.bit_count(odd), code.constant(1, u32))
    return code.compare("ne", u32, odd, zero)


def read(code: ThreadCode, dtype: DType, value: Operand, lane: Operand) -> Operand:
    """A value of a lane (u32) that has a work item."""
    if register(dtype) is f32:
        return code.read_lane(value, f32, lane)
    word = to_word(code, dtype, value)
    if word_of(dtype) is u32:
        return from_word(code, dtype, code.read_lane(word, u32, lane))
    parts = (word, code.apply("ushr", u64, word, code.constant(32, u64)))
    low, high = (
        code.convert(code.read_lane(code.convert(part, u64, u32), u32, lane), u32, u64)
        for part in parts
    )
    both = code.apply("or", u64, low, code.apply("shl", u64, high, code.constant(32, u64)))
    return from_word(code, dtype, both)
