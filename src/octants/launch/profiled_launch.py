"""Launches that are timed for the profiler, in the place of those that are not."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from octants import timeline
from octants.deferred_import import Deferred
from octants.runtime.device import Device

if TYPE_CHECKING:
    import ctypes
    from ctypes import util
else:
    ctypes, util = Deferred("ctypes"), Deferred("ctypes.util")

Run = Callable[[int], None]
_RANGES = "nvToolsExt"


def profiled(run: Run, name: str, device: Device) -> Run:
    """A function that launches like ``run``, timed if the profiler is on; else ``run`` itself.

    Args:
        run: Launches the code with the parameter block at an address.
        name: The name of the code for the user, such as "step" or "step_reverse".
        device: The device.
    """
    records = timeline.active()
    if records is None:
        return run
    begin, end = _nvtx_ranges()
    label = name.encode()

    def launch(block: int) -> None:
        timer, start = device.create_timer(), time.perf_counter_ns()
        begin(label)
        timer.start()
        try:
            run(block)
        finally:
            timer.stop()
            end()
        nbytes = int(getattr(device, "record_buffer_bytes", 0))
        records.add(timeline.KERNEL, name, start, timer.nanoseconds, nbytes)

    return launch


@functools.cache
def _nvtx_ranges() -> tuple[Callable[[bytes], Any], Callable[[], Any]]:
    """The functions of NVIDIA's library that begin and end a range; without it, nothing happens."""
    found = util.find_library(_RANGES)
    try:
        library = ctypes.CDLL(found or f"lib{_RANGES}.so.1")
        return library.nvtxRangePushA, library.nvtxRangePop
    except (OSError, AttributeError):
        return (lambda _: None), (lambda: None)
