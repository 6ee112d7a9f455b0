"""How a loop is recorded and reversed: what each way to do it offers, and what it is given."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from octants.autodiff.records import Stack
from octants.ir.core import Operation, Record, Value


class Iterations(Protocol):
    """The iterations of one loop, which are reversed from its records."""

    def reverse(
        self,
        first: Value,
        count: Value,
        frames: Sequence[Value],
        adjoints: list[Value],
        rest: tuple[Record, Value] | None = None,
    ) -> list[Value]:
        """Reverse so many iterations from the first one on, whose records are on the stack.

        Gives the adjoints before them of those after them. ``frames`` are the ends of frames, if
        the loop has some. ``rest`` says in which record, and from which base on, the iterations
        are, if that is not the loop's own.
        """

    def once_more(self) -> AbstractContextManager[None]:
        """Reverse iterations meanwhile, after which others are with other code."""


class Strategy(Protocol):
    """How one loop is recorded: see `loop_recording` and `fixed_length_blocks`."""

    in_blocks: bool

    def record(self, stack: Stack) -> None:
        """Emit the loop so that it can be reversed."""

    def reverse(self, iterations: Iterations, adjoints: list[Value]) -> list[Value]:
        """Emit the reverse of the loop."""

    def facts_if_stored(self, count: Value, stack: Stack, /) -> dict[str, Value]:
        """What else is known of the loop than of each, if its records are stored."""

    def furthest_end(self, start: Value, count: Value, stored: Value | None) -> Value:
        """Where the records of so many iterations end at most that begin at a position.

        ``stored`` bytes are those of what may be stored with the loop.
        """

    def ends_unless_stored(
        self, ends: dict[Operation, Value], stored: Value, /
    ) -> dict[Operation, Value]:
        """How far inner loops reach if so many bytes are stored with this one."""
