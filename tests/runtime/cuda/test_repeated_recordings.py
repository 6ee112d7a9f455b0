"""Gradients that repeat with the words of the launch before, on a GPU that the CPU emulates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.runtime.cuda.fast_launcher import SAME
from octants.runtime.gpu.record_buffer_growth import Recording
from tests.codegen.on_emulated_gpu import AddressableCuda, emulated_gpu

ITEMS = 40


@pytest.fixture(autouse=True)
def gpu() -> Iterator[AddressableCuda]:
    with emulated_gpu() as fake:
        qd.init(arch=qd.cuda, log_level="error")
        yield fake


class Powers:
    """``y = x ** count``, by a loop whose length is in memory, and its gradient."""

    def __init__(self) -> None:
        self.x, self.y = (qd.field(qd.f32, ITEMS, needs_grad=True) for _ in range(2))
        self.count = qd.field(qd.i32, ITEMS)
        self.x.from_numpy(np.linspace(0.999, 1.001, ITEMS, dtype=np.float32))

    @qd.kernel
    def run(self, first: qd.i32):
        for i in range(first, ITEMS):
            v = 1.0
            for _ in range(self.count[i]):
                v *= self.x[i]
            self.y[i] = v

    def check(self, count: int, first: int = 0) -> None:
        """Compare the gradient with the formula."""
        self.x.grad.fill(0)
        self.y.grad.fill(1)
        self.run.grad(first)
        x = self.x.to_numpy().astype(np.float64)
        expected = np.where(np.arange(ITEMS) < first, 0, count * x ** (count - 1))
        np.testing.assert_allclose(self.x.grad.to_numpy(), expected, rtol=1e-3)


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each launch that records has used the words that were there."""
    found: list[bool] = []
    original = Recording._run_again

    def note(self: Recording, *arguments: Any) -> bool:
        found.append(original(self, *arguments))
        return found[-1]

    monkeypatch.setattr(Recording, "_run_again", note)
    return found


def test_the_third_is_the_first_to_repeat(again: list[bool]) -> None:
    powers = Powers()
    powers.count.fill(5)
    for _ in range(5):
        powers.check(5)
    assert again == [False, False, True, True, True]


def test_lengths_that_change(again: list[bool]) -> None:
    powers = Powers()
    for count in (3, 300, 3, 1000, 1000, 1000, 1000):
        powers.count.fill(count)
        powers.check(count)
        powers.check(count)
    assert not any(again[:8])  # the second launch of a length is the first with a known capacity
    powers.check(1000)
    assert again[-1]


def test_bounds_that_change(again: list[bool]) -> None:
    powers = Powers()
    powers.count.fill(20)
    for first in (0, 0, 0, 3, 3, 3, 0, 30, 30, 30):
        powers.check(20, first)
    assert again == [False, False, True, False, False, True, False, False, False, True]


def test_record_buffers_that_were_freed(again: list[bool]) -> None:
    powers = Powers()
    powers.count.fill(50)
    for _ in range(3):
        powers.check(50)
    qd.driver.state.device.free_record_buffers()
    occupied = [qd.ndarray(qd.f32, 10_000) for _ in range(3)]
    for array in occupied:
        array.fill(1)
    powers.check(50)
    assert again == [False, False, True, False]
    assert all((array.to_numpy() == 1).all() for array in occupied)


def test_other_kernels_that_record_more(again: list[bool]) -> None:
    small, large = Powers(), Powers()
    small.count.fill(4)
    large.count.fill(2000)
    for _ in range(3):
        small.check(4)
    for _ in range(2):
        large.check(2000)
        small.check(4)
        small.check(4)
    assert again[-1]


def test_streams(again: list[bool]) -> None:
    powers, stream = Powers(), qd.create_stream()
    powers.count.fill(30)
    for _ in range(3):
        powers.check(30)
    powers.x.grad.fill(0)
    powers.y.grad.fill(1)
    qd.sync()
    powers.run.grad(0, qd_stream=stream)
    qd.sync()
    assert not again[-1]
    powers.check(30)


def warmed(gpu: AddressableCuda, count: int) -> Powers:
    """Powers whose gradient is replayed as a graph."""
    powers = Powers()
    powers.count.fill(count)
    for _ in range(SAME + 4):
        powers.run.grad(0)
    powers.check(count)
    gpu.order.clear()
    powers.run.grad(0)
    assert "cuGraphLaunch" in gpu.order
    assert "cuLaunchKernelEx" not in gpu.order
    return powers


def check_longer_loops(powers: Powers) -> None:
    for count in (300, 2, 300):
        powers.count.fill(count)
        powers.check(count)


def check_other_bounds(powers: Powers) -> None:
    for first in (7, 0, 30, 0):
        powers.check(20, first)


def check_freed_buffers(powers: Powers) -> None:
    qd.driver.state.device.free_record_buffers()
    occupied = [qd.ndarray(qd.f32, 10_000) for _ in range(3)]
    for array in occupied:
        array.fill(1)
    powers.check(20)
    assert all((array.to_numpy() == 1).all() for array in occupied)


def check_other_kernels(powers: Powers) -> None:
    large = Powers()
    for count in (2000, 5000):
        large.count.fill(count)
        large.run.grad(0)
        powers.check(20)


def check_streams(powers: Powers) -> None:
    stream = qd.create_stream()
    powers.x.grad.fill(0)
    powers.y.grad.fill(1)
    powers.run.grad(0, qd_stream=stream)
    qd.sync()
    once = powers.x.grad.to_numpy()
    powers.check(20)
    assert np.array_equal(once, powers.x.grad.to_numpy())


@pytest.mark.parametrize(
    "check",
    [
        check_longer_loops,
        check_other_bounds,
        check_freed_buffers,
        check_other_kernels,
        check_streams,
    ],
)
def test_a_replay_ends_with_a_change(gpu: AddressableCuda, check: Callable[[Powers], None]) -> None:
    powers = warmed(gpu, 20)
    check(powers)
    powers.count.fill(20)
    for _ in range(SAME + 4):
        powers.run.grad(0)
    gpu.order.clear()
    powers.check(20)
    assert "cuLaunchKernelEx" not in gpu.order


def test_random_numbers_are_not_replayed(gpu: AddressableCuda) -> None:
    x = qd.field(qd.f32, ITEMS, needs_grad=True)
    y = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def run():
        for i in x:
            v = x[i]
            for _ in range(3 + i % 2):
                v = qd.sin(v) * (1.0 + qd.random())
            y[None] += v

    found = set()
    x.fill(1.0)
    for _ in range(SAME + 20):
        x.grad.fill(0)
        y.grad.fill(1)
        run()
        run.grad()
        found.add(float(x.grad[0]))
    assert len(found) == SAME + 20
