"""The limits of the system on this process: processors and memory."""

from __future__ import annotations

import math
import os

_GROUP = "/sys/fs/cgroup"


def thread_count() -> int:
    """The number of processors that this process may use: by affinity and, on Linux, by quota."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    quota, _, period = _read("cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit():
        count = min(count, math.ceil(int(quota) / int(period)))
    return max(1, count)


def memory_bytes() -> int:
    """The memory of the machine, or of its container if that is less, in bytes."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        total = 1 << 40
    limit = _read("memory.max")
    return min(total, int(limit)) if limit.isdigit() else total


def _read(name: str) -> str:
    try:
        with open(os.path.join(_GROUP, name)) as file:
            return file.read().strip()
    except OSError:
        return ""
