"""What the steps of a loop have launched, so that one that is not the same each time is found out.

For each step the kernels and host writes are noted, and the integers that are passed. For the first
step after a snapshot also the floats, and what arrays of numpy and torch hold that no kernel
writes: a variable of Python that steps change has another value whenever a snapshot is returned to.
"""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from octants.diagnostics.checkpoint_errors import StepIsAnother
from octants.launch.specialisation import Specialisation
from octants.launch.taped_memory import TapedMemory

_CLOSE = 1e-3
"""How far floats may be apart: the sum of a parallel loop differs a little from run to run."""


class Launches:
    """What one run of a step has launched; with more detail if it `is_first` after a snapshot."""

    def __init__(self, *, is_first: bool = False) -> None:
        self.is_first = is_first
        self.events: list[str] = []
        self.integers: list[int] = []
        self.floats: list[float] = []
        self.strangers: list[tuple[TapedMemory, bytes]] = []


class Trace:
    """What every step has launched, and the run that is under way.

    While it is `paused`, nothing is noted. `written` are the keys of the arrays of others that
    kernels have written.
    """

    def __init__(self) -> None:
        self.paused = 0
        self.now = Launches()
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
        """Note a launch, and the positions of the arrays that it writes."""
        for position in written:
            if memories[position].is_foreign:
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
            strangers = [memory for memory in memories.values() if memory.is_foreign]
            now.strangers += [(memory, memory.digest()) for memory in strangers]

    def event(self, what: str) -> None:
        """Note something else."""
        if not self.paused:
            self.now.events.append(what)

    def compare(self, step: int, first: Launches | None) -> None:
        """A step has run: keep what it has launched, or compare it with the first time.

        ``first`` is the first run where that is known in detail.
        """
        kind, integers = tuple(self.now.events), hash(tuple(self.now.integers))
        if step == len(self._kind):
            self._kind.append(self._kinds.setdefault(kind, len(self._kinds)))
            self._integers.append(integers)
            return
        if self._kinds.get(kind) != self._kind[step]:
            known = next(kind for kind, k in self._kinds.items() if k == self._kind[step])
            raise StepIsAnother(step, _words(known), _words(kind)).at(None)
        if self._integers[step] != integers:
            before = first.integers if first is not None else "other integers"
            raise _passed(step, before, self.now.integers)
        if first is not None:
            self._compare_details(step, first)

    def _compare_details(self, step: int, first: Launches) -> None:
        now = self.now
        if not _are_close(first.floats, now.floats):
            raise _passed(step, first.floats, now.floats)
        for (memory, before), (again, after) in zip(first.strangers, now.strangers, strict=False):
            if before != after and not {memory.key, again.key} & self.written:
                raise _passed(step, f"`{memory.name}`", "it with other contents")


def _passed(step: int, first: Any, again: Any) -> Exception:
    """The error for other arguments."""
    first, again = (f"passed {what} to its kernels" for what in (first, again))
    return StepIsAnother(step, first, again).at(None)


def _words(kind: tuple[str, ...]) -> str:
    """Events as words."""
    groups = [(name, len(list(group))) for name, group in itertools.groupby(kind)]
    names = (name + f" {count} times" * (count > 1) for name, count in groups)
    return f"launched {', '.join(names) or 'nothing'}"


def _are_close(first: list[float], again: list[float]) -> bool:
    """Whether floats are the same up to rounding; what is not finite tells nothing."""
    scale = max(map(abs, filter(math.isfinite, (*first, *again))), default=0.0)
    return len(first) == len(again) and all(
        math.isclose(one, other, rel_tol=_CLOSE, abs_tol=1e-6 * scale)
        or not (math.isfinite(one) and math.isfinite(other))
        for one, other in zip(first, again, strict=True)
    )
