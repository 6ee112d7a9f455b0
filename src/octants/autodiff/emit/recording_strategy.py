"""The interface of the strategies to record a loop: whole, in blocks, in fixed-length blocks.

They are `loop_recording.WholeLoop`, `loop_recording.LoopInBlocks` and
`fixed_length_blocks.LoopInFixedLengthBlocks`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from octants.autodiff.emit.records import RecordStack
from octants.ir.core import Operation, Record, Value


class Iterations(Protocol):
    """The iterations of one loop, as the backward sweep reverses them from their records."""

    def reverse(
        self,
        first: Value,
        count: Value,
        frames: Sequence[Value],
        adjoints: list[Value],
        remainder: tuple[Record, Value] | None = None,
    ) -> list[Value]:
        """Reverse consecutive iterations whose records are in the record buffer.

        Args:
            first: the number of the first iteration (i64).
            count: how many there are (i64).
            frames: the ends of the loop's frames, if it has frames (`stored_loops`).
            adjoints: the adjoints after the last iteration, of carried values and captured values.
            remainder: the record and its base, if the iterations are not in the loop's own record.

        Returns:
            The adjoints before the first iteration.
        """

    def in_separate_code(self) -> AbstractContextManager[None]:
        """Reverse some iterations inside the context, before other code reverses the others."""


class Strategy(ABC):
    """How one loop is recorded and reversed; the defaults are for loops without stored loops."""

    in_blocks = True

    @abstractmethod
    def record(self, stack: RecordStack) -> None:
        """Emit the loop with its records."""

    @abstractmethod
    def reverse(self, iterations: Iterations, adjoints: list[Value]) -> list[Value]:
        """Emit the reverse of the loop."""

    def facts_if_stored(self, _count: Value, _stack: RecordStack, /) -> dict[str, Value]:
        """The further facts of the loop (`PrimalValues`), given that its records are stored."""
        return {}

    @abstractmethod
    def furthest_end(self, start: Value, count: Value, stored: Value | None) -> Value:
        """The furthest position at which the records of the loop end.

        Args:
            start: where they begin (i64, bytes).
            count: the trip count (i64).
            stored: the bytes of the loops that may be stored with this one.

        Returns:
            The position (i64, bytes).
        """

    def ends_unless_stored(
        self, ends: dict[Operation, Value], _stored: Value, /
    ) -> dict[Operation, Value]:
        """The high-water marks of inner loops, given how many bytes are stored with this loop."""
        return ends
