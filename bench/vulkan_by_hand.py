"""Small calls on Vulkan beside the same written by hand: ``python bench/vulkan_by_hand.py``.

`bench/reference/vulkan` is what a program pays for the driver and the GPU alone. It needs a C
compiler, libvulkan's headers and glslangValidator (`libvulkan-dev` and `glslang-tools` on Debian),
or ``--built FOLDER`` with `calls` and the kernels of an earlier run. Octants runs through Vulkan,
and through CUDA where that is there, each in a process of its own. Numbers are the least
microseconds of a call among several runs. The table goes to the screen and to bench/results.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vulkan_calls import least

HERE = Path(__file__).parent
SOURCE = HERE / "reference" / "vulkan"
KERNELS = ("doubled", "added", "squares", "squares_back", "copied")
SIZES = [4096 * 4**k for k in range(9)]
ROWS = {
    "a launch, and a wait": "a launch, recorded and submitted, spin on the timeline semaphore",
    "a launch, of 1000 in a row": (
        "1000 launches in a row, 64 to a submission, recorded each time, each after the other"
    ),
    "a kernel of two numpy arrays": "two arrays of the host, *",
    "a tape around one kernel, and a wait": "a tape and a wait, *",
    "a tape around one kernel, of 300 in a row": "tapes in a row, *",
    **{f"a copy of {size} bytes, in a row": f"copy of {size} bytes by *" for size in SIZES},
}
"""Rows of Octants, and those by hand of which the fastest is beside them; a star is any text."""


def main() -> None:
    """Measure, and write the table; or be what is measured: ``--measure API``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--built", type=Path, help="a folder with what is compiled otherwise")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measured(options.measure)))
        return
    with tempfile.TemporaryDirectory() as folder:
        built = options.built or build(Path(folder))
        by_hand = run_by_hand(built)
    found = {api: run_octants(api) for api in ("vulkan", "cuda")}
    report(by_hand, found, options.output)


# -- by hand --------------------------------------------------------------------------------------


def build(folder: Path) -> Path:
    """Compile the reference and its kernels into a folder."""
    for kernel in KERNELS:
        macro, output = f"-D{kernel.upper()}", str(folder / f"{kernel}.spv")
        command = ["glslangValidator", "-S", "comp", "-V", "--target-env", "vulkan1.2", macro]
        run([*command, "-o", output, str(SOURCE / "kernels.glsl")])
    command = ["cc", "-O2", "-o", str(folder / "calls"), str(SOURCE / "calls.c")]
    run([*command, "-l:libvulkan.so.1"])
    return folder


def run(command: list[str]) -> str:
    """The output of a command that must succeed."""
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def run_by_hand(built: Path) -> dict[str, dict[str, float]]:
    """The microseconds of the rows by hand, for each family of queues; and the device."""
    found: dict[str, dict[str, float]] = {}
    for line in run([str(built / "calls"), str(built)]).splitlines():
        family, name, number = line.rsplit(" | ", 2)[-3:]
        if family == "device" or not name.startswith("flags"):
            found.setdefault(family, {})[name] = float(number)
    return found


def fastest(rows: dict[str, float], wanted: str) -> float:
    """The least of the rows whose name is as wanted."""
    start, star, _ = wanted.partition("*")
    names = [name for name in rows if name.startswith(start)] if star else [wanted]
    return min(rows[name] for name in names)


# -- Octants --------------------------------------------------------------------------------------


def run_octants(api: str) -> dict[str, float]:
    """The microseconds of our rows; empty where there is no such device."""
    command = [sys.executable, __file__, "--measure", api]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    found: dict[str, float] = (
        json.loads(done.stdout.splitlines()[-1]) if not done.returncode else {}
    )
    return found


def measured(api: str) -> dict[str, float]:
    """The microseconds of each row on an API."""
    import octants as qd
    from gpu_calls import calls

    qd.init(arch=getattr(qd, api), offline_cache=False, log_level="error")
    cases = calls(qd)
    launch, tape = cases["a launch"][0], cases["a tape around one kernel"][0]
    numbers = cases["a kernel of two numpy arrays"][0]
    found = {
        "a launch, and a wait": microseconds(qd, launch, 1, 300),
        "a launch, of 1000 in a row": microseconds(qd, launch, 1000, 8),
        "a kernel of two numpy arrays": microseconds(qd, numbers, 300, 8),
        "a tape around one kernel, and a wait": microseconds(qd, tape, 1, 300),
        "a tape around one kernel, of 300 in a row": microseconds(qd, tape, 300, 8),
    }
    for size in SIZES:
        of, to = (qd.ndarray(qd.u8, size) for _ in range(2))
        of.from_numpy(np.zeros(size, np.uint8))
        count = 10 if size > 1 << 24 else 50
        copy = partial(to.copy_from, of)
        found[f"a copy of {size} bytes, in a row"] = microseconds(qd, copy, count, 4)
    return found


def microseconds(qd: Any, call: Callable[[], Any], count: int, runs: int) -> float:
    """The least microseconds of a call in any of some runs of calls in a row."""
    for _ in range(20):
        call()
    return 1e6 * least(qd, call, count, runs)


def report(
    by_hand: dict[str, dict[str, float]], found: dict[str, dict[str, float]], folder: Path
) -> None:
    """Write the table of the rows, and all rows by hand."""
    device = next(iter(by_hand.pop("device")))
    families = by_hand
    first = next(iter(families.values()))
    apis = [api for api, rows in found.items() if rows]
    lines = [
        f"{device}, Python {sys.version.split()[0]}; microseconds of a call",
        "",
        f"| call | by hand | {' | '.join(apis)} |",
        "|---|" + "---|" * (1 + len(apis)),
    ]
    for row, wanted in ROWS.items():
        numbers = [fastest(first, wanted), *(found[api][row] for api in apis)]
        lines.append(f"| {row} | " + " | ".join(f"{each:.4g}" for each in numbers) + " |")
    lines += ["", f"| by hand | {' | '.join(families)} |", "|---|" + "---|" * len(families)]
    for row in first:
        numbers = [rows[row] for rows in families.values() if row in rows]
        lines.append(f"| {row} | " + " | ".join(f"{each:.4g}" for each in numbers) + " |")
    text = "\n".join(lines) + "\n"
    print(text)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"vulkan_by_hand-{time.strftime('%Y-%m-%d-%H%M%S')}.md").write_text(text)


if __name__ == "__main__":
    main()
