"""The text of one LLVM function under construction, and the operand of each value.

One run of the code is one work item. Only `type`, `bind`, `use` and `literal` know what a value
looks like in LLVM, so that a subclass can make work items lanes of vectors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

from octants.analysis.sums.privatisation import PrivatisedSums
from octants.artifact import Slot
from octants.cached_property import cached_property
from octants.codegen.function_emitter import RecordBuffer
from octants.codegen.instruction_writer import Code
from octants.codegen.llvm import types_and_literals as names
from octants.codegen.llvm.module_text import KernelText
from octants.ir.core import Array, ArrayRef, Block, Companion, Operation, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType, i32, i64

Handler = Callable[[Any, Any], Any]
HandlerTable = dict[type[Any], Handler]


class Machine(ABC):
    """The differences between machines that LLVM generates code for."""

    has_half = True
    """Whether LLVM converts between `half` and `float` by instructions."""

    has_fused = True
    """Whether there is a fused multiply-add."""

    reciprocal_root: RootEstimate | None = None
    """The machine's estimate of 1 / sqrt(x) of f32."""

    quotient: Callable[[FunctionText, str, str], str] | None = None
    """The writer of `approximate_div` of f32; None if the machine has no instruction for it."""

    stack_space = 0
    """The address space of memory on the stack; 0 is the one of pointers without a space."""

    atomic_facts = ""
    """Metadata of atomic sums of floats: what is known of the memory."""

    vector_bits = 0
    """The size of its widest vectors."""

    estimates: ClassVar[Mapping[str, Callable[[FunctionText, str], str]]] = {}
    """The writers of those of `ir.ops.arithmetic.ESTIMATES` that the machine has."""

    has_mxcsr = False
    """Whether it has the control register of SSE."""

    def quick(self, f: FunctionText, fn: str, operands: list[str]) -> str | None:  # noqa: ARG002
        """Write a function of f32 by an instruction of the machine, if `fast_math` allows one."""
        return None

    @abstractmethod
    def poll(self, f: FunctionText) -> None:
        """Leave the work item if the launch is interrupted; long loops call this."""

    @abstractmethod
    def code(self, f: FunctionText) -> Code:
        """Return the instruction writer of a function."""

    @abstractmethod
    def record_buffer(self, f: FunctionText) -> RecordBuffer:
        """Return the record buffer of a function's work items."""


@dataclass(frozen=True, slots=True)
class RootEstimate:
    """An estimate of a reciprocal root: `write` writes it for a vector of so many lanes.

    It takes 4 to `longest` lanes. If `longest` is 1 it takes a number, and its result needs no
    refinement. ``bits`` of it are right. A `total` estimate is valid for subnormal numbers, and
    exact where the result is zero, infinite, or NaN.
    """

    write: Callable[[FunctionText, int, str], str]
    longest: int
    bits: int
    total: bool


@dataclass(slots=True)
class Phi:
    """A phi whose incoming values are not all known yet."""

    name: str
    type: str
    line: int
    incoming: list[tuple[str, str]]


class FunctionText:
    """Lines of code, the current block's label, and names.

    ``item`` is the number of the work item, an operand of type ``item_type``; code that ends a work
    item early branches to the block ``exit``. `order` is the memory order of atomic operations.
    """

    order = "monotonic"

    def __init__(
        self, kernel: KernelText, machine: Machine, table: HandlerTable, task: int
    ) -> None:
        self.kernel = kernel
        self.text = kernel.text
        self.machine = machine
        self.table = table
        self.task = task
        self.item, self.item_type = "0", "i64"
        self.message_item: str | None = None  # the work item that messages name; i64
        self.exit = "return"
        self.lines: list[str] = []
        self.entry: list[str] = []  # hoisted code, before everything else
        self.label = "entry"
        self.is_open = True  # whether the current block has not ended
        self.reserved: set[Operation] = set()  # pushes whose space is reserved
        self.restartable: set[Operation] = set()  # see `recording_facts.restartable`
        self.normal_roots: set[Value] = set()  # see `analysis.floats.subnormals.normal_roots`
        self.scalar_table = table  # the handlers of functions of one work item
        self.collected: dict[Operation, tuple[Any, Any]] = {}  # see `codegen.per_thread_reductions`
        self.sums = PrivatisedSums()  # the targets to which it adds plainly; see `privatised_sums`
        self.parts: dict[ArrayRef, str] = {}  # the private copies of arrays; see `local_arrays`
        self.shared = "true"  # whether it must add atomically after all
        self.in_slow_path = False  # whether what is being written is seldom run
        self.in_unrolled_loop = False  # whether the loop being written will be unrolled
        self.outside_loops: Collection[Block] = ()  # see `work_item_loop.outside_loops`
        self.is_outside_loops = False  # whether one of these blocks is being written
        self.interleaved_loops: set[Operation] = set()  # four iterations run at a time
        self.loaded: dict[Operation, str] = {}  # see `codegen.vector_loads`
        self.pieces: dict[Operation, Any] = {}  # likewise
        self.writers: dict[tuple[str, DType], Callable[..., str]] = {}
        self._names: dict[Value, str] = {}
        self._once: dict[Any, str] = {}
        self._local_arrays: dict[Any, Any] = {}
        self._count = 0

    @cached_property
    def code(self) -> Code:
        """The instruction writer."""
        return self.machine.code(self)

    @cached_property
    def record_buffer(self) -> RecordBuffer:
        """The memory of records."""
        return self.machine.record_buffer(self)

    # -- values ---------------------------------------------------------------------------------

    def type(self, dtype: DType) -> str:
        """Return the LLVM type of a value in a register."""
        return names.REGISTER[dtype]

    def bind(self, value: Value, operand: str) -> None:
        """Set the operand of a value."""
        self._names[value] = operand

    def use(self, value: Value) -> str:
        """Return the operand of a value."""
        return self._names[value]

    def has(self, value: Value) -> bool:
        """Return whether the value has an operand yet."""
        return value in self._names

    def literal(self, value: Any, dtype: DType) -> str:
        return names.literal(value, dtype)

    # -- code -----------------------------------------------------------------------------------

    def emit(self, instruction: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {instruction}")

    def assign(self, instruction: str) -> str:
        """Append an instruction, and return its result."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    # -- pure instructions: subclasses accept vectors -------------------------------------------

    def apply(self, instruction: str, type: str, *operands: str | int) -> str:
        """Apply arithmetic or a comparison to operands of one type."""
        return self.assign(f"{instruction} {type} {', '.join(map(str, operands))}")

    def choose(self, condition: str, type: str, on_true: str | int, on_false: str | int) -> str:
        """Return the first operand where the condition holds, else the second."""
        return self.assign(f"select i1 {condition}, {type} {on_true}, {type} {on_false}")

    def convert(self, instruction: str, source: str, operand: str, target: str) -> str:
        """Convert an operand from one type to another."""
        return self.assign(f"{instruction} {source} {operand} to {target}")

    def widen(self, index: str) -> str:
        """Extend an i32 index to i64."""
        return self.convert("sext", "i32", index, "i64")

    def wide(self, value: Value) -> str:
        """Return an integer as an i64."""
        return str(self.code.convert(self.use(value), value.type, i64))

    def index(self, value: Value) -> str:
        """Return an index, i32 or i64, as an i64."""
        operand = self.use(value)
        return self.widen(operand) if value.type is i32 and operand[0] == "%" else operand

    def item_number(self) -> str:
        """Return the number of the work item, i64."""
        if self.item_type == "i64":
            return self.item
        return self.convert("sext", self.item_type, self.item, "i64")

    def call(
        self, name: str, result: str, operands: Sequence[tuple[str, str]], attribute: str = ""
    ) -> str:
        """Call a pure function; each operand is a (type, operand) pair."""
        arguments = ", ".join(f"{kind} {operand}" for kind, operand in operands)
        return self.assign(f"call {result} {name}({arguments}){attribute}")

    def intrinsic(
        self,
        name: str,
        result: str,
        operands: Sequence[tuple[str, str]],
        *,
        flag: bool = False,
        overloads: Sequence[str] = (),
    ) -> str:
        """Call an intrinsic.

        Args:
            name: Its name without `llvm.` and types.
            result: The type of its result.
            operands: (type, operand) pairs.
            flag: Pass a last operand, an i1 that is false.
            overloads: The types that end its name, if not that of the result.

        Returns:
            The result.
        """
        name = "@llvm." + ".".join([name, *map(names.suffix, overloads or [result])])
        types = [kind for kind, _ in operands] + ["i1"] * flag
        self.text.declare(name, result, ", ".join(types))
        return self.call(name, result, [*operands, *[("i1", "false")] * flag])

    # -- blocks -----------------------------------------------------------------------------------

    def fresh_label(self, hint: str) -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def start(self, label: str) -> None:
        """Begin a block; the previous one must have ended."""
        self.label = label
        self.lines.append(f"{label}:")
        self.is_open = True

    def branch(self, label: str, *, hint: str = "") -> None:
        self.lines.append(f"  br label %{label}{hint}")
        self.is_open = False

    def enter(self, label: str) -> None:
        """Branch to a block, and begin it."""
        self.branch(label)
        self.start(label)

    def leave(self) -> None:
        """End the work item."""
        self.branch(self.exit)

    def if_active(self, write: Callable[[], object]) -> None:
        """Write code behind an operation that may have ended the work item: it has left by then."""
        write()

    def branch_if(
        self,
        condition: str,
        then: str,
        otherwise: str,
        *,
        likely: bool = False,
        unlikely: bool = False,
        hint: str = "",
    ) -> None:
        """Branch on an i1.

        Args:
            condition: The i1.
            then: The block if it is true.
            otherwise: The block if it is false.
            likely: Whether it is nearly always true.
            unlikely: Whether it hardly ever is.
            hint: More metadata, with a comma before it.
        """
        self.is_open = False
        weights = f", !prof {self.text.likely}" if likely else ""
        weights = f", !prof {self.text.unlikely}" if unlikely else weights
        self.lines.append(f"  br i1 {condition}, label %{then}, label %{otherwise}{weights}{hint}")

    def open_phi(self, type: str, *incoming: tuple[str, str]) -> Phi:
        """Open a phi here, with the values and labels known so far; `close_phi` completes it."""
        self._count += 1
        self.lines.append("")
        return Phi(f"%v{self._count}", type, len(self.lines) - 1, list(incoming))

    def close_phi(self, phi: Phi, *incoming: tuple[str, str]) -> None:
        """Complete a phi with the last of its values and their labels."""
        pairs = ", ".join(f"[ {value}, %{label} ]" for value, label in (*phi.incoming, *incoming))
        self.lines[phi.line] = f"  {phi.name} = phi {phi.type} {pairs}"

    def phi(self, type: str, *incoming: tuple[str, str]) -> str:
        """Return a value that depends on the preceding basic block."""
        opened = self.open_phi(type, *incoming)
        self.close_phi(opened)
        return opened.name

    def shape(self, value: Value) -> str:
        """Return the LLVM type of a value's operand."""
        return self.type(value.type)

    def join(self, values: Sequence[Value], *ways: tuple[Sequence[str], str]) -> list[str]:
        """Return operands of values behind a join, given the operands and the label of each way."""
        columns = ([(operands[k], label) for operands, label in ways] for k in range(len(values)))
        return [
            self.phi(self.shape(value), *incoming)
            for value, incoming in zip(values, columns, strict=True)
        ]

    def bind_joined(self, values: Sequence[Value], *ways: tuple[Sequence[str], str]) -> None:
        """Set the operands of values behind a join; see `join`."""
        for value, operand in zip(values, self.join(values, *ways), strict=True):
            self.bind(value, operand)

    def once(self, key: Any, instruction: str) -> str:
        """Return the result of an instruction of the entry block, written once for each key."""
        known = self._once.get(key)
        if known is None:
            self._count += 1
            known = self._once[key] = f"%e{self._count}"
            self.entry.append(f"  {known} = {instruction}")
        return known

    def on_stack(self, key: Any, type: str, alignment: int) -> str:
        """The address of memory of the function, which is there once for each key."""
        space = self.machine.stack_space
        memory = self.once(key, f"alloca {type}, align {alignment}{_in_space(space)}")
        if not space:
            return memory
        return self.once((key, "generic"), f"addrspacecast ptr addrspace({space}) {memory} to ptr")

    def operation(self, op: Operation) -> None:
        """Write an operation."""
        self.table[type(op)](self, op)

    def block(self, block: Block) -> list[str]:
        """Write the operations of a block, and return the operands that it yields."""
        table = self.table
        outer, self.is_outside_loops = self.is_outside_loops, block in self.outside_loops
        for op in block.ops:
            table[type(op)](self, op)
        self.is_outside_loops = outer
        return [self._names[value] for value in block.yielded]

    def inlined(self, block: Block, operands: Sequence[str]) -> list[str]:
        """Write a block's operations for given arguments, and return what it yields."""
        self._names.update(zip(block.args, operands, strict=True))
        return self.block(block)

    def launch_constant(self, name: str) -> str:
        """Return the launch's "seed", or its number ("launch"), i64."""
        return self.system(name, "i64")

    def begin_item(self, index: Value, end: str) -> None:  # noqa: ARG002
        """Bind the index in an iteration of the loop over work items, which ends before ``end``."""
        self.bind(index, self.item)

    def item_body(self, body: Block) -> None:
        """Write the body in such an iteration."""
        self.block(body)

    def end_items(self) -> None:
        """Write what follows the last iteration."""

    def next_item(self, end: str, flags: str) -> tuple[str, str]:
        """Return the next work item, and whether there is one, at the end of such an iteration.

        ``flags`` are those of an addition to its number.
        """
        following = self.assign(f"add {flags} {self.item_type} {self.item}, 1")
        return following, self.assign(f"icmp slt {self.item_type} {following}, {end}")

    # -- launch parameters ----------------------------------------------------------------------

    def parameter(self, offset: int, type: str, key: str = "") -> str:
        """Load from the parameter block; it does not change during a launch."""
        address = self.once(("slot", offset), f"getelementptr i8, ptr %parameters, i64 {offset}")
        load = f"load {type}, ptr {address}, align 8, !invariant.load {self.text.empty}"
        return self.once(("parameter", offset, type), load + key)

    def system(self, name: str, type: str) -> str:
        """Load a system slot: messages, seed, launch."""
        return self.parameter(self.kernel.offset(Slot("system", name)), type)

    def pointer(self, array: Array, companion: Companion) -> str:
        """Return the address of an array's first element, or of its private copy."""
        part = self.parts.get(ArrayRef(array, companion))
        if part is not None:
            return part
        return self.parameter(self.kernel.pointer_offset(array, companion), "ptr")

    def extent(self, array: Array, axis: int) -> str:
        """Return the extent of an axis of an ndarray, i64."""
        return self.parameter(self.kernel.shape_offset(array, axis), "i64")

    def stride(self, array: Array, companion: Companion, index: int) -> str:
        """Return the bytes between neighbours along an axis of a strided array, i64."""
        return self.parameter(self.kernel.stride_offset(array, companion, index), "i64")

    def local_array(self, key: Any, dtype: DType, count: int) -> Any:
        """Return an array in memory of the work item, one for each key."""
        if key not in self._local_arrays:
            self._local_arrays[key] = self.code.local_array(dtype, count)
        return self._local_arrays[key]

    def has_address(self, local: ArrayRef) -> bool:
        """Return whether an array of the work item has an address; see `local_arrays`."""
        return local in self.parts

    def messages(self) -> str:
        """Return the address of the launch's message buffer."""
        return self.system("messages", "ptr")

    def context(self, offset: int) -> str:
        """Return the address of a word of the launch's context."""
        return self.once(("context", offset), f"getelementptr i8, ptr %context, i64 {offset}")

    def item_quota(self, nbytes: str) -> str:
        """Return one work item's quota of so many bytes of the record buffer."""
        return nbytes


def _in_space(space: int) -> str:
    return f", addrspace({space})" if space else ""
