"""Copies of small arrays in memory that the threads of a block share; see `codegen.copies`.

Only numbers of 32 bits have them: many devices cannot update others there.
"""

from __future__ import annotations

from collections.abc import Callable

from octants.codegen.code import Element, Operand
from octants.codegen.copies import count
from octants.codegen.structured import atomics, memory
from octants.codegen.structured.body import Body
from octants.ir import ops
from octants.ir.core import ArrayRef
from octants.types.scalars import i64, u32, u64


def begin(body: Body, targets: list[ArrayRef], threads: int) -> None:
    """Have updates go to copies, which are zero when the threads of the block go on."""
    code = body.code
    for target in targets:
        copy = body.copies[target] = code.shared_array((target, "copy"), u32, count(target))

        def clear(number: Operand, copy: object = copy) -> None:
            code.store(Element(copy, number), u32, code.constant(0, u32))

        _each(body, count(target), threads, clear)
    if targets:
        code.barrier("block")


def atomic(body: Body, op: ops.Atomic) -> None:
    """An update of a copy; nobody asks what was there before."""
    code, dtype = body.code, op.array.dtype
    target = op.ref
    place = memory.place_of(body, op.array, op.companion, op.indices)
    offset = code.apply("sub", u64, place, body.pointer(*target))
    number = code.apply("ushr", u64, offset, body.number(dtype.size.bit_length() - 1, u64))
    element = Element(body.copies[target], code.convert(number, u64, u32))
    atomics.update(body, op.fn, dtype, element, body.use(op.value))


def end(body: Body, targets: list[ArrayRef], threads: int) -> None:
    """Add the copies to what they stand for, when all threads of the block have come here."""
    if targets:
        body.code.barrier("block")
    for target in targets:
        _add(body, target, threads)


def _add(body: Body, target: ArrayRef, threads: int) -> None:
    code, dtype, copy = body.code, target[0].dtype, body.copies.pop(target)

    def add(number: Operand) -> None:
        value = memory.read(code, Element(copy, number), dtype)
        is_some = code.compare("ne", dtype, value, body.number(0, dtype))

        def update() -> None:
            size = body.number(dtype.size, i64)
            offset = code.apply("mul", i64, code.convert(number, u32, i64), size)
            place = body.add(body.pointer(*target), offset, u64)
            atomics.update(body, "add", dtype, place, value)

        code.branch(is_some, update)

    _each(body, count(target), threads, add)


def _each(body: Body, end: int, threads: int, write: Callable[[Operand], None]) -> None:
    """Numbers below one, dealt out to so many threads of the block."""
    code, number = body.code, body.code.variable(u32)
    code.write(number, code.thread_in_block())
    limit, step = code.constant(end, u32), code.constant(threads, u32)

    def turn() -> None:
        write(code.read(number))
        code.write(number, code.apply("add", u32, code.read(number), step))

    code.loop(lambda: code.compare("lt", u32, code.read(number), limit), turn)
