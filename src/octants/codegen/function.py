"""What code generation that targets share may ask of a function of a kernel while it is written.

`codegen.llvm.function.FunctionText` and `codegen.structured.body.Body` are such functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from octants.codegen.code import Code, Operand, Place
from octants.ir.core import Operation, Value


class Function(Protocol):
    """The code of a function, what stands for each value, and its work item.

    ``speaks_of`` is the work item (i64) that messages name, if it is not that of the function.
    """

    kernel: Any
    task: int
    speaks_of: Operand | None
    reserved: set[Operation]
    restartable: set[Operation]

    @property
    def code(self) -> Code:
        """Writes the instructions."""

    def has(self, value: Value) -> bool:
        """Whether the value is defined by now."""

    def use(self, value: Value) -> Operand:
        """What stands for a value."""

    def bind(self, value: Value, operand: Operand) -> None:
        """Say what stands for a value."""

    def wide(self, value: Value) -> Operand:
        """An integer as an i64."""

    def item_number(self) -> Operand:
        """The number of the work item, i64."""

    def messages(self) -> Place:
        """The address of the launch's message buffer."""

    def leave(self) -> None:
        """End the work item."""

    def if_active(self, write: Callable[[], object]) -> None:
        """Write what only happens while the item goes on, behind what may have ended it."""
