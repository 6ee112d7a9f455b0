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
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from octants.launch.derivative_variants import ReverseStep
from octants.launch.specialisation import Specialisation
from octants.runtime.capture import Capture, CommandReplay, HostCopy, Launch
from octants.runtime.device import Device
from octants.runtime.repetitions import Repetitions

REPEATED = 3
"""The tapes alike that are reversed launch by launch before one is captured."""
MOST_LAUNCHES = 1 << 15
"""The most launches of all sequences and captured reversals; the oldest ones are forgotten."""
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
    """The launches of a whole tape, and replays of how such tapes were reversed.

    `weight` is the number of launches of all of these. ``known`` are the sequences that it is one
    of.
    """

    __slots__ = ("__weakref__", "_known", "_numbered", "_reversals", "launches", "weight")

    def __init__(self, launches: tuple[LaunchedArrays, ...], known: KnownSequences) -> None:
        self.launches = launches
        self.weight = 0
        self._known = weakref.ref(known)
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
        if made is not None and _reserve_capacity(len(launches), self):
            self._reversals.made[key] = made
            self.weight = (1 + len(self._reversals.made)) * len(launches)
        return True

    def forget(self) -> None:
        """Let tapes follow it no longer."""
        known = self._known()
        if known is not None:
            known.forget(self)

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

    __slots__ = ("__weakref__", "_repetitions", "latest")

    def __init__(self) -> None:
        self._repetitions = Repetitions[LaunchSequence](min(2, REPEATED), most=_KEPT, counted=_KEPT)
        self.latest: LaunchSequence | None = None

    def note(self, launches: tuple[Any, ...]) -> None:
        """Note that a tape has recorded launches; they are a sequence from the second time on."""
        known = self._repetitions.made.get(launches)
        if known is None and self._repetitions.is_due(hash(launches)):
            known = LaunchSequence(launches, self)
            if not _reserve_capacity(len(launches), known):
                return
            known.weight = len(launches)
            _sequences[id(known)] = weakref.ref(known)
            self._repetitions.made[launches] = known
        self.latest = known or self.latest

    def forget(self, sequence: LaunchSequence) -> None:
        """Forget one of the sequences."""
        self._repetitions.drop(sequence.launches)
        if self.latest is sequence:
            self.latest = None

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


_sequences: dict[int, weakref.ref[LaunchSequence]] = {}
"""By identity, the oldest one first. Sequences end with the kernel of their first launch."""


def _reserve_capacity(launches: int, owner: LaunchSequence) -> bool:
    """Forget old sequences, except ``owner``, until so many launches more may be remembered."""
    alive = {key: each for key, reference in _sequences.items() if (each := reference())}
    for key in _sequences.keys() - alive.keys():
        del _sequences[key]
    total = launches + sum(each.weight for each in alive.values())
    for each in alive.values():
        if total > MOST_LAUNCHES and each is not owner:
            total -= each.weight
            each.weight = 0
            each.forget()
    return total <= MOST_LAUNCHES


class CapturedReversal:
    """Replays what a tape did to the device while it was reversed.

    It keeps no array alive. A tape that has recorded the same launches has the same arrays.
    """

    def __init__(self, replay: CommandReplay, count: int) -> None:
        self._replay = replay
        self._lock = threading.Lock()
        self.launches = count

    def run(self) -> bool:
        """Reverse a tape; False if another thread does so now, with the same memory."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self._replay(0)
        finally:
            self._lock.release()
        return True


def _may_repeat(launches: Sequence[PlainLaunch], losses: Sequence[Loss]) -> bool:
    """Whether the reverse kernels do the same each time, on one device.

    Random numbers depend on the number of the launch, and messages are about the launch.
    """
    numbers = {specialisation.device.number for _, _, specialisation, *_ in launches}
    numbers |= {loss.array.device for loss in losses if loss.array is not None}
    programs = [step.backward for _, step, *_ in launches if step.backward is not None]
    codes = [program.code.artifact for program in programs]
    is_silent = all(code and not (code.draws or code.messages) for code in codes)
    return len(numbers) == 1 and is_silent


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
