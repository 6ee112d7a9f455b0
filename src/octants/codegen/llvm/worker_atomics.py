"""Write atomic updates of a worker: plain ones in launches that privatise the target."""

from __future__ import annotations

from collections.abc import Callable

from octants.codegen import arithmetic, atomics, per_thread_reductions
from octants.codegen.llvm.function_text import FunctionText
from octants.codegen.memory import address_of
from octants.ir import ops


def atomic(f: FunctionText, op: ops.Atomic) -> None:
    """Update an element. Bind the value before only if an operation uses it."""
    if op in f.collected:
        per_thread_reductions.collect_one(f, op)
    elif op.ref in f.sums:
        add_to(f, op, address_of(f, op.array, op.companion, op.indices), f.use(op.value))
    else:
        atomics.atomic(f, op)


def add_to(f: FunctionText, op: ops.Atomic, address: str, value: str) -> None:
    """Update an element: plainly in launches that separate workers, else atomically."""
    either(
        f,
        lambda: add_plainly(f, op, address, value),
        lambda: atomics.update(f, op.fn, op.array.dtype, address, value),
    )


def add_plainly(f: FunctionText, op: ops.Atomic, address: str, value: str) -> None:
    """Update an element that no other worker updates meanwhile."""
    dtype, suffix = op.array.dtype, f.kernel.scopes.suffix(op.ref)
    old = f.assign(f"load {f.type(dtype)}, ptr {address}, align {dtype.size}{suffix}")
    new = arithmetic.combine(f, op.fn, dtype, old, value)
    f.emit(f"store {f.type(dtype)} {new}, ptr {address}, align {dtype.size}{suffix}")


def either(f: FunctionText, plainly: Callable[[], object], shared: Callable[[], object]) -> None:
    """Write both versions: for launches that separate workers' targets, and for others."""
    if f.shared == "false":
        plainly()
        return
    f.text.unswitches |= bool(f.outside_loops) and not f.is_outside_loops
    alone, together, further = map(f.fresh_label, ("alone", "together", "further"))
    f.branch_if(f.shared, together, alone)
    for label, write in ((alone, plainly), (together, shared)):
        f.start(label)
        write()
        f.branch(further)
    f.start(further)
