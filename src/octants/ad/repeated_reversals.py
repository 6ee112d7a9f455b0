"""Replays how a tape is reversed, as one submission, for tapes that repeat as a whole.

Programs record the same launches in each step of an optimisation, with the same numbers and the
same loss. Then the end of each tape does the same: it sets the adjoint of the loss, and launches
the reverse kernels with the same arguments. Once a tape has repeated `REPEATED` times, this is
captured, and replayed from then on: by one graph of the driver on CUDA, by one native call on the
CPU. While a tape records what an earlier one did, it need not ask its ledger either.

This is for tapes without copies, on fields and ndarrays of Octants, each passed once: arrays with
numbers of their own, whose memory stays where it is until they end. Numbers are compared bit by
bit. A tape that does anything else is reversed launch by launch.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from octants.launch.derivative_variants import ReverseStep
from octants.launch.specialisation import Specialisation
from octants.runtime.capture import Capture, CommandReplay, HostCopy, Launch
from octants.runtime.device import Device
from octants.runtime.repetitions import Repetitions

REPEATED = 3
"""The tapes alike that are reversed launch by launch before one is captured."""
MOST_LAUNCHES = 1 << 14
"""The most launches of a tape that is remembered, and of all captured reversals together."""
_KEPT = 4  # sequences with the same first launch, and reversals of one sequence
_MOST_KEPT_BYTES = 1 << 20
"""Of temporaries and other memory that the launches of a reversal have for themselves."""
_UNFIT = struct.error, OverflowError, TypeError, ValueError, AttributeError


class Loss(Protocol):
    """What a tape differentiates; see `tape_losses.Loss`."""

    @property
    def array(self) -> Any: ...

    @property
    def key(self) -> Hashable: ...

    def note_seed(self) -> None: ...


class LaunchedArrays(Protocol):
    """What tapes know a launch by: its kernel, arrays, and index ranges."""

    numbers: Callable[..., bytes] | None
    """The bits of other arguments, given all of them; None if there are no others."""


PlainLaunch = tuple[Any, ReverseStep, Specialisation, tuple[Any, ...], int, int]
"""A launch without a `tape_entries.LaunchEntry`: how tapes know it, how it is reversed, the kernel,
the arguments, the number of the launch, the seed of random numbers.
"""


class LaunchSequence:
    """The launches of a whole tape, and replays of how such tapes were reversed."""

    __slots__ = ("_numbered", "_reversals", "launches")

    def __init__(self, launches: tuple[LaunchedArrays, ...]) -> None:
        self.launches = launches
        self._numbered = [(k, each.numbers) for k, each in enumerate(launches) if each.numbers]
        self._reversals = Repetitions[CapturedReversal](REPEATED, most=_KEPT, counted=2 * _KEPT)

    def reverse(
        self, launches: Sequence[PlainLaunch], losses: Sequence[Loss], reverse: Callable[[], None]
    ) -> bool:
        """Reverse a tape of these launches like an earlier one, or so that later ones can be.

        Args:
            launches: those of the tape.
            losses: of the tape.
            reverse: reverses the tape launch by launch.

        Returns:
            False if nothing was done, since there were too few such tapes, or since they differ.
        """
        key = self._key(launches, losses)
        if key is None:
            return False
        known = self._reversals.made.get(key)
        if known is not None:
            if not known.run():
                return False
            for loss in losses:
                loss.note_seed()
            return True
        if not (self._reversals.is_due(key) and _may_repeat(launches, losses)):
            return False
        made = _reverse_and_capture(reverse, launches[0][2].device)
        if made is not None:
            self._reversals.made[key] = made
        return True

    def _key(self, launches: Sequence[PlainLaunch], losses: Sequence[Loss]) -> Hashable:
        """What the reversal depends on besides the sequence; None if that is unknown."""
        keys = [loss.key for loss in losses]
        try:
            numbers = [numbers(*launches[k][3]) for k, numbers in self._numbered]
        except _UNFIT:
            return None
        return None if None in keys else (*keys, *numbers)


class KnownSequences:
    """The sequences of tapes that begin with the same launch; `latest` is the last one."""

    __slots__ = ("_repetitions", "latest")

    def __init__(self) -> None:
        self._repetitions = Repetitions[LaunchSequence](min(2, REPEATED), most=_KEPT, counted=_KEPT)
        self.latest: LaunchSequence | None = None

    def note(self, launches: tuple[Any, ...]) -> None:
        """Note that a tape has recorded launches; they are a sequence from the second time on."""
        known = self._repetitions.made.get(launches)
        if known is None and self._repetitions.is_due(launches):
            known = self._repetitions.made[launches] = LaunchSequence(launches)
        self.latest = known or self.latest

    def find(self, launches: tuple[Any, ...]) -> LaunchSequence | None:
        """The sequence of some launches."""
        return self._repetitions.made.get(launches)

    def beginning_with(self, launches: tuple[Any, ...]) -> LaunchSequence | None:
        """A sequence that begins with some launches; the latest one if it does."""
        count = len(launches)
        for each in (self.latest, *self._repetitions.made.values()):
            if each is not None and each.launches[:count] == launches:
                return each
        return None


class CapturedReversal:
    """Replays what a tape did to the device while it was reversed.

    It keeps no array alive. A tape that has recorded the same launches has the same arrays.
    """

    _launches_of_all = 0
    _count = 0

    def __init__(self, replay: CommandReplay, count: int) -> None:
        self._replay = replay
        self._lock = threading.Lock()
        self._count = count
        CapturedReversal._launches_of_all += count

    def __del__(self) -> None:
        CapturedReversal._launches_of_all -= self._count

    def run(self) -> bool:
        """Reverse a tape; False if another thread does so now, with the same memory."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self._replay(0)
        finally:
            self._lock.release()
        return True

    @classmethod
    def has_capacity_for(cls, launches: int) -> bool:
        """Whether so many launches more may be kept."""
        return cls._launches_of_all + launches <= MOST_LAUNCHES


def _may_repeat(launches: Sequence[PlainLaunch], losses: Sequence[Loss]) -> bool:
    """Whether the reverse kernels do the same each time, on one device.

    Random numbers depend on the number of the launch, and messages are about the launch.
    """
    numbers = {specialisation.device.number for _, _, specialisation, *_ in launches}
    numbers |= {loss.array.device for loss in losses if loss.array is not None}
    programs = [step.backward for _, step, *_ in launches if step.backward is not None]
    codes = [program.code.artifact for program in programs]
    is_silent = all(code and not (code.draws or code.messages) for code in codes)
    return len(numbers) == 1 and is_silent and CapturedReversal.has_capacity_for(len(codes))


def _reverse_and_capture(reverse: Callable[[], None], device: Device) -> CapturedReversal | None:
    """Capture how a tape is reversed; None if it cannot be replayed."""
    capture = Capture(keeps_arrays=False)
    capture.begin()
    try:
        reverse()
    finally:
        capture.end()
    is_small = sum(map(_kept_bytes, capture.kept)) <= _MOST_KEPT_BYTES
    if capture.failure is not None or not (is_small and all(map(_is_lasting, capture.commands))):
        return None
    replay = device.make_graph(capture.commands, capture.kept)
    if replay.may_be_resumed:
        return None
    return CapturedReversal(replay, sum(isinstance(each, Launch) for each in capture.commands))


def _kept_bytes(kept: Any) -> int:
    """The bytes of an allocation, or of the temporaries of a parameter block."""
    found = kept[-1].values() if isinstance(kept, tuple) else [kept]
    return sum(each.nbytes for each in found)


def _is_lasting(command: Any) -> bool:
    """Whether a command keeps no array alive: only addresses, where it is native."""
    if isinstance(command, HostCopy):
        return bool(command.target.flags.c_contiguous and command.source.flags.c_contiguous)
    return True
