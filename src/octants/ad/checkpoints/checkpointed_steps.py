"""Runs the steps of a checkpointed loop: unrecorded with snapshots, or recorded to be reversed."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from octants import driver
from octants.ad.checkpoints.checkpoint_snapshots import Snapshots
from octants.ad.checkpoints.step_repeatability import Trace
from octants.ad.overwrites.overwrite_ledger import SavedPart
from octants.ad.tapes.tape import Tape
from octants.analysis.indices.index_ranges import ArrayRegion
from octants.data.host_access_events import HostWrite
from octants.deferred_import import Deferred
from octants.diagnostics.checkpoint_errors import (
    NoArgumentGradients,
    OrderChanged,
    StepChangesGradient,
)
from octants.diagnostics.tape_errors import UntrackedChange
from octants.ir.core import Companion, Module, Space
from octants.launch.gradients.derivative_variants import differentiable, tape_plan
from octants.launch.gradients.lost_gradient_warnings import GradientEnds
from octants.launch.gradients.taped_memory import (
    TapedMemory,
    memories_of,
    memory_of,
    memory_of_write,
    region_of_write,
)
from octants.launch.specialisation import Specialisation
from octants.launch.warm.alias_free_launches import has_distinct_arrays

if TYPE_CHECKING:
    from octants.ir import ops
else:
    ops = Deferred("octants.ir.ops")


class StepKernel:
    """The state that the launches of a kernel in a step share.

    `written` are the positions of the arrays that it writes; `memories` are its arrays, if they are
    fields only. `is_known` says that its arrays need not be registered again.
    """

    def __init__(self, specialisation: Specialisation) -> None:
        if specialisation.derive(
            ("writes gradients",), lambda: _writes_gradients(specialisation.module)
        ):
            what = f"kernel `{specialisation.signature.kernel}` writes a gradient or a dual"
            raise StepChangesGradient(what).at()
        self.written = specialisation.written
        self.is_known = False
        self.memories: Mapping[int, TapedMemory] | None = None
        if all(array.space is not Space.NDARRAY for array in specialisation.arrays):
            self.memories = memories_of(specialisation, ())


def _writes_gradients(module: Module) -> bool:
    spaces = Space.FIELD, Space.NDARRAY
    return any(
        isinstance(op, ops.Write)
        and op.companion is not Companion.PRIMAL
        and op.array.space in spaces
        for op in module.walk()
    )


class StepRunner:
    """Runs launches unrecorded, and lets snapshots keep what they overwrite.

    `tape` is the tape of the first run, which saves what launches before the loop need; it is None
    when steps are run again. `touched` maps each array of Octants to the step that first used it.
    """

    def __init__(self, snapshots: Snapshots, trace: Trace, tape: Tape) -> None:
        self.paused = 0
        self.step = 0
        self.tape: Tape | None = tape
        self.trace = trace
        self.touched: dict[Any, int] = {}
        self._snapshots = snapshots
        self._memories: dict[Any, TapedMemory] = {}
        self._foreign: dict[Any, tuple[weakref.ref[Any], str]] = {}
        self._shared: dict[Any, int] = {}
        self._written: set[Any] = set()
        self._ended: set[Any] = set()
        self._kernels: dict[Specialisation, StepKernel] = {}
        self.thread = threading.get_ident()

    # -- launches and host writes ---------------------------------------------------------------

    def launch(self, specialisation: Specialisation, arguments: tuple[Any, ...]) -> Any:
        """Run a launch; launches of other threads are no part of a step."""
        if threading.get_ident() != self.thread:
            return specialisation.run(arguments)
        kernel = self.kernel_of(specialisation)
        memories = kernel.memories or memories_of(specialisation, arguments)
        self.trace.launch(specialisation, arguments, memories, kernel.written)
        if self.tape is not None and not self.paused:
            self.tape.check_overlaps(specialisation, memories)
        if self.tape is not None and not kernel.is_known:
            self._check_first_run(specialisation, memories, self.tape)
            kernel.is_known = self.step > 1 and kernel.memories is not None
        whole, accessed = self._snapshots.last.whole, None
        for position in kernel.written:
            memory = memories[position]
            if memory.key in whole and (self.tape is None or memory.key in self._ended):
                continue
            if accessed is None:
                accessed = specialisation.regions.of(arguments)
            region = accessed[position].written if position in accessed else None
            self._before_write(memory, region, specialisation.signature.kernel)
        if self.tape is None or has_distinct_arrays(specialisation, arguments):
            return specialisation.run(arguments)
        untracked = self.tape.untracked
        exported = untracked.see(specialisation, memories, differentiates=not self.paused)
        results = specialisation.run(arguments)
        untracked.know_contents(exported)
        return results

    def kernel_of(self, specialisation: Specialisation) -> StepKernel:
        """The cached facts of a kernel."""
        kernel = self._kernels.get(specialisation)
        if kernel is None:
            kernel = self._kernels[specialisation] = StepKernel(specialisation)
        return kernel

    def _check_first_run(
        self, specialisation: Specialisation, memories: Mapping[int, TapedMemory], tape: Tape
    ) -> None:
        """Register the arrays of a launch in the first run; raise errors of its reverse early."""
        for memory in memories.values():
            self._register(memory, tape)
        if self.paused or self.step > 1:
            return
        if tape.wants_arguments_of(specialisation):
            raise NoArgumentGradients(specialisation.signature.kernel).at()
        tape.check_gradient_ends(specialisation, memories)
        plan = tape_plan(differentiable(specialisation, memories))
        if not (plan.is_repeatable or specialisation.options.deterministic):
            raise OrderChanged(specialisation.signature.kernel).at()

    def _register(self, memory: TapedMemory, tape: Tape) -> None:
        """Register an array on its first use."""
        if memory.key in self.touched:
            return
        tape.touch(memory)
        if memory.is_foreign and memory.key not in self._memories:
            array: Any = memory.array
            self._foreign[memory.key] = weakref.ref(array.owner), memory.name
        elif not memory.is_foreign:
            self.touched[memory.key] = self.step
            self._shared[memory.key] = memory.array.shared_version
            self._memories[memory.key] = memory

    def _before_write(self, memory: TapedMemory, region: ArrayRegion, kernel: str) -> None:
        if self.tape is not None and memory.key not in self._ended:
            self.tape.check_budget(f"kernel `{kernel}`", [(memory, region)], [])
            self.tape.overwrite(memory, region, kernel)
            if memory.covers(region):
                self._ended.add(memory.key)
        if memory.is_untracked:
            self._memories[memory.key] = memory
            self._snapshots.copy_always(memory)
        self._written.add(memory.key)
        self._snapshots.before_write(memory, region)

    def before_write(self, write: HostWrite) -> None:
        """Note a host write; the tape observes it, too."""
        if threading.get_ident() != self.thread:
            return
        memory = note_write(self.trace, write)
        if self.tape is not None:
            self._register(memory, self.tape)
            if write.source is not None:
                self._register(memory_of(write.source, write.source.describe()), self.tape)
        self._written.add(memory.key)
        self._snapshots.before_write(memory, region_of_write(write))

    def check(self) -> None:
        """Raise an error if torch has written an array of Octants while the steps ran."""
        for key, version in self._shared.items():
            memory = self._memories[key]
            if memory.array.shared_version != version:
                raise UntrackedChange(memory.name).at()

    # -- queries of the loop --------------------------------------------------------------------

    def memories(self) -> list[TapedMemory]:
        """The arrays that the steps use, except those of other libraries that are gone."""
        found = dict(self._memories)
        for key, (reference, name) in self._foreign.items():
            owner = reference()
            if owner is not None:
                found.setdefault(key, memory_of(owner, name))
        return list(found.values())

    def written(self) -> list[TapedMemory]:
        """The arrays that the steps write."""
        return [memory for key, memory in self._memories.items() if key in self._written]

    def touched_before(self, step: int) -> set[Any]:
        """The keys of the arrays of Octants that earlier steps use."""
        return {key for key, first in self.touched.items() if first < step}

    @contextlib.contextmanager
    def launch_numbers_restored(self) -> Iterator[None]:
        """Restore the last launch numbers of kernels at the end of the context."""
        numbers = {each: each.number for each in self._kernels}
        try:
            yield
        finally:
            for specialisation, number in numbers.items():
                specialisation.number = number


def note_write(trace: Trace, write: HostWrite) -> TapedMemory:
    """Trace a host write in a step; gives the array.

    Raises:
        OctantsRuntimeError: the step could not be repeated.
    """
    name = write.array.describe()
    memory = memory_of_write(write)
    if memory is None:
        raise StepChangesGradient(f"{name} is written").at()
    if write.is_done:
        raise UntrackedChange(name).at()
    trace.event(f"a write to {name}")
    return memory


class StepRecorder(Tape):
    """A tape that records one step, to reverse it at once; a snapshot keeps what it overwrites."""

    _uses_fast_path = False
    is_entered = True  # as the recorder of the steps that run again

    def __init__(
        self, advance: StepRunner, snapshots: Snapshots, touched: set[Any], *, validates: bool
    ) -> None:
        super().__init__(clear_gradients=False, validation=validates)
        self._generation = driver.state.generation  # no `__enter__` notes it
        self._touched_arrays = touched
        self.trace = advance.trace
        self._runner = advance
        self._snapshots = snapshots
        self._gradient_ends = _CheckedEnds()

    def launch(self, specialisation: Specialisation, arguments: tuple[Any, ...]) -> Any:
        if threading.get_ident() == self.thread:
            kernel = self._runner.kernel_of(specialisation)
            memories = kernel.memories or memories_of(specialisation, arguments)
            self.trace.launch(specialisation, arguments, memories, kernel.written)
        return super().launch(specialisation, arguments)

    def overwrite(
        self, memory: TapedMemory, region: ArrayRegion = None, writer: str = ""
    ) -> list[SavedPart]:
        self._snapshots.before_write(memory, region)
        return super().overwrite(memory, region, writer)

    def before_write(self, write: HostWrite) -> None:
        memory = note_write(self.trace, write)
        self._snapshots.before_write(memory, region_of_write(write))
        super().before_write(write)


class _CheckedEnds(GradientEnds):
    """Gradient ends of which the first run has warned."""

    def observe(self, specialisation: Specialisation, memories: Mapping[int, TapedMemory]) -> None:
        """Do not warn again."""
