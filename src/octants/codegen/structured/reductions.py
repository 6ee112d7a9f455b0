"""What the threads of a GPU update at one place: collected by each, summed up by those in step.

See `codegen.reductions` for what can be collected, and put together.
"""

from __future__ import annotations

from octants.codegen.reductions import Reduction, neutral
from octants.codegen.structured import arithmetic, atomics
from octants.codegen.structured.body import Body, register
from octants.codegen.structured.code import Code, Operand, Place
from octants.codegen.structured.cooperation import read
from octants.codegen.structured.memory import place_of
from octants.ir import ops
from octants.ir.core import Space
from octants.types.scalars import DType, u1, u32, u64


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


def deliver(body: Body, reduction: Reduction) -> None:
    """All threads come here together. Who collected nothing adds what changes nothing."""
    code, dtype = body.code, reduction.dtype
    total, some = (code.read(variable) for variable in body.collected[reduction.atomics[0]])
    if code.subgroup > 1:
        code.barrier("subgroup")  # they may have parted in a loop
        total = _summed(body, reduction.fn, dtype, total)
        anybody = code.compare("ne", u64, code.ballot(some), code.constant(0, u64))
        some = code.apply("and", u1, anybody, _is_first(code))

    def update() -> None:
        for op in reduction.recipe:
            body.operation(op)
        place = place_of(body, reduction.array, reduction.companion, reduction.indices)
        atomics.update(body, reduction.fn, reduction.array.dtype, place, total)

    code.branch(some, update)


def _is_first(code: Code) -> Operand:
    return code.compare("eq", u32, code.lane(), code.constant(0, u32))


def _summed(body: Body, fn: str, dtype: DType, value: Operand) -> Operand:
    """What all threads of a subgroup have, all of which are here."""
    code, distance = body.code, body.code.subgroup // 2
    while distance:
        lane = code.apply("xor", u32, code.lane(), code.constant(distance, u32))
        value = arithmetic.combine(body, fn, dtype, value, read(code, dtype, value, lane))
        distance //= 2
    return value
