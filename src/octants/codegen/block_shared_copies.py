"""Write the block-shared copies of arrays; `codegen.block_shared_candidates` chooses them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from octants.codegen import atomics, memory, sums_of_products
from octants.codegen.block_shared_candidates import BlockCopy, find_copies, find_subgroup_copies
from octants.codegen.function_emitter import ThreadFunction
from octants.codegen.instruction_writer import Operand, Pointer, ThreadCode, UnaddressedElement
from octants.codegen.numbers_as_bits import word_of
from octants.ir.core import ArrayRef, Task
from octants.types.scalars import DType, i64, u1, u32

_ELEMENTS_PER_ITEM = 4
"""The elements of a copy for each work item of a block with which it is worth its clearing."""
_MOST_ITEMS = 1 << 40  # that are compared with the elements of a copy; their products fit in i64


def choose(f: ThreadFunction, task: Task, nbytes: int) -> list[BlockCopy]:
    """Choose the copies of a task, whose groups of updates are known, in ``nbytes`` of a block.

    Each subgroup has copies of its own of arrays all of whose updates are sums of products that it
    makes in step.
    """
    code, noalias, own = f.code, f.kernel.module.noalias, list[BlockCopy]()
    if f.products:
        nbytes -= sums_of_products.shared_bytes(code.exchange_subgroups, code.subgroup)
        grouped = {op for last in f.products for op in f.update_groups[last].updates}
        own = find_subgroup_copies(task, noalias, grouped, code.exchange_subgroups, nbytes)
        nbytes -= sum(copy.nbytes for copy in own)
    known = {copy.target for copy in own}
    others = find_copies(task, noalias, f.collected, nbytes)
    return [*own, *(copy for copy in others if copy.target not in known)]


def begin(f: ThreadFunction, copies: list[BlockCopy], items: Callable[[], Operand]) -> None:
    """Redirect updates to copies, which a barrier guarantees to be zero.

    ``items`` writes the number of the launch's work items (i64).
    """
    code = f.code
    for copy in copies:
        target, count = copy.target, max(1, copy.subgroups)
        word, shared = word_of(target.array.dtype), _memory(f, copy)
        if not copy.is_always_used:
            f.uses_copy[target] = _is_used(f, copy, items)
        f.shared_arrays[target] = shared
        if copy.subgroups:
            f.shared_arrays[target] = _of_subgroup(code, copy, shared)
            f.subgroup_copies.add(target)

        def clear(number: Operand, shared: object = shared, word: DType = word) -> None:
            code.store(UnaddressedElement(shared, number), word, code.constant(0, word))

        _each(code, code.apply("mul", u32, _used_count(f, copy), code.constant(count, u32)), clear)
    if copies:
        code.barrier("block")


def _memory(f: ThreadFunction, copy: BlockCopy) -> Any:
    """Return the memory of a copy, or of the copies of all subgroups."""
    word, count = word_of(copy.target.array.dtype), copy.count * max(1, copy.subgroups)
    return f.code.shared_array((copy.target, "copy"), word, count)


def _of_subgroup(code: ThreadCode, copy: BlockCopy, shared: Pointer) -> Pointer:
    """Return where the copy of the thread's subgroup begins."""
    subgroup = code.convert(code.subgroup_in_block(), u32, i64)
    nbytes = code.constant(copy.count * copy.target.array.dtype.size, i64)
    return code.moved(shared, code.apply("mul", i64, subgroup, nbytes))


def _is_used(f: ThreadFunction, copy: BlockCopy, items: Callable[[], Operand]) -> Operand:
    """Return whether a launch uses a copy, which all its threads agree on."""
    code, count = f.code, _element_count(f, copy)
    used = code.constant(True, u1)
    if not copy.fits:
        used = code.compare("le", i64, count, code.constant(copy.count, i64))
    if not copy.is_repaid:
        most = code.constant(_MOST_ITEMS, i64)
        number = items()
        number = code.choose(code.compare("lt", i64, number, most), i64, number, most)
        own = code.apply("mul", i64, number, code.convert(code.threads_in_block(), u32, i64))
        own = code.apply("mul", i64, own, code.constant(_ELEMENTS_PER_ITEM, i64))
        elements = code.apply("mul", i64, count, code.threads())
        used = code.apply("and", u1, used, code.compare("ge", i64, own, elements))
    return used


def _element_count(f: ThreadFunction, copy: BlockCopy) -> Operand:
    """Return the number of elements of a copy's array, i64."""
    code, array = f.code, copy.target.array
    if copy.fits:
        return code.constant(copy.count, i64)
    count = code.constant(math.prod(array.element_shape), i64)
    for axis in range(array.rank):
        count = code.apply("mul", i64, count, f.extent(array, axis))
    return count


def _used_count(f: ThreadFunction, copy: BlockCopy) -> Operand:
    """Return the number of elements that a launch uses of a copy, u32."""
    code = f.code
    if copy.is_always_used:
        return code.constant(copy.count, u32)
    count, none = code.convert(_element_count(f, copy), i64, u32), code.constant(0, u32)
    return code.choose(f.uses_copy[copy.target], u32, count, none)


def with_or_without(f: ThreadFunction, target: ArrayRef, update: Callable[[], None]) -> None:
    """Write an update of a copy; if launches may leave the copy out, also one of the array."""
    if target not in f.uses_copy:
        update()
        return

    def update_array() -> None:
        copy = f.shared_arrays.pop(target)
        update()
        f.shared_arrays[target] = copy

    f.code.branch(f.uses_copy[target], update, update_array)


def end(f: ThreadFunction, copies: list[BlockCopy]) -> None:
    """Add the copies to their arrays once all threads of the block have arrived."""
    if copies:
        f.code.barrier("block")
    for copy in copies:
        _add(f, copy)


def _add(f: ThreadFunction, copy: BlockCopy) -> None:
    """Add the block's copy of an array to the array, leaving out zeros."""
    code, target = f.code, copy.target
    dtype, shared = target.array.dtype, _memory(f, copy)
    del f.shared_arrays[target]

    def read(number: Operand, subgroup: int) -> Operand:
        further = code.apply("add", u32, number, code.constant(subgroup * copy.count, u32))
        return memory.read(code, UnaddressedElement(shared, further), dtype)

    def add(number: Operand) -> None:
        value = read(number, 0)
        for subgroup in range(1, copy.subgroups):
            value = code.apply("add", dtype, value, read(number, subgroup))
        is_some = code.compare("ne", dtype, value, code.constant(0, dtype))

        def update() -> None:
            size = code.constant(dtype.size, i64)
            offset = code.index("mul", code.convert(number, u32, i64), size)
            address = code.moved(f.pointer(*target), offset, inside=True)
            atomics.update(f, "add", dtype, address, value)

        code.branch(is_some, update)

    _each(code, _used_count(f, copy), add)


def _each(code: ThreadCode, limit: Operand, write: Callable[[Operand], None]) -> None:
    """Deal the numbers below a limit (u32) out to the threads of the block."""
    number = code.variable(u32)
    code.write(number, code.thread_in_block())

    def iterate() -> None:
        write(code.read(number))
        code.write(number, code.apply("add", u32, code.read(number), code.threads_in_block()))

    code.loop(lambda: code.compare("lt", u32, code.read(number), limit), iterate)
