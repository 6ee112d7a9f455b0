"""Sums of pairs that are gathered: what is, what is not, and that gradients stay what they were."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.backends.cpu import CpuBackend
from octants.ir.core import Module
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.passes.cooperation.sequence_work_items import sequence_work_items
from octants.passes.sums import gather_sums
from octants.target import Blocks
from tests.codegen.on_emulated_gpu import emulated_gpu
from tests.ir.parser import parse
from tests.machines import pretend
from tests.passes.test_pictures import pictures
from tests.seeds import each_once

LARGEST = 12
ROWS, COLUMNS = 8, 8


FILLS = [1, 100]


@pytest.fixture(params=FILLS, ids=["whole", "in parts"])
def runtime(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The CPU, as if it took so many work items to keep it busy."""
    pretend(monkeypatch, CpuBackend, fills=request.param)
    monkeypatch.setattr("octants.passes.sums.gather_sums._SHORTEST", 1)
    qd.init(arch=qd.cpu, default_fp=qd.f64, offline_cache=False, log_level="error")
    yield
    qd.reset()


class World:
    """Arrays that kernels over pairs read and write."""

    def __init__(self) -> None:
        rng = np.random.default_rng(3)
        self.x = qd.field(qd.f64, LARGEST, needs_grad=True)
        self.v = qd.Vector.field(2, qd.f64, LARGEST, needs_grad=True)
        self.grid = qd.field(qd.f64, (ROWS, COLUMNS), needs_grad=True)
        self.y = qd.field(qd.f64, LARGEST, needs_grad=True)
        self.z = qd.field(qd.f64, LARGEST, needs_grad=True)
        self.plain = qd.field(qd.f64, LARGEST)
        self.loss = qd.field(qd.f64, (), needs_grad=True)
        self.index = qd.field(qd.i32, LARGEST)
        self.size = qd.field(qd.i32, 2)
        for array in (self.x, self.v, self.grid, self.plain):
            shape = array.to_numpy().shape
            array.from_numpy(rng.uniform(0.5, 1.5, shape))
        self.index.from_numpy(rng.integers(0, LARGEST, LARGEST).astype(np.int32))

    @qd.kernel
    def squares(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            total = 0.0
            for j in range(m):
                total += (self.x[i] - self.x[j]) ** 2
            self.y[i] += total

    @qd.kernel
    def nonlinear(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            total = 0.0
            for j in range(m):
                total += qd.sin(self.x[i] * self.x[j])
            self.y[i] = total * total

    @qd.kernel
    def bounds_of_a_field(self, n: qd.i32, m: qd.i32):
        for i in range(self.size[0]):
            total = 0.0
            for j in range(self.size[1]):
                total += qd.sin(self.x[i] * self.x[j])
            self.y[i] = total * total

    @qd.kernel
    def forces(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            force = qd.Vector([0.0, 0.0])
            for j in range(m):
                if i != j:
                    d = self.v[j] - self.v[i]
                    r2 = d.dot(d) + 0.1
                    force += d / (r2 * qd.sqrt(r2))
            self.y[i] = force[0] * force[1]
            self.loss[None] += force.dot(force)

    @qd.kernel
    def cut_off(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            for j in range(m):
                d = self.x[j] - self.x[i]
                if d > 0.2:
                    self.y[i] += d * d * self.x[j] * self.plain[j]
                elif d > 0.0:
                    self.z[i] += d * self.plain[i]

    @qd.kernel
    def neighbours_of_j(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            for j in range(1, m - 1):
                self.loss[None] += self.x[i] * self.x[j - 1] * self.x[j + 1] ** 2

    @qd.kernel
    def by_an_index(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            for j in range(m):
                self.y[i] += self.x[self.index[i]] * self.x[self.index[j]] ** 2

    @qd.kernel
    def backwards_with_steps(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            for j in range(m - 1, -1, -2):
                self.y[i] += qd.exp(self.x[i] * self.x[j])

    @qd.kernel
    def an_inner_loop(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            for j in range(m):
                power = 1.0
                for _ in range(3):
                    power += self.x[i] * 0.5
                self.y[i] += power * self.x[j]

    @qd.kernel
    def two_loops(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            first = 0.0
            for j in range(m):
                first += self.x[i] * self.x[j] ** 2
            second = 0.0
            for j in range(n):
                second += qd.cos(self.x[j] * first)
            self.y[i] = second * first

    @qd.kernel
    def of_a_grid(self, n: qd.i32, m: qd.i32):
        for a, b in self.grid:
            for j in range(m):
                self.loss[None] += self.grid[a, b] * self.x[j] ** 2

    @qd.kernel
    def scatter(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            here = qd.sin(self.x[i])
            for j in range(m):
                self.y[j] += here * self.x[j]

    # -- of all pairs ------------------------------------------------------------------------------

    @qd.kernel
    def all_products(self, n: qd.i32, m: qd.i32):
        for i in self.x:
            total = 0.0
            for j in range(LARGEST):
                total += qd.sin(self.x[i] * self.x[j]) * self.plain[j]
            self.y[i] = total * total

    @qd.kernel
    def all_forces(self, n: qd.i32, m: qd.i32):
        for i in self.v:
            force = qd.Vector([0.0, 0.0])
            for j in range(LARGEST):
                d = self.v[j] - self.v[i]
                r2 = d.dot(d) + 0.1
                force += d / (r2 * qd.sqrt(r2))
            self.y[i] = force[0] * force[1]

    @qd.kernel
    def all_terms(self, n: qd.i32, m: qd.i32):
        for i in self.x:
            one, other = 0.0, 0.5
            for j in range(LARGEST):
                d = self.x[j] - self.x[i]
                one += qd.sin(self.plain[j]) * d + qd.sin(self.x[j]) * self.x[i]
                other += qd.sin(self.x[i] * self.plain[i]) * d * d - d
            self.y[i] = one * other

    @qd.kernel
    def all_but_one(self, n: qd.i32, m: qd.i32):
        for i in self.x:
            total = 0.0
            for j in range(1, LARGEST):
                total += qd.sin(self.x[i] * self.x[j])
            self.y[i] = total * total

    # -- what stays as it is -----------------------------------------------------------------------

    @qd.kernel
    def triangle(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            for j in range(i):
                self.y[i] += self.x[i] * self.x[j] ** 2

    @qd.kernel
    def product(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            value = self.x[i]
            for j in range(m):
                value *= self.x[j]
            self.y[i] = value

    @qd.kernel
    def place_of_both(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            for j in range(m):
                self.y[i] += self.x[(i + j) % LARGEST] ** 2

    @qd.kernel
    def few(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            for j in range(3):
                self.y[i] += self.x[i] * self.x[j] ** 2


GATHERED = (
    "squares nonlinear bounds_of_a_field forces cut_off neighbours_of_j by_an_index"
    " backwards_with_steps an_inner_loop two_loops of_a_grid scatter"
    " all_products all_forces all_terms all_but_one"
).split()
LEFT = "triangle product place_of_both few".split()


def value_of(world: World, run: Callable[[], None]) -> float:
    """A weighted sum of all outputs."""
    weights = np.arange(1.0, LARGEST + 1)
    for array in (world.y, world.z, world.loss):
        array.fill(0.0)
    run()
    return float(weights @ world.y.to_numpy() + world.z.to_numpy().sum() + world.loss[None])


def differences(world: World, array: Any, run: Callable[[], None]) -> np.ndarray[Any, Any]:
    """Central differences by the elements of an array."""
    before = array.to_numpy()
    found = np.zeros(before.shape)
    for place in np.ndindex(before.shape):
        ends = []
        for step in (1e-6, -1e-6):
            moved = before.copy()
            moved[place] += step
            array.from_numpy(moved)
            ends.append(value_of(world, run))
        found[place] = (ends[0] - ends[1]) / 2e-6
    array.from_numpy(before)
    return found


def is_gathered(kernel: Any, *arguments: int) -> bool:
    return "_gather {" in kernel.inspect(*arguments, mode="reverse").stages["finish"]


SIZES = [(12, 12), (12, 5), (1, 12), (7, 11), (0, 5), (5, 0)]


@pytest.mark.parametrize(
    ("runtime", "name"), each_once(FILLS, GATHERED + LEFT), indirect=["runtime"]
)
def test_gradients(runtime: None, name: str) -> None:
    world = World()
    kernel = getattr(world, name)
    assert is_gathered(kernel, 3, 3) == (name in GATHERED)
    for n, m in SIZES:
        world.size.from_numpy(np.array([n, m], np.int32))

        def run(n: int = n, m: int = m) -> None:
            kernel(n, m)

        value_of(world, run)
        for array in (world.x, world.v, world.grid):
            array.grad.fill(0.5)  # gradients are added to what is there
        world.y.grad.from_numpy(np.arange(1.0, LARGEST + 1))
        world.z.grad.fill(1.0)
        world.loss.grad.fill(1.0)
        kernel.grad(n, m)
        for array in (world.x, world.v, world.grid):
            wanted = differences(world, array, run)
            np.testing.assert_allclose(
                array.grad.to_numpy() - 0.5, wanted, rtol=1e-6, atol=1e-6, err_msg=f"{n} {m}"
            )


MERGED = "all_products", "all_forces", "all_terms"


@pytest.mark.parametrize("name", [*MERGED, "all_but_one", "nonlinear", "two_loops"])
def test_both_sums_of_a_pair_in_one_loop(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The task that gathers also adds up what is for the work items themselves."""
    pretend(monkeypatch, CpuBackend, fills=1)
    qd.init(arch=qd.cpu, default_fp=qd.f64, offline_cache=False, log_level="error")
    kernel = getattr(World(), name)
    text = kernel.inspect(LARGEST, LARGEST, mode="reverse").stages["gather_sums"]
    own = text.split("parallel ")[1]
    is_merged = re.search(r"atomic<add, @(x|v), adjoint>", own) is None
    assert is_merged == (name in MERGED)
    qd.reset()


@qd.kernel
def of_all_pairs(x: qd.types.ndarray(qd.f64, 1), y: qd.types.ndarray(qd.f64, 1)):
    for i in x:
        total = 0.0
        for j in range(x.shape[0]):
            total += (x[i] - x[j]) ** 2 * x[j]
        y[i] = total * total


def test_both_sums_where_threads_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may share the one loop, also if it is not known how long that is."""
    monkeypatch.setattr("octants.passes.sums.gather_sums._SHORTEST", 1)
    pretend(monkeypatch, CpuBackend, fills=100, splits=True, blocks=Blocks(8))

    def split(module: Module, noalias: bool, *_: object) -> None:
        sequence_work_items(module)

    monkeypatch.setattr("octants.passes.sums.split_sums.split_sums", split)
    qd.init(arch=qd.cpu, default_fp=qd.f64, offline_cache=False, log_level="error")
    for n in (1, 5, 20):
        x, y = (qd.ndarray(qd.f64, n, needs_grad=True) for _ in range(2))
        values = np.random.default_rng(n).uniform(0.5, 1.5, n)
        x.from_numpy(values)
        y.grad.fill(1.0)
        of_all_pairs(x, y)
        of_all_pairs.grad(x, y)
        square = values[:, None] - values
        total = (square**2 * values).sum(1)
        term = 4.0 * total[:, None] * square * values
        wanted = term.sum(1) - term.sum(0) + (2.0 * total[:, None] * square**2).sum(0)
        np.testing.assert_allclose(x.grad.to_numpy(), wanted, rtol=1e-9)
    text = of_all_pairs.inspect(x, y, mode="reverse").stages["gather_sums"]
    assert "atomic<" not in text.split("parallel ")[1]
    qd.reset()


# -- on CPUs, where that takes less work -----------------------------------------------------------


class Bodies:
    """Forces between all pairs of bodies, whose number is in each kind of place."""

    def __init__(self, count: int) -> None:
        self.count, self.most = count, LARGEST
        self.x = qd.Vector.field(2, qd.f64, LARGEST, needs_grad=True)
        self.y = qd.Vector.field(2, qd.f64, LARGEST, needs_grad=True)
        self.mass = qd.field(qd.f64, LARGEST, needs_grad=True)
        self.number = qd.field(qd.i32, 2)
        self.number.from_numpy(np.array([count, count], np.int32))
        rng = np.random.default_rng(5)
        self.x.from_numpy(rng.uniform(-1.0, 1.0, (LARGEST, 2)))
        self.mass.from_numpy(rng.uniform(0.5, 1.5, LARGEST))

    @qd.kernel
    def of_a_field(self, n: qd.i32):
        for i in range(self.number[0]):
            force = qd.Vector([0.0, 0.0])
            for j in range(self.number[0]):
                d = self.x[j] - self.x[i]
                force += d / (d.dot(d) + 0.1) ** 1.5
            self.y[i] = force * force

    @qd.kernel
    def of_an_argument(self, n: qd.i32):
        for i in range(n):
            force = qd.Vector([0.0, 0.0])
            for j in range(n):
                d = self.x[j] - self.x[i]
                force += d / (d.dot(d) + 0.1) ** 1.5
            self.y[i] = force * force

    @qd.kernel
    def of_two_numbers(self, n: qd.i32):
        for i in range(self.number[0]):
            force = qd.Vector([0.0, 0.0])
            for j in range(self.number[1]):
                d = self.x[j] - self.x[i]
                force += d / (d.dot(d) + 0.1) ** 1.5
            self.y[i] = force * force

    @qd.kernel
    def from_below_zero(self, n: qd.i32):
        for i in range(-2, n):
            force = qd.Vector([0.0, 0.0])
            for j in range(-2, n):
                d = self.x[qd.max(j, 0)] - self.x[qd.max(i, 0)]
                force += d / (d.dot(d) + 0.1) ** 1.5
            self.y[qd.max(i, 0)] += force * force

    def wanted(self) -> np.ndarray[Any, Any]:
        """The gradient of the sum of all outputs by the positions."""
        x = self.x.to_numpy()[: self.count]
        d = x - x[:, None]
        scale = ((d**2).sum(-1) + 0.1)[..., None] ** -1.5
        bar = 2.0 * (d * scale).sum(1)
        f = bar - bar[:, None]
        along = (f * d).sum(-1, keepdims=True)
        result = np.zeros((LARGEST, 2))
        result[: self.count] = (f * scale - 3.0 * along * scale ** (5 / 3) * d).sum(1)
        return result


@pytest.mark.parametrize("count", [12, 5, 1, 0, -1])
def test_pairs_on_a_cpu(count: int) -> None:
    """Where both loops have the same range, nothing scatters; elsewhere sums stay as they are."""
    qd.init(arch=qd.cpu, default_fp=qd.f64, offline_cache=False)
    for name in ("of_a_field", "of_an_argument", "of_two_numbers"):
        bodies = Bodies(count)
        kernel = getattr(bodies, name)
        bodies.y.grad.fill(1.0)
        bodies.x.grad.fill(0.5)
        kernel(count)
        kernel.grad(count)
        bodies.count = max(0, count)
        found = bodies.x.grad.to_numpy() - 0.5
        np.testing.assert_allclose(found, bodies.wanted(), rtol=1e-9, atol=1e-9)
        text = kernel.inspect(count, mode="reverse").stages["finish"]
        gathered = re.findall(r"parallel @\w+_gather {(?:.*\n)+", text)
        assert len(gathered) == (name != "of_two_numbers")
        assert "atomic<" not in "".join(gathered)
    qd.reset()


def test_no_pairs_where_a_range_begins_below_zero() -> None:
    """An end below zero would not be that of as short a range as an end of zero."""
    qd.init(arch=qd.cpu, default_fp=qd.f64, offline_cache=False)
    assert not is_gathered(Bodies(3).from_below_zero, 3)
    qd.reset()


@qd.kernel
def both_ways(x: qd.types.ndarray(qd.f64, 1), y: qd.types.ndarray(qd.f64, 1)):
    for i in x:
        for j in range(x.shape[0]):
            d = x[j] - x[i]
            force = d * qd.exp(-d * d)
            y[i] += force
            y[j] -= force


def test_forces_on_both_of_a_pair() -> None:
    """A kernel that adds to both gives what it gave."""
    qd.init(arch=qd.cpu, default_fp=qd.f64, offline_cache=False)
    values = np.random.default_rng(0).uniform(-1.0, 1.0, 20)
    x, y = (qd.ndarray(qd.f64, 20, needs_grad=True) for _ in range(2))
    x.from_numpy(values)
    both_ways(x, y)
    d = values - values[:, None]
    np.testing.assert_allclose(y.to_numpy(), 2.0 * (d * np.exp(-d * d)).sum(1), rtol=1e-12)
    qd.reset()


@qd.kernel
def two_sums_of_one(x: qd.template(), y: qd.template()):
    for i in x:
        one, other = 0.0, 0.0
        for j in range(x.shape[0]):
            d = x[j] - x[i]
            force = d * qd.exp(-d * d)
            one += force
            other += 2.0 * force
            y[j] += -1.5 * force
        y[i] += one
        y[i] += other


def test_two_sums_that_one_element_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one of them can be part of the update in the loop."""
    monkeypatch.setattr(gather_sums, "_work", lambda _: 0)
    qd.init(arch=qd.cpu, default_fp=qd.f64, offline_cache=False)
    x, y = (qd.field(qd.f64, LARGEST) for _ in range(2))
    values = np.random.default_rng(0).uniform(-1.0, 1.0, LARGEST)
    x.from_numpy(values)
    two_sums_of_one(x, y)
    assert "_gather" in two_sums_of_one.inspect(x, y).stages["finish"]
    d = values - values[:, None]
    np.testing.assert_allclose(y.to_numpy(), 4.5 * (d * np.exp(-d * d)).sum(1), rtol=1e-12)
    qd.reset()


@qd.kernel
def a_sum_that_is_read(
    x: qd.template(), y: qd.template(), z: qd.template(), w: qd.template(), factor: qd.template()
):
    for i in x:
        force = qd.Vector([0.0, 0.0])
        for j in range(x.shape[0]):
            d = x[j] - x[i]
            force += d / (d.dot(d) + 0.1) ** 1.5
        y[i] = force[0] * force[1]
        first = z[i]
        for j in range(x.shape[0]):
            w[i] += z[i] * factor[j]
            z[i] += first * factor[j]


def test_sums_that_are_read_beside_those_of_pairs() -> None:
    """The adjoint of z[i] gets a sum behind a loop that reads and updates it."""
    found = []
    for fast in (True, False):
        qd.init(arch=qd.cpu, default_fp=qd.f64, offline_cache=False, fast_math=fast)
        x = qd.Vector.field(2, qd.f64, LARGEST, needs_grad=True)
        rest = [qd.field(qd.f64, LARGEST, needs_grad=True) for _ in range(3)]
        rng = np.random.default_rng(0)
        x.from_numpy(rng.uniform(-1.0, 1.0, (LARGEST, 2)))
        for array in rest:
            array.fill(1.0)
            array.grad.from_numpy(rng.uniform(-1.0, 1.0, LARGEST))
        factor = qd.field(qd.f64, LARGEST)
        factor.from_numpy(rng.uniform(-1.0, 1.0, LARGEST))
        given = (x, *rest, factor)
        a_sum_that_is_read(*given)
        a_sum_that_is_read.grad(*given)
        text = a_sum_that_is_read.inspect(*given, mode="reverse").stages["finish"]
        assert ("_gather" in text) == fast
        found.append([x.grad.to_numpy(), *(array.grad.to_numpy() for array in rest)])
        qd.reset()
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@qd.kernel
def of_ndarrays(
    x: qd.types.ndarray(qd.f64, 1), y: qd.types.ndarray(qd.f64, 2), first: qd.i32, m: qd.i32
):
    for i in range(first, y.shape[0]):
        total, other = 0.0, 0.0
        for j in range(m):
            total += qd.sin(x[i] * x[j])
            other += x[j] ** 2 * x[i]
        y[i - 1, 0] = total * total
        y[i, 1] = qd.exp(0.1 * other)


def gradient_of_ndarrays(n: int, first: int, m: int) -> tuple[Any, Any]:
    """The gradient of the sum of all outputs, and central differences."""
    values = np.random.default_rng(n).uniform(0.5, 1.5, n)
    x, y = (qd.ndarray(qd.f64, shape, needs_grad=True) for shape in (n, (n, 2)))

    def value(values: np.ndarray[Any, Any]) -> float:
        x.from_numpy(values)
        y.fill(0.0)
        of_ndarrays(x, y, first, m)
        return float(y.to_numpy().sum())

    wanted = np.zeros(n)
    for k in range(n):
        step = np.eye(n)[k] * 1e-6
        wanted[k] = (value(values + step) - value(values - step)) / 2e-6
    value(values)
    y.grad.fill(1.0)
    of_ndarrays.grad(x, y, first, m)
    return x.grad.to_numpy(), wanted


def test_what_is_kept_has_the_size_of_the_arrays(runtime: None) -> None:
    """Of launches with arrays that grow, and shrink again."""
    x, y = (qd.ndarray(qd.f64, shape, needs_grad=True) for shape in (3, (3, 2)))
    text = of_ndarrays.inspect(x, y, 1, 3, mode="reverse").stages["finish"]
    assert "_kept0: f64, 1, temporary, () [primal] like @" in text
    for n in (3, 11, 40, 7):
        for m in (n, 2):
            found, wanted = gradient_of_ndarrays(n, 1, m)
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def test_on_an_emulated_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octants.passes.sums.gather_sums._SHORTEST", 1)
    with emulated_gpu():
        qd.init(arch=qd.cuda, default_fp=qd.f64, log_level="error")
        for n in (5, 40, 12):
            found, wanted = gradient_of_ndarrays(n, 1, n)
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def test_with_a_fixed_order_each_sum_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """So nothing is left to the order of work items, and none wait for each other."""
    pretend(monkeypatch, CpuBackend, fills=1000)
    qd.init(arch=qd.cpu, default_fp=qd.f64, deterministic=True, offline_cache=False)
    world = World()
    for kernel in (world.nonlinear, world.bounds_of_a_field, world.two_loops):
        text = kernel.inspect(3, 3, mode="reverse").stages["finish"]  # type: ignore[attr-defined]
        assert "_gather {" in text
        assert "atomic<" not in text
        assert "fixed_order" not in text
    qd.reset()


KNOWN, TOLD = "constant<40>()", "shape<@x, 0>()"


@pytest.mark.parametrize("sums", [KNOWN, TOLD])
def test_parts_where_threads_share_sums(sums: str) -> None:
    """Then it must be known that there are few of them, so that parts are worth their bounds."""
    ((before, _),) = pictures(gather_sums)
    texts = {}
    for fills, shared in ((0, False), (1 << 20, False), (1 << 20, True)):
        module = parse(before.replace(TOLD, sums))
        gather_sums.gather_sums(module, True, fills, shared=shared)
        verify(module)
        texts[fills, shared] = to_text(module)
    whole, parts, shared_parts = texts.values()
    assert whole != parts
    assert shared_parts == (parts if sums == KNOWN else whole)
