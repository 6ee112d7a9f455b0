"""A device that runs nothing: that of ``arch=qd.python``, whose kernels the interpreter runs."""

from __future__ import annotations

from octants.artifact import Artifact
from octants.runtime.devices.serial_streams_and_graphs import SerialLaunches
from octants.runtime.memory.host import HostMemory
from octants.runtime.reports.pending_errors import Pending


class NullKernel:
    """Records the addresses of the parameter blocks that it was launched with."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.launches: list[int] = []

    def launch(self, block: int) -> None:
        self.launches.append(block)


class NullDevice(SerialLaunches, HostMemory):
    """A device with host memory, whose kernels do nothing."""

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
