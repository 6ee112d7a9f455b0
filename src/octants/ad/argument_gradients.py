"""Gradients of arguments that are passed by value, for those launches that are asked about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octants.ad.tape_entries import LaunchEntry, TapeEntry
from octants.diagnostics.tape_errors import ArgumentsNotAsked
from octants.launch.kernel import BoundKernel, Kernel
from octants.launch.persistent_storage import PersistentStorage, argument_gradients
from octants.launch.specialisation import Specialisation
from octants.lazy_dataclass import dataclass


@dataclass(frozen=True)
class _Asked:
    """A kernel, or a method of one object."""

    kernel: Any
    owner: Any = None
    is_bound: bool = False


@dataclass(frozen=True)
class _Launch:
    """A launch whose reverse leaves the gradients of the arguments in its persistent storage."""

    specialisation: Specialisation
    arguments: tuple[Any, ...]
    persistent: PersistentStorage | None

    def is_of(self, asked: _Asked) -> bool:
        if self.specialisation.kernel is not asked.kernel:
            return False
        return not asked.is_bound or self.arguments[0] is asked.owner


class ArgumentGradients:
    """Which kernels a tape was asked for, and their launches in order."""

    def __init__(self, asked: Any) -> None:
        self._all = asked is True
        several = asked if isinstance(asked, (list, tuple)) else [asked]
        self._asked = [] if asked in (True, False) else [_as_asked(kernel) for kernel in several]
        self._launches: list[_Launch] = []

    def wants(self, kernel: Any) -> bool:
        """Whether gradients of the arguments of this kernel will be asked for."""
        if not self._asked:
            return self._all
        return any(asked.kernel is kernel for asked in self._asked)

    def collect(self, entries: Sequence[TapeEntry]) -> None:
        """Remember the launches that are about to be reversed, each once."""
        if not self._all and not self._asked:
            return
        found = {
            entry.number: _Launch(entry.specialisation, entry.arguments, entry.persistent)
            for entry in entries
            if isinstance(entry, LaunchEntry) and self.wants(entry.specialisation.kernel)
        }
        self._launches = list(found.values())

    def gradients_of(self, kernel: Any) -> list[dict[str, Any]]:
        """The gradients of the arguments of each launch of a kernel."""
        asked = _as_asked(kernel)
        if not self.wants(asked.kernel):
            raise ArgumentsNotAsked(asked.kernel.name).at(None)
        return [
            argument_gradients(launch.specialisation, launch.persistent)
            for launch in self._launches
            if launch.is_of(asked)
        ]


def _as_asked(kernel: Any) -> _Asked:
    if isinstance(kernel, BoundKernel):
        return _Asked(kernel.kernel, kernel.owner, is_bound=True)
    if not isinstance(kernel, Kernel):
        raise TypeError(f"argument_gradients: {kernel!r} is not a kernel")
    return _Asked(kernel)
