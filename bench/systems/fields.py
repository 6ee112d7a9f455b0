"""Octants, and those that have its kernels and fields: Quadrants and Taichi, from one source.

The environment variable BENCH_SYSTEM names the module to import as ``qd``. All loop bounds that are
not constants are read from fields, which all three can differentiate; on GPUs they are constants.
"""
# mypy: ignore-errors

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import resource
from pathlib import Path

import numpy as np

import problems
from systems import NotOffered

NAME = os.environ["BENCH_SYSTEM"]
qd = importlib.import_module(NAME)


class System:
    """The module after `init`."""

    def __init__(self, threads: int, arch: str) -> None:
        self.threads, self.arch = threads, arch
        if NAME == "taichi":  # its stacks are on that of the thread
            _, most = resource.getrlimit(resource.RLIMIT_STACK)
            with contextlib.suppress(ValueError):
                resource.setrlimit(resource.RLIMIT_STACK, (most, most))
        self.start(1024)

    def start(self, stack_size: int) -> None:
        """Initialise; Taichi's stacks hold what a variable is assigned in all steps of a loop."""
        options = {"offline_cache": False, "log_level": "error"}
        if self.arch == "cpu":
            options["cpu_max_num_threads"] = self.threads
        if NAME == "quadrants":
            options["ad_stack_experimental_enabled"] = True
        if NAME == "taichi":
            options["ad_stack_size"] = stack_size
        qd.init(arch=getattr(qd, self.arch), **options)

    def describe(self):
        """What it ran with."""
        version = qd.__version__
        version = ".".join(map(str, version)) if isinstance(version, tuple) else str(version)
        about = {"version": version, "accuracy": "fast_math=True, the default"}
        threads = f", cpu_max_num_threads={self.threads}" if self.arch == "cpu" else ""
        about["flags"] = f"arch={self.arch}{threads}"
        about["tape"] = {
            "octants": "the carried values of a loop, as many as there are iterations",
            "quadrants": "adaptive stacks: ad_stack_experimental_enabled=True",
            "taichi": "stacks of a fixed size: ad_stack_size, 4 or 8 for each step",
        }[NAME]
        if NAME == "octants":
            in_force = qd.options.current()
            about["flags"] += f", opt_level={in_force.opt_level}"
            about |= self.describe_device(in_force)
        return about

    def describe_device(self, in_force):
        """What Octants runs on."""
        if self.arch == "cpu":
            return {
                "flags": f"arch=cpu, cpu_max_num_threads={self.threads}, "
                f"opt_level={in_force.opt_level}, simd={in_force.simd}"
            }
        return {"gpu": str(qd.driver.state.device), "tape": "a checkpoint each 4 to 32 iterations"}

    def sync(self) -> None:
        """Wait until all is done."""
        qd.sync()

    def program(self, problem):
        """The workload."""
        if NAME == "taichi":
            steps = problem.steps**2 // 2 if problem.name in ("ragged", "nest") else problem.steps
            times = 8 if problem.name == "ode" else 4
            # A thread of a GPU has half a megabyte for all of its stacks.
            self.start((times if self.arch == "cpu" else 2) * max(steps, 64))
        return PROGRAMS[problem.name](problem, self.arch)

    def chain(self, statements: int, folder: Path):
        """A chain of statements in a dynamic loop; the source is written to the folder."""
        if NAME == "taichi":
            self.start(2 * statements * problems.CHAIN_STEPS)
        lines = "\n".join(f"                {line}" for line in problems.chain(statements, "qd"))
        path = folder / f"chain_{NAME}_{statements}.py"
        path.write_text(CHAIN.format(module=NAME, lines=lines))
        specification = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        problem = problems.make("recurrence", problems.CHAIN_ITEMS, problems.CHAIN_STEPS)
        return Chain(problem, module.make, self.arch)

    def launches(self):
        """Calls of kernels that do next to nothing."""
        return launches()


CHAIN = """\
import {module} as qd

def make(x, y, size):
    @qd.kernel
    def chain():
        for i in range(size[0]):
            v = x[i]
            w = v
            for _ in range(size[1]):
{lines}
            y[i] = v + w

    return chain
"""


class Program:
    """Fields, a forward call, and its reverse; `inputs` and `outputs` have gradients."""

    is_paired = False

    def __init__(self, problem, arch: str) -> None:
        self.problem = problem
        if NAME == "octants" and arch == "cuda":
            qd.driver.state.device.free_record_buffers()  # those of the workload before
        self.size = (problem.items, problem.steps)  # how many items, the trip count of their loops
        if arch == "cpu":
            self.size = integers(2)
            self.size.from_numpy(np.array([problem.items, problem.steps], np.int32))
        self.inputs = [scalars(*array.shape) for array in problem.inputs]
        for field, array in zip(self.inputs, problem.inputs, strict=True):
            field.from_numpy(array)
        self.outputs = [scalars(*problem.shape)]
        self.kernel = self.make(*self.inputs, *self.outputs, self.size)

    def forward(self) -> None:
        """Run the kernel."""
        self.kernel()

    def backward(self) -> None:
        """Run its reverse."""
        self.kernel.grad()

    @property
    def tape_bytes(self):
        """What tapes take on a GPU."""
        if NAME != "octants":
            return None
        return getattr(qd.driver.state.device, "record_buffer_bytes", None)

    def seed(self) -> None:
        """Set the gradients to those of the sum of all outputs."""
        for array in self.inputs:
            array.grad.fill(0)
        for array in self.outputs:
            array.grad.fill(1)

    def value(self):
        """The output."""
        return self.outputs[0].to_numpy().ravel()

    def gradient(self):
        """The gradients of the inputs, one after the other."""
        return np.concatenate([array.grad.to_numpy().ravel() for array in self.inputs])


def scalars(*shape):
    return qd.field(qd.f32, shape=shape, needs_grad=True)


def integers(*shape):
    return qd.field(qd.i32, shape=shape)


class Chain(Program):
    """A chain of statements, made by a function."""

    def __init__(self, problem, make, arch: str) -> None:
        self.make = make
        super().__init__(problem, arch)


class Recurrence(Program):
    def make(self, x, y, size):
        @qd.kernel
        def recurrence():
            for i in range(size[0]):
                v = x[i]
                for _ in range(size[1]):
                    v = qd.sin(v) * 0.95 + 0.01
                y[i] = v

        return recurrence


class Affine(Program):
    def make(self, x, a, y, size):
        @qd.kernel
        def affine():
            for i in range(size[0]):
                v = x[i]
                for _ in range(size[1]):
                    v = v * a[i] + 0.01
                y[i] = v

        return affine


class Ragged(Program):
    def make(self, x, y, size):
        count = integers(self.problem.items)
        count.from_numpy(self.problem.count)

        @qd.kernel
        def ragged():
            for i in range(size[0]):
                v = x[i]
                for j in range(count[i]):
                    for _ in range(j):
                        v = qd.sin(v) * 0.95 + 0.01
                y[i] = v

        return ragged


class Nest(Program):
    def make(self, x, y, size):
        count = integers(self.problem.items)
        count.from_numpy(self.problem.count)

        @qd.kernel
        def nest():
            for i in range(size[0]):
                v = x[i]
                for j in range(count[i]):
                    for k in range(j):
                        v = qd.sin(v + 0.01 * k) * 0.9 + 0.05 * x[i]
                y[i] = v

        return nest


class Pairwise(Program):
    def make(self, x, y, size):
        @qd.kernel
        def pairwise():
            for i in range(size[0]):
                here = qd.Vector([x[i, 0], x[i, 1], x[i, 2]])
                force = qd.Vector([0.0, 0.0, 0.0])
                for j in range(size[0]):
                    d = qd.Vector([x[j, 0], x[j, 1], x[j, 2]]) - here
                    r2 = d.dot(d) + 0.01
                    force += d / (r2 * qd.sqrt(r2))
                for k in qd.static(range(3)):
                    y[i, k] = force[k] * force[k]

        return pairwise


class Ode(Program):
    def make(self, x, y, size):
        @qd.func
        def slope(v):
            rates = qd.Vector([0.0] * 6, dt=qd.f32)
            for k in qd.static(range(6)):
                neighbours = v[(k + 1) % 6] - v[(k + 4) % 6]
                rates[k] = neighbours * v[(k + 5) % 6] - v[k] + 2.0
            return rates

        @qd.kernel
        def ode():
            for i in range(size[0]):
                v = qd.Vector([x[i, 0], x[i, 1], x[i, 2], x[i, 3], x[i, 4], x[i, 5]])
                for _ in range(size[1]):
                    k1 = slope(v)
                    k2 = slope(v + 0.005 * k1)
                    k3 = slope(v + 0.005 * k2)
                    k4 = slope(v + 0.01 * k3)
                    v = v + (0.01 / 6.0) * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
                for k in qd.static(range(6)):
                    y[i, k] = v[k]

        return ode


class Rotation(Program):
    def make(self, w, y, size):
        @qd.kernel
        def rotation():
            for i in range(size[0]):
                a, b, c = 0.001 * w[i, 0], 0.001 * w[i, 1], 0.001 * w[i, 2]
                r = qd.Matrix([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
                for _ in range(size[1]):
                    r = r + r @ qd.Matrix([[0.0, -c, b], [c, 0.0, -a], [-b, a, 0.0]])
                for k in qd.static(range(3)):
                    y[i, k] = r[k, 0] + r[k, 2]

        return rotation


class Decay(Program):
    def make(self, x, y, size):
        @qd.kernel
        def decay():
            for i in range(size[0]):
                v = x[i]
                for _ in range(size[1]):
                    v = 0.95 * v + 0.01
                y[i] = v

        return decay


class Harmonics(Program):
    def make(self, x, y, size):
        @qd.kernel
        def harmonics():
            for i in range(size[0]):
                v = 0.0
                for k in range(size[1]):
                    v += qd.sin(x[i] * k)
                y[i] = v

        return harmonics


class Springs(Program):
    """A kernel for each step, which writes what it finds behind what it reads."""

    is_paired = True
    tape_bytes = None

    def __init__(self, problem, arch: str) -> None:
        self.problem, side = problem, problem.side
        shape = (problem.steps + 1, side, side)
        self.states = [qd.Vector.field(3, qd.f32, shape=shape, needs_grad=True) for _ in range(2)]
        self.loss_value = scalars()
        for field, first in zip(self.states, problem.inputs, strict=True):
            values = np.zeros((*shape, 3), np.float32)
            values[0] = first
            field.from_numpy(values)
        self.step, self.loss = self.make(*self.states, self.loss_value, side, problem.steps)

    def make(self, x, v, loss_value, side, steps):
        def step(t):
            for i, j in qd.ndrange(side, side):
                here = x[t, i, j]
                force = qd.Vector([0.0, -9.8, 0.0])
                for k in qd.static(range(4)):
                    a = i + (k // 2) * (k % 2 * 2 - 1)
                    b = j + (1 - k // 2) * (k % 2 * 2 - 1)
                    if a >= 0 and a < side and b >= 0 and b < side:
                        d = x[t, a, b] - here
                        force += 400.0 * (1.0 - 1.0 / qd.sqrt(d.dot(d))) * d
                velocity = 0.999 * (v[t, i, j] + 0.002 * force)
                v[t + 1, i, j] = velocity
                x[t + 1, i, j] = here + 0.002 * velocity

        step.__annotations__["t"] = qd.i32  # Taichi does not read annotations that are text

        @qd.kernel
        def loss():
            for i, j in qd.ndrange(side, side):
                loss_value[None] += 0.5 * x[steps, i, j].dot(x[steps, i, j])

        return qd.kernel(step), loss

    def forward(self) -> None:
        """All steps, and the loss, on a tape."""
        self.tape = qd.ad.Tape(loss=self.loss_value)
        self.tape.__enter__()
        for t in range(self.problem.steps):
            self.step(t)
        self.loss()

    def seed(self) -> None:
        """The tape does that."""

    def backward(self) -> None:
        """What the tape has seen, backward."""
        self.tape.__exit__(None, None, None)

    def value(self):
        """The positions and velocities after the last step."""
        return np.concatenate([field.to_numpy()[-1].ravel() for field in self.states])

    def gradient(self):
        """That of the loss, for the first positions and velocities."""
        return np.concatenate([field.grad.to_numpy()[0].ravel() for field in self.states])


class SpringsGraph(Springs):
    """The same, captured once: all launches without a tape, and the tape with its gradient."""

    is_paired = False

    def __init__(self, problem, arch: str) -> None:
        if NAME != "octants":
            raise NotOffered("no such graphs")
        super().__init__(problem, arch)
        self.launch()  # what is compiled now need not be captured
        self.forward_graph = self.capture(self.launch)
        self.whole_graph = self.capture(self.run)

    def capture(self, body):
        """A graph of what a function launches."""
        with qd.graph.capture() as graph:
            body()
        return graph

    def launch(self) -> None:
        """All steps, and the loss."""
        self.loss_value.fill(0)
        for t in range(self.problem.steps):
            self.step(t)
        self.loss()

    def run(self) -> None:
        """All steps on a tape, and then backward."""
        super().forward()
        super().backward()

    def forward(self) -> None:
        """Run the graph of the launches."""
        self.forward_graph()

    def backward(self) -> None:
        """Run the graph of all."""
        self.whole_graph()


PROGRAMS = {
    "recurrence": Recurrence,
    "affine": Affine,
    "ragged": Ragged,
    "nest": Nest,
    "pairwise": Pairwise,
    "ode": Ode,
    "rotation": Rotation,
    "decay": Decay,
    "harmonics": Harmonics,
    "springs": Springs,
    "springs-graph": SpringsGraph,
}


def launches():
    x, loss = scalars(8), scalars()
    arrays = [qd.ndarray(qd.f32, shape=(8,)) for _ in range(4)]

    @qd.kernel
    def of_a_field():
        for i in x:
            loss[None] += x[i] * x[i]

    def of_arrays(a, b, c, d, s):
        for i in range(8):
            a[i] = b[i] + s * c[i] * d[i]

    # Taichi does not read annotations that are text.
    array = qd.types.ndarray(qd.f32, ndim=1)
    of_arrays.__annotations__ = {**dict.fromkeys("abcd", array), "s": qd.f32}
    of_arrays = qd.kernel(of_arrays)

    def tape():
        loss[None] = 0
        with qd.ad.Tape(loss=loss):
            of_a_field()

    return {
        "one array": of_a_field,
        "4 arrays and a scalar": lambda: of_arrays(*arrays, 0.5),
        "gradient step": tape,
    }
