"""The face that all GPUs have as devices, over the verbs of their drivers."""

from __future__ import annotations

import atexit
import contextlib
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from octants.diagnostics.exceptions import OctantsError, OctantsRuntimeError
from octants.runtime.capture import noted, own_capture
from octants.runtime.device import Allocation, Bytes
from octants.runtime.gpu.driver import Queue
from octants.runtime.gpu.messages import MessageQueue
from octants.runtime.gpu.tapes import DeviceTape
from octants.runtime.memory.fill import set_elements
from octants.runtime.memory.versions import Versions
from octants.runtime.reports.pending_errors import Pending


class GpuDevice:
    """A GPU. `queue_here` gives what does something now in the order of the thread's launches.

    Once its `context` is `lost`, whatever is done with it fails.
    A capture notes what is done to memory, and versions of memory are told of it.
    """

    shares_memory = False
    context: Any
    pending: Pending
    messages: MessageQueue
    versions: Versions
    queue_here: Callable[[], Queue]

    def __init__(self) -> None:
        _devices.add(self)

    # -- what a driver adds ---------------------------------------------------------------------

    def look(self) -> None:
        """Wait, print what kernels have printed, and raise the first failure."""
        raise NotImplementedError

    def tapes(self) -> Iterable[DeviceTape]:
        """All tapes of launches."""
        raise NotImplementedError

    def allocate_zeros(self, nbytes: int, what: str) -> Allocation:
        """Memory that is zero for whatever is launched later."""
        raise NotImplementedError

    def give_back(self) -> None:
        """Free what nothing uses."""

    # -- memory ---------------------------------------------------------------------------------

    def allocate(self, nbytes: int, what: str = "") -> Allocation:
        """``nbytes`` of zeros at a multiple of 64; ``what`` names them where memory is refused.

        Raises `OctantsMemoryError` with the table of all that is allocated.
        """
        allocation = self.allocate_zeros(nbytes, what)
        capture = own_capture()
        if capture is not None:
            capture.allocated(self.clear, allocation)
        return allocation

    @noted
    def write(self, address: int, values: Bytes) -> None:
        """Copy from the host, after what was launched; ``values`` may be changed at once."""
        self._will_write(address, values.nbytes)
        self.queue_here().write(address, values)

    @noted
    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy within the device, after what was launched; the pieces do not overlap."""
        self._will_write(target, nbytes)
        self.queue_here().copy(target, source, nbytes)

    @noted
    def copy_rows(
        self, target: int, target_step: int, source: int, source_step: int, nbytes: int, rows: int
    ) -> None:
        """Copy pieces at equal distances within the device, after what was launched."""
        self._will_write(target, (rows - 1) * target_step + nbytes)
        self.queue_here().copy_rows(target, target_step, source, source_step, nbytes, rows)

    @noted
    def clear(self, address: int, nbytes: int) -> None:
        """Set memory to zero, after what was launched."""
        self._will_write(address, nbytes)
        self.queue_here().clear(address, nbytes)

    def set_elements(self, address: int, element: bytes, count: int) -> None:
        """Set elements that stand in a row, after what was launched."""
        set_elements(self, address, element, count)

    def _will_write(self, address: int, nbytes: int) -> None:
        if self.versions.watches and nbytes > 0:
            self.versions.wrote(address, nbytes)

    # -- waiting --------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Wait until all that was launched is done; raises what went wrong in it."""
        self.look()
        self.pending.raise_first()

    def confirm_tapes(self) -> None:
        """Check launches that the host did not look at; errors are left pending."""
        for tape in self.tapes():
            if tape.is_trusted:
                with tape.lock:
                    try:
                        tape.confirm()
                    except OctantsRuntimeError as error:
                        self.pending.add(error)

    @property
    def tape_bytes(self) -> int:
        """The bytes that tapes take now; they are kept for later launches."""
        return sum(tape.nbytes for tape in self.tapes())

    def free_tapes(self) -> None:
        """Free the tapes that no launch uses."""
        for tape in self.tapes():
            tape.free()

    def close(self) -> None:
        """Give memory back; what is alive of allocations stays valid, and kernels can be run."""
        with contextlib.suppress(OctantsError):
            self.look()
        self.messages.forget()
        self.free_tapes()
        if self.context.lost is None:
            self.give_back()


_devices: weakref.WeakSet[GpuDevice] = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    """Print what kernels have printed since the last wait; failures are left pending."""
    for device in list(_devices):
        try:
            if device.context.lost is None:
                device.look()
        except OctantsError as error:
            device.pending.add(error)
