"""Traces the launches of checkpointed steps, to detect a step that is not repeatable.

Each step is traced by its kernels, host writes and integer arguments. The first step after a
snapshot is also traced by its float arguments and by the contents of arrays that others may write,
untracked, and no kernel writes: a Python variable that steps change has another value whenever the
loop returns to a snapshot.
"""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from octants.diagnostics.checkpoint_errors import StepChanged
from octants.launch.gradients.taped_memory import TapedMemory
from octants.launch.specialisation import Specialisation

_CLOSE = 1e-3
"""Relative tolerance for floats: the sum of a parallel loop differs a little between runs."""


class StepEvents:
    """The launches of one run of a step, in more detail if it `is_first` after a snapshot."""

    def __init__(self, *, is_first: bool = False) -> None:
        self.is_first = is_first
        self.events: list[str] = []
        self.integers: list[int] = []
        self.floats: list[float] = []
        self.untracked: list[tuple[TapedMemory, bytes]] = []


class Trace:
    """The launches of every step, and the run in progress.

    Nothing is traced while `paused` is not 0. `written` holds the keys of the arrays with untracked
    writes that kernels have written.
    """

    def __init__(self) -> None:
        self.paused = 0
        self.now = StepEvents()
        self.kernels: set[Any] = set()
        self.written: set[Any] = set()
        self._kinds: dict[tuple[str, ...], int] = {}
        self._kind = array("q")
        self._integers = array("q")

    def launch(
        self,
        specialisation: Specialisation,
        arguments: tuple[Any, ...],
        memories: Mapping[int, TapedMemory],
        written: Iterable[int],
    ) -> None:
        """Trace a launch.

        Args:
            specialisation: the kernel.
            arguments: its arguments.
            memories: its arrays, by position.
            written: the positions of the arrays that it writes.
        """
        for position in written:
            if memories[position].is_untracked:
                self.written.add(memories[position].key)
        if self.paused:
            return
        now = self.now
        now.events.append(f"`{specialisation.signature.kernel}`")
        self.kernels.add(specialisation.kernel)
        for value in arguments:
            if isinstance(value, (int, np.integer)):
                now.integers.append(int(value))
            elif now.is_first and isinstance(value, (float, np.floating)):
                now.floats.append(float(value))
        if now.is_first:
            untracked = [memory for memory in memories.values() if memory.is_untracked]
            now.untracked += [(memory, memory.digest()) for memory in untracked]

    def event(self, what: str) -> None:
        """Trace an event that is not a launch."""
        if not self.paused:
            self.now.events.append(what)

    def compare(self, step: int, first: StepEvents | None) -> None:
        """End the run of a step: keep its trace, or compare it with that of its first run.

        Args:
            step: the number of the step.
            first: the detailed trace of its first run, if there is one.

        Raises:
            OctantsRuntimeError: the traces differ.
        """
        kind, integers = tuple(self.now.events), hash(tuple(self.now.integers))
        if step == len(self._kind):
            self._kind.append(self._kinds.setdefault(kind, len(self._kinds)))
            self._integers.append(integers)
            return
        if self._kinds.get(kind) != self._kind[step]:
            known = next(kind for kind, k in self._kinds.items() if k == self._kind[step])
            raise StepChanged(step, _words(known), _words(kind)).at()
        if self._integers[step] != integers:
            before = first.integers if first is not None else "other integers"
            raise _passed(step, before, self.now.integers)
        if first is not None:
            self._compare_details(step, first)

    def _compare_details(self, step: int, first: StepEvents) -> None:
        now = self.now
        if not _are_close(first.floats, now.floats):
            raise _passed(step, first.floats, now.floats)
        for (memory, before), (again, after) in zip(first.untracked, now.untracked, strict=False):
            if before != after and not {memory.key, again.key} & self.written:
                raise _passed(step, f"`{memory.name}`", f"`{memory.name}` with other contents")


def _passed(step: int, first: Any, again: Any) -> Exception:
    """The error for changed arguments."""
    first, again = (f"passed {what} to its kernels" for what in (first, again))
    return StepChanged(step, first, again).at()


def _words(kind: tuple[str, ...]) -> str:
    """Events in words."""
    groups = [(name, len(list(group))) for name, group in itertools.groupby(kind)]
    names = (name + f" {count} times" * (count > 1) for name, count in groups)
    return f"launched {', '.join(names) or 'nothing'}"


def _are_close(first: list[float], again: list[float]) -> bool:
    """Whether floats are equal up to rounding, ignoring those that are not finite."""
    scale = max(map(abs, filter(math.isfinite, (*first, *again))), default=0.0)
    return len(first) == len(again) and all(
        math.isclose(one, other, rel_tol=_CLOSE, abs_tol=1e-6 * scale)
        or not (math.isfinite(one) and math.isfinite(other))
        for one, other in zip(first, again, strict=True)
    )
