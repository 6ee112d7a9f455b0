"""Reduce updates of one address by GPU threads: in each thread, then in its block.

`analysis.sums.reductions` chooses the updates.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from octants.analysis.sums.reductions import Reduction, neutral
from octants.codegen import arithmetic, atomics, cooperation, memory, per_thread_reductions
from octants.codegen.block_shared_copies import with_or_without
from octants.codegen.cooperation import summed, update_group, update_together
from octants.codegen.instruction_writer import Operand, ThreadCode, UnaddressedElement
from octants.codegen.memory import Offset, add_indices, address_of
from octants.codegen.numbers_as_bits import word_of
from octants.codegen.structured.function_emitter import StructuredFunction, register
from octants.ir import ops
from octants.ir.core import Space, Value
from octants.types.scalars import i64, u1, u32

_BYTES = 1 << 14  # of a block's shared memory, for reductions
_LEAST_THREADS = 256
_MOST_READ = 32  # totals that a thread reads, each by code of its own


def atomic(body: StructuredFunction, op: ops.Atomic) -> None:
    """Write an update: of a reduction's variable, with other threads, or alone."""

    def update() -> None:
        if op in body.shared_updates and op.array.space is not Space.SHARED:
            update_together(body, op, partial(_update, body, op, op.indices))
        elif op.ref in body.shared_arrays:
            _update(body, op, op.indices, body.use(op.value))
        else:
            atomics.atomic(body, op)

    def update_element(indices: list[Value], value: Operand) -> None:
        with_or_without(body, op.ref, lambda: _update(body, op, indices, value))

    if op in body.update_groups:
        if group := body.update_groups[op]:
            update_group(body, group, update_element)
    elif op in body.collected:
        per_thread_reductions.collect_one(body, op)
    else:
        with_or_without(body, op.ref, update)


def _update(body: StructuredFunction, op: ops.Atomic, indices: list[Value], value: Operand) -> None:
    """Update an element of the block's copy of an array, or of the array."""
    code, dtype = body.code, op.array.dtype
    if op.ref not in body.shared_arrays:
        address = address_of(body, op.array, op.companion, indices)
        atomics.update(body, op.fn, dtype, address, value)
        return
    offset = Offset(body)
    add_indices(body, offset, *op.ref, indices)
    nbytes = code.convert(offset.number(), i64, u32)  # a copy is short
    number = code.apply("ushr", u32, nbytes, code.constant(dtype.size.bit_length() - 1, u32))
    element = UnaddressedElement(body.shared_arrays[op.ref], number)
    atomics.update(body, op.fn, dtype, element, value)


def deliver(body: StructuredFunction, found: list[Reduction], threads: int) -> None:
    """Update targets by the threads' totals. All ``threads`` of the block arrive here.

    Some contribute the identity. A CPU runs threads one after the other, so there barriers would
    cost more than the reduction saves.
    """
    code = body.code
    if not found:
        return
    if code.subgroup > 1:
        code.barrier("subgroup")  # they may have diverged in a loop
    if 1 < code.subgroup < threads and _fit(found, threads) and not code.masks:
        _deliver_in_blocks(body, found, threads)
        return
    for reduction in found:
        cooperation.deliver(body, reduction)


def most_threads(found: list[Reduction], threads: int, subgroup: int) -> int:
    """Return how many threads of a block reduce together: ``threads``, or less where their totals
    would not fit in its memory, or a subgroup had to read many of them.
    """
    if found:
        threads = min(threads, max(_LEAST_THREADS, _MOST_READ * subgroup))
    while threads > _LEAST_THREADS and not _fit(found, threads):
        threads //= 2
    return threads


def most_bytes(found: list[Reduction], threads: int) -> int:
    """Return how many bytes of a block's memory reductions by ``threads`` threads take at most."""
    return min(_BYTES, _nbytes(found, threads))


def _fit(found: list[Reduction], threads: int) -> bool:
    return _nbytes(found, threads) <= _BYTES


def _nbytes(found: list[Reduction], threads: int) -> int:
    return threads * sum(4 + word_of(reduction.dtype).size for reduction in found)


def _deliver_in_blocks(body: StructuredFunction, found: list[Reduction], threads: int) -> None:
    """Reduce over a block: subgroups store totals, and one per reduction, mostly another, adds
    them.

    It does not matter which threads are a subgroup: devices number them as they like.
    """
    code = body.code
    for reduction in found:
        _leave(body, reduction, threads)
    code.barrier("block")
    for number, reduction in enumerate(found):
        chosen = code.constant(number * code.subgroup % threads, u32)
        is_chosen = code.compare("eq", u32, code.thread_in_block(), chosen)
        is_mine = code.any_lane(is_chosen)
        code.branch(is_mine, partial(_take, body, reduction, threads))


def _leave(body: StructuredFunction, reduction: Reduction, threads: int) -> None:
    """Store the subgroup's total in memory of the block, and whether any thread updated.

    The first thread stores it; the others store nothing.
    """
    code, dtype = body.code, register(reduction.dtype)
    total, some = per_thread_reductions.collected(body, reduction)
    total, some = summed(body, reduction.fn, reduction.dtype, total), code.any_lane(some)
    nothing = code.constant(neutral(reduction.fn, reduction.dtype), dtype)
    sums, any_ = _left(code, reduction, threads)
    own = code.thread_in_block()
    total = code.choose(code.is_first_lane(), dtype, total, nothing)
    memory.write(code, UnaddressedElement(sums, own), reduction.dtype, total)
    memory.write(code, UnaddressedElement(any_, own), u1, some)


def _take(body: StructuredFunction, reduction: Reduction, threads: int) -> None:
    """Update a target by the stored totals of so many threads."""
    code, fn, dtype = body.code, reduction.fn, reduction.dtype
    sums, any_ = _left(code, reduction, threads)
    total = code.constant(neutral(fn, dtype), register(dtype))
    some = code.constant(False, u1)
    for start in range(0, threads, code.subgroup):
        address = code.apply("add", u32, code.lane(), code.constant(start, u32))
        value = memory.read(code, UnaddressedElement(sums, address), dtype)
        total = arithmetic.combine(body, fn, dtype, total, value)
        some = code.apply("or", u1, some, memory.read(code, UnaddressedElement(any_, address), u1))
    some = code.apply("and", u1, code.any_lane(some), code.is_first_lane())
    total = summed(body, fn, dtype, total)
    per_thread_reductions.update(body, reduction, lambda: total, some)


def _left(code: ThreadCode, reduction: Reduction, threads: int) -> tuple[Any, Any]:
    """Return the block's memory for totals, and for whether there are any."""
    word = word_of(reduction.dtype)
    sums = code.shared_array((reduction, "sums"), word, threads)
    return sums, code.shared_array((reduction, "any"), word_of(u1), threads)
