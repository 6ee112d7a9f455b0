"""A device of Vulkan."""

from __future__ import annotations

import atexit
import contextlib
import weakref
from collections.abc import Sequence
from typing import Any

from octants.artifact import Artifact
from octants.diagnostics.exceptions import OctantsError
from octants.runtime.capture import Command, CommandList, noted, own_capture, refuse_read
from octants.runtime.device import Bytes
from octants.runtime.elements import set_elements
from octants.runtime.streams import SerialLaunches
from octants.runtime.vulkan.kernel import VulkanKernel
from octants.runtime.vulkan.machine import Machine
from octants.runtime.vulkan.memory import Piece


class VulkanDevice(SerialLaunches, Machine):
    """The device of a number, made as a `Machine`. Launches are queued."""

    shares_memory = False
    is_starting = False
    dlpack_device = (1, 0)

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        _devices.add(self)

    def __repr__(self) -> str:
        return f"device of Vulkan ({self.context.hardware.name})"

    def load(self, artifact: Artifact) -> VulkanKernel:
        """Make a kernel ready to be launched; `OctantsRuntimeError` if that cannot be."""
        return VulkanKernel(self, artifact)

    # -- memory ---------------------------------------------------------------------------------

    def allocate(self, nbytes: int, what: str = "") -> Piece:
        """``nbytes`` of zeros; `OctantsMemoryError` if there are none."""
        piece = self.heap.allocate(nbytes, what)
        self.versions.freed(piece.address, nbytes)  # what was there before
        self.transfers.clear(piece.address, -(-nbytes // 4) * 4)
        capture = own_capture()
        if capture is not None:
            capture.allocated(self.clear, piece)
        return piece

    def read(self, address: int, into: Bytes) -> None:
        """Copy memory to the host, after all that was launched; raises what failed in that."""
        refuse_read()
        self.transfers.read(address, into)
        self.deliver()
        self.pending.raise_first()

    @noted
    def write(self, address: int, values: Bytes) -> None:
        """Copy from the host, after what was launched."""
        self.transfers.write(address, values)
        self._wrote(address, values.nbytes)

    @noted
    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy within the device, after what was launched."""
        self.transfers.copy(target, source, nbytes)
        self._wrote(target, nbytes)

    @noted
    def copy_rows(
        self, target: int, target_step: int, source: int, source_step: int, nbytes: int, rows: int
    ) -> None:
        """Copy pieces within the device, after what was launched."""
        self.transfers.copy_rows(target, target_step, source, source_step, nbytes, rows)
        self._wrote(target, (rows - 1) * target_step + nbytes)

    @noted
    def clear(self, address: int, nbytes: int) -> None:
        """Set memory to zero, after what was launched."""
        self.transfers.clear(address, nbytes)
        self._wrote(address, nbytes)

    def _wrote(self, address: int, nbytes: int) -> None:
        if self.versions.watches and nbytes > 0:
            self.versions.wrote(address, nbytes)

    def set_elements(self, address: int, element: bytes, count: int) -> None:
        """Set elements that stand in a row, after what was launched."""
        set_elements(self, address, element, count)

    def make_graph(self, commands: Sequence[Command], _: Any = None) -> CommandList:
        """What does these commands again, one after the other."""
        return CommandList(commands)

    def address_of(self, value: object) -> None:
        """None: no other library's arrays are in this memory."""

    def interface_of(self, *_: object) -> None:
        """None: no other library can share this memory."""

    def borrow(self, *_: object) -> None:
        """None: no other library's arrays are in this memory."""

    def lend(self, owner: object) -> object:
        """The owner; nobody asks for it."""
        return owner

    def let_wait(self, _: int | None) -> None:
        """Do nothing: there are no streams of others."""

    # -- the end of waiting ---------------------------------------------------------------------

    def synchronize(self) -> None:
        """Wait until all that was launched is done; raises what went wrong in it."""
        self.look()
        self.pending.raise_first()

    def close(self) -> None:
        """Wait; what is alive of allocations stays valid."""
        with contextlib.suppress(OctantsError):
            self.look()
        self.messages.forget()
        self.tape.free()


_devices: weakref.WeakSet[VulkanDevice] = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    """Say what kernels have printed that nobody waited for; failures are left pending."""
    for device in list(_devices):
        try:
            if device.context.lost is None:
                device.look()
        except OctantsError as error:
            device.pending.add(error)
