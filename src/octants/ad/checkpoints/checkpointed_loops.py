"""Reverses a long loop of launches in bounded memory: ``qd.ad.checkpointed(step, n)``.

Under a tape the steps first run unrecorded, with snapshots on the way. Backward, the steps run
again from the last snapshot, then the last step is recorded and reversed, and so on:
`snapshot_schedule` plans the snapshots, `snapshots` stores the state.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from octants import driver
from octants.ad.checkpoints.checkpoint_snapshots import Snapshots
from octants.ad.checkpoints.checkpointed_steps import StepRecorder, StepRunner
from octants.ad.checkpoints.snapshot_schedule import (
    Stop,
    next_snapshot,
    redundant_snapshots,
    stops_of_known_length,
    stops_of_unknown_length,
)
from octants.ad.checkpoints.step_repeatability import StepEvents, Trace
from octants.ad.overwrites.needed_contents import Content
from octants.ad.overwrites.overwrite_ledger import OverwriteLedger
from octants.ad.tapes.tape import Tape
from octants.data.host_access_events import HostWrite, forget, host_writes
from octants.diagnostics.checkpoint_errors import StepHasFailed, WrongLoop
from octants.launch.gradients.taped_memory import TapedMemory
from octants.lazy_dataclass import dataclass

_WHAT = "a checkpointed loop"


@dataclass(frozen=True)
class Statistics:
    """The costs of a loop so far.

    `steps` is its length, `runs` how often a step was run, recorded or not. `snapshots` is the
    number that were taken, `peak_bytes` the most bytes that they held at a time.
    """

    steps: int = 0
    runs: int = 0
    snapshots: int = 0
    peak_bytes: int = 0


class CheckpointedLoop:
    """A loop that has run: what `checkpointed` returns."""

    def __init__(self, step: Callable[[int], Any], n: int | None, slots: int) -> None:
        self.step = step
        self.n = n
        self.slots = slots
        self.steps = 0
        self.runs = 0
        self.snapshots: Snapshots | None = None

    @property
    def statistics(self) -> Statistics:
        """The costs of the loop so far; after the body of the tape, with the backward pass."""
        snapshots = self.snapshots
        taken, peak = (snapshots.taken, snapshots.peak) if snapshots is not None else (0, 0)
        return Statistics(self.steps, self.runs, taken, peak)

    def run_step(self, number: int) -> bool:
        """Run a step; gives whether it was the last."""
        self.runs += 1
        goes_on = self.step(number)
        if isinstance(goes_on, (bool, np.bool_)):
            return not goes_on
        if self.n is None and goes_on is not None:
            remedy = "without `n`, return True or nothing to go on, and False to end the loop"
            raise WrongLoop(f"the step returned {goes_on!r}", remedy).at()
        return False

    def __repr__(self) -> str:
        return f"<checkpointed loop: {self.statistics}>"


def checkpointed(
    step: Callable[[int], Any], n: int | None = None, *, slots: int = 20
) -> CheckpointedLoop:
    """Call ``step(0)``, ``step(1)``, ... ``step(n - 1)``; under a tape, in bounded memory.

    The tape keeps at most `slots` snapshots of what the steps overwrite. The backward pass runs
    steps again from the snapshots, as few as possible: with 20 slots, none of 231 steps runs more
    than three times in all, of 1,771 four times, of 10,626 five times. Gradients are the same as
    without `checkpointed`. Without a tape, under `no_grad` or forward mode, the steps simply run.
    Loops may be nested.

    Example::

        with qd.ad.Tape(loss=loss):
            qd.ad.checkpointed(lambda i: step(), n=1000, slots=20)
            measure()

    Args:
        step: a function of the step number, which launches kernels, and reads and writes arrays. It
            must do the same each time for the same number and arrays: what it changes, prints or
            counts in Python happens again in the backward pass. A step that returns ``False`` is
            the last.
        n: the number of steps; without it, the loop runs until a step returns ``False``.
        slots: the most snapshots that exist at a time.

    Returns:
        The loop; its `statistics` count steps, runs, snapshots and bytes.

    Raises:
        OctantsValueError: if `slots` is less than 1, or `n` is negative.
        OctantsRuntimeError: in the backward pass, if a step does something different.
        OctantsMemoryError: if the snapshots exceed ``init(ad_snapshot_budget_bytes=...)``.
    """
    loop = CheckpointedLoop(step, _count("n", n, 0) if n is not None else None, _slots(slots))
    if not callable(step):
        raise WrongLoop(f"{step!r} cannot be called", "give a function of the step number").at()
    recorder = driver.state.own_recorder
    with _as_one_event(loop, recorder):
        if _records(recorder):
            assert isinstance(recorder, Tape)
            _record(loop, recorder)
        else:
            _run(loop)
    return loop


def _slots(slots: Any) -> int:
    return _count("slots", slots, 1)


def _count(name: str, value: Any, least: int) -> int:
    """An argument as an integer."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        remedy = f"give an integer of at least {least}"
        raise WrongLoop(f"`{name}` is {value!r}", remedy).at()
    return number


def _records(recorder: Any) -> bool:
    return isinstance(recorder, Tape) and not recorder.paused


@contextlib.contextmanager
def _as_one_event(loop: CheckpointedLoop, recorder: Any) -> Iterator[None]:
    """Let an enclosing step trace a loop as one event instead of its launches.

    Which launches a loop makes depends on whether the step is run or recorded.
    """
    trace: Trace | None = getattr(recorder, "trace", None)
    if trace is None:
        yield
        return
    trace.paused += 1
    try:
        yield
    finally:
        trace.paused -= 1
    trace.event(f"a checkpointed loop of {loop.steps} steps")


def _run(loop: CheckpointedLoop) -> None:
    """Run the steps without snapshots."""
    while loop.steps != loop.n:
        has_ended = loop.run_step(loop.steps)
        loop.steps += 1
        if has_ended:
            return


def _record(loop: CheckpointedLoop, tape: Tape) -> None:
    """Run the steps, unrecorded and with snapshots as far as that pays.

    If their number is known, the last step is recorded, because it is reversed first; a tape that
    does not save leaves it to the loop, which does.
    """
    entry = LoopEntry(loop, tape)
    unrecorded = loop.n
    if loop.n is not None and tape.on_overwrite == "save":
        unrecorded = max(0, loop.n - 1)
    if not entry.run(unrecorded) and loop.steps != loop.n:
        loop.run_step(loop.steps)
        loop.steps += 1


class FailedEntry:
    """The steps before one that raised: reversing them is an error."""

    kernels: frozenset[Any] = frozenset()

    def __init__(self, step: int, error: BaseException) -> None:
        self._step = step
        self._error = type(error).__name__

    def reverse(self, _: OverwriteLedger) -> None:
        raise StepHasFailed(self._step, self._error).at()


class LoopEntry:
    """The steps of a loop on a tape, as snapshots."""

    def __init__(self, loop: CheckpointedLoop, tape: Tape) -> None:
        budget = driver.snapshot_budget() - tape.snapshot_bytes
        self._loop = loop
        self._tape = tape
        self._snapshots = loop.snapshots = Snapshots(loop.slots, budget)
        self._trace = Trace()
        self._runner = StepRunner(self._snapshots, self._trace, tape)
        self._touched_before = set(tape.touched)
        self._contents: list[Content] = []
        self._first_number = self._number = driver.next_launch_number()
        self._steps = 0

    @property
    def kernels(self) -> set[Any]:
        """The kernels that the steps launch."""
        return self._trace.kernels

    def writer_of(self, memory: TapedMemory) -> str | None:
        """The loop, in words, if its steps have written an array."""
        keys = (written.key for written in self._runner.written())
        return "a checkpointed loop" if memory.key in keys else None

    # -- forward --------------------------------------------------------------------------------

    def run(self, most: int | None) -> bool:
        """Run at most so many steps; gives whether a step ended the loop."""
        tape = self._tape
        tape.paused += 1
        try:
            with _launching(self._runner, self._runner.before_write):
                has_ended = self._run_first(most)
            self._runner.check()
        except BaseException as error:
            tape.append(FailedEntry(self._steps, error))
            raise
        finally:
            tape.paused -= 1
            self._runner.tape = None
        self._loop.steps = self._steps
        if self._steps:
            tape.count_copies(self._snapshots.peak)
            self._contents = tape.need_all(self._runner.memories(), _WHAT)
            tape.append(self)
        return has_ended

    def _run_first(self, most: int | None) -> bool:
        slots = self._loop.slots
        stops = (
            stops_of_unknown_length(slots)
            if most is None
            else stops_of_known_length(most + 1, slots)
        )
        stop, newest, has_ended = next(stops, None), 0, False
        while self._steps != most and not has_ended:
            if stop is not None and stop.step == self._steps:
                newest = self._stop_at(stop)
                stop = next(stops, None)
            self._runner.step = self._steps
            has_ended = self._run_step(self._steps)
            self._steps += 1
        steps = [snapshot.step for snapshot in self._snapshots.stack]
        for _ in range(redundant_snapshots(steps, newest, self._steps, slots)):
            newest -= 1
            self._snapshots.drop(newest)
        return has_ended

    def _stop_at(self, stop: Stop) -> int:
        """Take a snapshot; gives the index of the first one that must stay when the loop ends."""
        if stop.dropped:
            self._snapshots.drop(stop.dropped)
        self._snapshots.take(stop.step, driver.next_launch_number())
        return stop.dropped

    def _run_step(self, step: int) -> bool:
        """Run a step and check that it repeats; gives whether it ends the loop."""
        snapshot = self._snapshots.last
        is_first = snapshot.step == step
        now = self._trace.now = StepEvents(is_first=is_first)
        has_ended = self._loop.run_step(step)
        if has_ended:
            self._trace.event("the end")
        self._trace.compare(step, snapshot.first_step if is_first else None)
        if is_first and snapshot.first_step is None:
            snapshot.first_step = now
        return has_ended

    # -- backward -------------------------------------------------------------------------------

    def reverse(self, ledger: OverwriteLedger) -> None:
        ledger.restore(self._contents, _WHAT)
        for memory in self._runner.written():
            ledger.note_change(memory)
        end = self._steps
        try:
            with self._runner.launch_numbers_restored():
                while end:
                    end = self._reverse_before(end)
        finally:
            while self._snapshots.stack:  # after an error: undo what the ledger does not know
                self._snapshots.pop()

    def _reverse_before(self, end: int) -> int:
        """Reverse the step before ``end``; gives the next ``end``."""
        snapshots = self._snapshots
        snapshot = snapshots.restore()
        step, self._number = snapshot.step, snapshot.number
        while distance := next_snapshot(end - step, snapshots.free + 1):
            self._rerun(step, step + distance)
            step += distance
            snapshots.take(step, self._number)
        self._rerun(step, end - 1)
        self._reverse_step(end - 1)
        if snapshots.last.step == end - 1:
            snapshots.pop()
        return end - 1

    def _rerun(self, first: int, last: int) -> None:
        """Run some steps again, unrecorded."""
        with self._replaying(self._runner, self._runner.before_write):
            for step in range(first, last):
                self._run_step(step)

    def _reverse_step(self, step: int) -> None:
        """Run a step again, recorded, and propagate adjoints back through it."""
        touched = self._touched_before | self._runner.touched_before(step)
        validates = self._tape.validation
        tape = StepRecorder(self._runner, self._snapshots, touched, validates=validates)
        with self._replaying(tape, tape.before_write):
            self._run_step(step)
        around = driver.state.recorder
        try:
            tape.grad()
        finally:
            driver.state.recorder = around

    @contextlib.contextmanager
    def _replaying(
        self, recorder: Any, before_write: Callable[[HostWrite], None]
    ) -> Iterator[None]:
        """Pass the launches of some steps to a recorder, with the numbers of the first run."""
        numbers = driver.state.numbers
        driver.state.numbers = driver.launch_numbers(self._number)
        try:
            with _launching(recorder, before_write):
                yield
            self._number = driver.next_launch_number()
        finally:
            driver.state.numbers = numbers

    def rerun(self) -> None:
        """Run all steps again, on the present memory."""
        numbers = driver.state.numbers
        driver.state.numbers = driver.launch_numbers(self._first_number)
        try:
            for step in range(self._steps):
                self._loop.step(step)
        finally:
            driver.state.numbers = numbers


@contextlib.contextmanager
def _launching(recorder: Any, before_write: Callable[[HostWrite], None]) -> Iterator[None]:
    """Pass launches and host writes to a recorder."""
    around = driver.state.recorder
    driver.state.recorder = recorder
    host_writes.observe(before_write)
    try:
        yield
    finally:
        forget(before_write)
        if driver.state.recorder is recorder:
            driver.state.recorder = around
