"""What a benchmark ran on."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path


def describe_machine() -> dict[str, str]:
    """The date and what the program ran on."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": models[0] if models else platform.processor(),
        "vectors": _vectors(lines),
        "cores": str(os.cpu_count()),
        "load at the end": f"{os.getloadavg()[0]:.1f}",
        "system": " ".join((platform.system(), platform.machine(), *platform.libc_ver())),
        "python": platform.python_version(),
    }


def _vectors(lines: list[str]) -> str:
    """The widest vectors of the CPU, as far as the system tells."""
    flags = next((line.split() for line in lines if line.startswith(("flags", "Features"))), [])
    names = ("avx512f", "avx2", "avx", "sse2", "asimd")
    return next((name for name in names if name in flags), "unknown")
