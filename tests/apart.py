"""Tests on a device whose memory the host cannot touch.

``OCTANTS_APART=1`` lets all run on a CPU that stands for one, ``OCTANTS_TEST_ARCH=cuda`` on a GPU.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from octants import options
from octants.runtime.cpu.apart import ApartMemory
from octants.runtime.null import NullDevice

ON_GPU = os.environ.get("OCTANTS_TEST_ARCH", "cpu") not in ("cpu", "python")
APART = options.keeps_memory_apart() or ON_GPU

shares_memory: Any = pytest.mark.skipif(APART, reason="it is about memory that the host shares")

on_cpu: Any = pytest.mark.skipif(ON_GPU, reason="it is about how the CPU runs kernels")


class ApartNullDevice(ApartMemory, NullDevice):
    """Memory that the host cannot touch, kernels that do nothing."""
