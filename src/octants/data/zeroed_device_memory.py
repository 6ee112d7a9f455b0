"""Blocks of zeroed device memory, also of a device that is still starting."""

from __future__ import annotations

import dataclasses
import gc
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from octants.data.errors import OutOfMemory
from octants.diagnostics.byte_counts import format_bytes
from octants.diagnostics.exceptions import OctantsError
from octants.locks_at_fork import released_in_children
from octants.runtime.capture import captures, uncaptured
from octants.runtime.device import Allocation, Device
from octants.runtime.memory.array_access import parts_of
from octants.runtime.memory.host import describe_bytes

if TYPE_CHECKING:
    from octants.runtime.interop.dlpack import DlpackView

Array = np.ndarray[Any, Any]


class Storage:
    """A block of zeroed memory. What numpy sees of it keeps it alive.

    `bytes` only describes it where the host shares no memory; see `runtime.memory.array_access`.
    """

    __slots__ = ("address", "bytes", "device", "nbytes", "parts")

    def __init__(self, device: Device, nbytes: int, what: str) -> None:
        allocation = _allocate(device, max(1, nbytes), what)
        self.device = device
        self.address = allocation.address
        self.nbytes = nbytes
        self.bytes: Array = describe_bytes(allocation.address, nbytes, allocation)
        self.parts = parts_of(device)

    @classmethod
    def of_others(cls, device: Device, part: DlpackView, nbytes: int) -> Storage:
        """Memory of an array of another library, which it keeps alive."""
        made = cls.__new__(cls)
        made.address, made.nbytes, made.device = part.address, nbytes, device
        made.bytes = describe_bytes(part.address, nbytes, part.owner)
        made.parts = parts_of(device)
        return made


class LateStorage(Storage):
    """A block of a device that is still starting: allocated when its address is first read.

    What is written until then is put off. So a program does not wait for the device when it makes
    its fields, but when it launches something, which has to be compiled first.
    """

    __slots__ = ("_lock", "_what", "_writes", "is_ready")

    def __init__(self, device: Device, nbytes: int, what: str) -> None:
        self.nbytes = nbytes
        self.parts = parts_of(device)
        self.device, self._what = device, what
        self._writes: list[Callable[[], None]] | None = []
        self.is_ready = False
        """Whether there is memory, and what was put off is in it."""
        self._lock = released_in_children(threading.RLock())

    def __getattr__(self, name: str) -> Any:
        """The address, or the bytes, for the first time."""
        if name not in ("address", "bytes"):
            raise AttributeError(name)
        with self._lock, uncaptured():
            if self._writes is not None:
                writes, self._writes = self._writes, None
                try:
                    super().__init__(self.device, self.nbytes, self._what)
                except BaseException:
                    self._writes = writes
                    raise
                for write in writes:
                    write()
                self.is_ready = True
        return object.__getattribute__(self, name)

    def puts_off(self, write: Callable[[], None]) -> bool:
        """Whether a write was put off, since there is no memory yet."""
        with self._lock:
            if self._writes is None or captures:
                return False
            self._writes.append(write)
            return True


def make_storage(device: Device, nbytes: int, what: str) -> Storage:
    """A block of zeroed memory, perhaps not at once; ``what`` names it in errors."""
    kind = LateStorage if device.is_starting else Storage
    return kind(device, nbytes, what)


def _allocate(device: Device, nbytes: int, what: str) -> Allocation:
    try:
        return device.allocate(nbytes, what)
    except MemoryError:
        gc.collect()  # a field and its gradient refer to each other
    try:
        return device.allocate(nbytes, what)
    except MemoryError as refused:
        raise _refused(what, nbytes, refused) from None


def _refused(what: str, nbytes: int, refused: MemoryError) -> OctantsError:
    """The error for memory that a device refused, with what that says of its memory."""
    error = OutOfMemory(what, format_bytes(nbytes))
    cause = getattr(refused, "diagnostic", None)
    if cause is None:
        return error.at()
    diagnostic = dataclasses.replace(error.diagnostic(), notes=(cause.title, *cause.notes))
    return error.exception(diagnostic)
