"""What the threads of a GPU have collected for one place: summed up in a subgroup, added once."""

from __future__ import annotations

from octants.codegen.llvm import arithmetic, atomics
from octants.codegen.llvm.gpu.text import ThreadText
from octants.codegen.llvm.memory import address
from octants.codegen.llvm.reductions import Deliver, neutral


def deliver(f: ThreadText, wanted: Deliver) -> None:
    """All threads come here together. Who collected nothing adds what changes nothing."""
    reduction = wanted.reduction
    dtype, (total, any_) = reduction.dtype, f.collected[reduction.atomics[0]]
    register = f.type(dtype)
    nothing = f.literal(neutral(reduction.fn, dtype), dtype)
    value = f.assign(f"load {register}, ptr {total}, align 8")
    distance = f.gpu.subgroup // 2
    while distance:
        other = f.gpu.from_lane(f, register, value, distance)
        other = f.choose(f.gpu.has_lane(f, distance), register, other, nothing)
        value = arithmetic.combine(f, reduction.fn, dtype, value, other)
        distance //= 2
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
