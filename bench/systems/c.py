"""The references in C (bench/reference), compiled on the spot: BENCH_SYSTEM names which of them."""
# mypy: ignore-errors

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import problems
from systems import NotOffered

NAME = os.environ["BENCH_SYSTEM"]
FOLDER = Path(__file__).parent.parent / "reference"
SOURCES = {"c-simd": "simd.c", "c-scalar": "scalar.c", "c-double": "scalar.c"}
FLAGS = {
    "c-simd": "-O3 -march=native -ffp-contract=fast -fno-math-errno -fno-trapping-math",
    "c-scalar": "-O3 -march=native -ffast-math",
    "c-double": "-O2 -DREAL=double",
}
LONGS = ("begin", "end", "items", "steps")
POINTERS = ("count", "x", "a", "y", "y_adjoint", "x_adjoint", "a_adjoint", "scratch")


class Work(ctypes.Structure):
    """`Work` of work.h."""

    _fields_ = [
        *((name, ctypes.c_long) for name in LONGS),
        *((name, ctypes.c_void_p) for name in POINTERS),
    ]


def compiler() -> str | None:
    """The C compiler of this machine."""
    names = (os.environ.get("CC", ""), "cc", "gcc", "clang")
    return next((path for path in map(shutil.which, names) if path), None)


class System:
    """A shared library with a forward and a reverse function for each workload."""

    def __init__(self, threads: int, arch: str) -> None:
        if arch != "cpu":
            raise NotOffered("C runs on CPUs")
        self.threads = threads
        program = compiler()
        if program is None:
            raise NotOffered("no C compiler")
        first_line = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=True
        )
        self.compiler = first_line.stdout.splitlines()[0]
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "reference.so"
            sources = [str(FOLDER / SOURCES[NAME]), str(FOLDER / "threads.c")]
            flags = [*FLAGS[NAME].split(), "-shared", "-fPIC", "-pthread"]
            command = [program, *flags, "-o", str(library), *sources, "-lm"]
            subprocess.run(command, check=True)
            self.library = ctypes.CDLL(str(library))

    def describe(self):
        """What it ran with."""
        about = {"version": self.compiler, "flags": FLAGS[NAME], "tape": "by hand, across a tile"}
        if NAME == "c-simd":
            about["accuracy"] = self._accuracy()
        else:
            about["accuracy"] = "sines and cosines of the C library"
            about["tape"] = "by hand, one item at a time"
        return about

    def sync(self) -> None:
        """Calls return when all is done."""

    def program(self, problem):
        """The workload."""
        return Program(self, problem)

    def chain(self, statements, folder):
        """No gradients but those by hand."""
        raise NotOffered("gradients by hand")

    def launches(self):
        """A call of a function that does next to nothing; no arguments have to be made ready."""
        program = self.program(problems.make("affine", 8, 1))
        call, work = self.library.affine_forward, ctypes.byref(program.works[0])
        return {"one array": lambda: call(work)}

    def _accuracy(self) -> str:
        """The greatest errors of the functions by hand, in ulp of f32."""
        rng = np.random.default_rng(0)
        x = np.concatenate([rng.uniform(-4, 4, 1 << 18), rng.uniform(0, 1e4, 1 << 18)])
        x = x.astype(np.float32)
        found = [np.empty_like(x) for _ in range(3)]
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, *found)]
        self.library.functions(*pointers, ctypes.c_long(len(x)))
        wide = x.astype(np.float64)
        exact = np.sin(wide), np.cos(wide)
        texts = []
        for name, values, reference in zip(("sin", "cos"), found, exact, strict=False):
            away = np.abs(values - reference)
            texts.append(f"{name} within {away.max():.1e}, for arguments up to 1e4")
        reference = 1 / np.sqrt(np.abs(wide))
        ulp = np.abs(found[2] - reference) / np.spacing(reference.astype(np.float32))
        texts.append(f"1 / sqrt within {ulp.max():.1f} ulp")
        return "; ".join(texts)


class Program:
    """The arrays of a workload, and a `Work` for each thread."""

    is_paired = False

    def __init__(self, system, problem) -> None:
        self.library, self.problem = system.library, problem
        dtype = np.float64 if NAME == "c-double" else np.float32
        names = ("x", "a")[: len(problem.inputs)]
        self.arrays = {
            name: array.astype(dtype) for name, array in zip(names, problem.inputs, strict=True)
        }
        for name in names:
            self.arrays[f"{name}_adjoint"] = np.zeros_like(self.arrays[name])
        self.arrays |= {
            "y": np.zeros(problem.shape, dtype),
            "y_adjoint": np.ones(problem.shape, dtype),
        }
        self.arrays |= {"scratch": np.zeros(problem.shape, dtype), "count": problem.count}
        bounds = np.linspace(0, problem.items, system.threads + 1).astype(int)
        self.works = (Work * system.threads)(
            *(self._work(begin, end) for begin, end in itertools.pairwise(bounds))
        )

    def _work(self, begin: int, end: int) -> Work:
        pointers = (
            self.arrays[name].ctypes.data if name in self.arrays else None for name in POINTERS
        )
        return Work(int(begin), int(end), self.problem.items, self.problem.steps, *pointers)

    def _run(self, name: str) -> None:
        function = getattr(self.library, f"{self.problem.name}_{name}")
        self.library.run(function, self.works, len(self.works))

    def forward(self) -> None:
        """The output."""
        self._run("forward")

    def seed(self) -> None:
        """Gradients to which those of the sum of all outputs are added."""
        for name in ("x_adjoint", "a_adjoint"):
            if name in self.arrays:
                self.arrays[name].fill(0)

    def backward(self) -> None:
        """The gradients."""
        if self.problem.name == "pairwise":
            self._run("prepare")
        self._run("backward")

    def value(self):
        """The output."""
        return self.arrays["y"].ravel()

    def gradient(self):
        """The gradients of the inputs, one after the other."""
        names = [name for name in ("x_adjoint", "a_adjoint") if name in self.arrays]
        return np.concatenate([self.arrays[name].ravel() for name in names])
