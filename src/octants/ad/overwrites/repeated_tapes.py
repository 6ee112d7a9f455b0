"""Remembers what tapes had to copy and to restore, for tapes that record the same launches again.

What a tape copies before a launch, and what it restores to reverse one, depends only on the
launches before: on their kernels, arrays and index ranges. Programs record the same launches in
each of their optimisation steps. So the first tape asks its `OverwriteLedger`, and what it copied
and restored is kept in a tree of `Prefix`es, one for each launch. A later tape that records the
same launches follows the tree, and copies and restores the same without asking. When it does
anything else, its ledger catches up with the launches so far, and is given the copies.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from octants.ad.overwrites import repeated_reversals
from octants.ad.overwrites.needed_contents import MemoryRows
from octants.ad.overwrites.packed_copies import (
    Copy,
    CopyArena,
    PackedCopies,
    PackedCopy,
    PackedLaunch,
)
from octants.ad.overwrites.repeated_reversals import NumberPacker, Reversals
from octants.analysis.indices.index_ranges import ArrayRegion
from octants.data import current_runtime
from octants.launch.gradients.taped_memory import TapedMemory
from octants.lazy_dataclass import dataclass
from octants.runtime.repetitions import Repetitions

if TYPE_CHECKING:
    from octants.ad.overwrites.snapshot_report import Account

MOST_PREFIXES = 1 << 16
"""Of tapes that begin with the same launch; if there are more, such tapes are not remembered."""
_COUNTED = 4  # tapes of plain launches that begin with the same launch, until one repeats
MOST_REVERSED = 1 << 17
"""Launches in the reversals of tapes that begin with the same launch."""
MOST_REMEMBERED = 1 << 17
"""The same of all tapes, with their prefixes; the trees that began first are forgotten first."""


class RecordedLaunch(Protocol):
    """An entry of a tape for a launch."""

    def memory(self, position: int) -> TapedMemory:
        """The memory of the array at a position of the kernel's arrays."""

    def written_or_read(self) -> Mapping[int, TapedMemory]:
        """The memories of the arrays that the launch or its reverse accesses, by position."""

    def reverse(self, ledger: None, /) -> None:
        """Propagate adjoints through it, on memory as it is."""


class Touched:
    """The arrays that a launch accesses, by key: all, the written ones, those its reverse needs.

    If it `is_known`, launches with the same arrays and rows get the same object. `start` is the
    prefix of no launches, for tapes that begin with this launch; `copies` were made before the
    latest one. If it `is_plain`, nothing but its other arguments, packed by `numbers`, matters to
    its reverse, and it overwrites nothing that this needs.
    """

    __slots__ = (
        "copies",
        "every",
        "is_known",
        "is_plain",
        "needed",
        "numbers",
        "start",
        "written",
    )

    def __init__(self, every: frozenset[int], written: MemoryRows, needed: MemoryRows) -> None:
        self.every = every
        self.written = written
        self.needed = needed
        self.is_known = self.is_plain = False
        self.numbers: NumberPacker | None = None
        self.start: Prefix | None = None
        self.copies: tuple[tuple[Copy, ...], ...] = ()


class Prefix:
    """The launches with which some tapes began.

    `longer` are those with one more launch, `usual` the last of these that a tape came to; the last
    launch of each is `touched`. `copies` were made before the last launch, for each of
    its steps, and `packed` are the same in the arena, if they are known: each tape can make them
    there. `nbytes` are those of the last launch, `total_bytes` of all. If it `is_plain`, all its
    launches are, and copied nothing. `reversal` is how a tape without further launches was
    reversed, and `replays` does the same. The root counts all prefixes, and the launches in all
    reversals; it `is_full` if there were too many. It has the `arena` of the copies.
    """

    __slots__ = (
        "__weakref__",
        "arena",
        "copies",
        "is_full",
        "is_plain",
        "longer",
        "nbytes",
        "packed",
        "prefixes",
        "repetitions",
        "replays",
        "reversal",
        "reversed",
        "root",
        "shorter",
        "total_bytes",
        "touched",
        "usual",
    )

    def __init__(
        self, shorter: Prefix | None = None, copies: tuple[tuple[Copy, ...], ...] = ()
    ) -> None:
        self.shorter = shorter
        self.root: Prefix = self if shorter is None else shorter.root
        self.longer: dict[Touched, Prefix] = {}
        self.usual: Prefix | None = None
        self.touched: Touched | None = None
        self.copies = copies
        self.packed: PackedLaunch | None = None
        self.nbytes = sum(copy.nbytes for each in copies for copy in each)
        self.total_bytes: int = self.nbytes + (0 if shorter is None else shorter.total_bytes)
        self.reversal: Reversal | None = None
        self.replays: Reversals | None = None
        self.arena: CopyArena | None = None
        self.prefixes = self.reversed = 0
        self.is_full = False
        self.is_plain = True
        self.repetitions: Repetitions[None] | None = None

    def add(self, touched: Touched, copies: tuple[tuple[Copy, ...], ...]) -> Prefix | None:
        """The prefix with one more launch, which a tape has just found out; None if it is not
        kept.
        """
        root = self.root
        if root.prefixes >= MOST_PREFIXES:
            root.longer.clear()
            root.usual = None
            root.is_full = True
            return None
        _trees().count(root, 1)
        root.prefixes += 1
        if touched.copies != copies:
            touched.copies = copies
        copies = touched.copies  # mostly those of the launch before: one object in memory
        found = self.longer[touched] = Prefix(self, copies)
        found.touched = touched
        found.is_plain = self.is_plain and touched.is_plain and not any(copies)
        return found

    def add_plain(self, launches: Sequence[Touched]) -> None:
        """Remember a tape of plain launches, once it has repeated: the prefix is a root."""
        if self.repetitions is None:
            self.repetitions = Repetitions(min(2, repeated_reversals.REPEATED), counted=_COUNTED)
        if not self.is_full and self.repetitions.is_due(hash(launches)):
            self.advance(launches)

    def advance(self, launches: Sequence[Touched]) -> Prefix | None:
        """The prefix that is longer by launches before which nothing was copied; None if it is not
        kept.
        """
        reached: Prefix | None = self
        for touched in launches:
            if reached is None or not touched.is_known:
                return None
            reached = reached.longer.get(touched) or reached.add(touched, ((),))
        return reached

    def forget(self) -> None:
        """Forget all launches after these, of which there are none: it is a root."""
        self.free_arena()
        self.longer.clear()
        self.usual = None
        self.prefixes = self.reversed = 0

    def free_arena(self) -> None:
        """Free the arena of a root, and the replays that restore copies in it."""
        self.arena = None
        left: list[Prefix] = [self]
        while left:
            each = left.pop()
            each.replays = None
            each.packed = None
            left += each.longer.values()

    def remember(self, reversal: Reversal) -> None:
        """Keep how a tape was reversed, unless there are very many."""
        if self.root.reversed + reversal.launches <= MOST_REVERSED:
            _trees().count(self.root, reversal.launches)
            self.root.reversed += reversal.launches
            self.reversal = reversal

    def replays_of(self, launches: Sequence[Touched]) -> Reversals:
        """The replays of how tapes of these launches were reversed."""
        owner = weakref.ref(self)
        packers = [each.numbers for each in launches]
        found = self.replays = Reversals(packers, lambda: _forget_replays(owner()))
        return found

    def copies_of(self, tape: Any) -> PackedCopies:
        """The maker of a tape's copies: in the arena, if no other tape uses it."""
        root = self.root
        root.arena = root.arena or CopyArena(_trees().free_arenas)
        return PackedCopies(root.arena if root.arena.take(tape) else None)

    def note_copies(self, account: Account) -> None:
        """Count the copies of a tape that recorded these launches."""
        prefixes = []
        prefix: Prefix | None = self
        while prefix is not None:
            prefixes.append(prefix)
            prefix = prefix.shorter
        for each in reversed(prefixes):
            for copy in (copy for copies in each.copies for copy in copies):
                account.note(copy.array, copy.writer, copy.reader, copy.region, copy.nbytes)


class _Trees:
    """Bounds what all trees of a runtime remember, since each tape may have new arrays."""

    def __init__(self) -> None:
        self._launches: dict[Prefix, int] = {}  # by root, the oldest one first
        self._total = 0

    def count(self, root: Prefix, launches: int) -> None:
        """Count launches of a tree, and forget the oldest others if these are too many."""
        self._launches[root] = self._launches.get(root, 0) + launches
        self._total += launches
        while self._total > MOST_REMEMBERED and len(self._launches) > 1:
            oldest = next(each for each in self._launches if each is not root)
            self._total -= self._launches.pop(oldest)
            oldest.forget()

    def free_arenas(self, nbytes: int) -> None:
        """Free so many bytes of arenas, if those that no tape uses any more have as many."""
        for root in self._launches:
            if nbytes > 0 and root.arena is not None and root.arena.is_idle:
                nbytes -= root.arena.nbytes
                root.free_arena()

    def forget(self) -> None:
        """Forget all trees, and free their arenas, as the runtime ends."""
        for root in self._launches:
            root.forget()
        self._launches.clear()
        self._total = 0


def _trees() -> _Trees:
    """The trees of the runtime."""
    runtime = current_runtime.runtime()
    if runtime.tapes is None:
        runtime.tapes = _Trees()
    trees: _Trees = runtime.tapes
    return trees


def _forget_replays(prefix: Prefix | None) -> None:
    if prefix is not None:
        prefix.replays = None


@dataclass(frozen=True, slots=True)
class Keep:
    """Copy an array, of which the present contents are the final ones."""

    array: int


@dataclass(frozen=True, slots=True)
class Put:
    """Restore a region of an array from a copy that was made before a launch."""

    array: int
    copy: int
    region: ArrayRegion


@dataclass(frozen=True, slots=True)
class PutFinal:
    """Restore a region of an array from its final contents."""

    array: int
    region: ArrayRegion


Action = Keep | Put | PutFinal


class Reversal:
    """How a tape was reversed: what was done to memory before the reverse run of each entry.

    Args:
        arrays: the numbers of an entry, and of a position in its arrays, for each array.
        actions: for each entry, the last one first.
    """

    def __init__(
        self, arrays: Sequence[tuple[int, int]], actions: Sequence[Sequence[Action]]
    ) -> None:
        self.launches = len(actions)
        self._arrays = arrays
        self._actions = actions

    def run(self, entries: list[RecordedLaunch], copies: Sequence[Any]) -> None:
        """Reverse the same launches again, and free what only one of them needs.

        Args:
            entries: of a tape; they are removed.
            copies: what it has copied, in order.
        """
        arrays = [entries[number].memory(position) for number, position in self._arrays]
        final: dict[int, Any] = {}
        try:
            for actions in self._actions:
                for action in actions:
                    if isinstance(action, Put):
                        values = copies[action.copy]
                        if isinstance(values, PackedCopy):
                            values.restore()
                        else:
                            arrays[action.array].restore(values, action.region)
                    elif isinstance(action, Keep):
                        final[action.array] = arrays[action.array].snapshot()
                    else:
                        saved = final[action.array]
                        arrays[action.array].restore_part(saved, action.region)
                entries.pop().reverse(None)
        finally:
            for array, saved in final.items():
                arrays[array].restore(saved)


class Observation:
    """Observes what the ledger of a tape does to memory while the tape is reversed."""

    def __init__(self, entries: Sequence[RecordedLaunch], copies: Sequence[Any]) -> None:
        self._arrays: dict[Any, int] = {}
        self._positions: list[tuple[int, int]] = []
        for number, entry in enumerate(entries):
            for position, memory in entry.written_or_read().items():
                if memory.key not in self._arrays:
                    self._arrays[memory.key] = len(self._positions)
                    self._positions.append((number, position))
        self._copies = {id(values): number for number, values in enumerate(copies)}
        self._actions: list[list[Action]] = []
        self._is_whole = True

    def next_entry(self) -> None:
        """Observe the reversal of the entry before."""
        self._actions.append([])

    def kept(self, memory: TapedMemory) -> None:
        """The final contents of an array were copied."""
        self._note(memory, Keep)

    def put(self, memory: TapedMemory, values: Any, region: ArrayRegion) -> None:
        """A region was restored from a copy."""
        copy = self._copies.get(id(values))
        if copy is None:
            self._is_whole = False
        else:
            self._note(memory, lambda array: Put(array, copy, region))

    def put_final(self, memory: TapedMemory, region: ArrayRegion) -> None:
        """A region was restored from the final contents."""
        self._note(memory, lambda array: PutFinal(array, region))

    def _note(self, memory: TapedMemory, action: Callable[[int], Action]) -> None:
        array = self._arrays.get(memory.key)
        if array is None:
            self._is_whole = False
        else:
            self._actions[-1].append(action(array))

    def reversal(self) -> Reversal | None:
        """The observed reversal; None if it changed memory that the launches do not use."""
        if not self._is_whole:
            return None
        used = [action.array for actions in self._actions for action in actions]
        numbers = {array: number for number, array in enumerate(dict.fromkeys(used))}
        positions = [self._positions[array] for array in numbers]
        actions = [tuple(_renumbered(a, numbers) for a in each) for each in self._actions]
        return Reversal(positions, actions)


def _renumbered(action: Action, numbers: Mapping[int, int]) -> Action:
    array = numbers[action.array]
    if isinstance(action, Put):
        return Put(array, action.copy, action.region)
    return Keep(array) if isinstance(action, Keep) else PutFinal(array, action.region)
