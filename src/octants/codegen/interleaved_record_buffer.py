"""The record buffer of a GPU thread: its words are interleaved with those of 31 other threads.

`abi` defines the layout. The record buffer does not grow while a launch runs: a work item that
needs more is ended before it has changed anything, and is retried.
`codegen.llvm.worker_record_buffer` has the record buffer of the CPU.
"""

from __future__ import annotations

from collections.abc import Callable

from octants import abi
from octants.codegen import messages
from octants.codegen.function_emitter import RecordBuffer, ThreadFunction
from octants.codegen.instruction_writer import Code, Operand, Pointer, ThreadCode
from octants.codegen.numbers_as_bits import from_word, to_word
from octants.ir.core import Record
from octants.types.scalars import DType, i64, u1, u32, u64

_WORD, _LANES = abi.RECORD_BUFFER_WORD, abi.RECORD_BUFFER_LANES


class ThreadRecordBuffer(RecordBuffer):
    """The record buffer of a GPU thread. Strides of records are multiples of a word."""

    def __init__(self, f: ThreadFunction) -> None:
        self._f = f

    def stride(self, record: Record) -> int:
        return -(-record.stride // _WORD) * _WORD

    def _start(self) -> Pointer:
        """Return the address of the thread's first word, computed once."""
        code = self._f.code

        def make() -> Operand:
            thread, lanes = code.thread(), code.constant(_LANES, i64)
            group = code.apply("quotient", u64, thread, lanes)
            before = code.apply("mul", i64, code.apply("mul", i64, group, lanes), self._capacity())
            lane = code.apply("remainder", u64, thread, lanes)
            column = code.apply("mul", i64, lane, code.constant(_WORD, i64))
            offset = code.apply("add", i64, before, column)
            return code.moved(code.launch_address(abi.LAUNCH_RECORD_BUFFERS), offset)

        return code.hoisted("record_buffer", make)

    def _capacity(self) -> Operand:
        return self._f.code.launch_word(abi.LAUNCH_CAPACITY)

    def address(self, position: Operand) -> Pointer:
        code = self._f.code
        if code.known(position) == 0:
            return self._start()
        lanes = code.constant(_LANES, i64)
        return code.moved(self._start(), code.apply("mul", i64, position, lanes))

    def _word(self, start: Pointer, number: int) -> Pointer:
        """Return the address of a word of an iteration."""
        return self._f.code.at(start, number * _LANES * _WORD)

    def write(self, start: Pointer, record: Record, operands: list[Operand]) -> None:
        code, words = self._f.code, dict[int, Operand]()
        for offset, slots in record.members().items():
            first, shift = offset // _WORD, offset % _WORD * 8
            for bit, slot in enumerate(slots):
                parts = _words(code, record.slots[slot], operands[slot])
                for number, part in enumerate(parts, first):
                    moved = _shifted(code, "shl", part, shift + bit)
                    known = words.get(number)
                    words[number] = code.apply("or", u32, known, moved) if known else moved
        for number, word in words.items():
            code.store(self._word(start, number), u32, word)

    def read(self, start: Pointer, record: Record) -> list[Operand]:
        code, words, found = self._f.code, dict[int, Operand](), dict[int, Operand]()

        def word(number: int) -> Operand:
            if number not in words:
                words[number] = code.load(self._word(start, number), u32)
            return words[number]

        for offset, slots in record.members().items():
            number = offset // _WORD
            for bit, slot in enumerate(slots):
                dtype = record.slots[slot]
                low = _shifted(code, "ushr", word(number), offset % _WORD * 8 + bit)
                high = word(number + 1) if dtype.bits == 64 else None
                found[slot] = _number(code, dtype, low, high)
        return [found[slot] for slot in range(len(record.slots))]

    def quota(self) -> Operand:
        return self._f.code.launch_word(abi.LAUNCH_SHARE)

    def require(self, nbytes: Operand, on_failure: Callable[[], None]) -> None:
        code = self._f.code
        code.branch(code.compare("gt", u64, nbytes, self._capacity()), on_failure, rare=True)

    def give_up(self, item: Operand, nbytes: Operand) -> bool:
        """Report the work item and its need to the host, which retries it."""
        code = self._f.code
        address = code.launch_address(abi.LAUNCH_FAILURES)
        number = code.apply("sub", i64, item, self._f.first_item())
        code.call("refuse", [None, i64, i64], None, _report_failure, [address, number, nbytes])
        self._f.leave()
        return True


def _shifted(code: ThreadCode, fn: str, x: Operand, distance: int) -> Operand:
    return code.apply(fn, u32, x, code.constant(distance, u32)) if distance else x


def _words(code: ThreadCode, dtype: DType, x: Operand) -> list[Operand]:
    """Return a number's bits as u32 words, low word first, zero-extended."""
    if dtype is u1:
        return [code.convert(x, u1, u32)]
    word = to_word(code, dtype, x)
    if dtype.bits < 64:
        return [word]
    high = code.apply("ushr", u64, word, code.constant(32, u64))
    return [code.convert(half, u64, u32) for half in (word, high)]


def _number(code: ThreadCode, dtype: DType, low: Operand, high: Operand | None) -> Operand:
    """Return the number in the low bits of a word, or in two words."""
    if dtype is u1:
        bit = code.apply("and", u32, low, code.constant(1, u32))
        return code.compare("ne", u32, bit, code.constant(0, u32))
    if high is None:
        return from_word(code, dtype, low)
    top = code.apply("shl", u64, code.convert(high, u32, u64), code.constant(32, u64))
    return from_word(code, dtype, code.apply("or", u64, top, code.convert(low, u32, u64)))


# -- capacity failures --------------------------------------------------------------------------


def _report_failure(code: ThreadCode, operands: list[Operand]) -> None:
    """Record the bytes needed, and mark the work item that needs them."""
    address, number, need = operands
    _raise_atomically(code, code.at(address, abi.REFUSED_NEED), need)
    one = code.constant(1, u64)
    messages.add_atomically(code, code.at(address, abi.REFUSED_COUNT), one)
    word, bit = retry_bit(code, address, number)
    code.atomic("or", u32, word, bit)


def _raise_atomically(code: ThreadCode, address: Pointer, number: Operand) -> None:
    """Raise a u64 to at least a number; to the largest u32 where only u32 is atomic."""
    if code.has_atomic("max", u64):
        code.atomic("max", u64, address, number)
        return
    most = code.constant(0xFFFFFFFF, u64)
    least = code.choose(code.compare("lt", u64, number, most), u64, number, most)
    code.atomic("max", u32, address, code.convert(least, u64, u32))


def retry_bit(code: Code, address: Pointer, number: Operand) -> tuple[Pointer, Operand]:
    """Return the address of the word that holds a work item's bit, and the bit."""
    word = code.apply("ushr", u64, number, code.constant(5, u64))
    offset = code.apply("mul", u64, word, code.constant(4, u64))
    start = code.at(address, abi.REFUSED_ITEMS)
    low = code.apply("and", u32, code.convert(number, i64, u32), code.constant(31, u32))
    return code.moved(start, offset), code.apply("shl", u32, code.constant(1, u32), low)
