"""Replays how a tape is reversed, as one submission, for tapes that repeat as a whole.

Programs record the same launches in each step of an optimisation, with the same numbers and the
same loss. Then the end of each tape does the same: it sets the adjoint of the loss, and launches
the reverse kernels with the same arguments. Once a tape has repeated `REPEATED` times, this is
captured, and replayed from then on: by one graph of the driver on CUDA, by one native call on the
CPU.

This is for tapes on fields and ndarrays of Octants, each passed once: arrays with numbers of their
own, whose memory stays where it is until they end. Copies must be in a `packed_copies.CopyArena`.
Numbers are compared bit by bit. A tape that does anything else is reversed
launch by launch.
"""

from __future__ import annotations

import struct
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from octants.diagnostics.exceptions import OctantsError
from octants.launch.gradients.derivative_variants import ReverseStep
from octants.launch.specialisation import Specialisation
from octants.locks_at_fork import released_in_children
from octants.runtime.capture import Capture, CommandReplay, HostCopy, Launch
from octants.runtime.device import Device
from octants.runtime.repetitions import Repetitions

REPEATED = 3
"""The tapes alike that are reversed launch by launch before one is captured."""
MOST_LAUNCHES = 1 << 15
"""The most launches of all captured reversals; the oldest ones are forgotten."""
_KEPT = 4  # captured reversals of tapes with the same launches
_MOST_KEPT_BYTES = 1 << 24
"""Of temporaries, and of copies that a reversal makes, which each captured reversal has."""
MOST_BYTES = 1 << 28
"""The same of all captured reversals; the oldest ones are forgotten."""
_UNFIT = struct.error, OverflowError, TypeError, ValueError, AttributeError
"""The errors of a `NumberPacker` for arguments that are no such numbers."""

NumberPacker = Callable[..., bytes]
"""The bits of the arguments of a launch besides its arrays, given all of them."""


class Reversals:
    """Replays of how tapes with the same launches were reversed.

    Args:
        packers: of each launch of the tapes; None for one that has nothing but arrays.
        forget: drops this object.
    """

    __slots__ = ("__weakref__", "_count", "_forget", "_packers", "_repetitions")

    def __init__(self, packers: Sequence[NumberPacker | None], forget: Callable[[], None]) -> None:
        self._count, self._forget = len(packers), forget
        self._packers = [(k, packer) for k, packer in enumerate(packers) if packer is not None]
        self._repetitions = Repetitions[CapturedReversal](REPEATED, most=_KEPT, counted=2 * _KEPT)

    def numbers(self, launches: Sequence[tuple[Any, ...]]) -> tuple[bytes, ...] | None:
        """The bits of the numbers among the arguments of the launches; None if that is unknown."""
        try:
            return tuple([packer(*launches[k][3]) for k, packer in self._packers])
        except _UNFIT:
            return None

    def replay(self, key: Hashable) -> bool:
        """Reverse a tape as one with the same key was; False if nothing was done."""
        known = self._repetitions.made.get(key)
        return known is not None and known.run()

    def capture(
        self,
        key: Hashable,
        reverse: Callable[[], None],
        launches: Iterable[tuple[Specialisation, ReverseStep]],
        arrays: Sequence[Any] = (),
        memory: Any = None,
    ) -> bool:
        """Reverse a tape so that later ones with the same key can be replayed.

        Args:
            key: what the reversal depends on.
            reverse: reverses the tape launch by launch.
            launches: the kernels of the tape, and how they are reversed.
            arrays: the losses whose adjoints ``reverse`` sets.
            memory: what copies use that ``reverse`` restores.

        Returns:
            False if nothing was done, since there were too few such tapes, or since they differ.
        """
        repetitions = self._repetitions
        if key in repetitions.made or not repetitions.is_due(key):
            return False
        device = _device_of_all(list(launches), arrays)
        if device is None:
            return False
        made = _reverse_and_capture(reverse, device, memory)
        if made is not None and _reserve_capacity(self._count, self, made.nbytes):
            repetitions.made[key] = made
            _remembered[id(self)] = weakref.ref(self)
        return True

    @property
    def weight(self) -> int:
        """The number of launches that are remembered because of it."""
        return self._count * len(self._repetitions.made)

    @property
    def nbytes(self) -> int:
        """The bytes that the captured reversals have for themselves."""
        return sum(each.nbytes for each in self._repetitions.made.values())

    def forget(self) -> None:
        """Drop everything."""
        self._repetitions.made.clear()
        self._forget()


_remembered: dict[int, weakref.ref[Reversals]] = {}
"""By identity, the oldest one first. They end with the kernel of the first launch."""


def _reserve_capacity(launches: int, owner: Reversals, nbytes: int = 0) -> bool:
    """Forget old reversals, except ``owner``, until so many launches and bytes more may be
    remembered.
    """
    alive = {key: each for key, reference in _remembered.items() if (each := reference())}
    for key in _remembered.keys() - alive.keys():
        del _remembered[key]
    launches += sum(each.weight for each in alive.values())
    nbytes += sum(each.nbytes for each in alive.values())
    for each in alive.values():
        if (launches > MOST_LAUNCHES or nbytes > MOST_BYTES) and each is not owner:
            launches -= each.weight
            nbytes -= each.nbytes
            each.forget()
    return launches <= MOST_LAUNCHES and nbytes <= MOST_BYTES


class CapturedReversal:
    """Replays what a tape did to the device while it was reversed.

    It keeps no array alive. A tape that has recorded the same launches has the same arrays.
    """

    def __init__(self, replay: CommandReplay, count: int, nbytes: int) -> None:
        self._replay = replay
        self._lock = released_in_children(threading.Lock())
        self.launches = count
        self.nbytes = nbytes

    def run(self) -> bool:
        """Reverse a tape; False if another thread does so now, with the same memory."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self._replay(0)
        finally:
            self._lock.release()
        return True


def _device_of_all(
    launches: Sequence[tuple[Specialisation, ReverseStep]], arrays: Sequence[Any]
) -> Device | None:
    """The device of launches whose reverse does the same each time; None if they may differ.

    Random numbers depend on the number of the launch, and messages are about the launch.
    """
    device = launches[0][0].device
    numbers = {specialisation.device.number for specialisation, _ in launches}
    numbers |= {array.device for array in arrays}
    programs = [step.backward for _, step in launches if step.backward is not None]
    codes = [program.code.artifact for program in programs]
    is_silent = all(code and not (code.draws or code.messages) for code in codes)
    return device if is_silent and numbers == {device.number} else None


def _reverse_and_capture(
    reverse: Callable[[], None], device: Device, memory: Any
) -> CapturedReversal | None:
    """Capture how a tape is reversed; None if it cannot be replayed."""
    capture = Capture(keeps_arrays=False)
    capture.begin()
    try:
        reverse()
    finally:
        capture.end()
    nbytes = sum(map(_kept_bytes, capture.kept))
    is_lasting = nbytes <= _MOST_KEPT_BYTES and all(map(_is_lasting, capture.commands))
    if capture.failure is not None or not is_lasting:
        return None
    try:
        replay = device.make_graph(capture.commands, [*capture.kept, memory])
    except OctantsError:  # of the driver; the tape has been reversed
        return None
    launches = sum(isinstance(each, Launch) for each in capture.commands)
    return CapturedReversal(replay, launches, nbytes)


def _kept_bytes(kept: Any) -> int:
    """The bytes of an allocation, or of the temporaries of a parameter block."""
    found = kept[-1].values() if isinstance(kept, tuple) else [kept]
    return sum(each.nbytes for each in found)


def _is_lasting(command: Any) -> bool:
    """Whether a command keeps no array alive: only addresses, where it is native."""
    if isinstance(command, HostCopy):
        return bool(command.target.flags.c_contiguous and command.source.flags.c_contiguous)
    return True
