"""Grows record buffers: a launch runs, then the work items that ran out of space run again.

The protocol, which this module alone decides:

1. Each thread gets a record buffer of as many bytes as a work item was found to need: its capacity.
2. A work item that needs more sets its bit in a failure report, reports how many bytes it needs,
   and ends before it has changed any memory.
3. The host reads that record, raises the capacity to the need, or to twice what it was if memory
   allows, and runs the failed work items again.
4. Where the device has no memory for that, fewer threads run at once; then records get a smaller
   share, so that loops run in shorter blocks; then the launch fails with `OutOfRecordMemory`.
5. A launch like an earlier one, in everything that its need depends on
   (`artifact.RecordBufferSizeInputs`), gets the capacity that the earlier one ended with, and the
   host does not wait for it.

`record_buffers` allocates the memory, `codegen.interleaved_record_buffer` writes the failure
report, and nodes of graphs follow a `Planned`.

Why are sizes not counted first? The length of a record is known only where its loop ends. For
`while`, `break` and bounds that the loop itself computes, counting is the first sweep without its
stores: it takes about as long as the sweep, and the host would have to wait for the sum before each
launch. With run and retry, only first launches and those with a new maximum run twice, and doubling
keeps these few; all others are one run without a wait, or with one wait for two words after it.
Exact sizes would not save memory either: the threads of a GPU share a heap in columns of equal
height (`abi.RECORD_BUFFER_LANES`), so that neighbours write adjacent words, and it must hold the
largest need of a work item for each thread that runs, not the sum over all work items. The
exception is a first sweep that stores: it cannot run again, so it gets plenty of memory for few
threads, and running out of that is an error at once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from octants import abi
from octants.artifact import Artifact, Dispatch, RecordBufferSizeInputs
from octants.diagnostics.exceptions import InternalError, OctantsError
from octants.diagnostics.kernel_run_time_errors import OutOfRecordMemory
from octants.lazy_dataclass import dataclass
from octants.runtime.gpu.driver import PreparedDispatch
from octants.runtime.gpu.record_buffers import DeviceRecordBuffers
from octants.runtime.memory.versions import Versions
from octants.runtime.reports.messages import recorded_loops

MOST_ITEMS = 1 << 27
"""The most work items of one launch: the failure report has a bit for each."""

_FIRST_CAPACITY = 512  # capacity in bytes of the first launch of a kernel
_LEAST_SHARE = abi.RECORD_BUFFER_WORD
_CACHED = 0.7
"""The part of the GPU's cache that record buffers may take."""
_ENOUGH_THREADS = 256
"""The threads of a multiprocessor that are as fast as more of them whose record buffers do not fit
the cache."""
_MOST_KNOWN = 4096  # launches with different inputs whose capacity is remembered
_PLENTY = 1 << 30  # bytes of all record buffers of a dispatch whose work items cannot run again


Bounds = tuple[int, int]


@dataclass
class Quota:
    """The threads that run a dispatch at once, and the bytes of each one's record buffer.

    The records of a work item should take at most ``share`` bytes, as far as shorter blocks of
    loops make that possible.
    """

    blocks: int
    block: int
    capacity: int
    share: int

    @property
    def nbytes(self) -> int:
        """The size of all record buffers, in bytes."""
        return _lanes(self.blocks * self.block) * self.capacity

    def put(
        self, words: Any, bounds: Bounds, heap: int, report: int, *, retry: bool = False
    ) -> None:
        """Write the launch words; with ``retry``, only the work items that failed run."""
        words[abi.LAUNCH_LOWER // 8], words[abi.LAUNCH_UPPER // 8] = bounds
        words[abi.LAUNCH_RECORD_BUFFERS // 8] = heap
        words[abi.LAUNCH_CAPACITY // 8] = self.capacity
        words[abi.LAUNCH_SHARE // 8] = self.share
        words[abi.LAUNCH_FAILURES // 8] = report
        words[abi.LAUNCH_RETRY // 8] = retry


@dataclass
class Planned:
    """The quota of a node of a graph, which runs ``items`` work items from ``lower`` on.

    `items` is 0 if the device computes the bounds. The node cannot run out of space for records.
    """

    quota: Quota
    lower: int
    items: int

    def put(self, words: Any, heap: int, report: int) -> None:
        """Write launch words; ``heap`` is the address of record buffers, ``report`` of failures."""
        self.quota.put(words, (self.lower, self.lower + self.items), heap, report)

    def shrink(self) -> bool:
        """Halve the threads that run at once; False if only one block is left."""
        quota = self.quota
        quota.blocks, before = max(1, quota.blocks // 2), quota.blocks
        return quota.blocks < before


@dataclass(frozen=True, slots=True)
class Known:
    """A capacity and a share, in bytes, that were enough at versions of memory."""

    capacity: int
    share: int
    versions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The launch that a prepared dispatch has the words of, with the capacity of an earlier one.

    A launch with the same `bounds`, `inputs` and `versions`, while record buffers have the same
    `layout`, runs with the same words.
    """

    bounds: Bounds
    inputs: Any
    versions: tuple[int, ...]
    layout: object
    quota: Quota


@dataclass(slots=True)
class _Launch:
    """A launch of the work items between bounds, with the slots of a parameter block.

    The thread holds the lock of the record buffers.
    """

    step: PreparedDispatch
    bounds: Bounds
    buffers: DeviceRecordBuffers
    slots: Sequence[int]

    @property
    def items(self) -> int:
        """The number of work items."""
        return self.bounds[1] - self.bounds[0]


class Recording:
    """Sizes the record buffers of one dispatch, over all its launches.

    Args:
        budget: What all its record buffers should take, in bytes.
        multiprocessors: The least number of blocks that keep the GPU busy.
        most_items: The most work items that run at once.
        cache_bytes: The size of the GPU's last cache; 0 if it is not known.
    """

    def __init__(
        self,
        artifact: Artifact,
        dispatch: Dispatch,
        budget: int,
        multiprocessors: int,
        versions: Versions,
        most_items: int = MOST_ITEMS,
        cache_bytes: int = 0,
    ) -> None:
        self._artifact = artifact
        self._can_retry = dispatch.can_retry
        self._needs, self._domain_needs = dispatch.needs, dispatch.domain_needs
        self._read_inputs = _reader(dispatch.needs)
        self._versions = versions
        self._budget = budget
        self._multiprocessors = multiprocessors
        self._most_items = most_items
        self._cached_bytes = int(_CACHED * cache_bytes) if dispatch.records_iterations else 0
        self._need = 0  # what its work items have needed so far, at the first share
        self._known: dict[tuple[int, ...], Known] = {}
        self._domains: dict[tuple[int, ...], tuple[tuple[int, ...], Bounds]] = {}

    def run(
        self,
        step: PreparedDispatch,
        lower: int,
        upper: int,
        buffers: DeviceRecordBuffers,
        slots: Sequence[int] = (),
    ) -> None:
        """Run all work items; the host waits unless an earlier launch with equal inputs is known.

        Args:
            lower: The first work item.
            upper: The one past the last.
            slots: The slots of the parameter block.
        """
        with buffers.lock:
            if self._run_again(_Launch(step, (lower, upper), buffers, slots)):
                return
            for part in self._parts(lower, upper):
                self._run_part(_Launch(step, part, buffers, slots))

    def _run_again(self, launch: _Launch) -> bool:
        """Run the dispatch with the words that it has, if the last launch was like this one."""
        last: Repeat | None = launch.step.repeat
        if (
            last is None
            or last.bounds != launch.bounds
            or last.inputs != self._read_inputs(launch.slots)
            or not self.repeats(last, launch.buffers, launch.slots)
        ):
            return False
        launch.step.launch_as(last.quota.blocks, last.quota.block)
        self.repeated(last, launch.buffers)
        return True

    def repeats(self, last: Repeat, buffers: DeviceRecordBuffers, slots: Sequence[int]) -> bool:
        """Whether a launch with the bounds and inputs of an earlier one may have its words.

        The caller holds the lock of the record buffers.
        """
        return buffers.is_ready(last.layout) and last.versions == self._current(self._needs, slots)

    def repeated(self, last: Repeat, buffers: DeviceRecordBuffers) -> None:
        """Register a queued launch with the words of an earlier one."""
        if last.versions:
            buffers.trust(self._artifact.kernel or self._artifact.name)

    def _parts(self, lower: int, upper: int) -> list[Bounds]:
        """The bounds of the launches that the work items are split into."""
        most = min(self._most_items, MOST_ITEMS)
        return [(begin, min(begin + most, upper)) for begin in range(lower, upper, most)]

    def run_computed(
        self,
        step: PreparedDispatch,
        buffers: DeviceRecordBuffers,
        address: int,
        slots: Sequence[int],
    ) -> None:
        """Run all work items between bounds that the device computed at ``address``, where 32 bytes
        are.

        The host reads the bounds, unless it knows them from an earlier launch.
        """
        with buffers.lock:
            lower, upper = self._domain(buffers, address, slots)
            parts = self._parts(lower, upper)
            is_whole = len(parts) <= 1
            step.words[abi.LAUNCH_BOUNDS // 8] = address if is_whole else address + 16
            for part in parts:
                if not is_whole:
                    buffers.write_bounds(address + 16, *part)
                self._run_part(_Launch(step, part, buffers, slots))

    def _run_part(self, launch: _Launch) -> None:
        step, bounds, slots = launch.step, launch.bounds, launch.slots
        key, versions = self._key(step, bounds, slots), self._current(self._needs, slots)
        known = None if versions is None else self._known.get(key)
        if known is not None and known.versions != versions:
            known = None
        quota = None if known is None else self._run_known(launch, known)
        if known is not None and quota is not None:
            inputs, layout = self._read_inputs(slots), launch.buffers.layout
            step.repeat = Repeat(bounds, inputs, known.versions, layout, quota)
            return
        quota = self._run_some(launch)
        if versions is not None:
            _learn(self._known, key, Known(quota.capacity, quota.share, versions))

    # -- earlier launches -----------------------------------------------------------------------

    def _current(
        self, needs: RecordBufferSizeInputs | None, slots: Sequence[int]
    ) -> tuple[int, ...] | None:
        """The versions of the memory among the inputs of a size; None if the inputs are unknown."""
        if needs is None:
            return None
        return self._versions.of(needs.memory, slots) if needs.memory else ()

    def _domain(self, buffers: DeviceRecordBuffers, address: int, slots: Sequence[int]) -> Bounds:
        """The bounds that the device computed, read unless an earlier launch with equal inputs is
        known.
        """
        versions = self._current(self._domain_needs, slots)
        if versions is None or self._domain_needs is None:
            return buffers.read_bounds(address)
        key = tuple(slots[number] for number in self._domain_needs.slots)
        known = self._domains.get(key)
        if known is None or known[0] != versions:
            known = versions, buffers.read_bounds(address)
            _learn(self._domains, key, known)
        return known[1]

    def _key(self, step: PreparedDispatch, bounds: Bounds, slots: Sequence[int]) -> tuple[int, ...]:
        """The inputs besides memory that determine the size of record buffers; empty if unknown."""
        needs = self._needs
        if needs is None:
            return ()
        share = self._full(step, bounds[1] - bounds[0]).share
        items = bounds if needs.by_item else ()
        return (share, *(slots[number] for number in needs.slots), *items)

    def _run_known(self, launch: _Launch, known: Known) -> Quota | None:
        """Run work items with the capacity of an earlier, equal launch; None if there is no
        memory.
        """
        full = self._full(launch.step, launch.items)
        full.share, capacity = known.share, known.capacity
        quota = self._quota_within_budget(launch, full, capacity, capacity)
        if quota is not None:
            self._launch(launch, quota, launch.buffers.clean_report(launch.items))
            if known.versions:
                launch.buffers.trust(self._artifact.kernel or self._artifact.name)
        return quota

    def _full(self, step: PreparedDispatch, items: int) -> Quota:
        """The threads that occupy the GPU, or one for each work item, with the initial share."""
        blocks = min(step.fill, -(-items // step.block))
        share = _whole(self._budget // (blocks * step.block))
        block = step.block_for(items)
        if block < step.block:
            blocks = -(-items // block)
        return Quota(blocks, block, 0, share)

    # -- graphs ---------------------------------------------------------------------------------

    def may_be_planned(self, is_computed: bool) -> bool:
        """Whether the slots decide how much is needed; the device may have computed the bounds."""
        needs = self._needs
        return needs is not None and not (needs.memory or (is_computed and needs.by_item))

    def plan(
        self, step: PreparedDispatch, bounds: Bounds | None, slots: Sequence[int]
    ) -> list[Planned] | None:
        """The quotas for replaying a launch; None if no earlier one with equal inputs is known.

        Only for a dispatch that `may_be_planned`. The bounds are None if the device computes them.
        """
        if bounds is None:
            known = self._known_of(slots)
            if known is None:
                return None
            full = Quota(step.fill, step.block, 0, known.share)
            return [Planned(self._limited(full, known.capacity), 0, 0)]
        plans = []
        for lower, upper in self._parts(*bounds):
            known = self._known.get(self._key(step, (lower, upper), slots))
            if known is None:
                return None
            full = self._full(step, upper - lower)
            full.share = known.share
            plans.append(Planned(self._limited(full, known.capacity), lower, upper - lower))
        return plans

    def _known_of(self, slots: Sequence[int]) -> Known | None:
        """The capacity of an earlier launch with equal slots, at any share."""
        assert self._needs is not None
        values = tuple(slots[number] for number in self._needs.slots)
        found = [known for key, known in self._known.items() if key[1:] == values]
        return found[-1] if found else None

    # -- run and retry --------------------------------------------------------------------------

    def _run_some(self, launch: _Launch) -> Quota:
        """Run work items, and again those that ran out of space for records, until all succeed.

        Returns:
            The quota of the last run.

        Raises:
            OctantsMemoryError: one work item alone needs more than there is.
        """
        step, buffers, full = launch.step, launch.buffers, self._full(launch.step, launch.items)
        first_share = full.share
        need, is_found = self._need or min(first_share, _FIRST_CAPACITY), bool(self._need)
        if not self._can_retry:
            full.blocks = min(full.blocks, self._multiprocessors)
            lanes = _lanes(full.blocks * full.block)
            need = max(need, _generous_capacity(lanes, buffers))
        generous, retries = need, False
        while True:
            quota = self._quota_within_budget(launch, full, need, generous)
            if quota is not None:
                report = step.words[abi.LAUNCH_FAILURES // 8]
                if not retries:
                    report = buffers.failure_report(launch.items)
                self._launch(launch, quota, report, retry=retries)
                found, count = buffers.read_failures()
                if not count:
                    break
                if found <= quota.capacity:
                    raise InternalError(
                        f"a record buffer of {quota.capacity} bytes was refused {found}"
                    )
                need, is_found, retries = _words(found), True, True
                generous = max(need, 2 * quota.capacity)  # a `while` asks for one iteration more
            elif full.share <= _LEAST_SHARE:
                raise self._failure(need, launch.bounds[0] + buffers.first_failure())
            else:
                full.share = _whole(min(full.share, need) // 4)
                need = generous = max(full.share, min(_FIRST_CAPACITY, need // 4))
        if is_found and quota.share == first_share:
            self._need = max(self._need, quota.capacity)
        return quota

    def _launch(self, launch: _Launch, quota: Quota, report: int, *, retry: bool = False) -> None:
        step = launch.step
        step.repeat = None
        quota.put(step.words, launch.bounds, launch.buffers.address, report, retry=retry)
        step.launch_as(quota.blocks, quota.block)

    def _quota_within_budget(
        self, launch: _Launch, full: Quota, need: int, generous: int
    ) -> Quota | None:
        """A quota with ``generous`` bytes for each thread, else with ``need``, for which there is
        memory.

        With ``need`` the number of threads falls until there is. None if there is not for one.
        """
        buffers, least = launch.buffers, launch.step.least_block
        for capacity in dict.fromkeys((generous, need)):
            quota = self._limited(full, capacity)
            if buffers.reserve(quota.nbytes):
                return quota
        while not buffers.reserve(quota.nbytes):
            if quota.blocks > 1:
                quota.blocks //= 2
            elif quota.block > least:
                quota.block = least
            else:
                return None
        return quota

    def _limited(self, full: Quota, capacity: int) -> Quota:
        """A quota of as many threads with ``capacity`` bytes each as the budget allows."""
        budget = self._budget if self._can_retry else max(self._budget, _PLENTY)
        nbytes = _lanes(full.block) * capacity
        most = max(budget // nbytes, self._multiprocessors)
        near = self._cached_bytes // (nbytes * self._multiprocessors)
        if near * full.block >= _ENOUGH_THREADS:
            most = min(most, near * self._multiprocessors)
        return Quota(min(full.blocks, most), full.block, capacity, full.share)

    def _failure(self, need: int, item: int) -> OctantsError:
        artifact = self._artifact
        text = f"one work item needs {need} bytes"
        error = OutOfRecordMemory(artifact.kernel or artifact.name, text, item)
        return error.at(None, *recorded_loops(artifact))


def _reader(needs: RecordBufferSizeInputs | None) -> Callable[[Sequence[int]], Any]:
    """A function that reads the inputs of a size among the slots of a parameter block."""
    if needs is None or not needs.slots:
        return _nothing
    read: Callable[[Sequence[int]], Any] = operator.itemgetter(*needs.slots)
    return read


def _nothing(_: Sequence[int]) -> None:
    pass


def _learn(known: dict[Any, Any], key: tuple[int, ...], value: Any) -> None:
    if len(known) >= _MOST_KNOWN:
        known.clear()
    known[key] = value


def _generous_capacity(lanes: int, buffers: DeviceRecordBuffers) -> int:
    """The most bytes that each of ``lanes`` record buffers can have; 0 if memory is short."""
    nbytes = _PLENTY // lanes
    while nbytes > _FIRST_CAPACITY and not buffers.reserve(nbytes * lanes):
        nbytes //= 2
    return nbytes // abi.RECORD_BUFFER_WORD * abi.RECORD_BUFFER_WORD


def _lanes(threads: int) -> int:
    """The record buffers for ``threads`` threads: whole groups of `abi.RECORD_BUFFER_LANES`."""
    return -(-threads // abi.RECORD_BUFFER_LANES) * abi.RECORD_BUFFER_LANES


def _whole(nbytes: int) -> int:
    """A number of bytes rounded down to whole words, at least one."""
    return max(_LEAST_SHARE, nbytes // abi.RECORD_BUFFER_WORD * abi.RECORD_BUFFER_WORD)


def _words(nbytes: int) -> int:
    """A number of bytes rounded up to whole words."""
    return -(-nbytes // abi.RECORD_BUFFER_WORD) * abi.RECORD_BUFFER_WORD
