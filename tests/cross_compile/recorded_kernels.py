"""Kernels of tests as files, for compilers of other processes."""

from __future__ import annotations

import hashlib
import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octants.ir import ops, printer
from octants.ir.core import Module, Task
from octants.ir.ops.arithmetic import ESTIMATES
from octants.options import Options

SUFFIX = ".kernel"


@dataclass(frozen=True)
class RecordedKernel:
    """A lowered module as text, and what became of it.

    It was reversed with the options in ``reversal``, if there are any, and finished with
    ``noalias``, in a test of that name.
    """

    text: str
    reversal: dict[str, Any] | None
    noalias: bool
    options: Options
    test: str = ""

    @property
    def key(self) -> str:
        """A hash of everything that decides what the compiler makes of it."""
        said = f"{self.reversal} {self.noalias} {self.options.compilation_key()} {self.text}"
        return hashlib.sha256(said.encode()).hexdigest()[:16]


class Recorder:
    """Writes the modules of a process to a folder; those that are the same only once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: set[str] = set()
        folder.mkdir(parents=True, exist_ok=True)

    def record(
        self,
        module: Module,
        reversal: dict[str, Any] | None,
        noalias: bool,
        options: Options,
        test: str,
    ) -> None:
        """Write a module that is lowered, and about to be reversed or finished.

        One that `explain` finishes for a second time, on a machine with estimates, is for none but
        that machine.
        """
        if any(isinstance(op, ops.Unary) and op.fn in ESTIMATES for op in module.walk()):
            return
        text = printer.to_dense_text(_for_any_target(module))
        kernel = RecordedKernel(text, reversal, noalias, options, test)
        if kernel.key in self._seen:
            return
        self._seen.add(kernel.key)
        path = self._folder / f"{module.name[:40]}-{kernel.key}{SUFFIX}"
        if not path.exists():  # by another process
            part = path.with_suffix(f".{os.getpid()}")
            part.write_bytes(pickle.dumps(kernel))
            part.rename(path)


def _for_any_target(module: Module) -> Module:
    """A module without what `explain` has noted of the machine that runs the tests."""
    tasks = []
    for task in module.tasks:
        options = {name: value for name, value in task.options.items() if name != "choice"}
        tasks.append(Task(task.name, task.body, task.domain, task.location, options))
    result = Module(module.name, module.arrays, module.body, tasks, module.location)
    result.noalias = module.noalias
    return result


def read(path: Path) -> RecordedKernel:
    """What a file holds."""
    kernel: RecordedKernel = pickle.loads(path.read_bytes())
    return kernel


def in_order(folder: Path, turn: str = "") -> list[Path]:
    """The files of a folder in an order that ``turn`` decides: a part of them is a fair sample."""

    def place(path: Path) -> str:
        return hashlib.sha256(f"{turn} {path.name}".encode()).hexdigest()

    return sorted(folder.glob(f"*{SUFFIX}"), key=place)
