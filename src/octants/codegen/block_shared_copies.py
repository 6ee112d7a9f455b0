"""Write the block-shared copies of small arrays; `codegen.block_shared_candidates` chooses them."""

from __future__ import annotations

from collections.abc import Callable

from octants.codegen import atomics, memory
from octants.codegen.block_shared_candidates import count
from octants.codegen.function_emitter import ThreadFunction
from octants.codegen.instruction_writer import Operand, ThreadCode, UnaddressedElement
from octants.codegen.numbers_as_bits import word_of
from octants.ir.core import ArrayRef
from octants.types.scalars import DType, i64, u32


def begin(f: ThreadFunction, targets: list[ArrayRef]) -> None:
    """Redirect updates to copies, which a barrier guarantees to be zero."""
    code = f.code
    for target in targets:
        word = word_of(target.array.dtype)
        copy = code.shared_array((target, "copy"), word, count(target))
        f.shared_arrays[target] = copy

        def clear(number: Operand, copy: object = copy, word: DType = word) -> None:
            code.store(UnaddressedElement(copy, number), word, code.constant(0, word))

        _each(code, count(target), clear)
    if targets:
        code.barrier("block")


def end(f: ThreadFunction, targets: list[ArrayRef]) -> None:
    """Add the copies to their arrays once all threads of the block have arrived."""
    if targets:
        f.code.barrier("block")
    for target in targets:
        _add(f, target)


def _add(f: ThreadFunction, target: ArrayRef) -> None:
    """Add the block's copy of an array to the array, leaving out zeros."""
    code, dtype, copy = f.code, target.array.dtype, f.shared_arrays.pop(target)

    def add(number: Operand) -> None:
        value = memory.read(code, UnaddressedElement(copy, number), dtype)
        is_some = code.compare("ne", dtype, value, code.constant(0, dtype))

        def update() -> None:
            size = code.constant(dtype.size, i64)
            offset = code.index("mul", code.convert(number, u32, i64), size)
            address = code.moved(f.pointer(*target), offset, inside=True)
            atomics.update(f, "add", dtype, address, value)

        code.branch(is_some, update)

    _each(code, count(target), add)


def _each(code: ThreadCode, end: int, write: Callable[[Operand], None]) -> None:
    """Deal the numbers below ``end`` out to the threads of the block."""
    number, limit = code.variable(u32), code.constant(end, u32)
    code.write(number, code.thread_in_block())

    def iterate() -> None:
        write(code.read(number))
        code.write(number, code.apply("add", u32, code.read(number), code.threads_in_block()))

    code.loop(lambda: code.compare("lt", u32, code.read(number), limit), iterate)
