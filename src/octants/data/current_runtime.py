"""The runtime of the last `init`: where arrays get their memory, and which of them are alive."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from octants import options
from octants.locks_at_fork import released_in_children
from octants.runtime.device import Device
from octants.runtime.devices.devices_in_use import DevicesInUse
from octants.types.companions import Companion

RangesByDevice = tuple[tuple[Device, tuple[tuple[int, int], ...]], ...]
"""The addresses and bytes of ranges of memory, for each device."""


class Mortal(Protocol):
    """An array, which ends with its runtime."""

    companion: Companion

    def retire(self) -> None:
        """Give up the memory; any later use is an error."""


class Runtime:
    """The state between an `init` and the next one, or `reset`.

    `devices` are those in use, `device` the one of `init` among them.
    """

    _numbers = itertools.count(1)

    def __init__(self, devices: DevicesInUse) -> None:
        self.devices = devices
        self.device = devices.default
        self.generation = next(self._numbers)
        # Held while trees change or get their memory.
        self.lock = released_in_children(threading.RLock())
        self.open_trees: dict[int, Any] = {}  # those being described, by the numbers of devices
        self.changes = 0
        """Counts arrays that were made, and arrays that got memory or lost it."""
        self.clears: dict[Any, tuple[tuple[int, ...], list[weakref.ref[Any]], RangesByDevice]] = {}
        """Belongs to `ad.clear_gradients`: a version, the arrays that were there, their memory."""
        self.tapes: Any = None
        """Belongs to `ad.overwrites.repeated_tapes`: what tapes remember of earlier ones."""
        self._arrays: dict[Companion, weakref.WeakValueDictionary[int, Any]] = {
            companion: weakref.WeakValueDictionary() for companion in Companion
        }

    def register(self, array: Mortal) -> None:
        """Let an array end with this runtime."""
        self._arrays[array.companion][id(array)] = array
        self.changes += 1

    def arrays(self, *companions: Companion) -> Iterator[Any]:
        """The arrays that are alive: all, or those that are one of some companions of theirs."""
        for companion in companions or Companion:
            for reference in self._arrays[companion].valuerefs():
                array = reference()
                if array is not None:
                    yield array

    def version_of(self, companions: Iterable[Companion]) -> tuple[int, ...]:
        """Numbers that differ from earlier ones if there are other arrays, or they have other
        memory.
        """
        return (self.changes, *[len(self._arrays[companion]) for companion in companions])


_runtime: Runtime | None = None


def start(devices: DevicesInUse) -> Runtime:
    """Begin a new runtime, for `init`; arrays of the one before can no longer be used."""
    global _runtime
    stop()
    _runtime = Runtime(devices)
    return _runtime


def stop() -> None:
    """End the runtime, for `reset`: free its memory."""
    global _runtime
    ending, _runtime = _runtime, None
    if ending is not None:
        if ending.tapes is not None:
            ending.tapes.forget()
        for array in ending.arrays():
            array.retire()


def runtime() -> Runtime:
    """The current runtime; before the first `init`, one with default options."""
    if _runtime is None:
        options.begin_with_defaults()
    return _runtime or runtime()


def note_change() -> None:
    """Note that an array got memory, or lost it."""
    if _runtime is not None:
        _runtime.changes += 1


def device() -> Device:
    """The device of `init`; others have the arrays that name them."""
    return runtime().device


def generation() -> int:
    """A number that is another one after each `init`; 0 where there is no runtime."""
    return 0 if _runtime is None else _runtime.generation
