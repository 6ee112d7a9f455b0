"""The systems as processes that are asked questions, and numbers from rounds in turn."""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from systems import SYSTEMS

HERE = Path(__file__).parent
# Seconds; other systems have as long as the command line says.
OUR_PATIENCE = 300.0


class Failed(Exception):
    """A system could not do what it was asked for; the text says why."""


class Contender:
    """A system with a number of threads, in a process that is started anew if it has failed."""

    def __init__(self, name: str, options: argparse.Namespace, threads: int = 1) -> None:
        self.name = name
        self.threads = threads
        self.key = name if threads == 1 else f"{name} x{threads}"
        self.options = options
        self.python = python_of(name, options)
        self.patience = OUR_PATIENCE if self.is_ours else options.patience
        self.process: subprocess.Popen[str] | None = None

    @property
    def is_ours(self) -> bool:
        """Whether it is Octants, or what is by hand, which Octants cannot be measured without."""
        return self.name == "octants" or self.name.startswith(("c-", "cuda"))

    def start(self) -> None:
        """Start a fresh process."""
        self.stop()
        command = [self.python, str(HERE / "worker.py"), self.name, str(self.threads)]
        command += [self.options.clock, self.options.arch]
        errors = None if self.options.verbose else subprocess.DEVNULL
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True)
        try:
            self._answer()
        except Failed:
            self.stop()
            raise

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
        self.process = None

    def ask(self, command: str, **arguments: Any) -> Any:
        """The result of a command; `Failed` if there is none in time."""
        if self.process is None:
            self.start()
        assert self.process is not None
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps([command, arguments]) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, which reading will tell
        return self._answer()

    def _answer(self) -> Any:
        assert self.process is not None
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], self.patience)[0]:
            self.stop()
            raise Failed(f"> {self.patience:g} s")
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            self.process = None
            raise Failed(f"process ended with {code}")
        answer: dict[str, Any] = json.loads(line)
        if "result" not in answer:
            raise Failed(answer.get("error", answer.get("not offered", "?")))
        return answer["result"]


def python_of(name: str, options: argparse.Namespace) -> str:
    """The Python that has a system: this one, or that of the peers."""
    ours = name == "octants" or name.startswith(("c-", "cuda"))
    return sys.executable if ours else str(options.peer_python)


def is_installed(name: str, options: argparse.Namespace) -> bool:
    """Whether the package of a system is there."""
    package = SYSTEMS[name].package
    code = f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({package!r}))"
    command = [python_of(name, options), "-c", code]
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0


Numbers = dict[str, dict[str, list[float]]]


def alternate(
    contenders: list[Contender], rounds: int, measure: Callable[[Contender], dict[str, float]]
) -> tuple[Numbers, dict[str, str]]:
    """For each contender and measure all numbers; and the words of those that failed."""
    numbers: Numbers = {contender.key: {} for contender in contenders}
    failures: dict[str, str] = {}
    for _ in range(rounds):
        for contender in contenders:
            if contender.key in failures:
                continue
            try:
                for key, value in measure(contender).items():
                    numbers[contender.key].setdefault(key, []).append(value)
            except Failed as failure:
                failures[contender.key] = str(failure)
    return numbers, failures


def with_bytecode() -> dict[str, str]:
    """The environment in which Python keeps the bytecode of what it imports."""
    return {name: x for name, x in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def first_gradient(contender: Contender, cache: Path) -> float:
    """The seconds from the start of a script to its first gradient, by the clock that is wanted."""
    clock = contender.options.clock
    command = [contender.python, str(HERE / "starts.py"), contender.name, str(cache), clock]
    command.append(contender.options.arch)
    environment = {**with_bytecode(), "BENCH_SYSTEM": contender.name}
    environment["CUDA_CACHE_PATH"] = str(cache)  # where the driver keeps what it has compiled
    start = time.time() if clock == "wall" else 0.0
    try:
        result = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=contender.patience,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"> {contender.patience:g} s") from None
    if result.returncode:
        raise Failed((result.stderr.strip().splitlines() or ["no gradient"])[-1][:120])
    return float(result.stdout.split()[-1]) - start
