"""Write plain additions of lanes to private sums: neighbours at once, one address after a
reduction.

Lanes whose addresses may be equal add one after the other. `grouped_additions` reduces several
vectors together.
"""

from __future__ import annotations

from collections.abc import Callable

from octants.codegen import arithmetic, atomics
from octants.codegen.llvm import memory_formats as scalar_memory
from octants.codegen.llvm.lanes import memory
from octants.codegen.llvm.lanes.atomics import active_numbers, fold
from octants.codegen.llvm.lanes.atomics import atomic as shared_atomic
from octants.codegen.llvm.lanes.function_text import LaneText
from octants.codegen.llvm.lanes.grouped_additions import add_group
from octants.codegen.llvm.lanes.memory import LaneAddress
from octants.codegen.llvm.lanes.sum_functions import call_sum
from octants.codegen.llvm.worker_atomics import add_plainly, add_to, either
from octants.ir import ops


def atomic(f: LaneText, op: ops.Atomic) -> None:
    """Write an update; it is plain in launches that separate workers."""
    if op in f.update_groups:
        if group := f.update_groups[op]:
            add_group(f, group, _add_one)
        return
    if op in f.collected or op.ref not in f.sums:
        shared_atomic(f, op)
    elif f.interior is not None and f.interior.slides(op):
        f.interior.add(f, op)
    else:
        _add_one(f, op)


def _add_one(f: LaneText, op: ops.Atomic) -> None:
    address = memory.locate(f, op.array, op.companion, op.indices)
    if address.step == 0:
        _add_total(f, op, address)
    else:
        either(
            f,
            lambda: _add_plainly(f, op, address),
            lambda: _add_each(f, op, address, _add_atomically),
        )


def _add_plainly(f: LaneText, op: ops.Atomic, address: LaneAddress) -> None:
    """Add where no other worker does: lanes that access neighbours at once."""

    def vector(found: LaneAddress) -> None:
        _add_vector(f, op, found)

    def each(found: LaneAddress) -> None:
        _add_each(f, op, found, add_plainly)

    if address.step is not None:
        vector(address)
    elif address.probable is not None and address.probable.step == op.array.dtype.size:
        memory.if_contiguous(f, address, address.probable, vector, each)
    else:
        each(address)


def _add_total(f: LaneText, op: ops.Atomic, address: LaneAddress) -> None:
    """Add the sum of the active lanes at once."""
    dtype = op.array.dtype

    def write(inner: LaneText, pointers: list[str], values: list[str]) -> None:
        add_to(inner, op, pointers[0], fold(inner, "add", dtype, values[0]))

    numbers = active_numbers(f, "add", dtype, f.use(op.value))
    call_sum(f, op, "total", [address.start], [numbers], write)


def _add_vector(f: LaneText, op: ops.Atomic, address: LaneAddress) -> None:
    """Add all lanes at once: no two have one address."""
    dtype = op.array.dtype
    suffix = f.kernel.scopes.suffix(op.ref)
    register = scalar_memory.memory_type(f, dtype)
    old = memory.load_from(f, address, register, dtype.size, suffix)
    new = arithmetic.combine(f, op.fn, dtype, old, f.use(op.value))
    memory.store_to(f, address, register, new, dtype.size, suffix)


def _add_atomically(f: LaneText, op: ops.Atomic, address: str, value: str) -> None:
    atomics.update(f, op.fn, op.array.dtype, address, value)


def _add_each(
    f: LaneText,
    op: ops.Atomic,
    address: LaneAddress,
    add: Callable[[LaneText, ops.Atomic, str, str], None],
) -> None:
    """Add lane by lane, since addresses may be equal."""
    register, value = f.type(op.array.dtype), f.use(op.value)
    pointers = memory.addresses(f, address)

    def one(lane: str) -> None:
        add(f, op, f.element("ptr", pointers, lane), f.element(register, value, lane))

    f.each_active(one)
