"""What launches that record ask of a device: steps, and tapes."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol


class Step(Protocol):
    """A dispatch that is loaded: what it is told, and how it is launched.

    It has `fill` blocks of `block` threads where it fills the GPU; blocks of `least_block` can be
    had as well. `words` are those of `abi`.
    """

    @property
    def fill(self) -> int: ...

    @property
    def block(self) -> int: ...

    @property
    def least_block(self) -> int: ...

    @property
    def words(self) -> Any: ...

    def launch_as(self, blocks: int, block: int) -> None:
        """Launch so many blocks of so many threads."""


class Tape(Protocol):
    """Memory that holds the tapes of all threads, and what is told of refused work items.

    `lock` is held by a launch from its first thread to its last look.
    """

    @property
    def lock(self) -> AbstractContextManager[bool]: ...

    @property
    def address(self) -> int: ...

    def reserve(self, nbytes: int) -> bool:
        """Have so many bytes for tapes; False if they are refused."""

    def expect(self, items: int) -> int:
        """The address of room for what is told of so many work items, all of it zero."""

    def nothing_refused(self, items: int) -> int:
        """The same address, for a launch of which no work item can be refused."""

    def trust(self, kernel: str) -> None:
        """Such a launch of a kernel is queued, of which that is true if versions of memory are."""

    def adopt(self, told: int, items: int) -> tuple[int, int]:
        """Take over what is told elsewhere of refused items: as `expect`, and then `refused`.

        Gives the address of that, and the most bytes that one of them needs.
        """

    def refused(self) -> tuple[int, int]:
        """(the most bytes that one needs, how many were refused), when what was launched is done.

        Both are zero again afterwards.
        """

    def first_refused(self) -> int:
        """The place of the first work item that is refused, counted from the lower bound."""

    def read_bounds(self, address: int) -> tuple[int, int]:
        """The bounds that what was launched has left at an address."""

    def write_bounds(self, address: int, lower: int, upper: int) -> None:
        """Tell bounds to what is launched next; the one before it must be done."""
