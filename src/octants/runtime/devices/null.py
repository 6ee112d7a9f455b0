"""A device that runs nothing: it counts, for tests of what stands above a device."""

from __future__ import annotations

from octants.artifact import Artifact
from octants.runtime.devices.serial_queue import SerialLaunches
from octants.runtime.memory.host import HostMemory
from octants.runtime.reports.pending_errors import Pending


class NullKernel:
    """Remembers the blocks that it was launched with."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.launches: list[int] = []

    def launch(self, block: int) -> None:
        self.launches.append(block)


class NullDevice(SerialLaunches, HostMemory):
    """Memory of the host, kernels that do nothing."""

    def __init__(self) -> None:
        self.kernels: list[NullKernel] = []
        self.synchronizations = 0
        self.pending = Pending()

    def load(self, artifact: Artifact) -> NullKernel:
        kernel = NullKernel(artifact)
        self.kernels.append(kernel)
        return kernel

    def synchronize(self) -> None:
        self.synchronizations += 1
        self.pending.raise_first()

    def close(self) -> None:
        self.kernels.clear()
