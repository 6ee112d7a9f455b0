"""What the threads of a GPU update at one place: collected by each, summed up by their block.

See `codegen.reductions` for what can be collected, and put together.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from octants.codegen.code import Element, Operand, Place, ThreadCode
from octants.codegen.reductions import Reduction, neutral
from octants.codegen.structured import arithmetic, atomics, copies, memory
from octants.codegen.structured.body import Body, register
from octants.codegen.structured.cooperation import read
from octants.codegen.structured.memory import place_of
from octants.codegen.structured.words import word_of
from octants.ir import ops
from octants.ir.core import Space
from octants.types.scalars import DType, u1, u32, u64

_BYTES = 1 << 14  # that sums of a block may take of the memory that its threads share


def collect(body: Body, reduction: Reduction) -> None:
    """Have the updates of a reduction go to a variable; another one says whether there were any."""
    code, dtype = body.code, register(reduction.dtype)
    total, some = code.variable(dtype), code.variable(u1)
    code.write(total, code.constant(neutral(reduction.fn, reduction.dtype), dtype))
    code.write(some, code.constant(False, u1))
    body.collected.update(dict.fromkeys(reduction.atomics, (total, some)))


def atomic(body: Body, op: ops.Atomic) -> None:
    """An update: of the variable of a reduction, together with other threads, or by itself."""
    if op in body.collected:
        total, some = body.collected[op]
        dtype, code = Reduction.type_of(op.array), body.code
        new = arithmetic.combine(body, op.fn, dtype, code.read(total), body.use(op.value))
        code.write(total, new)
        code.write(some, code.constant(True, u1))
    elif op.ref in body.copies:
        copies.atomic(body, op)
    elif op in body.shared_updates and op.array.space is not Space.SHARED:
        place = place_of(body, op.array, op.companion, op.indices)
        _update_together(body, op.fn, op.array.dtype, place, body.use(op.value))
    else:
        atomics.atomic(body, op)


def _update_together(body: Body, fn: str, dtype: DType, place: Place, value: Operand) -> None:
    """Threads of a subgroup that all come here, with one place, make one update of all."""
    code, alone = body.code, body.code.variable(u1)
    code.write(alone, code.constant(True, u1))
    everybody = code.constant((1 << code.subgroup) - 1, u64)

    def together() -> None:
        total = _summed(body, fn, dtype, value)
        code.branch(_is_first(code), lambda: atomics.update(body, fn, dtype, place, total))
        code.write(alone, code.constant(False, u1))

    def compare() -> None:
        high = code.apply("ushr", u64, place, code.constant(32, u64))
        halves = [code.all_equal(code.convert(half, u64, u32)) for half in (place, high)]
        code.branch(code.apply("and", u1, *halves), together)

    all_here = code.compare("eq", u64, code.ballot(code.constant(True, u1)), everybody)
    code.branch(all_here, compare)
    code.branch(code.read(alone), lambda: atomics.update(body, fn, dtype, place, value))


def deliver(body: Body, found: list[Reduction], threads: int) -> None:
    """All threads of a block, so many, come here together.

    Who collected nothing adds what changes nothing. Threads that a CPU runs one after the other
    would do little else than to wait for each other.
    """
    code = body.code
    if not found:
        return
    if code.subgroup > 1:
        code.barrier("subgroup")  # they may have parted in a loop
    nbytes = threads * sum(4 + word_of(reduction.dtype).size for reduction in found)
    if 1 < code.subgroup < threads and nbytes <= _BYTES and not code.masks:
        _deliver_in_blocks(body, found, threads)
        return
    for reduction in found:
        total, some = _collected(body, reduction)
        if code.subgroup > 1:
            total = _summed(body, reduction.fn, reduction.dtype, total)
            some = code.apply("and", u1, _for_any(code, some), _is_first(code))
        _update(body, reduction, total, some)


def _deliver_in_blocks(body: Body, found: list[Reduction], threads: int) -> None:
    """The subgroups of a block leave their sums to one of them, mostly another for each reduction.

    Devices number threads as they like: which of them are a subgroup is not known.
    """
    code = body.code
    for reduction in found:
        _leave(body, reduction, threads)
    code.barrier("block")
    for number, reduction in enumerate(found):
        chosen = code.constant(number * code.subgroup % threads, u32)
        is_chosen = code.compare("eq", u32, code.thread_in_block(), chosen)
        is_mine = _for_any(code, is_chosen)
        code.branch(is_mine, partial(_take, body, reduction, threads))


def _leave(body: Body, reduction: Reduction, threads: int) -> None:
    """Have the sum of the subgroup, and whether there is any, in memory of the block.

    The first thread leaves it, the others nothing.
    """
    code, dtype = body.code, register(reduction.dtype)
    total, some = _collected(body, reduction)
    total, some = _summed(body, reduction.fn, reduction.dtype, total), _for_any(code, some)
    nothing = code.constant(neutral(reduction.fn, reduction.dtype), dtype)
    sums, any_ = _left(code, reduction, threads)
    own = code.thread_in_block()
    total = code.choose(_is_first(code), dtype, total, nothing)
    memory.write(code, Element(sums, own), reduction.dtype, total)
    memory.write(code, Element(any_, own), u1, some)


def _take(body: Body, reduction: Reduction, threads: int) -> None:
    """Update a place by what so many threads have left."""
    code, fn, dtype = body.code, reduction.fn, reduction.dtype
    sums, any_ = _left(code, reduction, threads)
    total = code.constant(neutral(fn, dtype), register(dtype))
    some = code.constant(False, u1)
    for start in range(0, threads, code.subgroup):
        place = code.apply("add", u32, code.lane(), code.constant(start, u32))
        value = memory.read(code, Element(sums, place), dtype)
        total = arithmetic.combine(body, fn, dtype, total, value)
        some = code.apply("or", u1, some, memory.read(code, Element(any_, place), u1))
    some = code.apply("and", u1, _for_any(code, some), _is_first(code))
    _update(body, reduction, _summed(body, fn, dtype, total), some)


def _left(code: ThreadCode, reduction: Reduction, threads: int) -> tuple[Any, Any]:
    """The memory of the block where threads leave their sums, and whether there are any."""
    word = word_of(reduction.dtype)
    sums = code.shared_array((reduction, "sums"), word, threads)
    return sums, code.shared_array((reduction, "any"), word_of(u1), threads)


def _collected(body: Body, reduction: Reduction) -> tuple[Operand, Operand]:
    total, some = body.collected[reduction.atomics[0]]
    return body.code.read(total), body.code.read(some)


def _for_any(code: ThreadCode, condition: Operand) -> Operand:
    """Whether a condition holds for any thread of the subgroup."""
    return code.compare("ne", u64, code.ballot(condition), code.constant(0, u64))


def _update(body: Body, reduction: Reduction, total: Operand, adds: Operand) -> None:
    def update() -> None:
        for op in reduction.recipe:
            body.operation(op)
        place = place_of(body, reduction.array, reduction.companion, reduction.indices)
        atomics.update(body, reduction.fn, reduction.array.dtype, place, total)

    body.code.branch(adds, update)


def _is_first(code: ThreadCode) -> Operand:
    return code.compare("eq", u32, code.lane(), code.constant(0, u32))


def _summed(body: Body, fn: str, dtype: DType, value: Operand) -> Operand:
    """What all threads of a subgroup have, all of which are here."""
    code, distance = body.code, body.code.subgroup // 2
    while distance:
        lane = code.apply("xor", u32, code.lane(), code.constant(distance, u32))
        value = arithmetic.combine(body, fn, dtype, value, read(code, dtype, value, lane))
        distance //= 2
    return value
