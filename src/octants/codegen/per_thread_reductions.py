"""Reduce a thread's updates of one address in a register; see `analysis.sums.reductions`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octants.analysis.sums.reductions import Collect, Deliver, Reduction, neutral
from octants.codegen import arithmetic, atomics
from octants.codegen.function_emitter import FunctionEmitter
from octants.codegen.instruction_writer import Operand
from octants.codegen.memory import address_of
from octants.ir import ops
from octants.types.scalars import u1


def collect(f: FunctionEmitter, wanted: Collect) -> None:
    """Give a reduction a variable for its updates, and one for whether there were any."""
    code, reduction = f.code, wanted.reduction
    total, some = code.variable(reduction.dtype), code.variable(u1)
    code.write(total, code.constant(neutral(reduction.fn, reduction.dtype), reduction.dtype))
    code.write(some, code.constant(False, u1))
    f.collected.update(dict.fromkeys(reduction.atomics, (total, some)))


def collect_one(f: FunctionEmitter, op: ops.Atomic) -> None:
    """Update the variable."""
    code, (total, some) = f.code, f.collected[op]
    dtype = Reduction.type_of(op.array)
    code.write(total, arithmetic.combine(f, op.fn, dtype, code.read(total), f.use(op.value)))
    code.write(some, code.constant(True, u1))


def collected(f: FunctionEmitter, reduction: Reduction) -> tuple[Operand, Operand]:
    """Return the thread's total, and whether it made any update."""
    total, some = f.collected[reduction.atomics[0]]
    return f.code.read(total), f.code.read(some)


def deliver(
    f: FunctionEmitter, wanted: Deliver, read: Callable[[Any], Operand] | None = None
) -> None:
    """Update the target if there were updates; ``read`` gives the total of a variable."""
    total, some = f.collected[wanted.reduction.atomics[0]]
    update(f, wanted.reduction, lambda: (read or f.code.read)(total), f.code.read(some))


def update(
    f: FunctionEmitter, reduction: Reduction, total: Callable[[], Operand], condition: Operand
) -> None:
    """Update the target of a reduction if a condition holds."""

    def write() -> None:
        for op in reduction.rematerialised:
            f.operation(op)
        address = address_of(f, reduction.array, reduction.companion, reduction.indices)
        atomics.update(f, reduction.fn, reduction.array.dtype, address, total())

    f.code.branch(condition, write)
