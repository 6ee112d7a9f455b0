"""Collects the gradients of by-value arguments, for the kernels that the tape was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octants.ad.tapes.tape_entries import LaunchEntry, TapeEntry
from octants.diagnostics.graph_errors import ArgumentGradientsOfSegments
from octants.diagnostics.tape_errors import ArgumentGradientsNotRequested
from octants.launch.kernel import BoundKernel, Kernel
from octants.launch.persistent_storage import PersistentStorage, argument_gradients
from octants.launch.specialisation import Specialisation
from octants.lazy_dataclass import dataclass


@dataclass(frozen=True)
class _RequestedKernel:
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

    def is_of(self, requested: _RequestedKernel) -> bool:
        if self.specialisation.kernel is not requested.kernel:
            return False
        return not requested.is_bound or self.arguments[0] is requested.owner


class ArgumentGradients:
    """The kernels for which a tape computes argument gradients, and their launches in order.

    Args:
        requested: the kernels; True for all.
        adjoints: how many adjoints the tape propagates.
    """

    def __init__(self, requested: Any, adjoints: int = 1) -> None:
        self._adjoints = adjoints
        self._all = requested is True
        self._requested: list[_RequestedKernel] = []
        if requested is not True and requested is not False:
            several = requested if isinstance(requested, (list, tuple)) else [requested]
            self._requested = [_as_requested(kernel) for kernel in several]
        self._launches: list[_Launch] = []

    def wants(self, kernel: Any) -> bool:
        """Whether the gradients of the arguments of a kernel were requested."""
        if not self._requested:
            return self._all
        return any(requested.kernel is kernel for requested in self._requested)

    def collect(self, entries: Sequence[TapeEntry]) -> None:
        """Remember the launches that are about to be reversed, each once."""
        if not self._all and not self._requested:
            return
        found = {
            entry.number: _Launch(entry.specialisation, entry.arguments, entry.persistent)
            for entry in entries
            if isinstance(entry, LaunchEntry) and self.wants(entry.specialisation.kernel)
        }
        self._launches = list(found.values())

    def gradients_of(self, kernel: Any) -> list[dict[str, Any]]:
        """The gradients of the arguments of each launch of a kernel, by parameter name.

        Raises:
            OctantsRuntimeError: the tape was not asked for them.
        """
        requested = _as_requested(kernel)
        if not self.wants(requested.kernel):
            raise ArgumentGradientsNotRequested(requested.kernel.name).at()
        return [
            argument_gradients(launch.specialisation, launch.persistent, self._adjoints)
            for launch in self._launches
            if launch.is_of(requested)
        ]


def _as_requested(kernel: Any) -> _RequestedKernel:
    if isinstance(kernel, BoundKernel):
        requested = _RequestedKernel(kernel.kernel, kernel.owner, is_bound=True)
    elif isinstance(kernel, Kernel):
        requested = _RequestedKernel(kernel)
    else:
        raise TypeError(f"argument_gradients: {kernel!r} is not a kernel")
    if requested.kernel.runs_in_segments:
        raise ArgumentGradientsOfSegments(requested.kernel.name).at()
    return requested
