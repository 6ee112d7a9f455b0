"""The entries of a tape - launches, host writes, custom calls - and how each is reversed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from octants import driver
from octants.ad.overwrites.needed_contents import Content
from octants.ad.overwrites.overwrite_ledger import MemoryRegion, OverwriteLedger, Phase, SavedPart
from octants.ad.overwrites.packed_copies import Copy, PackedCopies, PackedCopy
from octants.ad.tapes.batched_gradients import BatchedGradients
from octants.analysis.indices.index_ranges import Accessed, ArrayRegion, tidy, unite
from octants.data.host_access_events import HostWrite
from octants.diagnostics.tape_errors import ChangedSinceLaunch, TensorReplaced
from octants.launch.checks.atomic_logs import Logs
from octants.launch.checks.read_fingerprint_check import ReadFingerprint
from octants.launch.gradients.derivative_variants import ReverseStep
from octants.launch.gradients.taped_foreign_arrays import ForeignArray
from octants.launch.gradients.taped_memory import (
    CALLERS_SPACES,
    TapedMemory,
    adjoint_of,
    known_memories,
    memories_of,
    memory_at,
    persistent_memory,
)
from octants.launch.persistent_storage import PersistentStorage
from octants.launch.specialisation import Specialisation
from octants.lazy_dataclass import dataclass
from octants.runtime.arguments.conversions import to_array
from octants.runtime.arguments.parameters import Annotation, StructAnnotation
from octants.runtime.capture import refuse
from octants.types.specialisation_signature import ScalarType


class ContentSaver(Protocol):
    """The tape, as the saver of contents for reverse kernels."""

    def need(self, memory: TapedMemory, region: ArrayRegion, reader: str) -> Content:
        """The present content of a region, which will be needed."""

    def overwrite(
        self, memory: TapedMemory, region: ArrayRegion, writer: str
    ) -> Sequence[SavedPart]:
        """Save the needed contents of a region before ``writer`` overwrites it."""

    def count_log(self, kernel: str, nbytes: int) -> None:
        """Count the bytes of the log of a launch."""


class TapeEntry(Protocol):
    """One recorded event."""

    def reverse(self, ledger: OverwriteLedger, /) -> None:
        """Propagate adjoints through it."""


@dataclass(slots=True)
class _Accesses:
    """The regions that a launch accesses: needed before it, written, needed after it, rewritten."""

    before: list[MemoryRegion]
    written: list[MemoryRegion]
    after: list[MemoryRegion]
    rewritten: list[MemoryRegion]


class LaunchEntry:
    """A launch of a kernel, or of one of its tasks, with the `seed` of its random numbers.

    The tape keeps the fields alive that it uses. `gradients` has the adjoints if the tape
    propagates several. `saved` are the copies that were made before it, by the position of the
    array; None for one that ran without a look at memory, and made none. `by_value` are the
    positions of arrays that nothing writes: copies, which belong to the tape.
    """

    # Most launches change none of these.
    is_first = True
    gradients: BatchedGradients | None = None
    saved: list[tuple[int, SavedPart]] | None = None
    _contents: Sequence[Content] = ()
    _accesses: _Accesses | None = None
    _foreign: Sequence[TapedMemory] = ()
    _sums: Sequence[int] = ()
    _log: Logs = ()

    def __init__(
        self,
        specialisation: Specialisation,
        step: ReverseStep,
        arguments: tuple[Any, ...],
        number: int,
        persistent: PersistentStorage | None,
        by_value: Collection[int] = (),
    ) -> None:
        self.by_value = by_value
        self.specialisation = specialisation
        self.step = step
        self.arguments = arguments
        self.number = number
        self.persistent = persistent
        self.seed = driver.state.seed

    @property
    def kernel(self) -> str:
        """The name of the kernel."""
        return self.specialisation.signature.kernel

    def prepare(self, memories: Mapping[int, TapedMemory]) -> list[Phase]:
        """Find the regions that the launch will write, and those that its reverse needs."""
        self._foreign = [memory for memory in memories.values() if memory.is_foreign]
        step, accessed = self.step, self.step.regions.of(self.arguments)
        accesses = self._accesses = _Accesses(
            self._find(step.needed_before, memories, accessed, self._read),
            self._find(step.written, memories, accessed, self._written),
            self._find(step.needed_after, memories, accessed, self._read),
            self._find(step.rewritten, memories, accessed, self._written),
        )
        return [(accesses.before, accesses.written), (accesses.after, [])]

    def run(self, saver: ContentSaver) -> tuple[Any, ...]:
        """Run the launch, after `prepare`; gives the flat results of the kernel."""
        accesses = self._accesses
        assert accesses is not None
        contents = [saver.need(*region, self.kernel) for region in accesses.before]
        self.saved = [
            (position, saved)
            for position, region in zip(self.step.written, accesses.written, strict=True)
            for saved in saver.overwrite(*region, self.kernel)
        ]
        self._make_log(partial(saver.count_log, self.kernel))
        results = self._launch_forward()
        contents += [saver.need(*region, self.kernel) for region in accesses.after]
        self._contents = contents
        return results

    def copies(self) -> tuple[Copy, ...]:
        """The copies that were made before it, for tapes that record the same launch again."""
        return tuple(
            Copy(position, each.region, each.memory.name, self.kernel, each.reader, each.nbytes)
            for position, each in self.saved or ()
        )

    def ran_again(
        self, ledger: OverwriteLedger, copies: Sequence[Copy], packed: Sequence[PackedCopy]
    ) -> None:
        """Note that the launch has run after the copies that an earlier tape made, in its arena."""
        self.saved = [
            (each.position, SavedPart(self.memory(each.position), each.region, values, *more))
            for each, values in zip(copies, packed, strict=True)
            for more in [(each.reader, each.nbytes)]
        ]
        ledger.defer(self, sum(each.nbytes for each in copies))

    def run_again(
        self, ledger: OverwriteLedger, copies: Sequence[Copy], packed: PackedCopies
    ) -> tuple[Any, ...]:
        """Run the launch, without `prepare`, after the copies that an earlier tape made."""
        self.saved = [(each.position, self._copy(each, ledger, packed)) for each in copies]
        ledger.defer(self, sum(each.nbytes for each in copies))
        return self._launch(self.step.forward)

    def _copy(self, copy: Copy, ledger: OverwriteLedger, packed: PackedCopies) -> SavedPart:
        memory = self.memory(copy.position)
        values = ledger.copy(memory, copy.region, packed)
        return SavedPart(memory, copy.region, values, copy.reader, copy.nbytes)

    def resolve(self, ledger: OverwriteLedger) -> None:
        """Register the needs of the reverse of a launch that ran without `prepare`.

        Nothing has overwritten them since the launch. What the launch overwrote is in `saved`.
        """
        before, after = self.prepare(memories_of(self.specialisation, self.arguments))
        self._contents = [ledger.need(*region, self.kernel) for region in before[0]]
        if self.saved is not None:
            given = iter([saved for _, saved in self.saved])
            for region in before[1]:
                ledger.overwrite(*region, self.kernel, given)
        self._contents += [ledger.need(*region, self.kernel) for region in after[0]]

    def _find(
        self,
        positions: Sequence[int],
        memories: Mapping[int, TapedMemory],
        accessed: Mapping[int, Accessed],
        part: Callable[[int, Accessed], ArrayRegion],
    ) -> list[MemoryRegion]:
        """The arrays at some positions, with the region of each that the launch accesses."""
        accesses = []
        for k in positions:
            if k in self.by_value:
                continue
            memory = self._memory(k, memories)
            region = tidy(part(k, accessed[k])) if k in accessed else None
            accesses.append((memory, None if memory.covers(region) else region))
        return accesses

    def _read(self, position: int, accessed: Accessed) -> ArrayRegion:
        """The contents that the reverse kernel reads, or writes again."""
        if position in self.step.rewritten:
            return unite(accessed.read, accessed.written)
        return accessed.read

    def _written(self, _: int, accessed: Accessed) -> ArrayRegion:
        return accessed.written

    def memory(self, position: int) -> TapedMemory:
        """The memory of the array at a position of the kernel's arrays."""
        known = known_memories(self.specialisation)
        if known is None and self.specialisation.arrays[position].space in CALLERS_SPACES:
            return memory_at(self.specialisation, position, self.arguments)  # not all of them
        return self._memory(position, known or {})

    def written_or_read(self) -> dict[int, TapedMemory]:
        """The memories of the arrays that the launch or its reverse accesses, by position."""
        memories = memories_of(self.specialisation, self.arguments)
        used = {*self.step.needed, *self.step.written, *self.step.rewritten}
        used.difference_update(self.by_value)
        return {position: self._memory(position, memories) for position in sorted(used)}

    def _memory(self, position: int, memories: Mapping[int, TapedMemory]) -> TapedMemory:
        if position in memories:
            return memories[position]
        assert self.persistent is not None
        return persistent_memory(self.persistent, position)

    def _launch(self, program: Any) -> tuple[Any, ...]:
        address = 0 if self.persistent is None else self.persistent.address
        results: tuple[Any, ...] = program.launch(
            self.seed, self.number, address, *self.arguments, *self._log
        )
        return results

    def _launch_forward(self) -> tuple[Any, ...]:
        fingerprint = self.step.fingerprint
        if fingerprint is None:
            return self._launch(self.step.forward)
        results, self._sums = fingerprint.run(
            fingerprint.launch, self.seed, self.number, self.arguments
        )
        return results

    def _check_reads(self, fingerprint: ReadFingerprint) -> None:
        """Raise an error if the reverse kernel would read other values than the launch did."""
        _, sums = fingerprint.run(fingerprint.check, self.seed, self.number, self.arguments)
        for name, seen, now in zip(fingerprint.names, self._sums, sums, strict=True):
            if seen != now:
                raise ChangedSinceLaunch(name, self.kernel).at()

    def rerun(self) -> None:
        """Run the launch again, on the present memory."""
        if self.persistent is not None and self.is_first:
            self.persistent.clear()
        self._make_log(lambda nbytes: None)
        self._launch(self.step.forward)

    def _make_log(self, hold: Callable[[int], None]) -> None:
        """Allocate the log of what atomics return."""
        if self.step.log is not None:
            self._log = self.step.log.allocate(self._measure, hold)

    def _measure(self, program: Any, log: Logs) -> None:
        self._log = log
        self._launch(program)

    def writer_of(self, memory: TapedMemory) -> str | None:
        """The kernel, in words, if it may have written an array."""
        memories = memories_of(self.specialisation, self.arguments)
        written = (memories[k].key for k in self.step.written if k in memories)
        return f"kernel `{self.kernel}`" if memory.key in written else None

    def seed_result(self, seed: Any) -> None:
        """Set the adjoint of the kernel's result to the seed, or to one."""
        if self.persistent is not None:
            self.persistent.seed(self.specialisation, seed)

    def reverse(self, ledger: OverwriteLedger | None) -> None:
        """Propagate adjoints through the launch; without a ledger, on memory as it is."""
        step = self.step
        if step.backward is None:
            return
        for memory in self._foreign:
            if isinstance(memory.array, ForeignArray) and not memory.array.is_current:
                raise TensorReplaced(memory.name, self.kernel).at()
        if ledger is not None and (self._accesses is not None or not ledger.saves):
            self._restore_reads(ledger)
        persistent = self.persistent
        step.backward.launch(
            self.seed,
            self.number,
            0 if persistent is None else persistent.address,
            *self.arguments,
            *(self._log if self.gradients is None else self._arguments_behind(self.gradients)),
        )

    def _arguments_behind(self, gradients: BatchedGradients) -> list[Any]:
        """The arguments of the reverse kernel for several adjoints behind those of the user."""
        memories = memories_of(self.specialisation, self.arguments)
        arrays, device = self.specialisation.arrays, self.specialisation.device.number
        adjoints = [
            gradients.of(memories[k], arrays[k].dtype, arrays[k].element_shape, device)
            for k in self.step.adjoints
        ]
        return [*self._log, *adjoints]

    def _restore_reads(self, ledger: OverwriteLedger) -> None:
        """Restore what the reverse kernel reads, and note what it rewrites."""
        if self._contents or not ledger.saves:
            ledger.restore(self._contents, self.kernel)
        if self.step.fingerprint is not None:
            self._check_reads(self.step.fingerprint)
        for memory, region in self._accesses.rewritten if self._accesses is not None else ():
            ledger.note_change(memory, region)


class HostEntry:
    """A host write: the adjoint of what it overwrote ends there.

    If the values came from another array, the adjoint is added to that one. `ends` says whether an
    earlier event may still read the adjoint. `gradients` has the adjoints if there are several.
    """

    gradients: BatchedGradients | None = None

    def __init__(self, write: HostWrite, *, ends: bool) -> None:
        self.write = write
        self.ends = ends
        self._active = None if write.region or write.is_done else write.array.active_elements()

    def reverse(self, _: OverwriteLedger) -> None:
        array, source = self.write.array, self.write.source
        if self.gradients is None:
            self._reverse(adjoint_of(array), adjoint_of(source))
            return
        targets = self.gradients.each_of(array)
        for target, origin in zip(targets, self.gradients.each_of(source), strict=True):
            self._reverse(target, origin)

    def _reverse(self, adjoint: Any, source: Any) -> None:
        """Propagate one adjoint."""
        if adjoint is None:
            return
        if source is not None:
            refuse(
                "the gradient of `copy_from` cannot go back, since the host adds it up",
                "copy by a kernel",
            )
        values = None if source is None else self._overwritten(adjoint)
        if self.ends or self.write.source is not None:
            self._end(adjoint)
        if source is not None:
            source.add(values)

    def _overwritten(self, adjoint: Any) -> Any:
        """The adjoints of the elements that the write changed, and zero for others."""
        values = adjoint.read(self.write.region)
        return values if self._active is None else np.where(self._mask(values), values, 0)

    def _end(self, adjoint: Any) -> None:
        """Set the adjoints of the elements that the write changed to zero."""
        if self._active is None:
            adjoint.clear(self.write.region)
            return
        refuse(
            "the gradient of a write to all of a sparse field cannot go back, since the host"
            " clears the adjoints of active elements",
            "write by a kernel",
        )
        values = adjoint.read()
        adjoint.window().write(np.where(self._mask(values), 0, values))

    def _mask(self, values: Any) -> Any:
        """Whether each of the values is one of an active element."""
        assert self._active is not None
        return self._active.reshape(self._active.shape + (1,) * (values.ndim - self._active.ndim))


class CustomCall:
    """The `memories` of the arrays that a call accesses, by key, and the keys of the `written`."""

    __slots__ = ("memories", "written")

    def __init__(self) -> None:
        self.memories: dict[Any, TapedMemory] = {}
        self.written: set[Any] = set()

    def add(self, accessed: Iterable[TapedMemory], written: Iterable[TapedMemory]) -> None:
        """Add the arrays of a launch, and those that it writes."""
        self.memories.update((memory.key, memory) for memory in accessed)
        self.written.update(memory.key for memory in written)


class CustomEntry:
    """A call of a function with a custom gradient, which runs on memory as the call left it.

    Args:
        name: of the function.
        gradient: propagates adjoints through the call.
        contents: what it reads.
        written: the keys of the arrays that the call wrote.
    """

    def __init__(
        self,
        name: str,
        gradient: Callable[[], Any],
        contents: list[Content],
        written: Collection[Any],
    ) -> None:
        self._name = name
        self._gradient = gradient
        self._contents = contents
        self._written = written

    def writer_of(self, memory: TapedMemory) -> str | None:
        """The function, in words, if it has written an array."""
        return f"`{self._name}`" if memory.key in self._written else None

    def reverse(self, ledger: OverwriteLedger) -> None:
        ledger.restore(self._contents, self._name)
        ledger.runs_custom_gradient = True
        try:
            self._gradient()
        finally:
            ledger.runs_custom_gradient = False


# -- arguments -------------------------------------------------------------------------------------


class StructCopy:
    """A copy of the members of a struct argument."""

    def __init__(self, members: dict[str, Any]) -> None:
        self.__dict__.update(members)


def freeze(specialisation: Specialisation, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copy the vectors and structs among the arguments of a launch.

    Arrays of numpy become views, whose type and shape nothing changes in place.

    Args:
        specialisation: the kernel that is launched.
        arguments: its arguments, then the values of hidden arguments.

    Returns:
        The arguments with copies; other arrays and templates are passed through.
    """
    annotations = specialisation.signature.annotations
    hidden = arguments[len(annotations) :]
    return *map(_freeze, annotations, arguments), *map(_view, hidden)


def _freeze(annotation: Annotation, value: Any) -> Any:
    if isinstance(annotation, StructAnnotation):
        return StructCopy(
            {name: _freeze(member, getattr(value, name)) for name, member in annotation.members}
        )
    if isinstance(annotation, ScalarType) and annotation.element_shape:
        return to_array(value)
    return _view(value)


def _view(value: Any) -> Any:
    return value.view() if isinstance(value, np.ndarray) else value
