"""What the threads of a GPU update at one place: summed up in a subgroup, added once."""

from __future__ import annotations

from octants.codegen.llvm import arithmetic, atomics
from octants.codegen.llvm.gpu.text import ThreadText
from octants.codegen.llvm.memory import address
from octants.codegen.reductions import Deliver, neutral
from octants.ir import ops
from octants.types.scalars import DType


def atomic(f: ThreadText, op: ops.Atomic) -> None:
    """An update; threads of a subgroup that make it together, at one place, make one of all."""
    if op not in f.shared_updates or op in f.collected:
        atomics.atomic(f, op)
        return
    dtype, fn = op.array.dtype, op.fn
    place, value = address(f, op.array, op.companion, op.indices), f.use(op.value)
    together, alone, further = (f.fresh_label(hint) for hint in ("together", "alone", "further"))
    f.branch_if(f.gpu.all_at(f, place), together, alone)
    f.start(together)
    total = _summed(f, fn, dtype, value)
    first = f.fresh_label("first")
    f.branch_if(f.gpu.is_first_lane(f), first, further)
    f.start(first)
    atomics.update(f, fn, dtype, place, total)
    f.branch(further)
    f.start(alone)
    atomics.update(f, fn, dtype, place, value)
    f.branch(further)
    f.start(further)


def _summed(f: ThreadText, fn: str, dtype: DType, value: str, missing: str = "") -> str:
    """What all threads of a subgroup have; ``missing`` stands for those that there are not."""
    register, distance = f.type(dtype), f.gpu.subgroup // 2
    while distance:
        other = f.gpu.from_lane(f, register, value, distance)
        if missing:
            other = f.choose(f.gpu.has_lane(f, distance), register, other, missing)
        value = arithmetic.combine(f, fn, dtype, value, other)
        distance //= 2
    return value


def deliver(f: ThreadText, wanted: Deliver) -> None:
    """All threads come here together. Who collected nothing adds what changes nothing."""
    reduction = wanted.reduction
    dtype, (total, any_) = reduction.dtype, f.collected[reduction.atomics[0]]
    register = f.type(dtype)
    nothing = f.literal(neutral(reduction.fn, dtype), dtype)
    value = f.assign(f"load {register}, ptr {total}, align 8")
    value = _summed(f, reduction.fn, dtype, value, nothing)
    some = f.gpu.any_lane(f, f.assign(f"load i1, ptr {any_}, align 1"))
    adds = f.apply("and", "i1", some, f.gpu.is_first_lane(f))
    update, further = f.fresh_label("update"), f.fresh_label("further")
    f.branch_if(adds, update, further)
    f.start(update)
    for op in reduction.recipe:
        f.table[type(op)](f, op)
    place = address(f, reduction.array, reduction.companion, reduction.indices)
    atomics.update(f, reduction.fn, reduction.array.dtype, place, value)
    f.branch(further)
    f.start(further)
