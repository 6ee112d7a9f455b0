"""A device of Vulkan."""

from __future__ import annotations

from octants.artifact import Artifact
from octants.runtime.capture import refuse_read
from octants.runtime.device import Bytes
from octants.runtime.devices.serial_queue import SerialLaunches
from octants.runtime.vulkan.kernel import VulkanKernel
from octants.runtime.vulkan.launch_context import LaunchContext
from octants.runtime.vulkan.memory import SubAllocation


class VulkanDevice(LaunchContext, SerialLaunches):
    """The device of a number, made as a `LaunchContext`. Launches are queued."""

    def __repr__(self) -> str:
        return f"device of Vulkan ({self.context.hardware.name})"

    def load(self, artifact: Artifact) -> VulkanKernel:
        """Make a kernel ready to be launched; `OctantsRuntimeError` if that cannot be."""
        return VulkanKernel(self, artifact)

    def allocate_zeros(self, nbytes: int, what: str) -> SubAllocation:
        """Memory that is zero for whatever is launched later."""
        piece = self.heap.allocate(nbytes, what)
        self.versions.freed(piece.address, nbytes)  # what was there before
        self.transfers.clear(piece.address, -(-nbytes // 4) * 4)
        return piece

    def read(self, address: int, into: Bytes) -> None:
        """Copy memory to the host, after all that was launched; raises what failed in that."""
        refuse_read()
        self.transfers.read(address, into)
        self.deliver()
        self.pending.raise_first()
