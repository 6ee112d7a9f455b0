"""One system in a process of its own: it does what lines of JSON on its standard input say.

Answers are lines of JSON on what was standard output; whatever else is printed goes to standard
error. ``python worker.py SYSTEM THREADS``.
"""
# mypy: ignore-errors

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path

import numpy as np

SYSTEM, THREADS = sys.argv[1], int(sys.argv[2])
ANSWERS = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # before the import, which may print
os.environ["BENCH_SYSTEM"] = SYSTEM

import kernels  # noqa: E402

qd = kernels.qd


class Worker:
    """The commands; each returns what is answered."""

    def __init__(self) -> None:
        qd.init(
            arch=qd.cpu,
            cpu_max_num_threads=THREADS,
            offline_cache=False,
            ad_stack_experimental_enabled=True,
            log_level="error",
        )
        self.workload = None
        self.calls = None

    def prepare(self, name: str, size: list[int], gradient: str):
        """Build a workload, compile it, and run it once; its gradient goes to a file.

        The growth is that of the process while it compiled and ran its first backward pass; the
        error is that of the gradient along some direction, relative to a difference quotient.
        """
        self.workload = kernels.WORKLOADS[name](*size)
        forward = timed(self.workload.forward)
        backward, growth = self.first_backward()
        found = self.workload.gradient()
        np.save(gradient, found)
        direction = np.random.default_rng(1).choice([-1.0, 1.0], len(found))
        quotient = self.workload.difference_quotient(direction, 1e-3)
        warm = [self.run() for _ in range(3)]
        return {
            "error": abs(float(found @ direction) / quotient - 1.0) if quotient else 0.0,
            "compile forward": forward - min(run["forward"] for run in warm),
            "compile backward": backward - min(run["backward"] for run in warm),
            "growth": growth,
        }

    def grow(self, name: str, steps: int):
        """The growth of the process in the first backward pass, with one item of many steps."""
        self.workload = kernels.WORKLOADS[name](1, steps)
        timed(self.workload.forward)
        return self.first_backward()[1]

    def first_backward(self):
        """The seconds of a backward pass, and the bytes by which it made the process grow."""
        self.workload.seed()
        before = memory("VmRSS")
        forget_peak()
        seconds = timed(self.workload.backward)
        return seconds, memory("VmHWM") - before

    def run(self):
        """Time one forward and one backward run."""
        forward = timed(self.workload.forward)
        self.workload.seed()
        return {"forward": forward, "backward": timed(self.workload.backward)}

    def launches(self, count: int):
        """The seconds of one call of each tiny kernel, out of many in a row."""
        if self.calls is None:
            self.calls = kernels.Launches().calls
            for call in self.calls.values():
                call()
        return {name: timed(repeat, call, count) / count for name, call in self.calls.items()}

    def version(self):
        """The version of the system."""
        version = qd.__version__
        return ".".join(map(str, version)) if isinstance(version, tuple) else str(version)


def repeat(call, count: int) -> None:
    """Call it so many times."""
    for _ in range(count):
        call()


def timed(call, *arguments) -> float:
    """The seconds of a call, with all that it has started."""
    qd.sync()
    start = time.perf_counter()
    call(*arguments)
    qd.sync()
    return time.perf_counter() - start


def memory(key: str) -> int:
    """An entry of the kernel's status of this process, in bytes; 0 where there is none."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(key)), 0)


def forget_peak() -> None:
    """Let the peak of the memory begin anew, where the system can do that."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        print("the peak of the memory cannot be reset", file=sys.stderr)


def main() -> None:
    """Answer questions until there are no more."""
    worker = Worker()
    print(json.dumps({"result": None}), file=ANSWERS)
    for line in sys.stdin:
        command, arguments = json.loads(line)
        try:
            answer = {"result": getattr(worker, command)(**arguments)}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"}
        print(json.dumps(answer), file=ANSWERS)


if __name__ == "__main__":
    main()
