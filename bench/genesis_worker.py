"""One scene of Genesis on one system, in a process of its own.

    python genesis_worker.py SCENE SYSTEM

It builds the scene, runs it, and answers with a line of JSON: times of the build and of the first
step, and the numbers. Then each line on its standard input is a count of steps to time. Answers go
to what was standard output; whatever else is printed goes to standard error.
"""
# mypy: ignore-errors

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback

import numpy as np


class Clock:
    """Times calls by the clock on the wall, and by the processor time of all threads."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin."""
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def stop(self) -> dict[str, float]:
        """The seconds since the start."""
        cpu = time.process_time() - self.cpu
        return {"wall": time.perf_counter() - self.wall, "cpu": cpu}


def open_scene(name: str, system: str):
    """Start Genesis on a system; the program of a scene, not yet built."""
    if system == "octants":
        importlib.import_module("octants.compat").install()
    gs = importlib.import_module("genesis")
    importlib.import_module("genesis_features")
    scene = importlib.import_module("genesis_programs").SCENES[name]
    gs.init(
        backend=gs.cpu,
        seed=0,
        precision=scene.precision,
        logging_level="error",
        performance_mode=scene.is_field,
    )
    return scene.open(gs)


def begin(program) -> dict:
    """Build a scene and run it for as many steps as its numbers are taken after."""
    clock = Clock()
    program.build()
    times = {"build": clock.stop()}
    clock.start()
    program.start()
    times["first"] = clock.stop()
    program.prepare()
    clock.start()
    program.step()
    stepped = clock.stop()
    times["first"] = {key: times["first"][key] + stepped[key] for key in stepped}
    for _ in range(program.steps):
        program.observe()
        program.prepare()
        program.step()
    numbers = program.numbers()
    given = {key: np.asarray(value, dtype=float).tolist() for key, value in numbers.items()}
    return {"times": times, "numbers": given}


def repeat(program, count: int) -> dict[str, float]:
    """The mean time of a step in ``count`` of them."""
    clock, total = Clock(), {"wall": 0.0, "cpu": 0.0}
    for _ in range(count):
        program.prepare()
        clock.start()
        program.step()
        for key, seconds in clock.stop().items():
            total[key] += seconds
    return {key: seconds / count for key, seconds in total.items()}


def main() -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(result: dict) -> None:
        answers.write(json.dumps(result) + "\n")
        answers.flush()

    try:
        program = open_scene(*sys.argv[1:3])
        answer(begin(program))
        for line in sys.stdin:
            answer(repeat(program, int(line)))
    except Exception:
        answer({"error": traceback.format_exc()[-3000:]})


if __name__ == "__main__":
    main()
