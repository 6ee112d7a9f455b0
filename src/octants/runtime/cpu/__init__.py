"""Kernels on the CPU. Most programs need the one device of the process, `device`."""

from __future__ import annotations

import functools

from octants.artifact import Artifact
from octants.runtime.cpu.device import CpuDevice, CpuKernel

__all__ = ["CpuDevice", "CpuKernel", "device", "load"]


@functools.cache
def device() -> CpuDevice:
    """The CPU, made when it is first needed."""
    return CpuDevice()


def load(artifact: Artifact) -> CpuKernel:
    """Make a kernel ready to be launched on `device`."""
    return device().load(artifact)
