"""The tape of a work item, in words that the tapes of 32 threads have in turn (see `abi`).

Strides are whole words, so that all positions are. A tape does not grow while a launch runs: what
needs more is refused, before it has changed anything, and is run again.
"""

from __future__ import annotations

from collections.abc import Sequence

from octants import abi
from octants.codegen import messages
from octants.codegen.code import Code, Element, Operand
from octants.codegen.message_formats import memory_message
from octants.codegen.recording import asks_for_room, counted_pushes
from octants.codegen.structured import halves
from octants.codegen.structured.body import Body, Tape, register
from octants.ir import ops
from octants.ir.core import Record, Value
from octants.types.scalars import DType, f16, f32, f64, i64, u1, u32, u64

_WORD, _LANES = abi.TAPE_WORD, abi.TAPE_LANES


def stride(record: Record) -> int:
    """The bytes of one iteration, in whole words."""
    return -(-record.stride // _WORD) * _WORD


def push(body: Body, op: ops.RecordPush) -> None:
    """Write an iteration that the record has room for."""
    if not op.record.slots:
        return
    index = body.wide(op.index)
    if op.record.local:
        for slot, value in enumerate(op.values):
            place = _local(body, op.record, slot, index)
            body.code.store(place, register(value.type), body.use(value))
        return
    if not op.record.capacity:
        _write(body, op, index)
        return
    body.code.branch(_is_held(body, op.record, index), lambda: _write(body, op, index))


def _write(body: Body, op: ops.RecordPush, index: Operand) -> None:
    """Write the words of an iteration; refuse first what the tape does not hold."""
    start = position(body, body.use(op.base), index, stride(op.record))

    def store() -> None:
        place = _place(body, start)
        for word, operand in _words(body, op.record, op.values).items():
            body.code.store(body.code.at(place, word * _LANES * _WORD), u32, operand)

    if op in body.reserved:
        store()
    else:
        make_room(body, op, body.add(start, body.number(stride(op.record), i64)))
        body.if_active(store)


def _words(body: Body, record: Record, values: Sequence[Value]) -> dict[int, Operand]:
    """What stands in each word of an iteration, by its number."""
    found: dict[int, Operand] = {}
    for offset, slots in record.members().items():
        word, shift = offset // _WORD, offset % _WORD * 8
        for bit, slot in enumerate(slots):
            parts = _parts(body.code, values[slot].type, body.use(values[slot]))
            for number, part in enumerate(parts):
                moved = _shifted(body.code, "shl", part, shift + bit)
                known = found.get(word + number)
                together = moved if known is None else body.code.apply("or", u32, known, moved)
                found[word + number] = together
    return found


def _shifted(code: Code, fn: str, x: Operand, distance: int) -> Operand:
    return code.apply(fn, u32, x, code.constant(distance, u32)) if distance else x


def _parts(code: Code, dtype: DType, x: Operand) -> list[Operand]:
    """The bits of a number as u32, zero above its own, the low ones first."""
    if dtype is u1:
        return [code.convert(x, u1, u32)]
    if dtype is f16:
        return [halves.to_bits(code, x)]
    if dtype.bits == 64:
        bits = code.bitcast(x, dtype, u64)
        high = code.apply("ushr", u64, bits, code.constant(32, u64))
        return [code.convert(half, u64, u32) for half in (bits, high)]
    if dtype is f32:
        return [code.bitcast(x, f32, u32)]
    wide = code.convert(x, dtype, u32)
    mask = code.constant((1 << dtype.bits) - 1, u32)
    return [wide if dtype.bits == 32 else code.apply("and", u32, wide, mask)]


def pop(body: Body, op: ops.RecordPop) -> None:
    """Read an iteration back; where the record has no such, the last one that it has room for."""
    if not op.record.slots:
        return
    code, index = body.code, body.wide(op.index)
    if op.record.local:
        for slot, result in enumerate(op.results):
            place = _local(body, op.record, slot, index)
            body.bind(result, code.load(place, register(result.type)))
        return
    if op.record.capacity:
        last = body.number(op.record.capacity - 1, i64)
        index = code.choose(_is_held(body, op.record, index), i64, index, last)
    place = _place(body, position(body, body.use(op.base), index, stride(op.record)))
    words: dict[int, Operand] = {}

    def word(number: int) -> Operand:
        if number not in words:
            words[number] = code.load(code.at(place, number * _LANES * _WORD), u32)
        return words[number]

    for offset, slots in op.record.members().items():
        for bit, slot in enumerate(slots):
            result = op.results[slot]
            low = _shifted(code, "ushr", word(offset // _WORD), offset % _WORD * 8 + bit)
            high = word(offset // _WORD + 1) if result.type.bits == 64 else None
            body.bind(result, _number(code, result.type, low, high))


def _number(code: Code, dtype: DType, low: Operand, high: Operand) -> Operand:
    """The number of which a word holds the bits, with others above them, or two words."""
    if dtype is u1:
        bit = code.apply("and", u32, low, code.constant(1, u32))
        return code.compare("ne", u32, bit, code.constant(0, u32))
    if dtype is f16:
        return halves.from_bits(code, code.apply("and", u32, low, code.constant(0xFFFF, u32)))
    if high is not None:
        top = code.apply("shl", u64, code.convert(high, u32, u64), code.constant(32, u64))
        bits = code.apply("or", u64, top, code.convert(low, u32, u64))
        return code.bitcast(bits, u64, dtype) if dtype is f64 else bits
    return code.bitcast(low, u32, f32) if dtype is f32 else code.convert(low, u32, dtype)


def _local(body: Body, record: Record, slot: int, index: Operand) -> Element:
    """Where a value of an iteration is, in memory of the work item's own."""
    array = body.local_array((record, slot), register(record.slots[slot]), record.local)
    return Element(array, body.code.convert(index, i64, u32))


def _is_held(body: Body, record: Record, index: Operand) -> Operand:
    return body.code.compare("lt", u64, index, body.number(record.capacity, u64))


def check(body: Body, op: ops.RecordCheck) -> None:
    """Go on if the record holds so many iterations, else end the work item."""
    count, code = body.wide(op.count), body.code

    def overflows() -> None:
        messages.overflow(body, op.record, count)
        body.leave()

    capacity = body.number(op.record.capacity, i64)
    code.branch(code.compare("gt", i64, count, capacity), overflows)


def end(body: Body, op: ops.RecordEnd) -> None:
    """The position after so many iterations."""
    after = position(body, body.use(op.base), body.wide(op.count), stride(op.record))
    body.bind(op.result, after)


def room(body: Body, op: ops.RecordRoom) -> None:
    """How many iterations fit a part of what the share has left."""
    code, nbytes = body.code, op.parts * stride(op.record)
    if nbytes == 0:
        body.bind(op.result, body.number(abi.MAXIMUM_TAPE, i64))
        return
    zero, one = body.number(0, i64), body.number(1, i64)
    rest = code.apply("sub", i64, code.launch_word(abi.LAUNCH_SHARE), body.use(op.taken))
    rest = code.choose(code.compare("gt", i64, rest, zero), i64, rest, zero)
    count = code.apply("quotient", u64, rest, body.number(nbytes, u64))
    body.bind(op.result, code.choose(code.compare("gt", i64, count, one), i64, count, one))


def longest(body: Body, op: ops.Longest) -> None:
    """The count of a work item that has a tape of its own."""
    body.bind(op.result, body.use(op.count))


def reserve_now(body: Body, op: ops.RecordReserve) -> None:
    """Have room for what is recorded later."""
    if op.record.slots:
        make_room(body, op, body.wide(op.end))


# -- loops that push in each turn ---------------------------------------------------------------


def reserve(body: Body, loop: ops.For) -> None:
    """Have room for what a loop pushes in all its turns, where a push is for the turn itself."""
    for op, from_zero, condition in counted_pushes(body, loop):
        if not asks_for_room(op):
            continue
        nbytes = position(
            body, body.use(op.base), _bound(body, loop, op, from_zero=from_zero), stride(op.record)
        )
        if condition is not None:
            zero = body.number(0, i64)
            nbytes = body.code.choose(body.use(condition), i64, nbytes, zero)
        make_room(body, op, nbytes)
        body.reserved.add(op)


def _bound(body: Body, loop: ops.For, op: ops.RecordPush, *, from_zero: bool) -> Operand:
    """What the index of a loop's pushes stays below: its upper bound, or its turns.

    Where a position would overflow it is the least number that no tape holds.
    """
    code, lower, upper = body.code, body.wide(loop.lower), body.wide(loop.upper)
    bound = code.apply("sub", i64, upper, lower) if from_zero else upper
    most = body.number(abi.MAXIMUM_TAPE // stride(op.record) + 1, i64)
    bound = code.choose(code.compare("lt", u64, bound, most), i64, bound, most)
    runs = code.compare("lt", i64, lower, upper)
    return code.choose(runs, i64, bound, body.number(0, i64))


# -- positions ----------------------------------------------------------------------------------


def position(body: Body, base: Operand, index: Operand, nbytes: int) -> Operand:
    """Where an iteration of so many bytes stands on the tape."""
    return body.add(base, body.times(index, nbytes)) if nbytes else base


def tape_of(body: Body) -> Tape:
    """The tape of this thread."""
    code = body.code

    def make_start() -> Operand:
        thread, capacity = code.thread(), code.launch_word(abi.LAUNCH_CAPACITY)
        lanes = code.constant(_LANES, i64)
        group = code.apply("quotient", u64, thread, lanes)
        lane = code.apply("remainder", u64, thread, lanes)
        offset = code.apply("mul", i64, body.times(group, _LANES), capacity)
        offset = code.apply("add", i64, offset, body.times(lane, _WORD))
        return code.apply("add", u64, code.launch_word(abi.LAUNCH_TAPE), offset)

    return Tape(code.hoisted("tape", make_start), code.launch_word(abi.LAUNCH_CAPACITY))


def _place(body: Body, start: Operand) -> Operand:
    """The address of the word at a position."""
    return body.add(tape_of(body).start, body.times(start, _LANES), u64)


# -- refusals -----------------------------------------------------------------------------------


def make_room(body: Body, op: ops.RecordPush | ops.RecordReserve, nbytes: Operand) -> None:
    """End the work item if the tape holds less; a position gone wrong counts as a large one."""
    code = body.code

    def refuse() -> None:
        if op not in body.restartable:
            messages.fail(body, memory_message(op.record.location), [nbytes])
            return
        place = code.launch_word(abi.LAUNCH_REFUSED)
        number = code.apply("sub", i64, body.item, body.lower)
        code.call("refuse", [u64, i64, i64], None, _refuse, [place, number, nbytes])
        body.leave()

    code.branch(code.compare("gt", u64, nbytes, tape_of(body).capacity), refuse)


def _refuse(code: Code, operands: list[Operand]) -> None:
    """Note what is needed, and which of the work items needs it."""
    place, number, need = operands
    raise_atomically(code, code.at(place, abi.REFUSED_NEED), need)
    one = code.constant(1, u64)
    messages.add_atomically(code, code.at(place, abi.REFUSED_COUNT), one)
    word, bit = refused_bit(code, place, number)
    code.atomic("or", u32, word, bit)


def raise_atomically(code: Code, place: Operand, number: Operand) -> None:
    """Have a u64 be no less than a number, or than the largest u32 where only those are atomic."""
    if code.has_atomic("max", u64):
        code.atomic("max", u64, place, number)
        return
    most = code.constant(0xFFFFFFFF, u64)
    least = code.choose(code.compare("lt", u64, number, most), u64, number, most)
    code.atomic("max", u32, place, code.convert(least, u64, u32))


def refused_bit(code: Code, place: Operand, number: Operand) -> tuple[Operand, Operand]:
    """The address of the word in which a work item has its bit, and the bit."""
    word = code.apply("ushr", u64, number, code.constant(5, u64))
    offset = code.apply("mul", u64, word, code.constant(4, u64))
    start = code.at(place, abi.REFUSED_ITEMS)
    low = code.apply("and", u32, code.convert(number, i64, u32), code.constant(31, u32))
    bit = code.apply("shl", u32, code.constant(1, u32), low)
    return code.apply("add", u64, start, offset), bit
