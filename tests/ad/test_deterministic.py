"""`init(deterministic=True)`: the same bits from run to run, for any number of threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.options import Options
from tests.devices import ON_GPU, beyond_llvmpipe

N = 20_000  # enough work items for several threads


def start(threads: int, deterministic: bool = True, **chosen: Any) -> None:
    qd.init(
        arch=qd.cpu,
        cpu_max_num_threads=threads,
        deterministic=deterministic,
        log_level="error",
        **chosen,
    )


class Arrays:
    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.x = qd.field(qd.f32, N, needs_grad=True, needs_dual=True)
        self.y = qd.field(qd.f32, N, needs_grad=True, needs_dual=True)
        self.bins = qd.field(qd.f32, 37, needs_grad=True, needs_dual=True)
        self.w = qd.field(qd.f32, 3, needs_grad=True, needs_dual=True)
        self.loss = qd.field(qd.f32, (), needs_grad=True, needs_dual=True)
        self.index = qd.field(qd.i32, N)
        self.count = qd.field(qd.i32, ())
        self.x.from_numpy(rng.uniform(0.1, 1, N).astype(np.float32))
        self.w.from_numpy(rng.uniform(0.5, 1, 3).astype(np.float32))
        self.index.from_numpy(rng.integers(0, 37, N).astype(np.int32))

    def bits(self) -> list[bytes]:
        """Everything that was computed."""
        arrays = (self.x, self.y, self.bins, self.w, self.loss)
        values = [array.to_numpy() for array in (*arrays, self.count)]
        values += [array.grad.to_numpy() for array in arrays]
        values += [array.dual.to_numpy() for array in arrays]
        return [value.tobytes() for value in values]

    @qd.kernel
    def scatter(self):
        """Sums at places that vary."""
        for i in self.x:
            self.bins[self.index[i]] += qd.sin(self.x[i] * self.w[1])
        for i in self.x:
            self.loss[None] += self.bins[self.index[i]] * self.x[i]

    @qd.kernel
    def share(self):
        """Sums at one place for all, in loops and ifs too, by way of a local of the kernel."""
        total = 0.0
        for i in self.x:
            for j in range(self.index[i] % 3):
                if self.x[i] > 0.3:
                    total += self.x[i] * self.w[j]
            self.loss[None] -= self.x[i] * self.w[2]
        self.loss[None] += total * total

    @qd.kernel
    def multiply(self):
        """Products, extremes, and what updates return."""
        for i in self.x:
            qd.atomic_mul(self.bins[i % 3], 1 + 1e-4 * self.x[i])
            qd.atomic_max(self.bins[3], self.x[i])
        for i in self.y:
            if self.x[i] > 0.5:
                self.y[qd.atomic_add(self.count[None], 1)] = self.x[i] * self.bins[0]
        for i in self.y:
            self.loss[None] += self.y[i] * i * 1e-6 + self.bins[3] * 1e-6

    @qd.kernel
    def own(self):
        """Updates that need no order."""
        for i in self.x:
            self.y[i] += self.x[i] * self.x[i]
            self.loss[None] += self.y[i] * self.w[0]


NAMES = ("scatter", "share", "multiply", "own")


def outcome(name: str, threads: int, deterministic: bool = True) -> list[bytes]:
    start(threads, deterministic)
    arrays = Arrays()
    with qd.ad.Tape(loss=arrays.loss):
        getattr(arrays, name)()
    bits = arrays.bits()
    start(threads, deterministic)
    arrays = Arrays()
    with qd.ad.FwdMode(loss=arrays.loss, param=arrays.w, seed=[1.0, -1.0, 2.0]):
        getattr(arrays, name)()
    return bits + arrays.bits()


MARKED = [pytest.param(n, marks=beyond_llvmpipe if n == "multiply" else ()) for n in NAMES]


@pytest.mark.parametrize("name", MARKED)
def test_bits_are_the_same(name: str) -> None:
    wanted = outcome(name, 1)
    for threads in (2, 3, 3, 8):
        assert outcome(name, threads) == wanted, threads


@pytest.mark.parametrize("name", MARKED)
def test_results_are_those_of_any_order(name: str) -> None:
    for mine, other in zip(outcome(name, 2), outcome(name, 1, False), strict=True):
        values, wanted = (np.frombuffer(bits, np.float32) for bits in (mine, other))
        scale = np.abs(wanted).max(initial=1e-3)
        np.testing.assert_allclose(values, wanted, rtol=2e-3, atol=2e-3 * scale)


def finished(kernel: Callable[[], Any]) -> str:
    stages: dict[str, str] = kernel.inspect().stages  # type: ignore[attr-defined]
    return stages["finish"]


def test_updates_that_need_no_order_stay_parallel() -> None:
    start(2)
    arrays = Arrays()
    assert "serial" not in Arrays.own.inspect(arrays, mode="reverse").stages["reverse"]
    text = finished(arrays.own)
    assert "parallel @own_1 {" in text
    assert "store<@y, primal>" in text
    scattered = finished(arrays.scatter)
    options = "" if ON_GPU else "{'fixed_order': True} "  # with parts of a fixed order
    assert f"parallel @scatter_1 {options}{{" in scattered
    assert "parallel @scatter_3 {" in scattered  # summed up by chunks
    multiplied = finished(arrays.multiply)
    assert "serial @multiply_1 {" in multiplied  # run in order
    start(2, deterministic=False)
    assert "serial" not in finished(Arrays().multiply)


def test_small_loops_and_none_at_all() -> None:
    start(3)
    x = qd.field(qd.f64, 5)
    total = qd.field(qd.f64, ())

    @qd.kernel
    def add(first: qd.i32, last: qd.i32):
        for i in range(first, last):
            total[None] += x[i] + i

    x.fill(0.5)
    for first, last in ((0, 5), (2, 4), (3, 3), (4, 1)):
        total[None] = -0.0
        add(first, last)
        items = range(first, last)
        assert total[None] == sum(0.5 + i for i in items)
        assert np.signbit(total.to_numpy()) == (not items)


def test_bounds_that_the_loop_changes() -> None:
    start(2)
    n = qd.field(qd.i32, ())
    total = qd.field(qd.f64, ())

    @qd.kernel
    def add():
        for i in range(n[None]):
            n[None] = 0
            total[None] += 1.0 + 0 * i

    n[None] = 1000
    add()
    assert total[None] == 1000.0


def test_the_option_is_part_of_the_compilation_key() -> None:
    assert Options().compilation_key() != Options(deterministic=True).compilation_key()


def test_a_checkpointed_loop_whose_order_is_fixed() -> None:
    """Each step moves what it takes to places that an atomic gives it."""
    start(2, default_fp=qd.f64)
    count, size, steps = qd.field(qd.i32, ()), 600, 5
    a = qd.field(qd.f64, size, needs_grad=True)
    b = qd.field(qd.f64, size, needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def move():
        for i in a:
            k = qd.atomic_add(count[None], 1)
            b[k] = qd.sin(a[i]) * (1 + 1e-3 * k)
        count[None] = 0
        for i in a:
            a[i] = b[i]

    @qd.kernel
    def measure():
        for i in a:
            loss[None] += a[i] * i

    def gradient(loop: bool) -> Any:
        a.from_numpy(np.linspace(0, 1, size))
        with qd.ad.Tape(loss=loss):
            if loop:
                qd.ad.checkpointed(lambda _: move(), steps, slots=2)
            else:
                for _ in range(steps):
                    move()
            measure()
        return a.grad.to_numpy()

    np.testing.assert_array_equal(gradient(True), gradient(False))


def test_messages_name_the_work_item_of_a_sum() -> None:
    """Threads run chunks of work items: an error is about a work item, not about a chunk."""
    start(2, debug=True)
    x, total = qd.field(qd.f32, 1000), qd.field(qd.f32, ())

    @qd.kernel
    def add_up():
        for i in x:
            assert x[i] < 1
            total[None] += x[i]

    x[777] = 2.0
    with pytest.raises(qd.OctantsAssertionError, match="in work item 777"):
        add_up()
        qd.sync()
