"""Compiles one program and says what it took: ``python compile_worker.py SYSTEM CASE SIZE SIMD``.

The answer is a line of JSON on what was standard output: seconds on the clock and of the processor
for the first forward and the first backward launch, each less a second launch.
"""
# mypy: ignore-errors

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path

SYSTEM, CASE, SIZE, SIMD = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "lanes"
ANSWERS = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # before the import, which may print

import compile_cases  # noqa: E402

WARM = ("chain", 3)  # loads what a process loads once


def load(qd, case: str, size: int):
    """What the first launches of a case take."""
    source = "import importlib\n" + f"qd = importlib.import_module({qd.__name__!r})\n"
    text = compile_cases.CASES[case][0](size)
    source += compile_cases.for_warp(text) if SYSTEM == "warp" else text
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{case}_{size}.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return {name: first(getattr(module, name), qd) for name in ("forward", "backward")}


def first(run, qd) -> tuple[float, float]:
    """What the first run takes longer than the second: seconds on the clock, of the processor."""
    before = time.perf_counter(), time.process_time()
    wait = qd.synchronize if SYSTEM == "warp" else qd.sync
    run()
    wait()
    middle = time.perf_counter(), time.process_time()
    run()
    wait()
    after = time.perf_counter(), time.process_time()
    return tuple(2 * m - b - a for b, m, a in zip(before, middle, after, strict=True))


def start(qd, folder: str) -> None:
    """Start a system, so that it finds nothing that was compiled before."""
    if SYSTEM == "warp":
        qd.config.quiet = True
        qd.config.kernel_cache_dir = folder
        qd.init()
        qd.set_device("cpu")
        return
    options = {"arch": qd.cpu, "offline_cache": False, "cpu_max_num_threads": 2}
    if SYSTEM == "octants":
        options["simd"] = "always" if SIMD else "never"
    elif SYSTEM == "quadrants":
        options["ad_stack_experimental_enabled"] = True
    else:
        options["ad_stack_size"] = 64
    qd.init(**options)


def main() -> None:
    """Start the system, compile something small, then the case."""
    qd = importlib.import_module(SYSTEM)
    with tempfile.TemporaryDirectory() as folder:
        start(qd, folder)
        load(qd, *WARM)
        print(json.dumps(load(qd, CASE, SIZE)), file=ANSWERS)


if __name__ == "__main__":
    main()
