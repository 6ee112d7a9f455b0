"""Warp, which runs on a GPU or on one thread of a CPU.

Its reverse mode goes through a dynamic loop without a memory of the loop's variables: they have to
stand in arrays, with a place for each step.
"""
# mypy: ignore-errors

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path

import numpy as np
import warp as wp

import problems
from systems import NotOffered

f32 = wp.float32
vec6 = wp.types.vector(6, f32)


class System:
    """Warp with an empty cache."""

    def __init__(self, threads: int, arch: str) -> None:
        if arch not in ("cpu", "cuda"):
            raise NotOffered(f"Warp does not run on {arch}")
        if threads > 1:
            raise NotOffered("one thread on a CPU")
        self.cache = tempfile.TemporaryDirectory()
        wp.config.quiet = True
        wp.config.kernel_cache_dir = self.cache.name
        wp.init()
        wp.set_device({"cpu": "cpu", "cuda": "cuda:0"}[arch])

    def describe(self):
        """What it ran with."""
        return {
            "version": wp.__version__,
            "flags": f"mode={wp.config.mode}",
            "accuracy": "fast_math=False, the default",
            "tape": "arrays of all steps, written by the kernel",
        }

    def sync(self) -> None:
        """Wait until all is done."""
        wp.synchronize()

    def program(self, problem):
        """The workload."""
        return PROGRAMS[problem.name](problem)

    def chain(self, statements: int, folder: Path):
        """A chain of statements in a dynamic loop; the source is written to the folder."""
        lines = "\n".join(f"        {line}" for line in problems.chain(statements, "wp"))
        path = folder / f"chain_warp_{statements}.py"
        path.write_text(CHAIN.format(lines=lines))
        specification = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        problem = problems.make("recurrence", problems.CHAIN_ITEMS, problems.CHAIN_STEPS)
        return Chain(problem, module.chain)

    def launches(self):
        """Calls of kernels that do next to nothing."""
        return launches()


CHAIN = """\
import warp as wp

@wp.kernel
def chain(x: wp.array(dtype=float), h: wp.array2d(dtype=wp.vec2), y: wp.array(dtype=float), n: int):
    i = wp.tid()
    h[i, 0] = wp.vec2(x[i], x[i])
    for t in range(n):
        v = h[i, t][0]
        w = h[i, t][1]
{lines}
        h[i, t + 1] = wp.vec2(v, w)
    y[i] = h[i, n][0] + h[i, n][1]
"""


class Program:
    """Arrays, and a tape that has seen a launch."""

    dtype = f32
    is_paired = False

    def __init__(self, problem) -> None:
        self.problem = problem
        self.inputs = [self.array(array) for array in problem.inputs]
        self.output = self.zeros(problem.items)
        self.ones = wp.full_like(self.output, self.dtype(1.0))
        self.tape = None
        self.prepare()

    def array(self, values):
        """An input."""
        return wp.array(values, dtype=self.dtype, requires_grad=True)

    def zeros(self, *shape, dtype=None):
        """An array with a gradient."""
        return wp.zeros(shape, dtype=dtype or self.dtype, requires_grad=True)

    def prepare(self) -> None:
        """Make what else there is."""

    def forward(self) -> None:
        """Launch the kernel."""
        self.launch()

    def seed(self) -> None:
        """Clear all gradients, those of the steps included."""
        if self.tape is None:
            self.tape = wp.Tape()
            with self.tape:
                self.launch()
        self.tape.zero()

    def backward(self) -> None:
        """Launch its reverse, from a gradient of one for all outputs."""
        self.tape.backward(grads={self.output: self.ones})

    def value(self):
        """The output."""
        return self.output.numpy().ravel()

    def gradient(self):
        """The gradients of the inputs, one after the other."""
        return np.concatenate([array.grad.numpy().ravel() for array in self.inputs])


@wp.kernel(module="unique")
def recurrence(
    x: wp.array(dtype=f32), h: wp.array2d(dtype=f32), y: wp.array(dtype=f32), steps: int
):
    i = wp.tid()
    h[i, 0] = x[i]
    for t in range(steps):
        h[i, t + 1] = wp.sin(h[i, t]) * 0.95 + 0.01
    y[i] = h[i, steps]


class Recurrence(Program):
    def __init__(self, problem, kernel=recurrence) -> None:
        self.kernel = kernel
        super().__init__(problem)

    def prepare(self) -> None:
        self.steps = self.zeros(self.problem.items, self.problem.steps + 1)

    @property
    def tape_bytes(self):
        """The steps, and their gradients."""
        return 2 * self.steps.capacity

    def launch(self) -> None:
        arguments = [*self.inputs, self.steps, self.output, self.problem.steps]
        wp.launch(self.kernel, dim=self.problem.items, inputs=arguments)


class Chain(Recurrence):
    """A chain of statements, with both of its variables in an array of steps."""

    def prepare(self) -> None:
        self.steps = self.zeros(self.problem.items, self.problem.steps + 1, dtype=wp.vec2)


@wp.kernel(module="unique")
def affine(
    x: wp.array(dtype=f32),
    a: wp.array(dtype=f32),
    h: wp.array2d(dtype=f32),
    y: wp.array(dtype=f32),
    steps: int,
):
    i = wp.tid()
    h[i, 0] = x[i]
    for t in range(steps):
        h[i, t + 1] = h[i, t] * a[i] + 0.01
    y[i] = h[i, steps]


@wp.kernel(module="unique")
def decay(x: wp.array(dtype=f32), y: wp.array(dtype=f32), steps: int):
    i = wp.tid()
    v = x[i]
    for _ in range(steps):
        v = 0.95 * v + 0.01
    y[i] = v


class Decay(Program):
    """What is linear needs no memory of its steps."""

    def launch(self) -> None:
        arguments = [*self.inputs, self.output, self.problem.steps]
        wp.launch(self.kernel, dim=self.problem.items, inputs=arguments)

    kernel = decay


@wp.kernel(module="unique")
def harmonics(x: wp.array(dtype=f32), y: wp.array(dtype=f32), steps: int):
    i = wp.tid()
    v = float(0.0)  # noqa: UP018 - a variable of Warp's
    for k in range(steps):
        v += wp.sin(x[i] * float(k))
    y[i] = v


class Harmonics(Decay):
    kernel = harmonics


@wp.kernel(module="unique")
def spring_step(
    x: wp.array2d(dtype=wp.vec3),
    v: wp.array2d(dtype=wp.vec3),
    next_x: wp.array2d(dtype=wp.vec3),
    next_v: wp.array2d(dtype=wp.vec3),
    side: int,
):
    i, j = wp.tid()
    here = x[i, j]
    force = wp.vec3(0.0, -9.8, 0.0)
    for k in range(wp.static(4)):
        a = i + (k // 2) * (k % 2 * 2 - 1)
        b = j + (1 - k // 2) * (k % 2 * 2 - 1)
        if a >= 0 and a < side and b >= 0 and b < side:
            d = x[a, b] - here
            force += 400.0 * (1.0 - 1.0 / wp.sqrt(wp.dot(d, d))) * d
    velocity = 0.999 * (v[i, j] + 0.002 * force)
    next_v[i, j] = velocity
    next_x[i, j] = here + 0.002 * velocity


@wp.kernel(module="unique")
def spring_loss(x: wp.array2d(dtype=wp.vec3), loss: wp.array(dtype=f32)):
    i, j = wp.tid()
    wp.atomic_add(loss, 0, 0.5 * wp.dot(x[i, j], x[i, j]))


class Springs(Program):
    """A launch for each step; as a graph, all of them are captured once."""

    def __init__(self, problem) -> None:
        self.problem, side = problem, problem.side
        make = lambda: wp.zeros((side, side), dtype=wp.vec3, requires_grad=True)  # noqa: E731
        self.states = [(make(), make()) for _ in range(problem.steps + 1)]
        for array, values in zip(self.states[0], problem.inputs, strict=True):
            array.assign(values)
        self.loss = wp.zeros(1, dtype=f32, requires_grad=True)
        self.tape, self.graphs = wp.Tape(), None
        self.is_paired = problem.name == "springs"
        if not self.is_paired:
            if not wp.get_device().is_cuda:
                raise NotOffered("graphs are for GPUs")
            self.capture()

    def capture(self) -> None:
        """Make a graph of the launches, and one of the gradient, when all has been compiled."""
        self.launch()
        self.reverse()
        with wp.ScopedCapture() as forward:
            self.launch()
        with wp.ScopedCapture() as backward:
            self.launch()
            self.reverse()
        self.graphs = forward.graph, backward.graph

    def launch(self) -> None:
        """The forward launches; a new tape does not know yet which gradients to clear."""
        self.tape.zero()
        self.loss.zero_()
        shape = self.states[0][0].shape
        self.tape = wp.Tape()
        with self.tape:
            for before, after in zip(self.states, self.states[1:], strict=False):
                wp.launch(spring_step, dim=shape, inputs=[*before, *after, self.problem.side])
            wp.launch(spring_loss, dim=shape, inputs=[self.states[-1][0], self.loss])

    def reverse(self) -> None:
        """Gradients are added to, and have to be cleared."""
        self.tape.zero()
        self.tape.backward(self.loss)

    def forward(self) -> None:
        """All steps, and the loss."""
        if self.graphs:
            wp.capture_launch(self.graphs[0])
        else:
            self.launch()

    def seed(self) -> None:
        """A reverse run does that."""

    def backward(self) -> None:
        """All steps, backward; a graph has the forward ones, too."""
        if self.graphs:
            wp.capture_launch(self.graphs[1])
        else:
            self.reverse()

    def value(self):
        """The positions and velocities after the last step."""
        return np.concatenate([array.numpy().ravel() for array in self.states[-1]])

    def gradient(self):
        """That of the loss, for the first positions and velocities."""
        return np.concatenate([array.grad.numpy().ravel() for array in self.states[0]])


class Affine(Recurrence):
    def __init__(self, problem) -> None:
        super().__init__(problem, affine)


@wp.kernel(module="unique")
def ragged(
    x: wp.array(dtype=f32),
    h: wp.array2d(dtype=f32),
    y: wp.array(dtype=f32),
    count: wp.array(dtype=int),
):
    i = wp.tid()
    h[i, 0] = x[i]
    for j in range(count[i]):
        for k in range(j):
            t = j * (j - 1) // 2 + k
            h[i, t + 1] = wp.sin(h[i, t]) * 0.95 + 0.01
    y[i] = h[i, count[i] * (count[i] - 1) // 2]


class Ragged(Program):
    kernel = ragged

    def prepare(self) -> None:
        self.count = wp.array(self.problem.count, dtype=int)
        self.steps = self.zeros(self.problem.items, self.problem.steps**2 // 2 + 1)

    def launch(self) -> None:
        arguments = [*self.inputs, self.steps, self.output, self.count]
        wp.launch(self.kernel, dim=self.problem.items, inputs=arguments)


@wp.kernel(module="unique")
def nest(
    x: wp.array(dtype=f32),
    h: wp.array2d(dtype=f32),
    y: wp.array(dtype=f32),
    count: wp.array(dtype=int),
):
    i = wp.tid()
    h[i, 0] = x[i]
    for j in range(count[i]):
        for k in range(j):
            t = j * (j - 1) // 2 + k
            h[i, t + 1] = wp.sin(h[i, t] + 0.01 * float(k)) * 0.9 + 0.05 * x[i]
    y[i] = h[i, wp.max(count[i] * (count[i] - 1) // 2, 0)]


class Nest(Ragged):
    kernel = nest


@wp.kernel(module="unique")
def forces(x: wp.array(dtype=wp.vec3), f: wp.array(dtype=wp.vec3), items: int):
    i = wp.tid()
    force = wp.vec3(0.0, 0.0, 0.0)
    for j in range(items):
        d = x[j] - x[i]
        r2 = wp.dot(d, d) + 0.01
        force += d / (r2 * wp.sqrt(r2))
    f[i] = force


@wp.kernel(module="unique")
def squares(f: wp.array(dtype=wp.vec3), y: wp.array(dtype=wp.vec3)):
    i = wp.tid()
    y[i] = wp.cw_mul(f[i], f[i])


class Pairwise(Program):
    """In one kernel the sum, used after its loop, has no right derivative."""

    dtype = wp.vec3

    def prepare(self) -> None:
        self.forces = self.zeros(self.problem.items)

    def launch(self) -> None:
        items = self.problem.items
        wp.launch(forces, dim=items, inputs=[*self.inputs, self.forces, items])
        wp.launch(squares, dim=items, inputs=[self.forces, self.output])


@wp.func
def slope(v: vec6):
    return vec6(
        (v[1] - v[4]) * v[5] - v[0] + 2.0,
        (v[2] - v[5]) * v[0] - v[1] + 2.0,
        (v[3] - v[0]) * v[1] - v[2] + 2.0,
        (v[4] - v[1]) * v[2] - v[3] + 2.0,
        (v[5] - v[2]) * v[3] - v[4] + 2.0,
        (v[0] - v[3]) * v[4] - v[5] + 2.0,
    )


@wp.kernel(module="unique")
def ode(x: wp.array(dtype=vec6), h: wp.array2d(dtype=vec6), y: wp.array(dtype=vec6), steps: int):
    i = wp.tid()
    h[i, 0] = x[i]
    for t in range(steps):
        v = h[i, t]
        k1 = slope(v)
        k2 = slope(v + 0.005 * k1)
        k3 = slope(v + 0.005 * k2)
        k4 = slope(v + 0.01 * k3)
        h[i, t + 1] = v + (0.01 / 6.0) * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
    y[i] = h[i, steps]


class Ode(Recurrence):
    dtype = vec6

    def __init__(self, problem) -> None:
        super().__init__(problem, ode)


@wp.kernel(module="unique")
def rotation(
    w: wp.array(dtype=wp.vec3),
    h: wp.array2d(dtype=wp.mat33),
    y: wp.array(dtype=wp.vec3),
    steps: int,
):
    i = wp.tid()
    rate = 0.001 * w[i]
    h[i, 0] = wp.identity(n=3, dtype=wp.float32)
    for t in range(steps):
        h[i, t + 1] = h[i, t] + h[i, t] * wp.skew(rate)
    last = h[i, steps]
    y[i] = last * wp.vec3(1.0, 0.0, 1.0)


class Rotation(Program):
    dtype = wp.vec3

    def prepare(self) -> None:
        self.steps = self.zeros(self.problem.items, self.problem.steps + 1, dtype=wp.mat33)

    def launch(self) -> None:
        arguments = [*self.inputs, self.steps, self.output, self.problem.steps]
        wp.launch(rotation, dim=self.problem.items, inputs=arguments)


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
    "springs-graph": Springs,
}


@wp.kernel(module="unique")
def of_one_array(x: wp.array(dtype=f32), loss: wp.array(dtype=f32)):
    i = wp.tid()
    wp.atomic_add(loss, 0, x[i] * x[i])


@wp.kernel(module="unique")
def of_arrays(
    a: wp.array(dtype=f32),
    b: wp.array(dtype=f32),
    c: wp.array(dtype=f32),
    d: wp.array(dtype=f32),
    s: f32,
):
    i = wp.tid()
    a[i] = b[i] + s * c[i] * d[i]


def launches():
    x, loss = (wp.zeros(size, dtype=f32, requires_grad=True) for size in (8, 1))
    arrays = [wp.zeros(8, dtype=f32) for _ in range(4)]

    def one():
        wp.launch(of_one_array, dim=8, inputs=[x, loss])

    def tape():
        loss.zero_()
        steps = wp.Tape()
        with steps:
            one()
        steps.backward(loss)
        steps.zero()

    return {
        "one array": one,
        "4 arrays and a scalar": lambda: wp.launch(of_arrays, dim=8, inputs=[*arrays, 0.5]),
        "gradient step": tape,
    }
