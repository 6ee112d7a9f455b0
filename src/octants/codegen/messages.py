"""Write prints, failed assertions and overflows to the launch's message buffer.

`abi` defines the buffer. Its counters are i64; machines without 64-bit atomics count in their low
halves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from octants import abi
from octants.artifact import COUNTED_PRINT, PRINT, MessageFormat, overflow_message
from octants.codegen.function_emitter import FunctionEmitter
from octants.codegen.instruction_writer import Code, Kind, Operand, Pointer, register
from octants.codegen.message_formats import parts_of, shortened
from octants.ir import ops
from octants.ir.core import Operation, Record, Value
from octants.types.scalars import DType, f32, f64, i32, i64, u1, u32, u64


def print_(f: FunctionEmitter, op: ops.Print) -> None:
    """Append the values to the buffer; the host formats the line."""
    dtypes = tuple(value.type.name for value in op.values)
    kind = COUNTED_PRINT if op.is_counted else PRINT
    message = f.kernel.add_message(MessageFormat(kind, op.parts, dtypes, op.location))
    words = [_word(f, value) for value in op.values]
    _call(
        f,
        f"print.{len(words)}",
        _print,
        [f.code.constant(message, i32), *_kernel_position(f), *words],
    )


def assert_(f: FunctionEmitter, op: ops.Assert) -> None:
    """Fail unless the condition holds."""
    dtypes = tuple(value.type.name for value in op.values)
    message = MessageFormat(op.kind, parts_of(op.message), dtypes, op.location)

    def failed() -> None:
        fail(f, message, [_word(f, value) for value in op.values])

    f.code.branch(f.code.apply("not", u1, f.use(op.condition)), failed, rare=True)


def fail(f: FunctionEmitter, message: MessageFormat, words: list[Operand]) -> None:
    """Record a failure, and end the work item."""
    number = f.kernel.add_message(shortened(message))
    words = words[: abi.MAXIMUM_FAILURE_VALUES]
    _call(
        f, f"fail.{len(words)}", _fail, [f.code.constant(number, i32), *_kernel_position(f), *words]
    )
    f.leave()


def overflow(f: FunctionEmitter, record: Record, need: Operand) -> None:
    """Record that a record would have to hold ``need`` iterations."""
    number = f.kernel.add_message(overflow_message(record))
    _call(f, "overflow", _overflow, [f.code.constant(number, i32), *_kernel_position(f), need])


def _kernel_position(f: FunctionEmitter) -> list[Operand]:
    return [f.code.constant(f.task, i32), f.message_item or f.item_number()]


def act_as(f: FunctionEmitter, op: ops.ActAs) -> None:
    """Attribute failures from here on to another work item."""
    f.message_item = f.wide(op.item)


def _word(f: FunctionEmitter, value: Value) -> Operand:
    """Return a value in 64 bits."""
    code, operand, dtype = f.code, f.use(value), value.type
    if not dtype.is_float:
        return code.convert(operand, dtype, i64)
    if code.has_f64:
        return code.bitcast(code.convert(operand, register(dtype), f64), f64, i64)
    return code.call("double.bits", [register(dtype)], i64, _double_bits, [operand])


def _double_bits(code: Code, operands: list[Operand]) -> Operand:
    """Return the bits of an f32 as f64, where there is no f64; subnormals become zero."""
    bits = code.bitcast(operands[0], f32, u32)

    def field(shift: int, mask: int) -> Operand:
        low = code.apply("ushr", u32, bits, code.constant(shift, u32))
        return code.convert(code.apply("and", u32, low, code.constant(mask, u32)), u32, i64)

    def moved(number: Operand, distance: int) -> Operand:
        return code.apply("shl", i64, number, code.constant(distance, i64))

    exponent, zero, special = field(23, 0xFF), code.constant(0, i64), code.constant(2047, i64)
    usual = code.apply("add", i64, exponent, code.constant(1023 - 127, i64))
    is_special = code.compare("eq", i64, exponent, code.constant(0xFF, i64))
    top = moved(code.choose(is_special, i64, special, usual), 52)
    size = code.apply("or", i64, top, moved(field(0, 0x7FFFFF), 29))
    size = code.choose(code.compare("eq", i64, exponent, zero), i64, zero, size)
    return code.apply("or", i64, moved(field(31, 1), 63), size)


Make = Callable[[Code, list[Operand]], Operand]


def _call(f: FunctionEmitter, name: str, make: Make, operands: Sequence[Operand]) -> None:
    """Call a message function with (buffer, message, task, item, words)."""
    types: list[Kind] = [None, i32, i32, i64] + [i64] * (len(operands) - 3)
    f.code.call(name, types, None, make, [f.messages(), *operands])


# -- the functions ------------------------------------------------------------------------------


def add_atomically(code: Code, address: Pointer, number: Operand) -> Operand:
    """Add a non-negative i64 atomically, and return the value before."""
    if code.has_atomic("add", u64):
        return code.atomic("add", u64, address, number)
    return code.convert(code.atomic("add", u32, address, code.convert(number, i64, u32)), u32, i64)


def _print(code: Code, operands: list[Operand]) -> None:
    buffer, message, task, item, *words = operands
    add_atomically(code, code.at(buffer, abi.MESSAGES_COUNT), code.constant(1, i64))
    size = code.constant(len(words) + 2, i64)
    start = add_atomically(code, code.at(buffer, abi.MESSAGES_CURSOR), size)
    capacity = code.load(code.at(buffer, abi.MESSAGES_CAPACITY), i64)
    fits = code.compare("le", u64, code.apply("add", i64, start, size), capacity)

    def write() -> None:
        head = code.moved(buffer, code.apply("mul", i64, start, code.constant(8, i64)))
        kind = code.apply("shl", u64, code.convert(task, u32, u64), code.constant(32, u64))
        kind = code.apply("or", u64, kind, code.convert(message, u32, u64))
        for number, word in enumerate([kind, item, *words]):
            code.store(code.at(head, abi.MESSAGES_HEADER + 8 * number), i64, word)

    def full() -> None:
        lower_atomically(code, code.at(buffer, abi.MESSAGES_END), start)

    code.branch(fits, write, full)


def lower_atomically(code: Code, address: Pointer, number: Operand) -> None:
    """Lower a u64 atomically to at most a number."""
    if code.has_atomic("min", u64):
        code.atomic("min", u64, address, number)
    else:
        code.atomic("min", u32, address, code.convert(number, i64, u32))


def locked(
    code: Code, buffer: Pointer, matters: Callable[[], Operand], write: Callable[[], None]
) -> None:
    """Run ``write`` under the buffer's lock, while ``matters`` holds.

    Threads that run in step take the lock one after the other, each in its iteration of the loop. A
    waiting thread checks ``matters`` in each iteration: there may be very many threads.
    """
    lock, done = code.at(buffer, abi.MESSAGES_LOCK), code.variable(u1)
    free, held = code.constant(0, u32), code.constant(1, u32)
    code.write(done, code.constant(False, u1))

    def alone() -> None:
        code.fence()
        code.branch(matters(), write)
        code.fence()
        code.atomic_store(lock, u32, free)
        code.write(done, code.constant(True, u1))

    def attempt() -> None:
        before = code.exchange_if(u32, lock, free, held)
        code.branch(code.compare("eq", u32, before, free), alone)

    def iterate() -> None:
        code.branch(matters(), attempt, lambda: code.write(done, code.constant(True, u1)))

    code.loop(lambda: code.apply("not", u1, code.read(done)), iterate)


def _word_of(code: Code, dtype: DType) -> DType | None:
    """Return the integer type with atomic operations of the same width."""
    word = u64 if dtype.bits == 64 else u32
    return word if code.has_atomic("exchange", word) else None


def _load_atomic(code: Code, address: Pointer, dtype: DType) -> Operand:
    """Load an integer that others write. Device caches are not coherent with atomics."""
    word = _word_of(code, dtype)
    return code.atomic_load(address, word) if word else code.load(address, dtype)


def _store_atomic(code: Code, address: Pointer, dtype: DType, number: Operand) -> None:
    """Store an integer that `_load_atomic` reads."""
    word = _word_of(code, dtype)
    if word:
        code.atomic_store(address, word, number)
    else:
        code.store(address, dtype, number)


def _fail(code: Code, operands: list[Operand]) -> None:
    """Keep the failure of the lowest work item."""
    buffer, message, task, item, *words = operands

    def write() -> None:
        _store_atomic(code, code.at(buffer, abi.MESSAGES_FAILURE_ID), i32, message)
        _store_atomic(code, code.at(buffer, abi.MESSAGES_FAILURE_TASK), i32, task)
        _store_atomic(code, code.at(buffer, abi.MESSAGES_FAILURE_ITEM), i64, item)
        for number, word in enumerate(words):
            code.store(code.at(buffer, abi.MESSAGES_FAILURE_VALUES + 8 * number), i64, word)
        code.fence()
        code.atomic_store(code.at(buffer, abi.MESSAGES_FAILED), u32, code.constant(1, u32))

    def matters() -> Operand:
        failed = code.atomic_load(code.at(buffer, abi.MESSAGES_FAILED), u32)
        code.fence()
        other = _load_atomic(code, code.at(buffer, abi.MESSAGES_FAILURE_ITEM), i64)
        first = code.compare("eq", u32, failed, code.constant(0, u32))
        return code.apply("or", u1, first, code.compare("lt", i64, item, other))

    locked(code, buffer, matters, write)


def _overflow(code: Code, operands: list[Operand]) -> None:
    """Keep the largest need; of equal ones that of the first task, there of the lowest item."""
    buffer, message, task, item, need = operands

    def write() -> None:
        _store_atomic(code, code.at(buffer, abi.MESSAGES_OVERFLOW_ID), i32, message)
        _store_atomic(code, code.at(buffer, abi.MESSAGES_OVERFLOW_TASK), i32, task)
        _store_atomic(code, code.at(buffer, abi.MESSAGES_OVERFLOW_ITEM), i64, item)
        code.fence()  # a thread that reads this need without the lock also sees the rest
        _store_atomic(code, code.at(buffer, abi.MESSAGES_OVERFLOW_NEED), i64, need)

    def matters() -> Operand:
        known = _load_atomic(code, code.at(buffer, abi.MESSAGES_OVERFLOW_NEED), i64)
        code.fence()
        other_task = _load_atomic(code, code.at(buffer, abi.MESSAGES_OVERFLOW_TASK), i32)
        other_item = _load_atomic(code, code.at(buffer, abi.MESSAGES_OVERFLOW_ITEM), i64)
        before = code.compare("lt", i64, item, other_item)
        before = code.apply("and", u1, code.compare("eq", i32, task, other_task), before)
        before = code.apply("or", u1, code.compare("lt", i32, task, other_task), before)
        first = code.apply("and", u1, code.compare("eq", i64, need, known), before)
        return code.apply("or", u1, code.compare("gt", i64, need, known), first)

    locked(code, buffer, matters, write)


TABLE: dict[type[Operation], Callable[[Any, Any], Any]] = {
    ops.Print: print_,
    ops.Assert: assert_,
    ops.ActAs: act_as,
}
