"""Work items whose lanes share their sums: which do, and that results stay what they were."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.backends.cpu import CpuBackend
from octants.ir.core import Module
from octants.ir.printer import to_text
from octants.passes.cooperation.sequence_work_items import sequence_work_items
from octants.passes.sums.split_sums import split_sums
from octants.target import Blocks
from tests.devices import on_cpu
from tests.machines import pretend
from tests.seeds import each_once

pytestmark = on_cpu  # which stands for a GPU here
LARGEST = 70
TEXTS: dict[str, str] = {}
"""Kernels as they were split, by name."""


RUNTIMES = [(1, 32), (40, 32), (300, 8), (100_000, 64)]


@pytest.fixture(params=RUNTIMES)
def runtime(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The CPU as a GPU that so many threads fill, in subgroups; lanes run one after the other."""
    fills, lanes = request.param

    def split_and_serialise(module: Module, noalias: bool, fills: int, blocks: Blocks) -> None:
        split_sums(module, noalias, fills, blocks)
        TEXTS[module.name] = to_text(module)
        sequence_work_items(module)

    pretend(monkeypatch, CpuBackend, fills=fills, splits=True, blocks=Blocks(lanes))
    monkeypatch.setattr("octants.passes.sums.split_sums.split_sums", split_and_serialise)
    qd.init(arch=qd.cpu, default_fp=qd.f64, offline_cache=False, log_level="error")
    yield
    qd.reset()


class World:
    """Arrays, and kernels whose work items have serial loops."""

    def __init__(self) -> None:
        rng = np.random.default_rng(3)
        self.x = qd.field(qd.f64, LARGEST, needs_grad=True)
        self.y = qd.field(qd.f64, LARGEST, needs_grad=True)
        self.z = qd.field(qd.f64, LARGEST, needs_grad=True)
        self.table = qd.field(qd.f64, (LARGEST, LARGEST), needs_grad=True)
        self.table.from_numpy(rng.uniform(0.5, 1.5, (LARGEST, LARGEST)))
        self.half = qd.field(qd.f16, LARGEST)
        self.count = qd.field(qd.i32, LARGEST)
        self.loss = qd.field(qd.f64, (), needs_grad=True)
        self.x.from_numpy(rng.uniform(0.5, 1.5, LARGEST))

    @qd.kernel
    def plain(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            total = 1.0
            for j in range(m):
                total += qd.sin(self.x[i] * self.x[j])
            self.y[i] = total * total

    @qd.kernel
    def matrix(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            total = 0.0
            for j in range(m):
                total += self.table[i, j] * self.x[j]
            self.y[i] = total * total

    @qd.kernel
    def asked(self, n: qd.i32, m: qd.i32):
        qd.loop_config(block_dim=48)
        for i in range(n):
            total = 0.0
            for j in range(m):
                total += self.x[i] * self.x[j]
            self.y[i] = total

    @qd.kernel
    def many(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            sums = qd.Vector([0.0] * 9)
            total, whole, count = qd.f32(0.0), qd.i64(1), 0
            for j in range(m):
                for k in qd.static(range(9)):
                    sums[k] += self.x[j] * (k + i)
                total += qd.f32(j % 5)
                whole += qd.i64(j) << 32
                count += j
            self.y[i] = sums.sum() + total
            self.z[i] = qd.f64(whole) * 2.0**-32
            self.count[i] = count

    @qd.kernel
    def less(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            total = self.x[i]
            for j in range(m):
                total -= self.x[j] * 0.1
            self.y[i] += total

    @qd.kernel
    def branches(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            near, far, count = 0.0, 0.0, 0
            for j in range(m):
                d = self.x[i] - self.x[j]
                if d > 0.3:
                    far += d
                elif d > 0.0 and j != 4:
                    near += d * d
                    far -= 0.5 * d
                    count += 1
            self.y[i] = near * far
            self.count[i] = count

    @qd.kernel
    def triangle(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            total = 0.0
            for j in range(i, -1, -1):
                total += self.x[j] ** 2
            self.y[i] = total
            self.loss[None] += total * 0.1

    @qd.kernel
    def two_loops(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            first = 0.0
            for j in range(m):
                first += self.x[j] ** 2
            second = 0.0
            for j in range(2, n):
                second += qd.cos(self.x[j] * first)
            self.y[i] = second * first
            self.z[i] = self.y[i] + 1.0

    @qd.kernel
    def of_an_offset(self, n: qd.i32, m: qd.i32):
        for i in range(3, n):
            total = 0.0
            for j in range(-5, m - 5):
                total += self.x[j + 5] * i
            self.y[i] = total

    @qd.kernel
    def scatter_too(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            total = 0.0
            for j in range(m):
                total += self.x[j] ** 2
                self.z[(i + j) % LARGEST] += self.x[j]
            self.y[i] = total

    @qd.kernel
    def cells(self, n: qd.i32, m: qd.i32):
        """As over the neighbours of a cell, some of which are outside."""
        for i in range(n):
            total, pushed, found = self.x[i], 0.0, False
            for o in qd.grouped(qd.ndrange((-1, 2), (-1, 2))):
                cell = i + 3 * o[0] + o[1]
                if cell >= 0 and cell < LARGEST:
                    for j in range(cell % (m + 1)):
                        d = self.x[i] - self.x[j]
                        if d > 0.2:
                            total += d * self.x[cell]
                            found = True
                        elif j != i:
                            self.z[j] += d * d
                            pushed += d
            self.y[i] = total * pushed
            self.count[i] = qd.i32(found)

    @qd.kernel
    def sum_of_sums(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            total = 0.0
            for k in range(5):
                part = 0.0
                for j in range(m):
                    part += self.x[j] * (i + k)
                total += qd.sin(part)
            self.y[i] = total

    @qd.kernel
    def narrow(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            total = qd.f16(0.0)
            for j in range(m):
                total += qd.f16(j % 3)
            self.half[i] = total

    @qd.kernel
    def kinks(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            total, other = 0.0, 0.0
            for j in range(m):
                total += (self.x[i] - self.x[j]) ** 2
                other += self.x[i] - self.x[j]
            self.y[i] = qd.sqrt(total + 0.1) + qd.max(other, 0.0)

    # -- what stays as it is -----------------------------------------------------------------------

    @qd.kernel
    def reads_what_it_scatters(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            total = 0.0
            for j in range(m):
                total += self.x[j] ** 2
                self.z[i] += self.x[j]
            self.y[i] = total + self.z[i]

    @qd.kernel
    def greatest(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            total = 0.0
            for j in range(m):
                total += self.x[j] ** 2
                qd.atomic_max(self.z[j], self.x[i])
            self.y[i] = total

    @qd.kernel
    def restarts(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            total = 0.0
            for _ in range(3):
                for j in range(m):
                    total += self.x[j]
                total *= 0.5
            self.y[i] = total

    @qd.kernel
    def short(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            total = 0.0
            for a in range(3):
                for b in range(5):
                    total += self.x[a] * self.x[b] * i
            self.y[i] = total

    @qd.kernel
    def recurrence(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            value = self.x[i]
            for j in range(m):
                value = qd.sin(value) + self.x[j]
            self.y[i] = value

    @qd.kernel
    def looks(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            total = 0.0
            for j in range(m):
                total += self.x[j]
                if total > 10.0:
                    total += 1.0
            self.y[i] = total

    @qd.kernel
    def looks_at_a_flag(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            total, other, found = 0.0, 0.0, False
            for j in range(m):
                if self.x[j] > 1.0:
                    found = True
                    other += qd.sin(self.x[j]) * qd.exp(self.x[i])
                if found:
                    total += self.x[j]
            self.y[i] = total + other

    @qd.kernel
    def leaves_out_the_first(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            total, has_begun = 0.0, False
            for j in range(m):
                if has_begun:
                    total += self.x[j] * self.x[i]
                has_begun = True
            self.y[i] = total

    @qd.kernel
    def prefix(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            total = 0.0
            for j in range(m):
                total += self.x[j]
                self.z[j] = total
            self.y[i] = total

    @qd.kernel
    def decides(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            total = 0.0
            for j in range(m):
                total += self.x[j]
            if total > 5.0:
                self.y[i] = total

    @qd.kernel
    def places(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            total = 0.0
            for j in range(m):
                total += self.x[i] * self.x[j]
            self.y[qd.i32(total) % LARGEST] += 1.0

    @qd.kernel
    def overwrites(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            total = 0.0
            for j in range(m):
                total += self.x[i] * j
            self.x[i] = 0.01 * total

    @qd.kernel
    def prints(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            total = 0.0
            for j in range(m):
                total += self.x[j]
            if m < 0:
                print(i, m)
            self.y[i] = total


SPLIT = """
    plain matrix asked many less branches triangle two_loops of_an_offset scatter_too cells
    sum_of_sums narrow kinks
""".split()
LEFT = """
    recurrence reads_what_it_scatters greatest restarts short looks looks_at_a_flag
    leaves_out_the_first prefix decides places overwrites prints
""".split()
SIZES = [(LARGEST, LARGEST), (LARGEST, 5), (1, LARGEST), (33, 17), (0, 5), (5, 0)]


def outputs(world: World, name: str, n: int, m: int) -> list[np.ndarray[Any, Any]]:
    arrays = (world.y, world.z, world.half, world.count, world.loss)
    for array in arrays:
        array.fill(0)
    world.x.from_numpy(np.random.default_rng(3).uniform(0.5, 1.5, LARGEST))
    getattr(world, name)(n, m)
    return [array.to_numpy() for array in (*arrays, world.x)]


def is_split(kernel: Any, mode: str = "primal") -> bool:
    return "_bounds {" in kernel.inspect(3, 3, mode=mode).stages["finish"]


@pytest.mark.parametrize(
    ("runtime", "name"),
    [*each_once(RUNTIMES, SPLIT), *each_once(RUNTIMES, LEFT)],
    indirect=["runtime"],
)
def test_results(runtime: None, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    assert is_split(getattr(world, name)) == (name in SPLIT)
    found = [outputs(world, name, n, m) for n, m in SIZES]
    pretend(monkeypatch, CpuBackend, splits=False)
    qd.init(arch=qd.cpu, default_fp=qd.f64, offline_cache=False, log_level="error")
    world = World()
    for (n, m), values in zip(SIZES, found, strict=True):
        for value, wanted in zip(values, outputs(world, name, n, m), strict=True):
            np.testing.assert_allclose(value, wanted, rtol=1e-12, err_msg=f"{n} {m}")


@pytest.mark.parametrize(
    ("name", "block_dim"), [("plain", 512), ("of_an_offset", 512), ("asked", 64), ("matrix", 128)]
)
def test_who_shares(runtime: None, name: str, block_dim: int) -> None:
    """Lanes, if what neighbours load is side by side; else threads that are further apart."""
    getattr(World(), name)(3, 3)
    text = next(text for key, text in TEXTS.items() if key.endswith(name))
    assert f"'block_dim': {block_dim}" in text
    assert ("shuffle_xor" in text) == (name == "matrix")
    assert ("_shares" in text) == (name != "matrix")


@pytest.mark.parametrize(("count", "items"), [(4, 2), (20, 1)])
def test_threads_have_one_item_if_loops_use_many_of_its_values(
    runtime: None, count: int, items: int
) -> None:
    """A thread holds these values of all its items in registers."""
    world, n, m = World(), 40, 9

    @qd.kernel
    def features(n: qd.i32, m: qd.i32):
        for i in range(n):
            total = 0.0
            for j in range(m):
                for k in qd.static(range(count)):
                    total += world.x[j] * qd.sin(world.x[i] * (k + 1))
            world.y[i] = total

    features(n, m)
    text = next(text for key, text in TEXTS.items() if key.endswith("features"))
    assert ("_shares1" in text) == (items == 2)
    x = world.x.to_numpy()
    wanted = x[:m].sum() * np.sin(np.outer(x[:n], np.arange(1, count + 1))).sum(1)
    np.testing.assert_allclose(world.y.to_numpy()[:n], wanted, rtol=1e-12)


def test_items_that_add_to_the_same_elements_do_not_share(
    runtime: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their subgroups combine these sums; lanes of one item would add to different elements."""
    monkeypatch.setattr("octants.passes.sums.gather_sums.gather_sums", lambda *_: None)
    world, n = World(), 40

    @qd.kernel
    def layer(weights: qd.types.NDArray[qd.f64, 1], n: qd.i32):
        for i in range(n):
            for j in range(32):
                world.loss[None] += qd.sin(world.x[i] * weights[j])

    @qd.kernel
    def long_layer(weights: qd.types.NDArray[qd.f64, 1], n: qd.i32):
        for i in range(n):
            for j in range(weights.shape[0]):
                world.loss[None] += qd.sin(world.x[i] * weights[j])

    weights = qd.ndarray(qd.f64, 32, needs_grad=True)
    weights.from_numpy(np.linspace(0.5, 1.5, 32))
    for kernel, is_split in ((layer, False), (long_layer, True)):
        world.loss.grad[None] = 1.0
        weights.grad.fill(0.0)
        kernel.grad(weights, n)
        text = next(t for key, t in TEXTS.items() if key.endswith(f"{kernel.__name__}_reverse"))
        assert ("subgroup_size" in text) == is_split
        x, w = world.x.to_numpy()[:n], weights.to_numpy()
        wanted = (np.cos(np.outer(x, w)) * x[:, None]).sum(0)
        np.testing.assert_allclose(weights.grad.to_numpy(), wanted, rtol=1e-12)


def test_blocks_have_no_more_work_items_than_a_device_allows(
    runtime: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, CpuBackend, fills=300, splits=True, blocks=Blocks(most_items=384))
    qd.init(arch=qd.cpu, default_fp=qd.f64, offline_cache=False, log_level="error")
    World().plain(3, 3)
    text = next(text for key, text in TEXTS.items() if key.endswith("plain"))
    assert "'block_dim': 256" in text


@pytest.mark.parametrize(
    ("runtime", "name"),
    each_once(
        RUNTIMES,
        "plain matrix asked less branches triangle two_loops cells sum_of_sums kinks".split(),
    ),
    indirect=["runtime"],
)
def test_gradients(runtime: None, name: str) -> None:
    world = World()
    kernel, n, m = getattr(world, name), 9, 11
    no_sums_are_left = name in ("triangle", "sum_of_sums")
    assert is_split(kernel, "reverse") != no_sums_are_left
    weights = np.arange(1.0, LARGEST + 1)

    def value() -> float:
        for array in (world.y, world.z, world.loss):
            array.fill(0.0)
        kernel(n, m)
        return float(weights @ world.y.to_numpy() + world.z.to_numpy().sum() + world.loss[None])

    value()
    world.x.grad.fill(0.5)
    world.y.grad.from_numpy(weights)
    world.z.grad.fill(1.0)
    world.loss.grad.fill(1.0)
    kernel.grad(n, m)
    found, before = world.x.grad.to_numpy() - 0.5, world.x.to_numpy()
    for place in range(12):
        ends = []
        for step in (1e-6, -1e-6):
            moved = before.copy()
            moved[place] += step
            world.x.from_numpy(moved)
            ends.append(value())
        np.testing.assert_allclose(found[place], (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-6)


def test_bounds_whose_distance_wraps(runtime: None) -> None:
    x, y = qd.field(qd.f64, LARGEST), qd.field(qd.f64, 3)

    @qd.kernel
    def between(n: qd.i32, m: qd.i32, first: qd.i64, last: qd.i64):
        for i in range(n):
            total = 0.0
            for j in range(first, last):
                total += x[(qd.i32(j % LARGEST) + i) % m] * i
            y[i] = total

    x.fill(1.0)
    for first, last, count in [(5, 9, 4), (2**63 - 1, -(2**63), 0), (2**62, 2**62 + 70, 70)]:
        between(3, LARGEST, first, last)
        assert "_bounds {" in between.inspect(3, LARGEST, first, last).stages["finish"]
        assert y.to_numpy().tolist() == [0.0, count, 2.0 * count]
