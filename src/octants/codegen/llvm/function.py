"""The text of one LLVM function while it is written, and what stands for each value.

One work item is one run of the code. What a value looks like in LLVM is known to `type`, `bind`,
`use` and `literal` here and to nobody else, so that work items can become lanes of vectors.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from octants.analysis.privatisation import Sums
from octants.artifact import Slot
from octants.codegen.code import Code
from octants.codegen.function import TapeMemory
from octants.codegen.llvm import literals as names
from octants.codegen.llvm.module import KernelText
from octants.codegen.llvm.select_chains import Chains
from octants.ir.core import Array, ArrayRef, Block, Companion, Operation, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType, i32, i64

Handler = Callable[[Any, Any], Any]
HandlerTable = dict[type[Any], Handler]


class Machine(ABC):
    """What differs between the machines that LLVM generates code for."""

    has_half = True
    """Whether LLVM converts between `half` and `float` by instructions."""

    has_fused = True
    """Whether there is an instruction that multiplies and adds, and rounds once."""

    reciprocal_root: RootEstimate | None = None
    """What there is to estimate 1 / sqrt(x) of f32."""

    has_functions = False
    """Whether work that is there in many places may be moved into functions."""

    guessed: frozenset[str] = frozenset()
    """Functions that `quick` knows whose rare ways it leaves out where `doubts` are noted."""

    usual = 0.0
    """Operands of them that are less in size do not need a rare way."""

    function_sums = 8
    """How many sums can be made while one of them is found."""

    def quick(self, f: FunctionText, fn: str, operands: list[str]) -> str | None:  # noqa: ARG002
        """A function of f32 by what the machine has for it, where `fast_math` allows that."""
        return None

    @abstractmethod
    def poll(self, f: FunctionText) -> None:
        """Leave the work item if the launch shall end; called in each turn of long loops."""

    @abstractmethod
    def code(self, f: FunctionText) -> Code:
        """What targets share, over a function."""

    @abstractmethod
    def tape(self, f: FunctionText) -> TapeMemory:
        """Where the work items of a function keep their records."""


@dataclass(frozen=True, slots=True)
class RootEstimate:
    """A rough value that a machine has: `write` gives it for a vector of so many lanes.

    That is 4 lanes at least, `longest` at most; where the latter is 1, it takes a number, and gives
    what is taken as it is. ``bits`` of it are right. A `total` one is good for subnormal numbers,
    and exact where the result is zero, infinite, or NaN.
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

    ``item`` is the number of the work item, as an operand of type ``item_type``; what ends a work
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
        self.speaks_of: str | None = None  # another work item, for messages; i64
        self.exit = "return"
        self.lines: list[str] = []
        self.entry: list[str] = []  # done once, before everything else
        self.label = "entry"
        self.is_open = True  # whether the current block has not ended
        self.reserved: set[Operation] = set()  # pushes for which there is room already
        self.restartable: set[Operation] = set()  # see `recording_facts.restartable`
        self.chains = Chains()
        self.scalar_table = table  # what writes functions of one work item
        self.collected: dict[Operation, tuple[Any, Any]] = {}  # see `register_reductions`
        self.sums = Sums()  # the targets to which it adds plainly; see `sums`
        self.parts: dict[ArrayRef, str] = {}  # where it does so; see `local_arrays`
        self.shared = "true"  # whether it has to add atomically after all
        self.is_copied = False  # whether what is written now will be there for each turn of a loop
        self.quick_turns: set[Operation] = set()  # loops that run four turns at a time
        self.doubts: list[str] | None = None  # where rare ways are left out: what was to be true
        self.series: Any = None  # how functions are computed then for which there are instructions
        self.writers: dict[tuple[str, DType], Callable[..., str]] = {}
        self._names: dict[Value, str] = {}
        self._once: dict[Any, str] = {}
        self._local_arrays: dict[Any, Any] = {}
        self._count = 0

    @functools.cached_property
    def code(self) -> Code:
        """Writes what several targets share."""
        return self.machine.code(self)

    @functools.cached_property
    def tape(self) -> TapeMemory:
        """Where records are kept."""
        return self.machine.tape(self)

    # -- values ---------------------------------------------------------------------------------

    def type(self, dtype: DType) -> str:
        """The LLVM type of a value in a register."""
        return names.REGISTER[dtype]

    def bind(self, value: Value, operand: str) -> None:
        """Say what stands for a value."""
        self._names[value] = operand

    def use(self, value: Value) -> str:
        """What stands for a value."""
        return self._names[value]

    def is_one(self, value: Value) -> bool:  # noqa: ARG002
        """Whether a value is one number here, and not one for each lane."""
        return True

    def has(self, value: Value) -> bool:
        """Whether the value is defined by now."""
        return value in self._names

    def literal(self, value: Any, dtype: DType) -> str:
        return names.literal(value, dtype)

    # -- code -----------------------------------------------------------------------------------

    def emit(self, instruction: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {instruction}")

    def assign(self, instruction: str) -> str:
        """Append an instruction; gives its result."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    # -- pure instructions: of operands that may be lanes of vectors elsewhere -------------------

    def apply(self, instruction: str, type: str, *operands: str | int) -> str:
        """An instruction whose operands have one type: arithmetic, or a comparison."""
        return self.assign(f"{instruction} {type} {', '.join(map(str, operands))}")

    def choose(self, condition: str, type: str, on_true: str | int, on_false: str | int) -> str:
        """The first operand where the condition holds, else the second."""
        return self.assign(f"select i1 {condition}, {type} {on_true}, {type} {on_false}")

    def convert(self, instruction: str, source: str, operand: str, target: str) -> str:
        """An operand of one type as another."""
        return self.assign(f"{instruction} {source} {operand} to {target}")

    def widen(self, index: str) -> str:
        """An index, an i32, as an i64."""
        return self.convert("sext", "i32", index, "i64")

    def wide(self, value: Value) -> str:
        """An integer as an i64."""
        return str(self.code.convert(self.use(value), value.type, i64))

    def index(self, value: Value) -> str:
        """An index, i32 or i64, as an i64."""
        operand = self.use(value)
        return self.widen(operand) if value.type is i32 and operand[0] == "%" else operand

    def item_number(self) -> str:
        """The number of the work item, i64."""
        if self.item_type == "i64":
            return self.item
        return self.convert("sext", self.item_type, self.item, "i64")

    def call(
        self, name: str, result: str, operands: Sequence[tuple[str, str]], attribute: str = ""
    ) -> str:
        """A function without effects, of operands with their types."""
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
        """A function of LLVM's; its name ends in the types ``overloads``, if not in its result's.

        With ``flag`` it has another operand, an i1 that is false.
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
        """Begin a block; the one before must have ended."""
        self.label = label
        self.lines.append(f"{label}:")
        self.is_open = True

    def branch(self, label: str) -> None:
        self.lines.append(f"  br label %{label}")
        self.is_open = False

    def leave(self) -> None:
        """End the work item."""
        self.branch(self.exit)

    def if_active(self, write: Callable[[], object]) -> None:
        """Write what follows something that may have ended the work item: it has left by then."""
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
        """Branch on an i1; whether the first way is nearly always taken, or hardly ever.

        ``hint`` is more metadata, with a comma before it.
        """
        self.is_open = False
        weights = f", !prof {self.text.likely}" if likely else ""
        weights = f", !prof {self.text.unlikely}" if unlikely else weights
        self.lines.append(f"  br i1 {condition}, label %{then}, label %{otherwise}{weights}{hint}")

    def open_phi(self, type: str) -> Phi:
        """A phi at this place, to be completed by `close_phi`."""
        self._count += 1
        self.lines.append("")
        return Phi(f"%v{self._count}", type, len(self.lines) - 1, [])

    def close_phi(self, phi: Phi) -> None:
        incoming = ", ".join(f"[ {value}, %{label} ]" for value, label in phi.incoming)
        self.lines[phi.line] = f"  {phi.name} = phi {phi.type} {incoming}"

    def once(self, key: Any, instruction: str) -> str:
        """The result of an instruction of the entry block, which is there once for each key."""
        known = self._once.get(key)
        if known is None:
            self._count += 1
            known = self._once[key] = f"%e{self._count}"
            self.entry.append(f"  {known} = {instruction}")
        return known

    def operation(self, op: Operation) -> None:
        """Write an operation."""
        self.table[type(op)](self, op)

    def block(self, block: Block) -> list[str]:
        """The operations of a block; gives what stands for the values that it yields."""
        table, filled = self.table, self.chains.filled
        for each in filled.get(block, ()):
            table[type(each)](self, each)
        for op in block.ops:
            table[type(op)](self, op)
            for each in filled.get(op, ()):
                table[type(each)](self, each)
        return [self._names[value] for value in block.yielded]

    def inlined(self, block: Block, operands: Sequence[str]) -> list[str]:
        """The operations of a block for given arguments; what stands for what it yields."""
        self._names.update(zip(block.args, operands, strict=True))
        return self.block(block)

    def launch_state(self, name: str) -> str:
        """The "seed", or the number ("launch"), of the launch, i64."""
        return self.system(name, "i64")

    def begin_item(self, index: Value, end: str) -> None:  # noqa: ARG002
        """Bind the index in a turn of the loop over the work items, which ends before ``end``."""
        self.bind(index, self.item)

    def next_item(self, end: str, flags: str) -> tuple[str, str]:
        """At the end of such a turn: the next work item, and whether there is one.

        ``flags`` are those of an addition to its number.
        """
        following = self.assign(f"add {flags} {self.item_type} {self.item}, 1")
        return following, self.assign(f"icmp slt {self.item_type} {following}, {end}")

    # -- what a launch gives --------------------------------------------------------------------

    def parameter(self, offset: int, type: str, key: str = "") -> str:
        """What the parameter block holds at an offset: it never changes during a launch."""
        address = self.once(("slot", offset), f"getelementptr i8, ptr %parameters, i64 {offset}")
        load = f"load {type}, ptr {address}, align 8, !invariant.load {self.text.empty}"
        return self.once(("parameter", offset, type), load + key)

    def system(self, name: str, type: str) -> str:
        """A slot of the system: messages, seed, launch."""
        return self.parameter(self.kernel.offset(Slot("system", name)), type)

    def pointer(self, array: Array, companion: Companion) -> str:
        """The address of an array's first element, or of what stands for it in a part."""
        part = self.parts.get(ArrayRef(array, companion))
        if part is not None:
            return part
        return self.parameter(self.kernel.pointer_offset(array, companion), "ptr")

    def scalar_offset(self, array: Array) -> int:
        """The byte of an argument's first component in the parameter block."""
        return self.kernel.scalar_offset(array)

    def extent(self, array: Array, axis: int) -> str:
        """The extent of an axis of an ndarray, i64."""
        return self.parameter(self.kernel.shape_offset(array, axis), "i64")

    def stride(self, array: Array, companion: Companion, index: int) -> str:
        """The bytes between neighbours along an index of a strided array, i64."""
        return self.parameter(self.kernel.stride_offset(array, companion, index), "i64")

    def local_array(self, key: Any, dtype: DType, count: int) -> Any:
        """An array of the function's own, there once for each key."""
        if key not in self._local_arrays:
            self._local_arrays[key] = self.code.local_array(dtype, count)
        return self._local_arrays[key]

    def messages(self) -> str:
        """The address of the launch's message buffer."""
        return self.system("messages", "ptr")

    def context(self, offset: int) -> str:
        """The address of a word of the launch's context."""
        return self.once(("context", offset), f"getelementptr i8, ptr %context, i64 {offset}")

    def share(self, nbytes: str) -> str:
        """What of so many bytes of a tape is one work item's."""
        return nbytes
