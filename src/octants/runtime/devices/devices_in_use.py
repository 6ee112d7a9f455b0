"""The devices that a program uses: the one of `init`, and others from their first use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from octants.diagnostics.exceptions import OctantsError
from octants.locks_at_fork import released_in_children
from octants.runtime.device import Device


class DevicesInUse:
    """The devices of one `init`, by their numbers.

    Args:
        default: The device of `init`, on which arrays are made and kernels without arrays run.
        number: Its number.
        start: Starts another device; raises an error if there is none with that number.
    """

    def __init__(
        self, default: Device, number: int = 0, start: Callable[[int], Device] | None = None
    ) -> None:
        self.default = default
        self._start = start
        self._lock = released_in_children(threading.Lock())
        self._by_number = {number: default}

    def __iter__(self) -> Iterator[Device]:
        return iter(tuple(self._by_number.values()))

    def find(self, number: int) -> Device:
        """The device with a number, if it is in use, else the default one."""
        return self._by_number.get(number, self.default)

    def at(self, number: int) -> Device:
        """The device with a number, which is started if it is not in use yet.

        Raises:
            OctantsError: there is no such device, or it cannot be used.
        """
        found = self._by_number.get(number)
        return self._add(number) if found is None else found

    def _add(self, number: int) -> Device:
        with self._lock:
            if number not in self._by_number:
                assert self._start is not None, "the only device has another number"
                added = self._start(number)
                for device in (*self, added):
                    device.become_one_of_several()
                self._by_number[number] = added
        return self._by_number[number]

    def synchronize(self) -> None:
        """Wait for the launches of all devices, and raise the first error of one.

        An error of another device becomes pending there.
        """
        first: OctantsError | None = None
        for device in self:
            try:
                device.synchronize()
            except OctantsError as error:
                if first is None:
                    first = error
                else:
                    device.pending.add(error)
        if first is not None:
            raise first

    def close(self) -> None:
        """Stop all of them; live allocations stay valid."""
        for device in self:
            device.close()
