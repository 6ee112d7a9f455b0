"""Tests on a device whose memory the host cannot touch: ``OCTANTS_APART=1`` lets all run on one."""

from __future__ import annotations

from typing import Any

import pytest

from octants import options
from octants.runtime.cpu.apart import ApartMemory
from octants.runtime.null import NullDevice

APART = options.keeps_memory_apart()

shares_memory: Any = pytest.mark.skipif(APART, reason="it is about memory that the host shares")


class ApartNullDevice(ApartMemory, NullDevice):
    """Memory that the host cannot touch, kernels that do nothing."""
