"""One system in a process of its own: it does what lines of JSON on its standard input say.

Answers are lines of JSON on what was standard output; whatever else is printed goes to standard
error. ``python worker.py SYSTEM THREADS CLOCK ARCH``; with one thread a process for CPUs is bound
to one of them. The clock is ``wall``, or ``cpu``: the time of the process on all threads.
"""
# mypy: ignore-errors

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np

import problems
from systems import MODULES, NotOffered

NAME, THREADS, ARCH = sys.argv[1], int(sys.argv[2]), sys.argv[4]
CLOCK = {"wall": time.perf_counter, "cpu": time.process_time}[sys.argv[3]]
# A run is repeated until so much time has gone, and the best counts.
SECONDS, REPEATS = 0.05, 10


class Worker:
    """The commands; each returns what is answered."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.system = importlib.import_module(f"systems.{MODULES[NAME]}").System(THREADS, ARCH)
        self.program = None
        self.calls = None

    def describe(self):
        """What the system runs with."""
        return self.system.describe()

    def prepare(self, name: str, size: list[int], results: str):
        """Build a workload, compile it, and run it once; its results go to files.

        The growth is that of the process while it compiled and ran its first backward pass.
        """
        self.program = None
        self.program = self.system.program(problems.make(name, *size))
        forward = self.timed(self.program.forward)
        backward, growth = self.first_backward()
        np.save(f"{results}.value.npy", self.program.value())
        np.save(f"{results}.gradient.npy", self.program.gradient())
        warm = self.run()
        return {
            "compile forward": max(0.0, forward - warm["forward"]),
            "compile backward": max(0.0, backward - warm["backward"]),
            "growth": growth,
            "tape": getattr(self.program, "tape_bytes", None),
        }

    def grow(self, name: str, steps: int):
        """The growth of the process in the first backward pass, with one item of many steps."""
        self.program = self.system.program(problems.make(name, 1, steps))
        self.timed(self.program.forward)
        return self.first_backward()[1]

    def first_backward(self):
        """The seconds of a backward pass, and the bytes by which it made the process grow."""
        self.program.seed()
        before = memory("VmRSS")
        forget_peak()
        seconds = self.timed(self.program.backward)
        return seconds, memory("VmHWM") - before

    def run(self):
        """Time forward and backward runs: the best of several in a row, where they are short."""
        if self.program.is_paired:
            pairs = [
                (self.timed(self.program.forward), self._seeded_backward()) for _ in range(REPEATS)
            ]
            forward, backward = (min(times) for times in zip(*pairs, strict=True))
            return {"forward": forward, "backward": backward}
        forward = best(lambda: self.timed(self.program.forward))
        return {"forward": forward, "backward": best(self._seeded_backward)}

    def queue(self, seconds: float):
        """Time runs of which many are queued in a row; measured for so long, at most."""
        if self.program.is_paired:
            return self.run()
        self.program.seed()
        calls = {"forward": self.program.forward, "backward": self.program.backward}
        return {name: self._queued(call, seconds / 2) for name, call in calls.items()}

    def _queued(self, call, seconds: float) -> float:
        first = self.timed(call)
        count = int(min(50, max(1, seconds / REPEATS / max(first, 1e-9))))
        rounds = int(min(REPEATS, max(1, seconds / count / first)))
        return min(self.timed(repeat, call, count) for _ in range(rounds)) / count

    def _seeded_backward(self) -> float:
        self.program.seed()
        return self.timed(self.program.backward)

    def launches(self, count: int):
        """The seconds of one call of each tiny kernel, out of many in a row."""
        self.program = None
        gc.collect()  # a tape would clear the gradients of all programs that are there
        if self.calls is None:
            self.calls = self.system.launches()
            for call in self.calls.values():
                call()
        return {name: self.timed(repeat, call, count) / count for name, call in self.calls.items()}

    def chain(self, statements: int):
        """The seconds to compile a chain of so many statements, and then its gradient."""
        start = CLOCK()
        program = self.system.chain(statements, Path(self.folder.name))
        program.forward()
        self.system.sync()
        forward = CLOCK() - start
        program.seed()
        backward = self.timed(program.backward)
        return {
            "forward": max(0.0, forward - self.timed(program.forward)),
            "gradient": max(0.0, backward - self.timed(program.backward)),
        }

    def timed(self, call, *arguments) -> float:
        """The seconds of a call, with all that it has started."""
        self.system.sync()
        start = CLOCK()
        call(*arguments)
        self.system.sync()
        return CLOCK() - start


def best(measure) -> float:
    """The least of some measures, which together take a while."""
    times = []
    while len(times) < REPEATS and sum(times) < SECONDS:
        times.append(measure())
    return min(times)


def repeat(call, count: int) -> None:
    """Call it so many times."""
    for _ in range(count):
        call()


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


def answer(call, **arguments):
    """The result of a call, or what went wrong."""
    try:
        return {"result": call(**arguments)}
    except NotOffered as reason:
        return {"not offered": str(reason)}
    except Exception as error:
        traceback.print_exc()
        text = str(error).strip().splitlines() or [""]
        return {"error": f"{type(error).__name__}: {text[0]}"[:120]}


def main() -> None:
    """Answer questions until there are no more."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # before the system is imported, which may print
    os.environ["BENCH_SYSTEM"] = NAME
    if THREADS == 1 and ARCH == "cpu":
        with contextlib.suppress(AttributeError, OSError):
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    worker = None

    def start() -> None:
        nonlocal worker
        worker = Worker()

    print(json.dumps(answer(start)), file=answers)
    for line in sys.stdin:
        command, arguments = json.loads(line)
        print(json.dumps(answer(getattr(worker, command), **arguments)), file=answers)


if __name__ == "__main__":
    main()
