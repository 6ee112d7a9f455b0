"""Reverse mode over several launches: ``with qd.ad.Tape(loss=loss): ...``."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from octants import driver
from octants.ad.arguments import freeze
from octants.ad.check import GradientCheck
from octants.ad.clearing import clear_gradients as clear
from octants.ad.cuts import Cuts
from octants.ad.entries import Entry, HostEntry, LaunchEntry
from octants.ad.ledger import Content, Ledger
from octants.ad.losses import Loss, make_losses
from octants.analysis.regions import Region
from octants.data.events import HostWrite, forget_observer, observe_writes
from octants.diagnostics.tape_errors import NestedTape, OverwrittenUnderTape, TapeIsUsed
from octants.ir.core import Companion
from octants.launch.gradient import Outside, merge_aliases, tape_plan
from octants.launch.memory import (
    Memory,
    aliases_of,
    memories_of,
    memory_of_write,
    region_of_write,
)
from octants.launch.specialisation import Specialisation

if TYPE_CHECKING:
    from typing_extensions import Self

ON_OVERWRITE = ("save", "error")


class Tape:
    """Records the launches in its body and, at the end, propagates the adjoints of a loss back.

    ``with Tape(loss=loss):`` sets the loss to zero and, with `clear_gradients`, all gradients of
    fields and ndarrays of ours; then the body runs. At its end ``loss.grad`` is set to one and the
    recorded launches are reversed, last first. If the body raises, nothing is reversed.

    `loss` is a field or an ndarray of one element, a kernel that returns a float (launched once in
    the body), or a list of these; without one, the adjoints that the body has set are propagated.
    Arrays may be overwritten: what a reverse run needs is saved before, and put back for it;
    afterwards all arrays are as the body left them. With ``on_overwrite="error"`` such a write is
    an error instead. A host write (`fill`, ``x[i] = v``, `from_numpy`, `copy_from`) ends the
    adjoints of what it overwrites. `grad_check` lists arrays whose gradients are compared with
    central differences. `validation` is accepted: there is no data access rule to be validated.
    """

    def __init__(
        self,
        loss: Any = None,
        clear_gradients: bool = True,
        validation: bool = False,
        grad_check: Sequence[Any] | None = None,
        *,
        on_overwrite: str = "save",
    ) -> None:
        if on_overwrite not in ON_OVERWRITE:
            raise ValueError(f"on_overwrite is one of {ON_OVERWRITE}, not {on_overwrite!r}")
        self.losses: list[Loss] = make_losses(loss)
        self.clear_gradients = clear_gradients
        self.validation = validation
        self.grad_check = list(grad_check or ())
        self._check = GradientCheck(self.grad_check, self.losses) if grad_check else None
        self.on_overwrite = on_overwrite
        self.paused = 0
        self.thread = threading.get_ident()
        self._entries: list[Entry] = []
        self._ledger = Ledger()
        self._touched: set[Any] = set()
        self._cuts = Cuts()
        self._custom: dict[Any, Memory] | None = None
        self._done = False
        self._entered = False

    # -- the context ----------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if driver.state.recorder is not None:
            raise NestedTape().at(None)
        if self._entered:
            raise TapeIsUsed().at(None)
        self._entered = True
        self.thread = threading.get_ident()
        if self.clear_gradients:
            clear(Companion.ADJOINT)
        for loss in self.losses:
            loss.reset()
        driver.state.recorder = self
        observe_writes(self._before_write)
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._stop()
        if kind is None:
            self.grad()

    def _stop(self) -> None:
        if driver.state.recorder is self:
            driver.state.recorder = None
        forget_observer(self._before_write)

    def grad(self) -> None:
        """Propagate the adjoints back; happens by itself at the end of the body, and only once."""
        if self._done:
            return
        self._done = True
        self._stop()
        for loss in self.losses:
            loss.seed(self._entries)
        guard = _BackwardGuard(self._ledger)
        driver.state.recorder = guard
        observe_writes(guard.before_write)
        try:
            for entry in reversed(self._entries):
                entry.reverse(self._ledger)
        finally:
            driver.state.recorder = None
            forget_observer(guard.before_write)
            self._ledger.finish()
            entries, self._entries = self._entries, []
        if self._check is not None:
            self._check.run(entries)

    # -- recording ------------------------------------------------------------------------------

    def launch(self, specialisation: Specialisation, arguments: tuple[Any, ...]) -> Any:
        """Run a launch and remember how to reverse it; those of other threads are only run."""
        memories = memories_of(specialisation, arguments)
        if self.paused or threading.get_ident() != self.thread:
            return self._run_unrecorded(specialisation, arguments, memories)
        self._cuts.see(specialisation, memories)
        specialisation = merge_aliases(specialisation, aliases_of(specialisation, memories))
        plan = tape_plan(specialisation)
        outside = Outside(plan.outside) if plan.outside.size else None
        frozen = freeze(specialisation, arguments)
        number = specialisation.number = next(driver.state.numbers)
        results: tuple[Any, ...] = ()
        if self._check is not None:
            for memory in memories.values():
                self._check.touch(memory)
        for step in plan.steps:
            is_first = step is plan.steps[0]
            entry = LaunchEntry(specialisation, step, frozen, number, outside, is_first=is_first)
            results = entry.run(self, memories)
            self._entries.append(entry)
        self._touched.update(memory.key for memory in memories.values())
        if len(plan.steps) != 1 and outside is not None:
            results = outside.results(specialisation)
        return specialisation.wrap(results) if specialisation.returned else None

    def _run_unrecorded(
        self,
        specialisation: Specialisation,
        arguments: tuple[Any, ...],
        memories: Mapping[int, Memory],
    ) -> Any:
        """Run a launch of which the tape only keeps what it overwrites."""
        position = {array: k for k, array in enumerate(specialisation.module.arrays)}
        for array in specialisation.written:
            self.overwrite(memories[position[array]])
        if self._custom is not None:
            self._custom.update((memory.key, memory) for memory in memories.values())
        return specialisation.run(arguments)

    @contextmanager
    def custom_call(self) -> Iterator[dict[Any, Memory]]:
        """Run launches unrecorded, and collect the memories that they touch."""
        self.paused += 1
        touched: dict[Any, Memory] = {}
        self._custom = touched
        try:
            yield touched
        finally:
            self._custom = None
            self.paused -= 1
            self._touched.update(touched)

    def overwrite(self, memory: Memory, region: Region = None) -> None:
        """Save what is needed of a region before it is written."""
        if self.on_overwrite == "error":
            self._forbid(memory, region)
        self._ledger.overwrite(memory, region)

    def _forbid(self, memory: Memory, region: Region) -> None:
        needed = self._ledger.needed(memory, region)
        if needed is not None:
            raise OverwrittenUnderTape(needed.name).at(None)

    def need(self, memory: Memory, region: Region = None) -> Content:
        """The content of a region as it is now."""
        return self._ledger.need(memory, region)

    def append(self, entry: Entry) -> None:
        """Record something else than a launch."""
        self._entries.append(entry)

    def _before_write(self, write: HostWrite) -> None:
        memory = memory_of_write(write)
        if memory is None:
            return
        if self._check is not None:
            self._check.touch(memory)
        region = region_of_write(write)
        if self.on_overwrite == "error":
            self._forbid(memory, region)
        self._ledger.overwrite_by_host(memory, region)
        if self.paused:
            return
        if not write.region:
            self._cuts.forget(memory)
        touched = memory.key in self._touched
        if touched or write.source is not None or self._check is not None:
            self._entries.append(HostEntry(write, ends=touched))
        if write.source is not None:
            self._touched |= {memory.key, write.source.identity}


class _BackwardGuard:
    """Sees the writes of custom gradients during the backward pass: they are undone at its end."""

    def __init__(self, ledger: Ledger) -> None:
        self.paused = 0
        self._ledger = ledger

    def launch(self, specialisation: Specialisation, arguments: tuple[Any, ...]) -> Any:
        memories = memories_of(specialisation, arguments)
        position = {array: k for k, array in enumerate(specialisation.module.arrays)}
        for array in specialisation.written:
            self._ledger.disturb_if_known(memories[position[array]])
        return specialisation.run(arguments)

    def before_write(self, write: HostWrite) -> None:
        memory = memory_of_write(write)
        if memory is not None:
            self._ledger.disturb_if_known(memory)
