"""The record buffer of a CPU worker: a stack that grows on demand.

Its address and its capacity are in variables, which the optimiser keeps in registers.
"""

from __future__ import annotations

from collections.abc import Callable

from octants import abi
from octants.codegen.function_emitter import RecordBuffer
from octants.codegen.llvm.function_text import FunctionText
from octants.codegen.llvm.memory_formats import from_memory, memory_type, to_memory
from octants.codegen.llvm.module_text import ModuleText
from octants.ir.core import Record
from octants.types.scalars import DType


class WorkerRecordBuffer(RecordBuffer):
    """Contiguous records; `abi` defines the worker's structure."""

    def __init__(self, f: FunctionText) -> None:
        self._f = f
        self._is_ready = False

    def _variables(self) -> tuple[str, str]:
        f = self._f
        start = f.once("record_buffer", "alloca ptr, align 8")
        capacity = f.once("capacity", "alloca i64, align 8")
        if not self._is_ready:
            self._is_ready = True
            f.entry += self._reload(start, capacity)
        return start, capacity

    def _reload(self, start: str, capacity: str) -> list[str]:
        """Return lines that load both from the worker."""
        first, second, third, fourth = (self._f.fresh_label("%t") for _ in range(4))
        return [
            f"  {first} = getelementptr i8, ptr %worker, i64 {abi.WORKER_RECORD_BUFFER}",
            f"  {second} = load ptr, ptr {first}, align 8",
            f"  store ptr {second}, ptr {start}, align 8",
            f"  {third} = getelementptr i8, ptr %worker, i64 {abi.WORKER_CAPACITY}",
            f"  {fourth} = load i64, ptr {third}, align 8",
            f"  store i64 {fourth}, ptr {capacity}, align 8",
        ]

    def start(self) -> str:
        """Return the address of the record buffer."""
        return self._f.assign(f"load ptr, ptr {self._variables()[0]}, align 8")

    def address(self, position: str) -> str:
        return self._f.assign(f"getelementptr i8, ptr {self.start()}, i64 {position}")

    def write(self, start: str, record: Record, operands: list[str]) -> None:
        f = self._f
        suffix = f.kernel.scopes.suffix(None)
        for offset, slots in record.members().items():
            dtype = record.slots[slots[0]]
            stored = pack(f, dtype, [operands[slot] for slot in slots])
            address = f.code.at(start, offset)
            f.emit(f"store {memory_type(f, dtype)} {stored}, ptr {address}, align 1{suffix}")

    def read(self, start: str, record: Record) -> list[str]:
        f, found = self._f, dict[int, str]()
        suffix = f.kernel.scopes.suffix(None)
        for offset, slots in record.members().items():
            dtype = record.slots[slots[0]]
            address = f.code.at(start, offset)
            stored = f.assign(f"load {memory_type(f, dtype)}, ptr {address}, align 1{suffix}")
            found |= zip(slots, unpack(f, dtype, len(slots), stored), strict=True)
        return [found[slot] for slot in range(len(record.slots))]

    def quota(self) -> str:
        f = self._f
        address = f.once("share address", f"getelementptr i8, ptr %worker, i64 {abi.WORKER_SHARE}")
        return f.once("share", f"load i64, ptr {address}, align 8")

    def require(self, nbytes: str, on_failure: Callable[[], None]) -> None:
        """Grow the record buffer to ``nbytes`` or more; run ``on_failure`` if memory is short."""
        f = self._f
        start, capacity = self._variables()
        fits, grow, grown, not_grown = (
            f.fresh_label(hint) for hint in ("fits", "grow", "grown", "on_failure")
        )
        held = f.assign(f"load i64, ptr {capacity}, align 8")
        enough = f.apply("icmp ule", "i64", nbytes, held)
        f.branch_if(enough, fits, grow, likely=True)
        f.start(grow)
        function = f.text.helper("@octants.grow", _grow)
        has_grown = f.assign(f"call i1 {function}(ptr %context, ptr %worker, i64 {nbytes})")
        f.branch_if(has_grown, grown, not_grown, likely=True)
        f.start(not_grown)
        on_failure()
        f.start(grown)
        f.lines += self._reload(start, capacity)
        f.enter(fits)

    def give_up(self, item: str, nbytes: str) -> bool:  # noqa: ARG002
        """Leave the task, unless a lack of memory is a failure at once."""
        f, fails = self._f, self._f.fresh_label("fails")
        function = f.text.helper("@octants.give_up", _give_up)
        ends = f.assign(f"call i1 {function}(ptr %worker, i64 {item})")
        f.branch_if(ends, "return", fails)
        f.start(fails)
        return False


def _grow(_: ModuleText, name: str) -> str:
    """Return a function that grows the record buffer to so many bytes, and tells whether it did.

    It is a function since large kernels have many calls of it, which take long to compile inline.
    """
    return f"""\
define internal i1 {name}(ptr %context, ptr %worker, i64 %bytes) cold noinline nounwind {{
  %place = getelementptr i8, ptr %context, i64 {abi.CONTEXT_GROW}
  %function = load ptr, ptr %place, align 8
  %new = call ptr %function(ptr %context, ptr %worker, i64 %bytes)
  %has_grown = icmp ne ptr %new, null
  ret i1 %has_grown
}}
"""


def _give_up(_: ModuleText, name: str) -> str:
    """Return a function that ends a work item, and tells whether it can be retried."""
    return f"""\
define internal i1 {name}(ptr %worker, i64 %item) cold noinline nounwind {{
  %last = getelementptr i8, ptr %worker, i64 {abi.WORKER_LAST}
  %is_last = load i64, ptr %last, align 8
  %ends = icmp eq i64 %is_last, 0
  br i1 %ends, label %note, label %leave
note:
  %items = getelementptr i8, ptr %worker, i64 {abi.WORKER_ITEM}
  store i64 %item, ptr %items, align 8
  %failed = getelementptr i8, ptr %worker, i64 {abi.WORKER_FAILED}
  store i64 1, ptr %failed, align 8
  br label %leave
leave:
  ret i1 %ends
}}
"""


def pack(f: FunctionText, dtype: DType, operands: list[str]) -> str:
    """Return an operand as it is stored; truth values become the bits of a byte."""
    stored = to_memory(f, dtype, operands[0])
    for bit, operand in enumerate(operands[1:], 1):
        stored = f.apply("or", "i8", stored, f.choose(operand, "i8", 1 << bit, 0))
    return stored


def unpack(f: FunctionText, dtype: DType, count: int, stored: str) -> list[str]:
    """Return the operand of a stored number, or its truth values."""
    if count == 1:
        return [from_memory(f, dtype, stored)]
    bits = [f.apply("and", "i8", stored, 1 << bit) for bit in range(count)]
    return [from_memory(f, dtype, single) for single in bits]
