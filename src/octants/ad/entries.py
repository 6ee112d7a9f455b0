"""What a tape records, and how each of it is reversed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from octants import driver
from octants.ad.ledger import Content, Ledger
from octants.analysis.regions import Accessed, Region, unite
from octants.data.events import HostWrite
from octants.launch.gradient import Outside, Step
from octants.launch.memory import Memory, adjoint_of, outside_memory
from octants.launch.specialisation import Specialisation


class Keeper(Protocol):
    """Who keeps contents for the reverse runs: the tape."""

    def need(self, memory: Memory, region: Region) -> Content:
        """The content of a region as it is now."""

    def overwrite(self, memory: Memory, region: Region) -> None:
        """Save what is needed of a region before it is written."""


class Entry(Protocol):
    """One recorded event."""

    def reverse(self, ledger: Ledger, /) -> None:
        """Propagate adjoints through it."""


class LaunchEntry:
    """A launch of a kernel, or of one of its tasks."""

    def __init__(
        self,
        specialisation: Specialisation,
        step: Step,
        arguments: tuple[Any, ...],
        number: int,
        outside: Outside | None,
        *,
        is_first: bool = True,
    ) -> None:
        self.specialisation = specialisation
        self.step = step
        self.arguments = arguments
        self.number = number
        self.outside = outside
        self.is_first = is_first
        self._seed = driver.state.seed
        self._contents: list[Content] = []
        self._rewritten: list[tuple[Memory, Region]] = []

    def run(self, keeper: Keeper, memories: Mapping[int, Memory]) -> tuple[Any, ...]:
        """Run it forward; the flat results of the kernel."""
        step, accessed = self.step, self.step.accessed(self.arguments)
        self._need(keeper, step.needed_before, memories, accessed)
        for position in step.written:
            region = accessed[position].written if position in accessed else None
            keeper.overwrite(self._memory(position, memories), region)
        results = self._launch(step.forward)
        self._need(keeper, step.needed_after, memories, accessed)
        for position in step.rewritten:
            region = accessed[position].written if position in accessed else None
            self._rewritten.append((self._memory(position, memories), region))
        return results

    def _need(
        self,
        keeper: Keeper,
        positions: Sequence[int],
        memories: Mapping[int, Memory],
        accessed: Mapping[int, Accessed],
    ) -> None:
        """Keep the contents that the reverse run reads, or writes again."""
        for position in positions:
            region: Region = None
            if position in accessed:
                region = accessed[position].read
                if position in self.step.rewritten:
                    region = unite(region, accessed[position].written)
            self._contents.append(keeper.need(self._memory(position, memories), region))

    def _memory(self, position: int, memories: Mapping[int, Memory]) -> Memory:
        if position in memories:
            return memories[position]
        assert self.outside is not None
        return outside_memory(self.outside, position)

    def _launch(self, program: Any) -> tuple[Any, ...]:
        address = self.outside.address if self.outside is not None else 0
        results: tuple[Any, ...] = program.launch(self._seed, self.number, address, *self.arguments)
        return results

    def run_again(self) -> None:
        """Run it forward once more, on the memory as it is."""
        if self.outside is not None and self.is_first:
            self.outside.clear()
        self._launch(self.step.forward)

    def seed_result(self) -> None:
        """Set the adjoint of what the kernel returns to one."""
        if self.outside is not None:
            self.outside.seed()

    def reverse(self, ledger: Ledger) -> None:
        if self.step.backward is None:
            return
        ledger.restore(self._contents)
        for memory, region in self._rewritten:
            ledger.disturb(memory, region)
        self._launch(self.step.backward)


class HostEntry:
    """A write of the host: the adjoint of what it overwrote ends there.

    Where the values came from another array, it goes there; `ends` says whether something before
    the write may still read the adjoint.
    """

    def __init__(self, write: HostWrite, *, ends: bool) -> None:
        self.write = write
        self.ends = ends

    def reverse(self, _: Ledger) -> None:
        adjoint = adjoint_of(self.write.array)
        if adjoint is None:
            return
        values = adjoint.read(self.write.region)
        if self.ends or self.write.source is not None:
            adjoint.clear(self.write.region)
        source = adjoint_of(self.write.source)
        if source is not None:
            source.add(values)


class CustomEntry:
    """A call of a function with a gradient of its own, which sees memory as the call left it."""

    def __init__(self, gradient: Callable[[], Any], contents: list[Content]) -> None:
        self._gradient = gradient
        self._contents = contents

    def reverse(self, ledger: Ledger) -> None:
        ledger.restore(self._contents)
        self._gradient()
