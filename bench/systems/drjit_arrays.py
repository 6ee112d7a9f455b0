"""Dr.Jit: functions of arrays, which it records; their loops are those of `dr.syntax`.

Functions are frozen, so that later calls start their kernels without recording again. Its reverse
mode stores the state of a loop in arrays, whose length `max_iterations` gives; -1 is for loops that
only sum up, which need no memory. Each Python process has a cache of its own. On a CPU it needs a
shared library of LLVM, which DRJIT_LIBLLVM_PATH names if it does not find one.
"""
# mypy: ignore-errors

from __future__ import annotations

import importlib
import importlib.util
import os
import tempfile
from pathlib import Path

import numpy as np

import problems
from systems import NotOffered

CACHE = tempfile.TemporaryDirectory()
os.environ["HOME"] = CACHE.name  # where Dr.Jit keeps what it has compiled; read at its import

import drjit as dr  # noqa: E402

LINES = {"cpu": "llvm", "cuda": "cuda"}


class System:
    """Dr.Jit on a CPU, by LLVM, or on a GPU."""

    def __init__(self, threads: int, arch: str) -> None:
        if arch not in LINES:
            raise NotOffered(f"Dr.Jit does not run on {arch}")
        if not dr.has_backend(getattr(dr.JitBackend, LINES[arch].upper())):
            raise NotOffered(f"Dr.Jit finds no {LINES[arch]}")
        self.types = importlib.import_module(f"drjit.{LINES[arch]}.ad")
        dr.set_thread_count(threads)

    def describe(self):
        """What it ran with."""
        return {
            "version": dr.__version__,
            "flags": f"{self.types.__name__}, functions frozen",
            "accuracy": "its own functions",
            "tape": "arrays of max_iterations states; a loop that only sums up needs none",
        }

    def sync(self) -> None:
        """Wait until all is done."""
        dr.sync_thread()

    def program(self, problem):
        """The workload."""
        if problem.name.startswith("springs"):
            return Springs(problem, self.types)
        return Program(problem, self.types, FUNCTIONS[problem.name])

    def chain(self, statements: int, folder: Path):
        """A chain of statements in a dynamic loop; the source is written to the folder."""
        lines = "\n".join(f"        {line}" for line in problems.chain(statements, "dr"))
        path = folder / f"chain_drjit_{statements}.py"
        path.write_text(CHAIN.format(lines=lines))
        specification = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        problem = problems.make("recurrence", problems.CHAIN_ITEMS, problems.CHAIN_STEPS)
        return Program(problem, self.types, module.chain)

    def launches(self):
        """Calls of functions that do next to nothing."""
        return launches(self.types)


CHAIN = """\
import drjit as dr

@dr.syntax
def chain(sizes, x):
    t, v, w = sizes.zero(), +x, +x
    while dr.hint(t < sizes.steps, max_iterations=sizes.most):
{lines}
        t += 1
    return v + w
"""


class Sizes:
    """What functions get beside the inputs: trip counts, as data of the device."""

    def __init__(self, problem, types) -> None:
        self.types, self.most = types, problem.steps
        self.steps = dr.opaque(types.Int, problem.steps)
        self.count = types.Int(problem.count)

    def zero(self):
        """A counter of iterations."""
        return self.types.Int(0)


class Program:
    """A function of the inputs, and its gradient; of an item's numbers each is an array."""

    is_paired = False

    def __init__(self, problem, types, function) -> None:
        self.problem, self.width = problem, problem.width
        self.inputs = [columns(types, array) for array in problem.inputs]
        self.sizes = Sizes(problem, types)

        def forward(inputs, steps, count):
            return function(self.sizes, *inputs)

        def backward(inputs, steps, count):
            inputs = [dr.detach(each) for each in inputs]
            dr.enable_grad(inputs)
            output = function(self.sizes, *inputs)
            for each in output if isinstance(output, list) else [output]:
                dr.set_grad(each, 1.0)
                dr.enqueue(dr.ADMode.Backward, each)
            dr.traverse(dr.ADMode.Backward)
            return dr.grad(inputs)

        self.calls = dr.freeze(forward), dr.freeze(backward)

    def forward(self) -> None:
        """The output."""
        self.output = self._call(0)

    def seed(self) -> None:
        """Gradients are made anew."""

    def backward(self) -> None:
        """The gradients."""
        self.gradients = self._call(1)

    def _call(self, which: int):
        results = self.calls[which](self.inputs, self.sizes.steps, self.sizes.count)
        dr.eval(results)
        return results

    def value(self):
        """The output."""
        return rows(self.output)

    def gradient(self):
        """The gradients of the inputs, one after the other."""
        return np.concatenate([rows(each) for each in self.gradients])


def columns(types, values):
    """An array for each component, or one array if there is one component."""
    if values.ndim == 1:
        return types.Float(values)
    return [types.Float(np.ascontiguousarray(column)) for column in values.T]


def rows(found):
    """Arrays of components as one flat array, item by item."""
    if not isinstance(found, (list, tuple)):
        return found.numpy().ravel()
    return np.stack([each.numpy() for each in found], axis=-1).ravel()


@dr.syntax
def recurrence(sizes, x):
    t, v = sizes.zero(), +x
    while dr.hint(t < sizes.steps, max_iterations=sizes.most):
        v = dr.sin(v) * 0.95 + 0.01
        t += 1
    return v


@dr.syntax
def affine(sizes, x, a):
    t, v = sizes.zero(), +x
    while dr.hint(t < sizes.steps, max_iterations=sizes.most):
        v = v * a + 0.01
        t += 1
    return v


@dr.syntax
def decay(sizes, x):
    t, v = sizes.zero(), +x
    while dr.hint(t < sizes.steps, max_iterations=sizes.most):
        v = 0.95 * v + 0.01
        t += 1
    return v


@dr.syntax
def harmonics(sizes, x):
    t, v = sizes.zero(), 0.0 * x
    while dr.hint(t < sizes.steps, max_iterations=-1):
        v += dr.sin(x * sizes.types.Float(t))
        t += 1
    return v


@dr.syntax
def ragged(sizes, x):
    """The nest as one loop: its reverse mode takes no loop in a loop that stores its state."""
    t, v = sizes.zero(), +x
    steps = sizes.count * (sizes.count - 1) // 2
    while dr.hint(t < steps, max_iterations=sizes.most**2 // 2):
        v = dr.sin(v) * 0.95 + 0.01
        t += 1
    return v


@dr.syntax
def nest(sizes, x):
    """The nest as one loop, too, with the counters of both."""
    j, k, v = sizes.zero(), sizes.zero(), +x
    while dr.hint(j < sizes.count, max_iterations=sizes.most * (sizes.most + 1) // 2):
        if k < j:
            v = dr.sin(v + 0.01 * k) * 0.9 + 0.05 * x
            k += 1
        else:
            j += 1
            k = 0 * k
    return v


@dr.syntax
def pairwise(sizes, x):
    a, b, c = x
    j, p, q, r = sizes.zero(), 0.0 * a, 0.0 * a, 0.0 * a
    while dr.hint(j < sizes.steps, max_iterations=-1):
        dx = dr.gather(sizes.types.Float, a, j) - a
        dy = dr.gather(sizes.types.Float, b, j) - b
        dz = dr.gather(sizes.types.Float, c, j) - c
        r2 = dx * dx + dy * dy + dz * dz + 0.01
        s = 1.0 / (r2 * dr.sqrt(r2))
        p += dx * s
        q += dy * s
        r += dz * s
        j += 1
    return [p * p, q * q, r * r]


def slope(v):
    n = len(v)
    return [(v[(k + 1) % n] - v[k - 2]) * v[k - 1] - v[k] + 2.0 for k in range(n)]


def moved(v, by, k):
    return [a + by * b for a, b in zip(v, k, strict=True)]


def runge_kutta(v):
    k1 = slope(v)
    k2 = slope(moved(v, 0.005, k1))
    k3 = slope(moved(v, 0.005, k2))
    k4 = slope(moved(v, 0.01, k3))
    sums = [a + 2.0 * b + 2.0 * c + d for a, b, c, d in zip(k1, k2, k3, k4, strict=True)]
    return moved(v, 0.01 / 6.0, sums)


@dr.syntax
def ode(sizes, x):
    t, v = sizes.zero(), [+each for each in x]
    while dr.hint(t < sizes.steps, max_iterations=sizes.most):
        v = runge_kutta(v)
        t += 1
    return v


@dr.syntax
def rotation(sizes, w):
    a, b, c = (0.001 * each for each in w)
    t, m = sizes.zero(), sizes.types.Matrix3f(1) + 0.0 * a
    u = sizes.types.Matrix3f([[0.0, -c, b], [c, 0.0, -a], [-b, a, 0.0]])
    while dr.hint(t < sizes.steps, max_iterations=sizes.most):
        m = m + m @ u
        t += 1
    return [m[k, 0] + m[k, 2] for k in range(3)]


FUNCTIONS = {
    "recurrence": recurrence,
    "affine": affine,
    "ragged": ragged,
    "nest": nest,
    "pairwise": pairwise,
    "ode": ode,
    "rotation": rotation,
    "decay": decay,
    "harmonics": harmonics,
}


class Springs(Program):
    """A kernel for each step; a frozen function starts all of them."""

    def __init__(self, problem, types) -> None:
        self.problem, self.types, side = problem, types, problem.side
        grids = [array.reshape(-1, 3) for array in problem.inputs]
        self.inputs = [columns(types, array) for array in grids]
        calls = self._steps, self._reverse
        is_frozen = problem.name == "springs-graph"
        self.calls = tuple(map(dr.freeze, calls)) if is_frozen else calls
        k = dr.arange(types.Int, side * side)
        i, j = k // side, k % side
        near = (i > 0, k - side), (i < side - 1, k + side), (j > 0, k - 1), (j < side - 1, k + 1)
        dr.eval(near)
        self.near = near

    def _step(self, x, v, near):
        force = [0.0, -9.8, 0.0]
        for valid, k in near:
            d = [dr.gather(self.types.Float, each, k, valid) - each for each in x]
            r2 = dr.select(valid, d[0] * d[0] + d[1] * d[1] + d[2] * d[2], 1.0)
            pull = dr.select(valid, 400.0 * (1.0 - 1.0 / dr.sqrt(r2)), 0.0)
            force = moved(force, pull, d)
        v = [0.999 * each for each in moved(v, 0.002, force)]
        return moved(x, 0.002, v), v

    def _steps(self, inputs, near):
        x, v = inputs
        for _ in range(self.problem.steps):
            x, v = self._step(x, v, near)
            dr.eval(x, v)
        return [x, v]

    def _reverse(self, inputs, near):
        inputs = [dr.detach(each) for each in inputs]
        dr.enable_grad(inputs)
        x, _ = self._steps(inputs, near)
        dr.backward(sum(dr.sum(0.5 * each * each) for each in x))
        return dr.grad(inputs)

    def _call(self, which: int):
        results = self.calls[which](self.inputs, self.near)
        dr.eval(results)
        return results

    def value(self):
        """The positions and velocities after the last step."""
        return np.concatenate([rows(each) for each in self.output])


def launches(types):
    x, b, c, d = (dr.opaque(types.Float, 0.0, 8) for _ in range(4))
    loss, s = (dr.opaque(types.Float, value) for value in (0.0, 0.5))

    @dr.freeze
    def one(x, loss):
        return loss + dr.sum(x * x)

    @dr.freeze
    def four(b, c, d, s):
        return b + s * c * d

    @dr.freeze
    def step(x):
        x = dr.detach(x)
        dr.enable_grad(x)
        dr.backward(dr.sum(x * x))
        return dr.grad(x)

    return {
        "one array": lambda: dr.eval(one(x, loss)),
        "4 arrays and a scalar": lambda: dr.eval(four(b, c, d, s)),
        "gradient step": lambda: dr.eval(step(x)),
    }
