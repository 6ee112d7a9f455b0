"""What a tape records, and how each of it is reversed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from octants import driver
from octants.ad.memory_versions import Content
from octants.ad.overwrite_ledger import MemoryRegion, OverwriteLedger, Phase
from octants.analysis.index_ranges import Accessed, ArrayRegion, tidy, unite
from octants.data.events import HostWrite
from octants.diagnostics.tape_errors import ChangedSinceLaunch
from octants.launch.atomic_logs import Logs
from octants.launch.gradient import ReverseStep
from octants.launch.persistent_storage import PersistentStorage
from octants.launch.read_fingerprint import ReadFingerprint
from octants.launch.specialisation import Specialisation
from octants.launch.taped_memory import TapedMemory, adjoint_of, memories_of, persistent_memory
from octants.lazy_dataclass import dataclass
from octants.runtime.capture import refuse


class Keeper(Protocol):
    """Who keeps contents for the reverse runs: the tape."""

    def need(self, memory: TapedMemory, region: ArrayRegion, reader: str) -> Content:
        """The content of a region as it is now."""

    def overwrite(self, memory: TapedMemory, region: ArrayRegion, writer: str) -> None:
        """Save what is needed of a region before ``writer`` writes it."""

    def keep_log(self, kernel: str, nbytes: int) -> None:
        """Count the log of a launch; an error if it is too large."""


class TapeEntry(Protocol):
    """One recorded event."""

    def reverse(self, ledger: OverwriteLedger, /) -> None:
        """Propagate adjoints through it."""


@dataclass(slots=True)
class _Places:
    """What a launch touches: what its reverse needs from before it, what it writes, and so on."""

    before: list[MemoryRegion]
    written: list[MemoryRegion]
    after: list[MemoryRegion]
    rewritten: list[MemoryRegion]


class LaunchEntry:
    """A launch of a kernel, or of one of its tasks."""

    __slots__ = (
        "_contents",
        "_held",
        "_log",
        "_places",
        "_seed",
        "_seen",
        "arguments",
        "is_first",
        "number",
        "persistent",
        "specialisation",
        "step",
    )

    def __init__(
        self,
        specialisation: Specialisation,
        step: ReverseStep,
        arguments: tuple[Any, ...],
        number: int,
        persistent: PersistentStorage | None,
        is_first: bool = True,
    ) -> None:
        self.specialisation = specialisation
        self._held = specialisation.holding()
        self.step = step
        self.arguments = arguments
        self.number = number
        self.persistent = persistent
        self.is_first = is_first
        self._seed = driver.state.seed
        self._contents: Sequence[Content] = ()
        self._places: _Places | None = None
        self._seen: Sequence[int] = ()
        self._log: Logs = ()

    @property
    def kernel(self) -> str:
        """The name of the kernel."""
        return self.specialisation.signature.kernel

    def prepare(self, memories: Mapping[int, TapedMemory]) -> list[Phase]:
        """Find out what it will need and write, in this order."""
        step, accessed = self.step, self.step.accessed(self.arguments)
        places = self._places = _Places(
            self._find(step.needed_before, memories, accessed, self._read),
            self._find(step.written, memories, accessed, self._written),
            self._find(step.needed_after, memories, accessed, self._read),
            self._find(step.rewritten, memories, accessed, self._written),
        )
        return [(places.before, places.written), (places.after, [])]

    def run(self, keeper: Keeper) -> tuple[Any, ...]:
        """Run it forward, once it is prepared; the flat results of the kernel."""
        places = self._places
        assert places is not None
        contents = [keeper.need(*place, self.kernel) for place in places.before]
        for place in places.written:
            keeper.overwrite(*place, self.kernel)
        self._make_log(partial(keeper.keep_log, self.kernel))
        results = self._launch_forward()
        contents += [keeper.need(*place, self.kernel) for place in places.after]
        self._contents = contents
        return results

    def run_quickly(self) -> tuple[Any, ...]:
        """Run it forward, unprepared: what it needs is asked later."""
        return self._launch(self.step.forward)

    def settle(self, ledger: OverwriteLedger) -> None:
        """Need what it reads, which nothing has overwritten since it ran."""
        memories = memories_of(self.specialisation, self.arguments)
        needs = [place for needed, _ in self.prepare(memories) for place in needed]
        self._contents = [ledger.need(*place, self.kernel) for place in needs]

    def _find(
        self,
        positions: Sequence[int],
        memories: Mapping[int, TapedMemory],
        accessed: Mapping[int, Accessed],
        part: Callable[[int, Accessed], ArrayRegion],
    ) -> list[MemoryRegion]:
        """The memories at some positions, with the part of each that the launch touches."""
        places = []
        for k in positions:
            memory = self._memory(k, memories)
            region = tidy(part(k, accessed[k])) if k in accessed else None
            places.append((memory, None if memory.covers(region) else region))
        return places

    def _read(self, position: int, accessed: Accessed) -> ArrayRegion:
        """What the reverse run reads, or writes again."""
        if position in self.step.rewritten:
            return unite(accessed.read, accessed.written)
        return accessed.read

    def _written(self, _: int, accessed: Accessed) -> ArrayRegion:
        return accessed.written

    def _memory(self, position: int, memories: Mapping[int, TapedMemory]) -> TapedMemory:
        if position in memories:
            return memories[position]
        assert self.persistent is not None
        return persistent_memory(self.persistent, position)

    def _launch(self, program: Any) -> tuple[Any, ...]:
        address = 0 if self.persistent is None else self.persistent.address
        results: tuple[Any, ...] = program.launch(
            self._seed, self.number, address, *self.arguments, *self._log
        )
        return results

    def _launch_forward(self) -> tuple[Any, ...]:
        fingerprint = self.step.fingerprint
        if fingerprint is None:
            return self._launch(self.step.forward)
        results, self._seen = fingerprint.run(
            fingerprint.launch, self._seed, self.number, self.arguments
        )
        return results

    def _check_reads(self, fingerprint: ReadFingerprint) -> None:
        """An error if the reverse run would read something else than the launch did."""
        _, sums = fingerprint.run(fingerprint.check, self._seed, self.number, self.arguments)
        for name, seen, now in zip(fingerprint.names, self._seen, sums, strict=True):
            if seen != now:
                raise ChangedSinceLaunch(name, self.kernel).at(None)

    def run_again(self) -> None:
        """Run it forward once more, on the memory as it is."""
        if self.persistent is not None and self.is_first:
            self.persistent.clear()
        self._make_log(lambda nbytes: None)
        self._launch(self.step.forward)

    def _make_log(self, hold: Callable[[int], None]) -> None:
        """Make room for what atomics will return."""
        if self.step.log is not None:
            self._log = self.step.log.allocate(self._measure, hold)

    def _measure(self, program: Any, log: Logs) -> None:
        self._log = log
        self._launch(program)

    def seed_result(self, seed: Any) -> None:
        """Set the adjoint of what the kernel returns; to one without a seed."""
        if self.persistent is not None:
            self.persistent.seed(self.specialisation, seed)

    def reverse(self, ledger: OverwriteLedger) -> None:
        step = self.step
        if step.backward is None:
            return
        if self._contents or not ledger.saves:
            ledger.restore(self._contents, self.kernel)
        if step.fingerprint is not None:
            self._check_reads(step.fingerprint)
        for memory, region in self._places.rewritten if self._places is not None else ():
            ledger.disturb(memory, region)
        self._launch(step.backward)


class HostEntry:
    """A write of the host: the adjoint of what it overwrote ends there.

    Where the values came from another array, it goes there; `ends` says whether something before
    the write may still read the adjoint.
    """

    def __init__(self, write: HostWrite, *, ends: bool) -> None:
        self.write = write
        self.ends = ends

    def reverse(self, _: OverwriteLedger) -> None:
        adjoint = adjoint_of(self.write.array)
        if adjoint is None:
            return
        source = adjoint_of(self.write.source)
        if source is not None:
            refuse(
                "the gradient of `copy_from` cannot go back, since the host adds it up",
                "copy by a kernel",
            )
        values = None if source is None else adjoint.read(self.write.region)
        if self.ends or self.write.source is not None:
            adjoint.clear(self.write.region)
        if source is not None:
            source.add(values)


class CustomEntry:
    """A call of a function with a gradient of its own, which sees memory as the call left it."""

    def __init__(self, name: str, gradient: Callable[[], Any], contents: list[Content]) -> None:
        self._name = name
        self._gradient = gradient
        self._contents = contents

    def reverse(self, ledger: OverwriteLedger) -> None:
        ledger.restore(self._contents, self._name)
        self._gradient()
