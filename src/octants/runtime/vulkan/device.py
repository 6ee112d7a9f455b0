"""Implements `runtime.device.Device` for Vulkan devices."""

from __future__ import annotations

from octants.artifact import Artifact
from octants.runtime.capture import refuse_read
from octants.runtime.device import Bytes
from octants.runtime.devices.serial_queue import SerialLaunches
from octants.runtime.gpu.heap import SubAllocation
from octants.runtime.vulkan.kernel import VulkanKernel
from octants.runtime.vulkan.launch_context import LaunchContext


class VulkanDevice(LaunchContext, SerialLaunches):
    """A Vulkan device, created as a `LaunchContext`. Launches are queued."""

    def __repr__(self) -> str:
        return f"device of Vulkan ({self.context.hardware.name})"

    def load(self, artifact: Artifact) -> VulkanKernel:
        """Load a kernel.

        Raises:
            OctantsRuntimeError: the driver rejects it.
        """
        return VulkanKernel(self, artifact)

    def allocate_zeros(self, nbytes: int, what: str) -> SubAllocation:
        """Allocate memory that is zero for all later launches."""
        piece = self.heap.allocate(nbytes, what)
        self.versions.freed(piece.address, nbytes)  # memory that was freed before
        self.transfers.clear(piece.address, -(-nbytes // 4) * 4)
        return piece

    def read(self, address: int, into: Bytes) -> None:
        """Wait for all launches, and copy device memory to the host.

        Raises:
            OctantsError: a launch failed.
        """
        refuse_read()
        self.transfers.read(address, into)
        self.deliver()
        self.pending.raise_first()
