"""CUDA written by hand (bench/reference/cuda), compiled on the spot.

BENCH_SYSTEM is "cuda", with fast math, or "cuda-double", what results are compared with.
"""
# mypy: ignore-errors

from __future__ import annotations

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import nvidia_gpu
from systems import NotOffered

SOURCES = ("loops.cu", "ode.cu", "pairwise.cu", "springs.cu")
FOLDER = Path(__file__).parent.parent / "reference" / "cuda"
LONGS = ("items", "steps")
POINTERS = ("x", "a", "y", "y_adjoint", "x_adjoint", "a_adjoint", "tape")
# Steps between checkpoints, in loops.cu and ode.cu; what pairwise.cu calls BODIES and SPLIT.
BLOCK, BODIES, SPLIT = 16, 64, 8


class Work(ctypes.Structure):
    """`Work` of work.cuh."""

    _fields_ = [
        *((name, ctypes.c_longlong) for name in LONGS),
        *((name, ctypes.c_uint64) for name in POINTERS),
        *((name, ctypes.c_longlong) for name in ("step", "side")),
    ]


class System:
    """The GPU, with a module for each workload."""

    def __init__(self, threads: int, arch: str) -> None:
        if arch != "cuda":
            raise NotOffered("by hand there is CUDA only")
        try:
            self.gpu = nvidia_gpu.Gpu()
        except nvidia_gpu.Missing as reason:
            raise NotOffered(str(reason)) from None
        self.is_exact = os.environ["BENCH_SYSTEM"] == "cuda-double"
        self.flags = nvidia_gpu.EXACT if self.is_exact else nvidia_gpu.FAST
        with ThreadPoolExecutor() as pool:
            self.modules = dict(zip(SOURCES, pool.map(self.compiled, SOURCES), strict=True))

    def compiled(self, source: str) -> bytes:
        """The code of a file of kernels."""
        try:
            return nvidia_gpu.compile_source(FOLDER / source, self.gpu.arch, self.flags)
        except nvidia_gpu.Missing as reason:
            raise NotOffered(str(reason)) from None

    def describe(self):
        """What it ran with."""
        return {
            "version": nvidia_gpu.compiler(),
            "flags": " ".join(self.flags),
            "accuracy": "fast math",
            "tape": f"a checkpoint each {BLOCK} steps, by hand",
            "gpu": self.gpu.name,
            "driver": self.gpu.driver_version,
        }

    def sync(self) -> None:
        """Wait until all is done."""
        self.gpu.sync()

    def program(self, problem):
        """The workload."""
        kind = Springs if problem.name.startswith("springs") else Program
        return kind(problem, self.gpu, self.module(problem.name), self.is_exact)

    def module(self, name: str):
        """The kernels of a workload."""
        return self.gpu.load(self.modules[source_of(name)])

    def launches(self):
        """A launch of a kernel that does next to nothing."""
        work = Work(items=64, steps=1, x=self.gpu.allocate(256), y=self.gpu.allocate(256))
        function = self.gpu.function(self.module("decay"), "decay_forward")
        return {"one array": self.gpu.launcher(function, 1, 64, work)}


def source_of(name: str) -> str:
    """The file of a workload's kernels."""
    alone = {"ode": "ode.cu", "pairwise": "pairwise.cu"}
    return "springs.cu" if name.startswith("springs") else alone.get(name, "loops.cu")


class Program:
    """Arrays on the GPU, and the kernels of a workload over them."""

    is_paired = False

    def __init__(self, problem, gpu, module, is_exact: bool = False) -> None:
        self.problem, self.gpu, self.module = problem, gpu, module
        self.dtype = np.float64 if is_exact else np.float32
        self.arrays = {}
        self.work = Work(items=problem.items, steps=problem.steps)
        self.make()
        self.forwards = self.kernels("forward")
        self.backwards = [*self.before_backward(), *self.kernels("backward")]

    def make(self) -> None:
        """The arrays."""
        problem = self.problem
        for name, array in zip(("x", "a"), problem.inputs, strict=False):
            self.add(name, array.shape, array)
            self.add(f"{name}_adjoint", array.shape)
        self.add("y", problem.shape)
        self.add("y_adjoint", problem.shape, np.ones(problem.shape))
        self.tape_bytes = self.add("tape", (self.tape_words(), problem.items))

    def tape_words(self) -> int:
        """The words of an item on the tape."""
        name, steps = self.problem.name, self.problem.steps
        if name in ("decay", "harmonics"):
            return 0
        return 3 if name == "pairwise" else self.problem.width * (steps // BLOCK)

    def add(self, name: str, shape, values=None) -> int:
        """An array, of zeros or of these values; its bytes."""
        array = np.zeros(shape, self.dtype)
        if values is not None:
            array[...] = values
        address = self.gpu.allocate(max(array.nbytes, 8))
        if values is not None:
            self.gpu.write(address, array)
        self.arrays[name] = (address, shape)
        setattr(self.work, name, address)
        return array.nbytes

    def kernels(self, which: str):
        """The launch of a kernel."""
        name, items = self.problem.name, self.problem.items
        grid, block = -(-items // 128), 128
        if name == "pairwise":
            if items % (BODIES * SPLIT):
                raise NotOffered(f"{items} bodies: not a multiple of {BODIES * SPLIT}")
            grid, block = items // BODIES, BODIES * SPLIT
        elif self.tape_words() and self.problem.steps % BLOCK:
            raise NotOffered(f"{self.problem.steps} steps: not a multiple of {BLOCK}")
        function = self.gpu.function(self.module, f"{name.partition('-')[0]}_{which}")
        return [self.gpu.launcher(function, grid, block, self.work)]

    def before_backward(self):
        """What a gradient needs first."""
        return self.kernels("prepare") if self.problem.name == "pairwise" else []

    def forward(self) -> None:
        """The output."""
        for launch in self.forwards:
            launch()

    def seed(self) -> None:
        """Gradients to which those of the sum of all outputs are added."""
        for name in ("x_adjoint", "a_adjoint"):
            if name in self.arrays:
                address, shape = self.arrays[name]
                self.gpu.fill(address, int(np.prod(shape)) * self.dtype().itemsize)

    def backward(self) -> None:
        """The gradients."""
        for launch in self.backwards:
            launch()

    def read(self, name: str):
        """An array, flat."""
        address, shape = self.arrays[name]
        array = np.zeros(shape, self.dtype)
        self.gpu.read(address, array)
        return array.ravel()

    def value(self):
        """The output."""
        return self.read("y")

    def gradient(self):
        """The gradients of the inputs, one after the other."""
        names = [name for name in ("x_adjoint", "a_adjoint") if name in self.arrays]
        return np.concatenate([self.read(name) for name in names])


class Springs(Program):
    """Many launches, captured at first if they are a graph; all states stand in one array."""

    def __init__(self, *arguments, **named) -> None:
        super().__init__(*arguments, **named)
        self.is_paired = self.problem.name == "springs"
        if not self.is_paired:
            whole = [*self.forwards, *self.backwards]
            self.forwards, self.backwards = map(self.graph, (self.forwards, whole))

    def make(self) -> None:
        problem = self.problem
        states = np.zeros((problem.steps + 1, 2, problem.items, 3))
        states[0] = [array.reshape(-1, 3) for array in problem.inputs]
        self.work.side = problem.side
        self.add("y", states.shape, states)
        self.add("x_adjoint", states.shape)
        self.add("tape", (1,))  # where the loss is
        self.tape_bytes = 0

    def graph(self, launches):
        """One launch that does what all of these do."""
        with self.gpu.captured() as result:
            for launch in launches:
                launch()
        return result

    def kernels(self, which: str):
        steps = range(self.problem.steps)
        if which == "forward":
            return [self.clear, *(self.kernel(which, t) for t in steps), self.kernel("loss")]
        return [self.kernel("seed"), *(self.kernel(which, t) for t in reversed(steps))]

    def kernel(self, which: str, step: int = 0):
        """The launch of a kernel for a step."""
        work = Work.from_buffer_copy(self.work)
        work.step = step
        function = self.gpu.function(self.module, f"springs_{which}")
        return self.gpu.launcher(function, -(-self.problem.items // 128), 128, work)

    def clear(self) -> None:
        """Set the loss to zero."""
        self.gpu.fill(self.arrays["tape"][0], self.dtype().itemsize)

    def seed(self) -> None:
        """The gradient is written, not added to."""

    def value(self):
        """The positions and velocities after the last step."""
        return self.read("y").reshape(self.problem.steps + 1, -1)[-1]

    def gradient(self):
        """That of the loss, for the first positions and velocities."""
        return self.read("x_adjoint").reshape(self.problem.steps + 1, -1)[0]
