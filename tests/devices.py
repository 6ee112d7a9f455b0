"""The device that the tests run on, and marks for tests that only some devices can pass.

``OCTANTS_DISCRETE=1`` gives the CPU memory that the host cannot touch, ``OCTANTS_TEST_ARCH=cuda``
runs the tests on a GPU, ``OCTANTS_TEST_ARCH=vulkan`` on the Vulkan device that is chosen.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from octants.runtime.devices.null import NullDevice
from octants.runtime.vulkan import physical_devices
from tests import discrete_device
from tests.codegen.on_gpu import gpu
from tests.discrete_device import DiscreteMemory

ARCH = os.environ.get("OCTANTS_TEST_ARCH", "cpu")
ON_GPU = ARCH not in ("cpu", "python")
DISCRETE = discrete_device.is_requested() or ON_GPU

shares_memory: Any = pytest.mark.skipif(DISCRETE, reason="it is about memory that the host shares")


def _is_llvmpipe() -> bool:
    """Whether tests run on Mesa's driver for the CPU."""
    return ARCH == "vulkan" and "cuts" in physical_devices.choose(None).features


beyond_llvmpipe: Any = pytest.mark.skipif(
    _is_llvmpipe(), reason="Mesa's driver ends long loops, and runs out of memory in deep nests"
)

tells_infinities: Any = pytest.mark.skipif(
    _is_llvmpipe(), reason="Mesa's driver takes a product with a constant zero for zero"
)

checks_races: Any = pytest.mark.skipif(
    ARCH == "metal", reason="launches are not checked for races: Metal lacks 64-bit atomic updates"
)

IS_EMULATED = ARCH in ("cuda", "metal") and not (
    sys.platform == "darwin" if ARCH == "metal" else gpu()
)

in_other_processes: Any = pytest.mark.skipif(
    IS_EMULATED, reason="no other process has the GPU that this one emulates"
)

counts_driver: Any = pytest.mark.skipif(
    IS_EMULATED, reason="the emulated driver is in the memory that is measured"
)

on_cpu: Any = pytest.mark.skipif(ON_GPU, reason="it is about how the CPU runs kernels")


class DiscreteNullDevice(DiscreteMemory, NullDevice):
    """Memory that the host cannot touch, kernels that do nothing."""
