"""Logs what atomics return to work items, from a recorded launch until its reverse."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from octants.ir.core import Module
from octants.launch.bound_code import BoundKernelCode
from octants.launch.persistent_storage import PersistentLayout
from octants.launch.specialisation import Specialisation
from octants.lazy_dataclass import dataclass
from octants.runtime.arguments.staging_copies import DeviceArray
from octants.runtime.capture import refuse
from octants.runtime.device import Device

if TYPE_CHECKING:
    from octants.autodiff.variants.atomic_logs import Logged

Logs = tuple[Any, ...]
"""The arrays of a log: of numpy, or `DeviceArray`s on a device with discrete memory."""

Launch = Callable[[BoundKernelCode, Logs], object]


@dataclass(frozen=True)
class LogPlan:
    """Finds the size of the log of a launch; see `autodiff.variants.atomic_logs.Logged`."""

    measure: BoundKernelCode
    count: BoundKernelCode | None
    sites: int

    def allocate(self, launch: Launch, hold: Callable[[int], None] = lambda nbytes: None) -> Logs:
        """Allocate the arrays of the log, which follow the arguments of the kernel in a launch.

        Args:
            launch: Runs code with a log.
            hold: Called with the size of the log in bytes before it is allocated.
        """
        refuse(
            "what atomics return cannot be logged: only the device knows how large the log becomes",
            "leave such kernels out of the tape, or do not use what the atomics return",
        )
        zeros = partial(zeros_on, self.measure.device)
        bounds, no_starts, no_words = zeros(2, np.int64), zeros(1, np.int64), zeros(1, np.uint64)
        launch(self.measure, (bounds, no_starts, no_words))
        items = int(read_back(bounds)[1])
        if self.count is None:
            hold(8 * items * self.sites)
            return bounds, no_starts, zeros(max(1, items * self.sites), np.uint64)
        starts = zeros(items + 1, np.int64)
        launch(self.count, (bounds, starts, no_words))
        words = int(read_back(starts)[-1])
        hold(8 * words)
        return bounds, starts, zeros(max(1, words), np.uint64)


def zeros_on(device: Device, count: int, dtype: Any) -> Any:
    """An array of zeros that kernels on a device can access."""
    if device.shares_memory:
        return np.zeros(count, dtype)
    return DeviceArray(device, (count,), dtype)


def read_back(array: Any) -> np.ndarray[Any, Any]:
    """The elements of such an array."""
    found: np.ndarray[Any, Any] = array.read() if isinstance(array, DeviceArray) else array
    return found


def make_plan(specialisation: Specialisation, logged: Logged, layout: PersistentLayout) -> LogPlan:
    """Compile the code that measures a log; the kernel has arguments for it."""

    def program(module: Module) -> BoundKernelCode:
        return BoundKernelCode(specialisation, module, (), layout.array_offsets(module))

    count = None if logged.count is None else program(logged.count)
    return LogPlan(program(logged.measure), count, logged.sites)
