"""The interfaces of a function under construction, for the code generation that targets share.

`codegen.llvm.function.FunctionText` and `codegen.structured.function.StructuredFunction` implement
`FunctionEmitter`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from octants.codegen.code import Code, Operand, Pointer, ThreadCode
from octants.ir.core import Array, ArrayRef, Block, Companion, Operation, Record, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType


class TapeMemory(ABC):
    """The memory of a work item's records, by positions in bytes."""

    def stride(self, record: Record) -> int:
        """The bytes that one iteration takes."""
        return record.stride

    @abstractmethod
    def address(self, position: Operand) -> Pointer:
        """The address of an iteration that begins at a position (i64)."""

    @abstractmethod
    def write(self, start: Pointer, record: Record, operands: list[Operand]) -> None:
        """Store what stands in the slots of an iteration at an address."""

    @abstractmethod
    def read(self, start: Pointer, record: Record) -> list[Operand]:
        """Load what stands in the slots of an iteration at an address."""

    @abstractmethod
    def share(self) -> Operand:
        """The bytes (i64) that the records of the worker's items should take."""

    @abstractmethod
    def require(self, nbytes: Operand, refused: Callable[[], None]) -> None:
        """Have room for positions below ``nbytes`` (i64); ``refused`` writes what happens else.

        A position gone wrong counts as a very large one.
        """

    @abstractmethod
    def give_up(self, item: Operand, nbytes: Operand) -> bool:
        """End a work item that has changed nothing, so that it can run again with more memory.

        If that is not all, what follows in the current block is for when there will be no more, and
        this gives False.
        """


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lane of a thread, and how many lanes of its subgroup have work items; both u32."""

    own: Operand
    count: Operand


class FunctionEmitter(Protocol):
    """The code of a function, what stands for each value, and its work item.

    ``speaks_of`` is the work item (i64) that messages name, if it is not that of the function;
    ``collected`` are the variables to which updates go, see `register_reductions`.
    """

    kernel: Any
    task: int
    speaks_of: Operand | None
    collected: dict[Operation, tuple[Any, Any]]
    reserved: set[Operation]
    restartable: set[Operation]
    table: dict[type[Any], Callable[[Any, Any], Any]]
    writers: dict[tuple[str, DType], Callable[..., Operand]]
    """What writes each function of a type that has been used; see `arithmetic.combine`."""

    @property
    def code(self) -> Code:
        """Writes the instructions."""

    def has(self, value: Value) -> bool:
        """Whether the value is defined by now."""

    def use(self, value: Value) -> Operand:
        """What stands for a value."""

    def bind(self, value: Value, operand: Operand) -> None:
        """Say what stands for a value."""

    def inlined(self, block: Block, operands: Sequence[Operand]) -> list[Operand]:
        """Write the operations of a block for given arguments; what stands for what it yields."""

    def launch_state(self, name: str) -> Operand:
        """The "seed", or the number ("launch"), of the launch, u64."""

    def wide(self, value: Value) -> Operand:
        """An integer as an i64."""

    def index(self, value: Value) -> Operand:
        """An index, i32 or i64, as an i64."""

    def widen(self, index: Operand) -> Operand:
        """An i32 that an index is, or a part of one, as an i64."""

    def pointer(self, array: Array, companion: Companion) -> Pointer:
        """The address of an array's first element."""

    def extent(self, array: Array, axis: int) -> Operand:
        """The extent of an axis of an ndarray, i64."""

    def stride(self, array: Array, companion: Companion, index: int) -> Operand:
        """The bytes between neighbours along an index of a strided array, i64."""

    def scalar_offset(self, array: Array) -> int:
        """The byte of an argument's first component in the parameter block."""

    def operation(self, op: Operation) -> None:
        """Write an operation."""

    def item_number(self) -> Operand:
        """The number of the work item, i64."""

    @property
    def tape(self) -> TapeMemory:
        """Where records are kept."""

    def share(self, nbytes: Operand) -> Operand:
        """What of so many bytes (i64) of the tape is one work item's."""

    def local_array(self, key: Any, dtype: DType, count: int) -> Any:
        """An array of the function's own, there once for each key."""

    def messages(self) -> Pointer:
        """The address of the launch's message buffer."""

    def leave(self) -> None:
        """End the work item."""

    def if_active(self, write: Callable[[], object]) -> None:
        """Write what only happens while the item goes on, behind what may have ended it."""


class ThreadFunction(FunctionEmitter, Protocol):
    """A function of a thread of a GPU.

    ``lanes`` are those of its subgroup, ``shared_arrays`` what blocks have copies of.
    """

    lanes: Lanes | None
    shared_arrays: dict[ArrayRef, Any]

    @property
    def code(self) -> ThreadCode:
        """Writes the instructions."""

    def first_item(self) -> Operand:
        """The first work item of the launch, i64."""
