"""How large tapes are: launches that record run, and what was refused memory runs again.

Each thread has a tape of as many bytes as a work item was found to need (its capacity). A work item
that needs more notes that and ends before it has changed anything; it alone runs again with more.
Where memory is refused, fewer threads run at once; then the records get a smaller share, so that
loops run in shorter blocks; then the launch fails. This module alone decides; `tapes` has the
memory, kernels note what was refused (`codegen.interleaved_tape`), and nodes of graphs have a
`Planned` of it.

Why not count first, exactly? The length of a record is known where its loop ends. For `while`,
`break` and bounds that the loop itself computes, counting is the first sweep without its stores: it
takes about as long as the sweep, and the host would have to wait for the sum before each launch.
Here a launch is one run with no wait as soon as one like it was seen (`artifact.TapeSizeInputs`
says which are alike: same slots, same versions of what decides); one that depends on more waits,
once, for two words behind the run. Only first launches and those with a new maximum pay for runs
again, and these double a capacity, so that they are few. Exact sizes would not save memory either:
the threads of a GPU share a heap in columns of equal height (`abi.TAPE_LANES`), so that neighbours
write adjacent words, and it has to hold the largest need of a work item for each thread that runs,
not the sum over all work items. The counter-example is a first sweep that stores: it cannot run
again, and has plenty of memory for few threads; too little there is a failure at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octants import abi
from octants.artifact import Artifact, Dispatch, TapeSizeInputs
from octants.diagnostics.exceptions import InternalError, OctantsError
from octants.diagnostics.kernel_errors import TapeMemoryRefused
from octants.lazy_dataclass import dataclass
from octants.runtime.gpu.driver import PreparedDispatch
from octants.runtime.gpu.tapes import DeviceTape
from octants.runtime.memory.versions import Versions
from octants.runtime.reports.messages import recorded_loops

MOST_ITEMS = 1 << 27
"""Work items of one launch: what is told of refused ones takes a bit for each."""

_GUESS = 512  # bytes that a thread of a kernel that has not run yet begins with
_LEAST_SHARE = abi.TAPE_WORD
_MOST_KNOWN = 4096  # launches that are told apart by what decides their need
_PLENTY = 1 << 30  # bytes of the tapes of a dispatch whose work items cannot run again


Bounds = tuple[int, int]


@dataclass
class Quota:
    """How many threads run a dispatch at once, and the bytes that each of their tapes has.

    The records of a work item should take no more than a ``share`` of bytes, as far as shorter
    blocks of loops make that possible.
    """

    blocks: int
    block: int
    capacity: int
    share: int

    @property
    def nbytes(self) -> int:
        """The bytes of all tapes."""
        return _lanes(self.blocks * self.block) * self.capacity

    def put(
        self, words: Any, bounds: Bounds, heap: int, refused: int, *, again: bool = False
    ) -> None:
        """Write the launch words; ``again`` runs the work items alone that are noted as refused."""
        words[abi.LAUNCH_LOWER // 8], words[abi.LAUNCH_UPPER // 8] = bounds
        words[abi.LAUNCH_TAPE // 8] = heap
        words[abi.LAUNCH_CAPACITY // 8] = self.capacity
        words[abi.LAUNCH_SHARE // 8] = self.share
        words[abi.LAUNCH_REFUSED // 8] = refused
        words[abi.LAUNCH_AGAIN // 8] = again


@dataclass
class Planned:
    """How a part of a dispatch runs again in a graph, with so many `items` from `lower` on.

    There are 0 items if the device computes the bounds. One that `is_sure` has all memory that its
    work items can need.
    """

    quota: Quota
    lower: int
    items: int
    is_sure: bool

    def put(self, words: Any, heap: int, refused: int) -> None:
        """Write the launch words."""
        self.quota.put(words, (self.lower, self.lower + self.items), heap, refused)

    def shrink(self) -> bool:
        """Run fewer threads at once; False if there is one block already."""
        quota = self.quota
        quota.blocks, before = max(1, quota.blocks // 2), quota.blocks
        return quota.blocks < before


@dataclass(frozen=True, slots=True)
class Known:
    """The bytes and the share with which no work item was refused, at versions of memory."""

    capacity: int
    share: int
    versions: tuple[int, ...]


class Recording:
    """A dispatch that records, at all its launches. ``budget`` is what its tapes should take.

    At most ``most_items`` work items run at once.
    """

    def __init__(
        self,
        artifact: Artifact,
        dispatch: Dispatch,
        budget: int,
        multiprocessors: int,
        versions: Versions,
        most_items: int = MOST_ITEMS,
    ) -> None:
        self._artifact = artifact
        self._runs_again = dispatch.run_again
        self._needs, self._domain_needs = dispatch.needs, dispatch.domain_needs
        self._versions = versions
        self._budget = budget
        self._multiprocessors = multiprocessors
        self._most_items = most_items
        self._need = 0  # what its work items have needed so far, at the first share
        self._known: dict[tuple[int, ...], Known] = {}
        self._domains: dict[tuple[int, ...], tuple[tuple[int, ...], Bounds]] = {}
        self.last: list[Quota] = []

    def run(
        self,
        step: PreparedDispatch,
        lower: int,
        upper: int,
        tape: DeviceTape,
        slots: Sequence[int] = (),
    ) -> None:
        """Run all work items. The host waits for them, unless it knows from an earlier launch with
        ``slots`` like these what they need.
        """
        self.last = []
        with tape.lock:
            for begin, end in self._parts(lower, upper):
                self._run_part(step, begin, end, tape, slots)

    def _parts(self, lower: int, upper: int) -> list[Bounds]:
        """The work items that run at once."""
        most = min(self._most_items, MOST_ITEMS)
        return [(begin, min(begin + most, upper)) for begin in range(lower, upper, most)]

    def run_computed(
        self, step: PreparedDispatch, tape: DeviceTape, address: int, slots: Sequence[int]
    ) -> None:
        """The same over bounds that the device has computed at ``address``; a copy is behind them.

        The host looks at them, unless it knows them from an earlier launch.
        """
        self.last = []
        with tape.lock:
            lower, upper = self._domain(tape, address, slots)
            parts = self._parts(lower, upper)
            is_whole = len(parts) <= 1
            step.words[abi.LAUNCH_BOUNDS // 8] = address if is_whole else address + 16
            for begin, end in parts:
                if not is_whole:
                    tape.write_bounds(address + 16, begin, end)
                self._run_part(step, begin, end, tape, slots)

    def _run_part(
        self, step: PreparedDispatch, lower: int, upper: int, tape: DeviceTape, slots: Sequence[int]
    ) -> None:
        key, versions = self._key(step, lower, upper, slots), self._current(self._needs, slots)
        known = None if versions is None else self._known.get(key)
        if known is not None and known.versions != versions:
            known = None
        if known is not None and self._run_known(step, lower, upper, tape, known):
            return
        quota = self._run_some(step, lower, upper, tape)
        if versions is not None:
            _learn(self._known, key, Known(quota.capacity, quota.share, versions))

    def go_on(self, step: PreparedDispatch, plan: Planned, tape: DeviceTape, noted: int) -> None:
        """Run the work items of a node of a graph that are noted as refused at an address.

        0 runs all work items of a node that has not run.
        """
        self.last = []
        with tape.lock:
            need = 0
            if noted:
                step.words[abi.LAUNCH_REFUSED // 8], need = tape.adopt(noted, plan.items)
            self._run_some(step, plan.lower, plan.lower + plan.items, tape, refused=need)

    # -- what is known --------------------------------------------------------------------------

    def versions(self, slots: Sequence[int]) -> tuple[int, ...] | None:
        """Those of the memory that decides what work items need; None where that is not all."""
        return self._current(self._needs, slots)

    def _current(
        self, needs: TapeSizeInputs | None, slots: Sequence[int]
    ) -> tuple[int, ...] | None:
        """The versions of the memory that decides something; None where that cannot be told."""
        if needs is None:
            return None
        return self._versions.of(needs.memory, slots) if needs.memory else ()

    def _domain(self, tape: DeviceTape, address: int, slots: Sequence[int]) -> Bounds:
        """The bounds that the device has computed."""
        versions = self._current(self._domain_needs, slots)
        if versions is None or self._domain_needs is None:
            return tape.read_bounds(address)
        key = tuple(slots[number] for number in self._domain_needs.slots)
        known = self._domains.get(key)
        if known is None or known[0] != versions:
            known = versions, tape.read_bounds(address)
            _learn(self._domains, key, known)
        return known[1]

    def _key(
        self, step: PreparedDispatch, lower: int, upper: int, slots: Sequence[int]
    ) -> tuple[int, ...]:
        """What decides the need of work items, besides memory; empty where nothing tells."""
        needs = self._needs
        if needs is None:
            return ()
        share = self._full(step, upper - lower).share
        bounds = (lower, upper) if needs.by_item else ()
        return (share, *(slots[number] for number in needs.slots), *bounds)

    def _run_known(
        self, step: PreparedDispatch, lower: int, upper: int, tape: DeviceTape, known: Known
    ) -> bool:
        """Run work items with the room that they need for sure; False if memory is refused."""
        full = self._full(step, upper - lower)
        full.share, capacity = known.share, known.capacity
        quota = self._fit(full, capacity, capacity, step.least_block, tape)
        if quota is None:
            return False
        self._launch(step, lower, upper, tape.nothing_refused(upper - lower), tape, quota)
        if known.versions:
            tape.trust(self._artifact.kernel or self._artifact.name)
        self.last.append(quota)
        return True

    def _full(self, step: PreparedDispatch, items: int) -> Quota:
        """The threads that fill the GPU, or have a work item each, and the share at first."""
        blocks = min(step.fill, -(-items // step.block))
        return Quota(blocks, step.block, 0, _whole(self._budget // (blocks * step.block)))

    # -- graphs ---------------------------------------------------------------------------------

    def plan(
        self,
        step: PreparedDispatch,
        bounds: tuple[int, int] | None,
        slots: Sequence[int],
        last: Sequence[Quota],
    ) -> list[Planned]:
        """How a launch that has just run does so again; ``last`` is what was noted of it then.

        Without ``bounds`` the device computes them. Nothing can be planned where it is not known
        what the work items need.
        """
        if bounds is None:
            found = self._known_of(slots)
            if found is None:
                return []
            full = Quota(step.fill, step.block, 0, found.share)
            return [Planned(self._limited(full, found.capacity), 0, 0, is_sure=True)]
        if not last:
            return []
        return [
            self._plan_some(step, begin, end, slots, last) for begin, end in self._parts(*bounds)
        ]

    def _plan_some(
        self,
        step: PreparedDispatch,
        lower: int,
        upper: int,
        slots: Sequence[int],
        last: Sequence[Quota],
    ) -> Planned:
        known = self._known.get(self._key(step, lower, upper, slots))
        if known is not None and not known.versions:
            full = self._full(step, upper - lower)
            full.share = known.share
            quota = self._limited(full, known.capacity)
            return Planned(quota, lower, upper - lower, is_sure=True)
        most = max(last, key=lambda quota: quota.capacity)
        quota = Quota(most.blocks, most.block, 2 * most.capacity, most.share)
        return Planned(quota, lower, upper - lower, is_sure=False)

    def _known_of(self, slots: Sequence[int]) -> Known | None:
        """What is known of a launch with slots like these, at any share."""
        if self._needs is None or self._needs.by_item or self._needs.memory:
            return None
        values = tuple(slots[number] for number in self._needs.slots)
        found = [known for key, known in self._known.items() if key[1:] == values]
        return found[-1] if found else None

    # -- what is found out ----------------------------------------------------------------------

    def _run_some(
        self,
        step: PreparedDispatch,
        lower: int,
        upper: int,
        tape: DeviceTape,
        refused: int = 0,
    ) -> Quota:
        """Run work items until none is refused any more; gives what they had then.

        If one was ``refused`` so many bytes already, only those run that are noted as refused.
        """
        full = self._full(step, upper - lower)
        first_share = full.share
        need, is_found = self._need or min(first_share, _GUESS), bool(self._need)
        if not self._runs_again:
            full.blocks = min(full.blocks, self._multiprocessors)
            lanes = _lanes(full.blocks * full.block)
            need = max(need, _plenty(lanes, tape))
        generous, again = need, refused > 0
        if again:
            need, is_found = max(need, _words(refused)), True
            generous = 2 * need
        while True:
            quota = self._fit(full, need, generous, step.least_block, tape)
            if quota is not None:
                noted = step.words[abi.LAUNCH_REFUSED // 8] if again else tape.expect(upper - lower)
                self._launch(step, lower, upper, noted, tape, quota, again)
                found, count = tape.refused()
                if not count:
                    break
                if found <= quota.capacity:
                    raise InternalError(f"a tape of {quota.capacity} bytes was refused {found}")
                need, is_found, again = _words(found), True, True
                generous = max(need, 2 * quota.capacity)  # a `while` asks for one iteration more
            elif full.share <= _LEAST_SHARE:
                raise self._refused(need, lower, tape)
            else:
                full.share = _whole(min(full.share, need) // 4)
                need = generous = max(full.share, min(_GUESS, need // 4))
        if is_found and quota.share == first_share:
            self._need = max(self._need, quota.capacity)
        self.last.append(quota)
        return quota

    def _launch(
        self,
        step: PreparedDispatch,
        lower: int,
        upper: int,
        refused: int,
        tape: DeviceTape,
        quota: Quota,
        again: bool = False,
    ) -> None:
        quota.put(step.words, (lower, upper), tape.address, refused, again=again)
        step.launch_as(quota.blocks, quota.block)

    def _fit(
        self, full: Quota, need: int, generous: int, least: int, tape: DeviceTape
    ) -> Quota | None:
        """Threads with ``generous`` bytes each, or with ``need``; None if one has not even that.

        With ``need`` there are as many threads as there is memory for.
        """
        for capacity in dict.fromkeys((generous, need)):
            quota = self._limited(full, capacity)
            if tape.reserve(quota.nbytes):
                return quota
        while not tape.reserve(quota.nbytes):
            if quota.blocks > 1:
                quota.blocks //= 2
            elif quota.block > least:
                quota.block = least
            else:
                return None
        return quota

    def _limited(self, full: Quota, capacity: int) -> Quota:
        """As many threads with so many bytes each as the budget has room for."""
        budget = self._budget if self._runs_again else max(self._budget, _PLENTY)
        most = max(budget // (_lanes(full.block) * capacity), self._multiprocessors)
        return Quota(min(full.blocks, most), full.block, capacity, full.share)

    def _refused(self, need: int, lower: int, tape: DeviceTape) -> OctantsError:
        artifact = self._artifact
        text = f"one work item has come to need {need} bytes"
        item = lower + tape.first_refused()
        error = TapeMemoryRefused(artifact.kernel or artifact.name, text, item)
        return error.at(None, *recorded_loops(artifact))


def _learn(known: dict[Any, Any], key: tuple[int, ...], value: Any) -> None:
    if len(known) >= _MOST_KNOWN:
        known.clear()
    known[key] = value


def _plenty(lanes: int, tape: DeviceTape) -> int:
    """The bytes that each of so many tapes can have, at most; 0 where there is next to nothing."""
    nbytes = _PLENTY // lanes
    while nbytes > _GUESS and not tape.reserve(nbytes * lanes):
        nbytes //= 2
    return nbytes // abi.TAPE_WORD * abi.TAPE_WORD


def _lanes(threads: int) -> int:
    """The tapes that stand where so many threads have theirs."""
    return -(-threads // abi.TAPE_LANES) * abi.TAPE_LANES


def _whole(nbytes: int) -> int:
    """A share of whole words, at least one."""
    return max(_LEAST_SHARE, nbytes // abi.TAPE_WORD * abi.TAPE_WORD)


def _words(nbytes: int) -> int:
    """So many bytes, or what is missing to whole words more."""
    return -(-nbytes // abi.TAPE_WORD) * abi.TAPE_WORD
