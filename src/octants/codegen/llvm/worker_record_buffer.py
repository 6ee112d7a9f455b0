"""The record buffer of a CPU worker: a stack that grows on demand.

Its address and its capacity are in variables, which the optimiser keeps in registers.
"""

from __future__ import annotations

from collections.abc import Callable

from octants import abi
from octants.artifact import MessageFormat, Slot
from octants.codegen import messages
from octants.codegen.function_emitter import RecordBuffer
from octants.codegen.llvm.function_text import FunctionText
from octants.codegen.llvm.math_functions import finished
from octants.codegen.llvm.memory_formats import from_memory, memory_type, to_memory
from octants.codegen.message_formats import shortened
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

    def require(
        self, nbytes: str, message: MessageFormat, retried: Callable[[], str] | None = None
    ) -> None:
        """Call a function where the record buffer is too small.

        It grows it, or reports that it cannot: large kernels have many such calls, which take long
        to compile in line.
        """
        f = self._f
        start, capacity = self._variables()
        fits, grow = f.fresh_label("fits"), f.fresh_label("grow")
        held = f.assign(f"load i64, ptr {capacity}, align 8")
        enough = f.apply("icmp ule", "i64", nbytes, held)
        f.branch_if(enough, fits, grow, likely=True)
        f.start(grow)
        number = f.kernel.add_message(shortened(message))
        operands = [f"i64 {nbytes}", f"i32 {number}", f"i64 {messages.item_of(f)}"]
        name = f"@octants.grow.{f.kernel.offset(_MESSAGES)}.{f.task}.{f.items_at_once}"
        if retried is not None:
            name += ".retry"
            operands.append(f"i64 {retried()}")
        f.text.helper(name, lambda _, name: _grow(f, name, retries=retried is not None))
        given = ", ".join(["ptr %context", "ptr %worker", "ptr %parameters", *operands])
        found = f.assign(f"call {_GROWN} {name}({given})")
        values = [f.assign(f"extractvalue {_GROWN} {found}, {k}") for k in range(3)]
        f.emit(f"store ptr {values[0]}, ptr {start}, align 8")
        f.emit(f"store i64 {values[1]}, ptr {capacity}, align 8")
        has_grown = f.apply("icmp eq", "i8", values[2], 0)
        if retried is None or f.exit == _END:
            f.branch_if(has_grown, fits, f.exit, likely=True)
        else:
            refused = f.fresh_label("refused")
            f.branch_if(has_grown, fits, refused, likely=True)
            f.start(refused)
            f.branch_if(f.apply("icmp eq", "i8", values[2], 1), f.exit, _END)
        f.start(fits)


_MESSAGES = Slot("system", "messages")
_GROWN = "{ ptr, i64, i8 }"
"""The record buffer, its capacity, and whether it has 0 grown, 1 failed, or 2 ends for a retry."""
_END = "return"
"""The block that ends a function for all of its work items."""
_TO_GROW = ["ptr %context", "ptr %worker", "ptr %parameters", "i64 %bytes", "i32 %message"]
_REFUSED = f"""\
refused:
  %last = getelementptr i8, ptr %worker, i64 {abi.WORKER_LAST}
  %is_last = load i64, ptr %last, align 8
  %ends = icmp eq i64 %is_last, 0
  br i1 %ends, label %note, label %fails
note:
  %items = getelementptr i8, ptr %worker, i64 {abi.WORKER_ITEM}
  store i64 %retried, ptr %items, align 8
  %failed = getelementptr i8, ptr %worker, i64 {abi.WORKER_FAILED}
  store i64 1, ptr %failed, align 8
  br label %leave"""


def _grow(f: FunctionText, name: str, *, retries: bool) -> str:
    """Return a function that grows the record buffer to so many bytes, or ends the work item.

    Without more memory it has the runtime retry, if it may and a retry can get more, or fails.
    """
    inner = FunctionText(f.kernel, f.machine, f.scalar_table, f.task)
    inner.message_item = "%item"
    inner.start("start")
    place = inner.code.at("%context", abi.CONTEXT_GROW)
    function = inner.assign(f"load ptr, ptr {place}, align 8")
    new = inner.assign(f"call ptr {function}(ptr %context, ptr %worker, i64 %bytes)")
    has_grown = inner.assign(f"icmp ne ptr {new}, null")
    inner.branch_if(has_grown, "leave", "refused" if retries else "fails")
    if retries:
        inner.lines.append(_REFUSED)
    inner.start("fails")
    need = inner.assign(f"udiv i64 %bytes, {f.items_at_once}")
    messages.report_failure(inner, "%message", [need])
    inner.branch("leave")
    inner.start("leave")
    noted = ", [ 2, %note ]" if retries else ""
    values = [
        inner.assign(f"load ptr, ptr {inner.code.at('%worker', abi.WORKER_RECORD_BUFFER)}"),
        inner.assign(f"load i64, ptr {inner.code.at('%worker', abi.WORKER_CAPACITY)}"),
    ]
    struct = "poison"
    for position, value in enumerate(zip(("ptr", "i64", "i8"), [*values, "%state"], strict=True)):
        struct = inner.assign(f"insertvalue {_GROWN} {struct}, {' '.join(value)}, {position}")
    line = inner.lines.index("leave:") + 1
    inner.lines.insert(line, f"  %state = phi i8 [ 0, %start ], [ 1, %fails ]{noted}")
    parameters = ", ".join([*_TO_GROW, "i64 %item", *["i64 %retried"] * retries])
    head = f"define internal {_GROWN} {name}({parameters}) cold noinline nounwind"
    return finished(inner, head, f"ret {_GROWN} {struct}")


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
