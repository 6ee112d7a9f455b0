"""The interfaces of a function under construction, for the code generation that targets share.

`codegen.llvm.function_text.FunctionText` and
`codegen.structured.function_emitter.StructuredFunction` implement `FunctionEmitter`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from octants.codegen.instruction_writer import Code, Operand, Pointer, ThreadCode
from octants.ir.core import Array, ArrayRef, Block, Companion, Operation, Record, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType


class RecordBuffer(ABC):
    """The memory of a work item's records, addressed by positions in bytes."""

    def stride(self, record: Record) -> int:
        """Return the bytes that one iteration takes."""
        return record.stride

    @abstractmethod
    def address(self, position: Operand) -> Pointer:
        """Return the address of an iteration that begins at a position (i64)."""

    @abstractmethod
    def write(self, start: Pointer, record: Record, operands: list[Operand]) -> None:
        """Store the slots of an iteration at an address."""

    @abstractmethod
    def read(self, start: Pointer, record: Record) -> list[Operand]:
        """Load the slots of an iteration from an address."""

    @abstractmethod
    def quota(self) -> Operand:
        """Return the bytes (i64) that records of a worker's items should take at most."""

    @abstractmethod
    def require(self, nbytes: Operand, on_failure: Callable[[], None]) -> None:
        """Ensure capacity for positions below ``nbytes`` (i64); ``on_failure`` writes the failure
        path.

        A negative position counts as a very large one.
        """

    @abstractmethod
    def give_up(self, item: Operand, nbytes: Operand) -> bool:
        """End a work item that has changed nothing, so that it can be retried with more memory.

        Returns:
            True if it always ends there. Else the code that follows in the current block is for the
                case in which a retry gets no more memory.
        """


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lane of a thread, and how many lanes of its subgroup have work items; both u32."""

    index: Operand
    count: Operand


class FunctionEmitter(Protocol):
    """A function of a kernel under construction: its code, the operands of values, its work item.

    ``message_item`` is the work item (i64) that messages name, if it is not that of the function.
    ``collected`` has the variables of reductions, see `per_thread_reductions`.
    """

    kernel: Any
    task: int
    message_item: Operand | None
    collected: dict[Operation, tuple[Any, Any]]
    reserved: set[Operation]
    restartable: set[Operation]
    table: dict[type[Any], Callable[[Any, Any], Any]]
    writers: dict[tuple[str, DType], Callable[..., Operand]]
    """The writers of the functions used so far, by type; see `arithmetic.combine`."""

    @property
    def code(self) -> Code:
        """The instruction writer."""

    def has(self, value: Value) -> bool:
        """Return whether the value has an operand yet."""

    def use(self, value: Value) -> Operand:
        """Return the operand of a value."""

    def bind(self, value: Value, operand: Operand) -> None:
        """Set the operand of a value."""

    def inlined(self, block: Block, operands: Sequence[Operand]) -> list[Operand]:
        """Write a block's operations for given arguments; return the operands that it yields."""

    def launch_constant(self, name: str) -> Operand:
        """Return the launch's "seed", or its number ("launch"), u64."""

    def wide(self, value: Value) -> Operand:
        """Return an integer as an i64."""

    def index(self, value: Value) -> Operand:
        """Return an index, i32 or i64, as an i64."""

    def widen(self, index: Operand) -> Operand:
        """Extend an i32 index, or a term of one, to i64."""

    def pointer(self, array: Array, companion: Companion) -> Pointer:
        """Return the address of an array's first element."""

    def extent(self, array: Array, axis: int) -> Operand:
        """Return the extent of an axis of an ndarray, i64."""

    def stride(self, array: Array, companion: Companion, index: int) -> Operand:
        """Return the bytes between neighbours along an axis of a strided array, i64."""

    def operation(self, op: Operation) -> None:
        """Write an operation."""

    def item_number(self) -> Operand:
        """Return the number of the work item, i64."""

    @property
    def record_buffer(self) -> RecordBuffer:
        """The memory of records."""

    def item_quota(self, nbytes: Operand) -> Operand:
        """Return one work item's quota of ``nbytes`` (i64) of the record buffer."""

    def local_array(self, key: Any, dtype: DType, count: int) -> Any:
        """Return an array in memory of the work item, one for each key."""

    def has_address(self, local: ArrayRef) -> bool:
        """Return whether an array of the work item has an address; it is an `Element` if not."""

    def messages(self) -> Pointer:
        """Return the address of the launch's message buffer."""

    def leave(self) -> None:
        """End the work item."""

    def if_active(self, write: Callable[[], object]) -> None:
        """Write code that runs only if the work item has not ended."""


class ThreadFunction(FunctionEmitter, Protocol):
    """A function of a GPU thread.

    ``lanes`` describes its subgroup; ``shared_arrays`` has the arrays of its block. Those that not
    every launch uses are in ``uses_copy``, with whether this one does (see `block_shared_copies`);
    those of which each subgroup has its own are in ``subgroup_copies``.
    ``update_groups`` has the last update of each `sum_groups.SumGroup` with its group, and None for
    the others. `products` has the `sums_of_products.SumsOfProducts` of those that exchange factors.
    ``loaded`` and ``pieces`` are those of `vector_loads`.
    """

    lanes: Lanes | None
    update_groups: dict[Operation, Any]
    products: dict[Operation, Any]
    shared_arrays: dict[ArrayRef, Any]
    uses_copy: dict[ArrayRef, Operand]
    subgroup_copies: set[ArrayRef]
    loaded: dict[Operation, Operand]
    pieces: dict[Operation, Any]

    @property
    def code(self) -> ThreadCode:
        """The instruction writer."""

    def first_item(self) -> Operand:
        """Return the first work item of the launch, i64."""
