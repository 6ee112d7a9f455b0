"""Write atomic updates of lanes: reduced over the loop, reduced over the lanes, or lane by lane."""

from __future__ import annotations

from octants.analysis.sums.reductions import Collect, Deliver, neutral
from octants.codegen import arithmetic, atomics, per_thread_reductions
from octants.codegen.llvm.lanes import memory
from octants.codegen.llvm.lanes.function_text import LaneText
from octants.codegen.llvm.lanes.memory import LaneAddress
from octants.ir import ops
from octants.types.scalars import DType, f16, f32, u1

_COMBINED = {"add": "add", "sub": "add", "min": "min", "max": "max"} | {
    fn: fn for fn in ("and", "or", "xor")
}


def atomic(f: LaneText, op: ops.Atomic) -> None:
    """Update elements. Bind the values before only if an operation uses them."""
    if op in f.collected:
        _collect_one(f, op)
        return
    address, value = memory.locate(f, op.array, op.companion, op.indices), f.use(op.value)
    is_one = address.step == 0 and op.fn in _COMBINED and op.array.dtype not in (u1, f16)
    if is_one and op.result not in f.used:
        total = _combined(f, _COMBINED[op.fn], op.array.dtype, value)
        atomics.update(f, op.fn, op.array.dtype, address.start, total)
    else:
        _one_by_one(f, op, address, value)


def _one_by_one(f: LaneText, op: ops.Atomic, address: LaneAddress, value: str) -> None:
    """Update an element for each active lane in turn, since addresses may be equal."""
    dtype, pointers = op.array.dtype, memory.addresses(f, address)

    def one(lane: str) -> str:
        pointer = f.element("ptr", pointers, lane)
        mine = f.element(f.type(dtype), value, lane)
        return str(atomics.update(f, op.fn, dtype, pointer, mine))

    is_used = op.result in f.used
    found = f.each_active(one, f.type(dtype) if is_used else "")
    if is_used:
        f.bind(op.result, found)


def active_numbers(f: LaneText, fn: str, dtype: DType, value: str) -> str:
    """Return the numbers of the active lanes as a vector; the others do not change the result."""
    register = f.type(dtype)
    start = f.literal(neutral(fn, dtype), dtype)
    return str(f.active(register, f.held(register, value), start))


def _combined(f: LaneText, fn: str, dtype: DType, value: str) -> str:
    """Combine the values of the active lanes."""
    return fold(f, fn, dtype, active_numbers(f, fn, dtype, value))


def fold(f: LaneText, fn: str, dtype: DType, vector: str) -> str:
    """Combine the numbers of all lanes by halving."""
    register, lanes = f.type(dtype), f.lanes
    while lanes > 1:
        both = halves(f, register, vector, lanes)
        lanes //= 2
        with f.of_lanes(lanes):
            vector = arithmetic.combine(f, fn, dtype, *both)
    return f.assign(f"extractelement <1 x {register}> {vector}, i32 0")


def halves(f: LaneText, register: str, vector: str, lanes: int) -> list[str]:
    """Return the two halves of the lanes as vectors."""
    return [_half(f, register, vector, lanes, first) for first in (0, lanes // 2)]


def _half(f: LaneText, register: str, vector: str, lanes: int, first: int) -> str:
    """Return half of the lanes, from a first one on, as a vector."""
    shape, half = f"<{lanes} x {register}>", lanes // 2
    order = ", ".join(f"i32 {lane}" for lane in range(first, first + half))
    return f.assign_vector(
        f"shufflevector {shape} {vector}, {shape} poison, <{half} x i32> <{order}>"
    )


# -- reductions ---------------------------------------------------------------------------------


def collect(f: LaneText, wanted: Collect) -> None:
    """Do what `codegen.per_thread_reductions.collect` does, with a sum for each lane."""
    reduction = wanted.reduction
    dtype = reduction.dtype
    register = f.type(dtype)
    total = f.vector_variable((reduction, "total"), register)
    any_ = f.code.variable(u1)
    start = f.literal(neutral(reduction.fn, dtype), dtype)
    f.initialise(total, register, f.spread(register, start))
    f.code.write(any_, f.code.constant(False, u1))
    f.collected.update(dict.fromkeys(reduction.atomics, (total, any_)))


def _collect_one(f: LaneText, op: ops.Atomic) -> None:
    total, any_ = f.collected[op]
    dtype = f32 if op.array.dtype is f16 else op.array.dtype
    register = f.type(dtype)
    old = f.read_variable(total, register)
    new = f.active(register, arithmetic.combine(f, op.fn, dtype, old, f.use(op.value)), old)
    f.write_variable(total, register, new)
    f.code.write(any_, f.code.constant(True, u1))


def deliver(f: LaneText, wanted: Deliver) -> None:
    """Do what `codegen.per_thread_reductions.deliver` does, with the sums of all lanes."""
    reduction = wanted.reduction

    def total(address: str) -> str:
        vector = f.read_variable(address, f.type(reduction.dtype))
        return fold(f, reduction.fn, reduction.dtype, vector)

    per_thread_reductions.deliver(f, wanted, total)


def compare_exchange(f: LaneText, op: ops.CompareExchange) -> None:
    """Compare and exchange lane by lane, and bind the values before."""
    dtype = op.array.dtype
    register = f.type(dtype)
    address = memory.locate(f, op.array, op.companion, op.indices)
    pointers, expected, value = memory.addresses(f, address), f.use(op.expected), f.use(op.value)

    def one(lane: str) -> str:
        wanted, new = f.element(register, expected, lane), f.element(register, value, lane)
        pointer = f.element("ptr", pointers, lane)
        return str(atomics.exchange_if(f, dtype, pointer, wanted, new))

    f.bind(op.result, f.each_active(one, register))
