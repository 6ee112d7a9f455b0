"""Copies of small arrays in memory that the threads of a block share; see `codegen.copies`."""

from __future__ import annotations

from collections.abc import Callable

from octants.codegen.copies import count
from octants.codegen.llvm import atomics
from octants.codegen.llvm.gpu.text import ThreadText
from octants.codegen.llvm.text import identifier
from octants.ir.core import ArrayRef


def begin(f: ThreadText, targets: list[ArrayRef]) -> None:
    """Have updates go to copies, which are zero when the threads of the block go on."""
    for number, target in enumerate(targets):
        array, elements = target[0], count(target)
        name = f"octants_copy_{f.task}_{number}_{identifier(array.name)}"
        copy = f.gpu.shared_memory(f, name, elements * array.dtype.size)
        f.shared_arrays[target] = copy
        zero = f.literal(0, array.dtype)

        def clear(element: str, target: ArrayRef = target, zero: str = zero) -> None:
            register, place = _place(f, target, f.pointer(*target), element)
            f.emit(f"store {register} {zero}, ptr {place}, align {target[0].dtype.size}")

        _each(f, elements, clear)
    if targets:
        f.gpu.block_barrier(f)


def end(f: ThreadText, targets: list[ArrayRef]) -> None:
    """Add the copies to what they stand for, when all threads of the block have come here."""
    if targets:
        f.gpu.block_barrier(f)
    for target in targets:
        copy = f.shared_arrays.pop(target)

        def add(element: str, target: ArrayRef = target, copy: str = copy) -> None:
            dtype = target[0].dtype
            register, place = _place(f, target, copy, element)
            value = f.assign(f"load {register}, ptr {place}, align {dtype.size}")
            compare = "fcmp une" if dtype.is_float else "icmp ne"
            some, none = f.fresh_label("some"), f.fresh_label("none")
            f.branch_if(f.apply(compare, register, value, f.literal(0, dtype)), some, none)
            f.start(some)
            _, place = _place(f, target, f.pointer(*target), element)
            atomics.update(f, "add", dtype, place, value)
            f.branch(none)
            f.start(none)

        _each(f, count(target), add)


def _place(f: ThreadText, target: ArrayRef, start: str, element: str) -> tuple[str, str]:
    """The type of an element, and its address."""
    register = f.type(target[0].dtype)
    return register, f.assign(f"getelementptr {register}, ptr {start}, i32 {element}")


def _each(f: ThreadText, end: int, write: Callable[[str], None]) -> None:
    """Numbers below one, dealt out to the threads of the block."""
    turn, further = f.fresh_label("turn"), f.fresh_label("further")
    first, before = f.gpu.thread_in_block(f), f.label
    f.branch_if(f.apply("icmp ult", "i32", first, end), turn, further)
    f.start(turn)
    number = f.open_phi("i32")
    number.incoming.append((first, before))
    write(number.name)
    following = f.apply("add nuw nsw", "i32", number.name, f.gpu.threads_in_block(f))
    number.incoming.append((following, f.label))
    f.close_phi(number)
    f.branch_if(f.apply("icmp ult", "i32", following, end), turn, further)
    f.start(further)
