"""Artifacts and parameter blocks for the fake GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from octants.artifact import SYSTEM, Artifact, Dispatch, MessageFormat, ParameterLayout, Slot
from octants.runtime.cuda.device import CudaDevice
from octants.runtime.cuda.kernel import CudaKernel
from tests.runtime.cuda.fake_cuda import code_of

SYSTEM_SLOTS = 3


def artifact(
    name: str, dispatches: Sequence[Dispatch], count: int, messages: Any = (), **more: Any
) -> Artifact:
    """A kernel with ``count`` slots besides those of the system."""
    slots = [Slot("system", each) for each in SYSTEM]
    slots += [Slot("pointer", array=k) for k in range(count)]
    pointer = dict(more.get("metadata", ())).get("parameters") == "pointer"
    entries = dict.fromkeys(dispatch.entry for dispatch in dispatches)
    code = code_of(list(entries), 1 if pointer else len(slots))
    return Artifact(
        name,
        "fake",
        code,
        "",
        ParameterLayout(tuple(slots)),
        tuple(messages),
        kernel=name,
        dispatches=tuple(dispatches),
        **more,
    )


class Block:
    """A parameter block."""

    def __init__(self, *values: int) -> None:
        count = SYSTEM_SLOTS + len(values)
        self.slots = (ctypes.c_int64 * count)(0, 0, 0, *values)
        self.address = ctypes.addressof(self.slots)


def launch(kernel: CudaKernel, *values: int) -> None:
    """Launch with these values in the slots that are not the system's."""
    block = Block(*values)
    kernel.launch(block.address)


def read(device: CudaDevice, address: int, count: int, dtype: Any = np.int64) -> list[Any]:
    values = np.zeros(count, dtype)
    device.read(address, values.view(np.uint8))
    return list(values)


def write(device: CudaDevice, address: int, values: Any, dtype: Any = np.int64) -> None:
    device.write(address, np.array(values, dtype).view(np.uint8))


PRINT = MessageFormat("print", ("x = ", ("",), "\n"), ("i32",))
ASSERT = MessageFormat("assertion", ("it is ", ("",)), ("i32",))
OVERFLOW = MessageFormat("overflow", ("it needs ", ("",), " slots"), ("i64",))
