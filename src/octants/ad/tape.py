"""Reverse mode over several launches: ``with qd.ad.Tape(loss=loss): ...``."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from octants import driver, options
from octants.ad.argument_gradients import ArgumentGradients
from octants.ad.clear_gradients import clear_gradients as clear
from octants.ad.fast_path import FastPath, Touched, quick_way
from octants.ad.frozen_arguments import freeze
from octants.ad.gradient_check import GradientCheck
from octants.ad.gradient_ends import GradientEnds, flow_of
from octants.ad.losses import Loss, make_losses
from octants.ad.memory_versions import Content
from octants.ad.overwrite_ledger import MemoryRegion, OverwriteLedger, Phase
from octants.ad.snapshot_report import TapeExplanation
from octants.ad.tape_entries import HostEntry, LaunchEntry, TapeEntry
from octants.ad.untracked_writes import UntrackedWrites
from octants.analysis.index_ranges import ArrayRegion
from octants.data.events import HostWrite, forget_observer, observe_shares, observe_writes
from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.tape_errors import NestedTape, OverwrittenUnderTape, TapeIsUsed
from octants.diagnostics.tracebacks import shortens_tracebacks
from octants.ir.core import Companion
from octants.launch.alias_free import on_own_arrays
from octants.launch.changing_numbers import with_constants
from octants.launch.gradient import TapePlan, differentiable, tape_plan
from octants.launch.persistent_storage import PersistentStorage
from octants.launch.races import check_before_gradient, gradient_check, validate_launch
from octants.launch.specialisation import Specialisation
from octants.launch.taped_memory import (
    TapedMemory,
    memories_of,
    memory_of,
    memory_of_write,
    region_of_write,
)
from octants.runtime.capture import refuse

if TYPE_CHECKING:
    from typing_extensions import Self

ON_OVERWRITE = ("save", "error", "trust")


class Tape:
    """Record the launches in its body; at the end, propagate the adjoints of a loss back.

    ``with Tape(loss=loss):`` sets the loss to zero, and all gradients of fields and ndarrays of
    Octants; then the body runs. At its end ``loss.grad`` is set to one, and the recorded launches
    run in reverse, last first. If the body raises, nothing is reversed. Example:

        with qd.ad.Tape(loss=loss):
            step()
        print(x.grad.to_numpy())

    The body may overwrite arrays: the tape copies what a reverse run needs, restores it for that
    run, and leaves all arrays as the body left them. A host write (`fill`, ``x[i] = v``,
    `from_numpy`, `copy_from`) ends the adjoints of what it overwrites.

    Args:
        loss: a field, an ndarray or a torch tensor of one element, a kernel that returns a float
            and is launched once in the body, or a list of these. Without a loss, the adjoints that
            the body has set are propagated.
        clear_gradients: set all gradients to zero first; otherwise they accumulate.
        validation: check before each reverse run that it reads what the launch read, in arrays of
            every kind: this finds writes through pointers, and trust that was wrong.
        grad_check: arrays whose gradients are compared with central differences.
        seed: the adjoint of the loss, instead of one. With a number for each element, the loss may
            be an array of several elements, or a returned vector. For a list of losses, a list.
        on_overwrite: "save" copies what is overwritten; "error" makes such a write an error;
            "trust" copies nothing, and is right only if the arrays hold at the end what the
            launches read.
        argument_gradients: a kernel, a list of kernels, or True for all, whose launches compute the
            gradients that the method `argument_gradients` returns.

    Raises:
        OctantsRuntimeError: for a wrong loss, within another tape or forward mode, or for an
            untracked write to what is needed.
        OctantsAssertionError: if `validation` or `grad_check` finds a difference.
        OctantsMemoryError: if the copies exceed ``init(ad_snapshot_budget_bytes=...)``.
    """

    _finds_quick_ways = True

    @shortens_tracebacks
    def __init__(
        self,
        loss: Any = None,
        clear_gradients: bool = True,
        validation: bool = False,
        grad_check: Sequence[Any] | None = None,
        *,
        seed: Any = None,
        on_overwrite: str = "save",
        argument_gradients: Any = False,
    ) -> None:
        if on_overwrite not in ON_OVERWRITE:
            raise ValueError(f"on_overwrite is one of {ON_OVERWRITE}, not {on_overwrite!r}")
        self.losses: list[Loss] = make_losses(loss, seed)
        self.clear_gradients = clear_gradients
        self.validation = validation
        self.grad_check = list(grad_check or ())
        self._check = GradientCheck(self.grad_check, self.losses) if grad_check else None
        self.on_overwrite = on_overwrite
        self.paused = 0
        self.thread = threading.get_ident()
        self._watch = ArgumentGradients(argument_gradients)
        self._entries: list[TapeEntry] = []
        self._ledger = OverwriteLedger(
            saves=on_overwrite != "trust",
            validates=validation,
            budget=driver.snapshot_budget(),
        )
        self._touched: set[Any] = set()
        self._cuts = GradientEnds()
        self._unseen = UntrackedWrites()
        self._custom: dict[Any, TapedMemory] | None = None
        self._is_simple = self._finds_quick_ways and not validation and self._check is None
        self._launches = 0
        self._ways: dict[Specialisation, FastPath] = {}
        self._done = False
        self._entered = False

    @property
    def snapshot_bytes(self) -> int:
        """The bytes that the tape has copied of what was overwritten."""
        return self._ledger.saved_bytes

    def explain(self) -> TapeExplanation:
        """What the tape has copied so far, in the body or after it: what, how much, and why.

        Returns:
            A table when printed; as data, `saved` has an entry for each array, the kernel that was
            about to overwrite it, and the kernel whose reverse run needs it.
        """
        launches = self._launches if self._done else self._count()
        return TapeExplanation(launches, self._ledger.account.entries())

    def argument_gradients(self, kernel: Any) -> list[dict[str, Any]]:
        """The gradients of float arguments that are passed by value, for each launch of a kernel.

        In the order of the launches, dictionaries of numbers, vectors and matrices by the names of
        the parameters. They are there after the body, if the tape was made to compute them.
        """
        return self._watch.gradients_of(kernel)

    # -- the context ----------------------------------------------------------------------------

    @shortens_tracebacks
    def __enter__(self) -> Self:
        if driver.state.recorder is not None:
            raise NestedTape().at(None)
        if self._entered:
            raise TapeIsUsed().at(None)
        if self.validation or self._check is not None:
            refuse("a tape cannot check its gradients", "check them outside of the capture")
        self._entered = True
        self.thread = threading.get_ident()
        if self.clear_gradients:
            clear(Companion.ADJOINT)
        for loss in self.losses:
            loss.reset()
        driver.state.recorder = self
        observe_writes(self.before_write)
        observe_shares(self.before_share)
        return self

    @shortens_tracebacks
    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._stop()
        if kind is None:
            self.grad()

    def _stop(self) -> None:
        if driver.state.recorder is self:
            driver.state.recorder = None
        forget_observer(self.before_write)
        forget_observer(self.before_share)

    @shortens_tracebacks
    def grad(self) -> None:
        """Propagate the adjoints back; happens by itself at the end of the body, and only once."""
        if self._done:
            return
        self._done = True
        self._stop()
        for loss in self.losses:
            loss.seed(self._entries)
        self._watch.collect(self._entries)
        self._launches = self._count()
        guard = _BackwardGuard(self._ledger)
        driver.state.recorder = guard
        observe_writes(guard.before_write)
        entries = list(self._entries) if self._check is not None else []
        try:
            while self._entries:  # what only one launch needs is freed when it has been reversed
                self._entries.pop().reverse(self._ledger)
        finally:
            driver.state.recorder = None
            forget_observer(guard.before_write)
            self._ledger.finish()
            self._entries.clear()
        if self._check is not None:
            self._check.run(entries)

    def _count(self) -> int:
        """The launches that were recorded and are not reversed yet."""
        return sum(isinstance(entry, LaunchEntry) and entry.is_first for entry in self._entries)

    # -- recording ------------------------------------------------------------------------------

    def launch(self, specialisation: Specialisation, arguments: tuple[Any, ...]) -> Any:
        """Run a launch and remember how to reverse it; those of other threads are only run."""
        if self.paused or threading.get_ident() != self.thread:
            return self._run_unrecorded(specialisation, arguments)
        way = self._ways.get(specialisation) or self._known_way(specialisation)
        if way is not None:
            touched = way.touched(arguments)
            is_free = touched is not None and self._ledger.is_free(touched.written)
            if touched is not None and is_free and not self._cuts.holds:
                return self._launch_quickly(way, touched, specialisation, arguments)
        return self._launch_with_care(specialisation, arguments)

    def _launch_with_care(self, given: Specialisation, arguments: tuple[Any, ...]) -> Any:
        """Run a launch of which contents may be needed that it, or something later, overwrites."""
        memories = memories_of(given, arguments)
        is_own = on_own_arrays(given, arguments)
        specialisation = given if is_own else differentiable(given, memories)
        try:
            plan = self._plan(specialisation)
        except OctantsError:
            if not given.hidden:
                raise
            return self.launch(*with_constants(given, arguments))
        if (
            self._is_simple
            and specialisation is given
            and self._way_to(given) not in given.fast_paths
        ):
            self._find_way(given, plan)
            return self.launch(given, arguments)
        self.see_cuts(given, memories)
        if not is_own:
            self._unseen.see(given, memories)
        persistent = PersistentStorage(plan.persistent) if plan.persistent.size else None
        frozen = freeze(specialisation, arguments)
        number = specialisation.number = next(driver.state.numbers)
        self._look_for_races(specialisation, number, arguments)
        results: tuple[Any, ...] = ()
        for memory in memories.values():
            self.touch(memory)
        entries = [
            LaunchEntry(specialisation, step, frozen, number, persistent, not position)
            for position, step in enumerate(plan.steps)
        ]
        phases = [phase for entry in entries for phase in entry.prepare(memories)]
        self._prepare_writes(f"kernel `{specialisation.signature.kernel}`", phases)
        for entry in entries:
            results = entry.run(self)
            self._entries.append(entry)
        if len(plan.steps) != 1 and persistent is not None:
            results = persistent.results(specialisation)
        return specialisation.wrap(results) if specialisation.returned else None

    def _look_for_races(
        self, specialisation: Specialisation, number: int, arguments: tuple[Any, ...]
    ) -> None:
        """An error where the derivative of a launch depends on which work item is first."""
        always = self.validation or options.current().debug
        if always or self.on_overwrite != "trust":
            check_before_gradient(specialisation, number, arguments, always=always, effects=True)
        if self.validation:
            validate_launch(specialisation, number, arguments)

    def _find_way(self, specialisation: Specialisation, plan: TapePlan) -> None:
        """Find out the quick way to record launches of a kernel, if there is one."""
        way = quick_way(specialisation, plan, flow_of(specialisation))
        if way is not None:
            way.may_race = gradient_check(specialisation).program is not None
        specialisation.fast_paths[self._way_to(specialisation)] = way

    def _known_way(self, specialisation: Specialisation) -> FastPath | None:
        """The quick way that another tape has found."""
        if not self._is_simple:
            return None
        way: FastPath | None = specialisation.fast_paths.get(self._way_to(specialisation))
        if way is not None:
            self._ways[specialisation] = way
        return way

    def _way_to(self, specialisation: Specialisation) -> Any:
        """What quick ways to record a kernel are told apart by."""
        return self.wants_arguments_of(specialisation), self.on_overwrite == "trust"

    def _launch_quickly(
        self,
        way: FastPath,
        touched: Touched,
        specialisation: Specialisation,
        arguments: tuple[Any, ...],
    ) -> Any:
        """Run a launch that overwrites nothing that is needed."""
        if way.freezes:
            arguments = freeze(specialisation, arguments)
        persistent = PersistentStorage(way.persistent) if way.persistent is not None else None
        number = specialisation.number = next(driver.state.numbers)
        if way.may_race:
            self._look_for_races(specialisation, number, arguments)
        entry = LaunchEntry(specialisation, way.step, arguments, number, persistent)
        results = entry.run_quickly()
        self._ledger.note(entry, touched.needed)
        self._touched |= touched.every
        self._entries.append(entry)
        return specialisation.wrap(results) if results else None

    def _plan(self, specialisation: Specialisation) -> TapePlan:
        """How a launch runs."""
        return tape_plan(
            specialisation,
            arguments=self.wants_arguments_of(specialisation),
            trusts=self.on_overwrite == "trust",
            validates=self.validation,
        )

    def _run_unrecorded(self, specialisation: Specialisation, arguments: tuple[Any, ...]) -> Any:
        """Run a launch of which the tape only keeps what it overwrites."""
        memories = memories_of(specialisation, arguments)
        writes = [(memories[position], None) for position in specialisation.written]
        self.make_room(f"kernel `{specialisation.signature.kernel}`", writes)
        for place in writes:
            self.overwrite(*place, specialisation.signature.kernel)
        if self._custom is not None:
            self._custom.update((memory.key, memory) for memory in memories.values())
        return specialisation.run(arguments)

    @contextmanager
    def custom_call(self) -> Iterator[dict[Any, TapedMemory]]:
        """Run launches unrecorded, and collect the memories that they touch."""
        self.paused += 1
        touched: dict[Any, TapedMemory] = {}
        self._custom = touched
        try:
            yield touched
        finally:
            self._custom = None
            self.paused -= 1
            self._touched.update(touched)

    def overwrite(self, memory: TapedMemory, region: ArrayRegion = None, writer: str = "") -> None:
        """Save what is needed of a region before ``writer`` writes it."""
        self._ledger.overwrite(memory, region, writer)

    def keep_log(self, kernel: str, nbytes: int) -> None:
        """Count the log of a launch; an error if it is too large."""
        self._ledger.keep_log(kernel, nbytes)

    def make_room(
        self, writer: str, writes: Sequence[MemoryRegion], needs: Sequence[MemoryRegion] = ()
    ) -> None:
        """An error if what these writes will end, and these contents, cannot be saved."""
        self._prepare_writes(writer, [((), writes), (needs, ())])

    def _prepare_writes(self, writer: str, phases: Sequence[Phase]) -> None:
        """An error, before anything is written, if what is needed cannot be saved, or must not."""
        if self.on_overwrite == "error":
            for memory in self._ledger.overwritten(phases):
                raise OverwrittenUnderTape(memory.name).at(None)
        self._ledger.make_room(writer, phases)

    def need(self, memory: TapedMemory, region: ArrayRegion = None, reader: str = "") -> Content:
        """The content of a region as it is now, which ``reader`` needs for its reverse run."""
        return self._ledger.need(memory, region, reader)

    def see_cuts(self, specialisation: Specialisation, memories: Mapping[int, TapedMemory]) -> None:
        """Warn where the gradient ends at an array that has none."""
        self._cuts.see(specialisation, memories)

    def touch(self, memory: TapedMemory) -> None:
        """Note that launches use an array: a host write ends its adjoint from now on."""
        self._touched.add(memory.key)
        if self._check is not None:
            self._check.touch(memory)

    @property
    def touched(self) -> AbstractSet[Any]:
        """The keys of the arrays that launches use."""
        return self._touched

    def wants_arguments_of(self, specialisation: Specialisation) -> bool:
        """Whether gradients of the arguments of a kernel were asked for."""
        return self._watch.wants(specialisation.kernel)

    def hold(self, nbytes: int) -> None:
        """Count copies that an entry keeps by itself."""
        self._ledger.saved_bytes += nbytes

    def append(self, entry: TapeEntry) -> None:
        """Record something else than a launch."""
        self._entries.append(entry)

    def before_share(self, array: Any) -> None:
        """Torch will see an array: from now on its writes are found by their number alone."""
        self._ledger.settle()
        memory = memory_of(array, array.describe())
        if memory.key in self._touched and array.has_grad():
            self._unseen.know(memory)

    def before_write(self, write: HostWrite) -> None:
        """Save what a write of the host is about to overwrite, and record it."""
        memory = memory_of_write(write)
        if memory is None:
            return
        if self._check is not None:
            self._check.touch(memory)
        self._unseen.see_host_write(memory, is_done=write.is_done)
        if write.is_done:
            self._ledger.settle()
        else:
            region = region_of_write(write)
            self.make_room(f"a host write to `{memory.name}`", [(memory, region)])
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

    def __init__(self, ledger: OverwriteLedger) -> None:
        self.paused = 0
        self._ledger = ledger

    def launch(self, specialisation: Specialisation, arguments: tuple[Any, ...]) -> Any:
        memories = memories_of(specialisation, arguments)
        for position in specialisation.written:
            self._ledger.disturb_if_known(memories[position])
        return specialisation.run(arguments)

    def before_write(self, write: HostWrite) -> None:
        memory = memory_of_write(write)
        if memory is not None and not write.is_done:
            self._ledger.disturb_if_known(memory)
