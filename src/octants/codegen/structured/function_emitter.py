"""A function of a kernel under construction, and the operand of each value.

The operand of a constant is the constant. An operand has the type of its value; an f16 is an f32
with the same value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from octants.artifact import Slot
from octants.cached_property import cached_property
from octants.codegen.adjacent_loads import Pieces, find_local_rows
from octants.codegen.function_emitter import Lanes, RecordBuffer
from octants.codegen.instruction_writer import MutableSlot, Operand, ThreadCode
from octants.codegen.instruction_writer import register as register
from octants.codegen.interleaved_record_buffer import ThreadRecordBuffer
from octants.codegen.kernel_context import KernelContext
from octants.diagnostics.vulkan_errors import NotOnThisArch
from octants.ir import ops
from octants.ir.core import Array, ArrayRef, Block, Companion, Module, Operation, Space, Value
from octants.types.scalars import DType, i32, i64, u64

Handler = Callable[[Any, Any], Any]
HandlerTable = dict[type[Any], Handler]


class StructuredKernel(KernelContext):
    """The context of a kernel for a machine with structured control flow."""

    def __init__(self, module: Module, *, fast_math: bool = False) -> None:
        super().__init__(module)
        self.fast_math = fast_math
        self.constants = ops.constants_in(module)


class StructuredFunction:
    """One function of a kernel: its code, and the operands of values.

    ``item`` is the number of the work item, ``lower`` that of the first one of the launch, both
    i64; `leave` ends the work item.
    """

    def __init__(
        self, kernel: StructuredKernel, code: ThreadCode, table: HandlerTable, task: int = 0
    ) -> None:
        self.kernel = kernel
        self.code = code
        self.table = table
        self.task = task
        self.item: Operand = code.constant(0, i64)
        self.lower: Operand = code.constant(0, i64)
        self.message_item: Operand | None = None  # the work item that messages name, if another one
        self.lanes: Lanes | None = None
        self.collected: dict[
            Operation, tuple[MutableSlot, MutableSlot]
        ] = {}  # see `codegen.per_thread_reductions`
        self.shared_arrays: dict[ArrayRef, Any] = {}  # see `block_shared_copies`
        self.uses_copy: dict[ArrayRef, Operand] = {}
        self.subgroup_copies: set[ArrayRef] = set()
        self.shared_updates: set[Operation] = set()
        self.update_groups: dict[Operation, Any] = {}  # see `cooperation.find_groups`
        self.products: dict[Operation, Any] = {}  # the `SumsOfProducts` of such groups
        self.restartable: set[Operation] = set()
        self.reserved: set[Operation] = set()  # pushes whose space is reserved
        self.writers: dict[tuple[str, DType], Callable[..., Operand]] = {}
        self.loaded: dict[Operation, Operand] = {}  # see `vector_loads`
        self.pieces: Pieces = {}
        self._operands: dict[Value, Operand] = {}
        self._local_arrays: dict[Any, Any] = {}

    # -- values ---------------------------------------------------------------------------------

    def bind(self, value: Value, operand: Operand) -> None:
        """Set the operand of a value."""
        self._operands[value] = operand

    def use(self, value: Value) -> Operand:
        """Return the operand of a value."""
        return self._operands[value]

    def has(self, value: Value) -> bool:
        """Return whether the value has an operand yet."""
        return value in self._operands

    def number(self, value: float, dtype: DType) -> Operand:
        return self.code.constant(value, dtype)

    def zero(self, value: Value) -> Operand:
        """Return zero, of the register type of a value."""
        return self.code.constant(0.0 if value.type.is_float else 0, register(value.type))

    def local_array(self, key: Any, dtype: DType, count: int) -> Any:
        """Return an array in memory of the work item, one for each key."""
        if key not in self._local_arrays:
            if isinstance(key, ArrayRef) and key in self.indexed_vectors:
                count = self.code.elements_in_memory(count)
            is_row = self.code.loads_four_words and key in self.local_rows
            make = self.code.local_array_of_fours if is_row else self.code.local_array
            self._local_arrays[key] = make(dtype, count)
        return self._local_arrays[key]

    @cached_property
    def indexed_vectors(self) -> set[ArrayRef]:
        """The local vectors with indices that are known at run time only."""
        return {
            op.ref
            for op in self.kernel.module.tasks[self.task].body.walk()
            if isinstance(op, ops.Access) and op.array.space is Space.LOCAL
            if not self.kernel.constants.keys() >= set(op.indices)
        }

    @cached_property
    def local_rows(self) -> set[ArrayRef]:
        """The local vectors of which loops load four elements at once."""
        return find_local_rows(self.kernel.module.tasks[self.task], self.kernel.constants)

    def has_address(self, local: ArrayRef) -> bool:  # noqa: ARG002
        """Return whether an array of the work item has an address: variables have none."""
        return False

    def variable(self, value: Value) -> MutableSlot:
        """Declare a variable for a value."""
        return self.code.variable(register(value.type))

    # -- code -----------------------------------------------------------------------------------

    def block(self, block: Block) -> list[Operand]:
        """Write the operations of a block, and return the operands that it yields."""
        for op in block.ops:
            self.operation(op)
        return [self._operands[value] for value in block.yielded]

    def inlined(self, block: Block, operands: Sequence[Operand]) -> list[Operand]:
        """Write a block's operations for given arguments, and return what it yields."""
        self._operands.update(zip(block.args, operands, strict=True))
        return self.block(block)

    def operation(self, op: Operation) -> None:
        """Write an operation."""
        handler = self.table.get(type(op))
        if handler is None:
            raise NotOnThisArch(op.NAME).at(op.location)
        self.code.note(op.location)
        handler(self, op)

    def leave(self) -> None:
        """End the work item."""
        self.code.leave()

    def if_active(self, write: Callable[[], object]) -> None:
        """Write code that runs only if the work item has not ended."""
        write()

    def condition(self, op: Operation, make: Callable[[], Operand]) -> Operand:  # noqa: ARG002
        """Compute a loop's condition at the start of an iteration."""
        return make()

    def may_end_in(self, op: Operation) -> bool:  # noqa: ARG002
        """Return whether loops check, besides their condition, that the item has not ended."""
        return False

    # -- short names for common instructions ----------------------------------------------------

    def add(self, a: Operand, b: Operand, dtype: DType = i64) -> Operand:
        """Return a + b; a constant zero takes no instruction."""
        if self.code.known(a) == 0:
            return b
        return a if self.code.known(b) == 0 else self.code.apply("add", dtype, a, b)

    def times(self, a: Operand, factor: int, dtype: DType = i64) -> Operand:
        """Return an integer times a constant."""
        known = self.code.known(a)
        if known is not None:
            return self.number(known * factor, dtype)
        return a if factor == 1 else self.code.apply("mul", dtype, a, self.number(factor, dtype))

    def wide(self, value: Value) -> Operand:
        """Return an integer as an i64."""
        operand, known = self.use(value), self.code.known(self.use(value))
        if known is not None:
            return self.number(known, i64)
        return self.code.convert(operand, value.type, i64)

    def index(self, value: Value) -> Operand:
        """Return an index as an i64."""
        return self.wide(value)

    def widen(self, index: Operand) -> Operand:
        """Extend an i32 index, or a term of one, to i64."""
        return self.code.convert(index, i32, i64)

    # -- launch parameters ----------------------------------------------------------------------

    def parameter(self, offset: int, dtype: DType) -> Operand:
        """Load from the parameter block; it does not change during a launch."""
        code = self.code
        word = code.pushed_parameter(offset)
        if word is not None:
            return word

        def make() -> Operand:
            address = self.add(code.parameters(), self.number(offset, u64), u64)
            return code.load(address, dtype)

        return code.hoisted(("parameter", offset, dtype), make)

    def launch_constant(self, name: str) -> Operand:
        """Return the launch's "seed", or its number ("launch"), u64."""
        return self.system(name)

    def item_number(self) -> Operand:
        """Return the number of the work item, i64."""
        return self.item

    def first_item(self) -> Operand:
        """Return the first work item of the launch, i64."""
        return self.lower

    @cached_property
    def record_buffer(self) -> RecordBuffer:
        """The memory of records."""
        return ThreadRecordBuffer(self)

    def item_quota(self, nbytes: Operand) -> Operand:
        """Return the quota of a work item: all of the record buffer."""
        return nbytes

    def messages(self) -> Operand:
        """Return the address of the launch's message buffer."""
        return self.system("messages")

    def system(self, name: str) -> Operand:
        """Load a system slot: messages, seed, launch; u64."""
        return self.parameter(self.kernel.offset(Slot("system", name)), u64)

    def pointer(self, array: Array, companion: Companion) -> Operand:
        """Return the address of an array's first element."""
        return self.parameter(self.kernel.pointer_offset(array, companion), u64)

    def extent(self, array: Array, axis: int) -> Operand:
        """Return the extent of an axis of an ndarray, i64."""
        return self.parameter(self.kernel.shape_offset(array, axis), i64)

    def stride(self, array: Array, companion: Companion, index: int) -> Operand:
        """Return the bytes between neighbours along an axis of a strided array, i64."""
        return self.parameter(self.kernel.stride_offset(array, companion, index), i64)
