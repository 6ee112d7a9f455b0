"""Kernels on GPUs of NVIDIA, through the driver alone."""

from __future__ import annotations

from octants.runtime.cuda.device import CudaDevice
from octants.runtime.cuda.kernel import CudaKernel
from octants.runtime.cuda.streams import Event, Stream

__all__ = ["CudaDevice", "CudaKernel", "Event", "Stream"]
