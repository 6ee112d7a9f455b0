"""Runs the steps of a loop: for their effect alone, or recorded to be reversed."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from octants import driver
from octants.ad.gradient_ends import GradientEnds
from octants.ad.snapshots import Snapshots
from octants.ad.step_trace import Trace
from octants.ad.tape import Tape
from octants.analysis.index_ranges import Accessed, ArrayRegion
from octants.data.events import HostWrite
from octants.deferred_import import Deferred
from octants.diagnostics.checkpoint_errors import (
    NoArgumentGradients,
    OrderIsAnother,
    StepChangesGradient,
)
from octants.diagnostics.tape_errors import ChangedUnseen
from octants.ir.core import Companion, Module, Space
from octants.launch.gradient import differentiable, tape_plan
from octants.launch.specialisation import Specialisation
from octants.launch.taped_memory import (
    TapedMemory,
    memories_of,
    memory_of,
    memory_of_write,
    region_of_write,
)

if TYPE_CHECKING:
    from octants.ir import ops
else:
    ops = Deferred("octants.ir.ops")


def number_to_come() -> int:
    """The number of the next launch."""
    number = next(driver.state.numbers)
    driver.state.numbers = driver.launch_numbers(number)
    return number


class Sight:
    """What all launches of a specialised kernel have in common."""

    def __init__(self, specialisation: Specialisation) -> None:
        if specialisation.remember(
            ("writes gradients",), lambda: _writes_gradients(specialisation.module)
        ):
            what = f"kernel `{specialisation.signature.kernel}` writes a gradient or a dual"
            raise StepChangesGradient(what).at(None)
        self.written = specialisation.written
        self.is_met = False
        self.memories: Mapping[int, TapedMemory] | None = None
        if all(array.space is not Space.NDARRAY for array in specialisation.arrays):
            self.memories = memories_of(specialisation, ())
        self._regions = specialisation.regions

    def accessed(self, arguments: tuple[Any, ...]) -> Mapping[int, Accessed]:
        """The elements that a launch accesses, by position of the array."""
        try:
            return self._regions(*arguments)
        except Exception:  # wrong arguments; the launch itself says what is wrong
            return {}


def _writes_gradients(module: Module) -> bool:
    spaces = Space.FIELD, Space.NDARRAY
    return any(
        isinstance(op, ops.Write)
        and op.companion is not Companion.PRIMAL
        and op.array.space in spaces
        for op in module.walk()
    )


class Advance:
    """Runs launches for their effect alone, and lets a snapshot keep what they overwrite.

    `tape` is the one under which a loop runs for the first time: it keeps what launches before the
    loop need. It is None when steps are run again. `touched` has the step in which each of our
    arrays was first used.
    """

    def __init__(self, snapshots: Snapshots, trace: Trace, tape: Tape) -> None:
        self.paused = 0
        self.step = 0
        self.tape: Tape | None = tape
        self.trace = trace
        self.touched: dict[Any, int] = {}
        self._snapshots = snapshots
        self._memories: dict[Any, TapedMemory] = {}
        self._strangers: dict[Any, tuple[weakref.ref[Any], str]] = {}
        self._shared: dict[Any, int] = {}
        self._written: set[Any] = set()
        self._ended: set[Any] = set()
        self._sights: dict[Specialisation, Sight] = {}
        self._thread = threading.get_ident()

    # -- launches and host writes ---------------------------------------------------------------

    def launch(self, specialisation: Specialisation, arguments: tuple[Any, ...]) -> Any:
        """Run a launch; those of other threads are no part of a step."""
        if threading.get_ident() != self._thread:
            return specialisation.run(arguments)
        sight = self.look_at(specialisation)
        memories = sight.memories or memories_of(specialisation, arguments)
        self.trace.launch(specialisation, arguments, memories, sight.written)
        if self.tape is not None and not sight.is_met:
            self._see(specialisation, memories, self.tape)
            sight.is_met = self.step > 1 and sight.memories is not None
        whole, accessed = self._snapshots.last.whole, None
        for position in sight.written:
            memory = memories[position]
            if memory.key in whole and (self.tape is None or memory.key in self._ended):
                continue
            if accessed is None:
                accessed = sight.accessed(arguments)
            region = accessed[position].written if position in accessed else None
            self._before_write(memory, region, specialisation.signature.kernel)
        return specialisation.run(arguments)

    def look_at(self, specialisation: Specialisation) -> Sight:
        """What is known of a kernel."""
        sight = self._sights.get(specialisation)
        if sight is None:
            sight = self._sights[specialisation] = Sight(specialisation)
        return sight

    def _see(
        self, specialisation: Specialisation, memories: Mapping[int, TapedMemory], tape: Tape
    ) -> None:
        """Look at a launch of the first run; errors that its reverse would have come now."""
        for memory in memories.values():
            self._meet(memory, tape)
        if self.paused or self.step > 1:
            return
        if tape.wants_arguments_of(specialisation):
            raise NoArgumentGradients(specialisation.signature.kernel).at(None)
        tape.see_cuts(specialisation, memories)
        plan = tape_plan(differentiable(specialisation, memories))
        if not (plan.is_repeatable or specialisation.options.deterministic):
            raise OrderIsAnother(specialisation.signature.kernel).at(None)

    def _meet(self, memory: TapedMemory, tape: Tape) -> None:
        """Get to know an array."""
        if memory.key in self.touched:
            return
        tape.touch(memory)
        if memory.is_foreign and memory.key not in self._memories:
            array: Any = memory.array
            self._strangers[memory.key] = weakref.ref(array.owner), memory.name
        elif not memory.is_foreign:
            self.touched[memory.key] = self.step
            self._shared[memory.key] = memory.array.shared_version
            self._memories[memory.key] = memory

    def _before_write(self, memory: TapedMemory, region: ArrayRegion, kernel: str) -> None:
        if self.tape is not None and memory.key not in self._ended:
            self.tape.make_room(f"kernel `{kernel}`", [(memory, region)], [])
            self.tape.overwrite(memory, region, kernel)
            if memory.covers(region):
                self._ended.add(memory.key)
        if memory.is_foreign:
            self._memories[memory.key] = memory
            self._snapshots.watch(memory)
        self._written.add(memory.key)
        self._snapshots.before_write(memory, region)

    def before_write(self, write: HostWrite) -> None:
        """The host is about to write; the tape has seen it, too."""
        if threading.get_ident() != self._thread:
            return
        memory = note_write(self.trace, write)
        if self.tape is not None:
            self._meet(memory, self.tape)
            if write.source is not None:
                self._meet(memory_of(write.source, write.source.describe()), self.tape)
        self._written.add(memory.key)
        self._snapshots.before_write(memory, region_of_write(write))

    def check(self) -> None:
        """An error if torch has written an array of ours while the steps ran."""
        for key, version in self._shared.items():
            memory = self._memories[key]
            if memory.array.shared_version != version:
                raise ChangedUnseen(memory.name).at(None)

    # -- what a loop asks -----------------------------------------------------------------------

    def memories(self) -> list[TapedMemory]:
        """The arrays that the steps use, but for those of others that are gone."""
        found = dict(self._memories)
        for key, (reference, name) in self._strangers.items():
            owner = reference()
            if owner is not None:
                found.setdefault(key, memory_of(owner, name))
        return list(found.values())

    def written(self) -> list[TapedMemory]:
        """Those of them that the steps write."""
        return [memory for key, memory in self._memories.items() if key in self._written]

    def touched_before(self, step: int) -> set[Any]:
        """The keys of those of ours that earlier steps use."""
        return {key for key, first in self.touched.items() if first < step}

    @contextlib.contextmanager
    def numbers_kept(self) -> Iterator[None]:
        """Run steps again, and let kernels have the numbers of their last launches afterwards."""
        numbers = {each: each.number for each in self._sights}
        try:
            yield
        finally:
            for specialisation, number in numbers.items():
                specialisation.number = number


def note_write(trace: Trace, write: HostWrite) -> TapedMemory:
    """Note a write of the host in a step; an error if the step could not be run again."""
    name = write.array.describe()
    memory = memory_of_write(write)
    if memory is None:
        raise StepChangesGradient(f"{name} is written").at(None)
    if write.is_done:
        raise ChangedUnseen(name).at(None)
    trace.event(f"a write to {name}")
    return memory


class StepTape(Tape):
    """Records one step, to reverse it at once; a snapshot keeps what it overwrites."""

    _finds_quick_ways = False

    def __init__(
        self, advance: Advance, snapshots: Snapshots, touched: set[Any], *, validates: bool
    ) -> None:
        super().__init__(clear_gradients=False, validation=validates)
        self._touched = touched
        self.trace = advance.trace
        self._advance = advance
        self._snapshots = snapshots
        self._cuts = _SeenCuts()

    def launch(self, specialisation: Specialisation, arguments: tuple[Any, ...]) -> Any:
        if threading.get_ident() == self.thread:
            sight = self._advance.look_at(specialisation)
            memories = sight.memories or memories_of(specialisation, arguments)
            self.trace.launch(specialisation, arguments, memories, sight.written)
        return super().launch(specialisation, arguments)

    def overwrite(self, memory: TapedMemory, region: ArrayRegion = None, writer: str = "") -> None:
        self._snapshots.before_write(memory, region)
        super().overwrite(memory, region, writer)

    def before_write(self, write: HostWrite) -> None:
        memory = note_write(self.trace, write)
        self._snapshots.before_write(memory, region_of_write(write))
        super().before_write(write)


class _SeenCuts(GradientEnds):
    """Cuts that the first run has warned of."""

    def see(self, specialisation: Specialisation, memories: Mapping[int, TapedMemory]) -> None:
        """Nothing is new."""
