"""Refused memory where the reverse run needs what the forward run overwrites, or what it logged.

The first sweep of such a task stores. Whatever is refused: the arrays are those of the forward run,
the gradient is right or there is an error, and the next one is right.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver
from tests.ad.heaps import Heap
from tests.devices import on_cpu

pytestmark = on_cpu

ITEMS = 24
BEGIN = np.linspace(0.1, 0.9, ITEMS)
Start = Callable[..., None]


@pytest.fixture(scope="module")
def shared_heap() -> Heap:
    return Heap()


@pytest.fixture
def heap(shared_heap: Heap) -> Iterator[Heap]:
    yield shared_heap
    qd.reset()
    shared_heap.reset()


@pytest.fixture
def start(heap: Heap, monkeypatch: pytest.MonkeyPatch) -> Start:
    def begin(threads: int, **options: Any) -> None:
        heap.start(monkeypatch, cpu_max_num_threads=threads, **options)

    return begin


class Program:
    """StepEvents under a tape, that of x to a loss."""

    def __init__(self) -> None:
        self.x, self.v = (qd.field(qd.f64, shape=ITEMS, needs_grad=True) for _ in range(2))
        self.loss = qd.field(qd.f64, shape=(), needs_grad=True)

    def forward(self) -> None:
        raise NotImplementedError

    def run(self, begin: np.ndarray[Any, Any] = BEGIN) -> float:
        """The loss."""
        self.restart(begin)
        self.forward()
        return float(self.loss[None])

    def restart(self, begin: np.ndarray[Any, Any] = BEGIN) -> None:
        self.x.from_numpy(begin)
        self.v.fill(0.2)
        self.loss[None] = 0

    def gradient(self) -> np.ndarray[Any, Any]:
        """The gradient of x; the arrays are those of the forward run, also where this raises."""
        self.run()
        after = self.x.to_numpy(), self.v.to_numpy()
        self.restart()
        try:
            with qd.ad.Tape(loss=self.loss):
                self.forward()
        finally:
            assert np.array_equal(self.x.to_numpy(), after[0])
            assert np.array_equal(self.v.to_numpy(), after[1])
        found: np.ndarray[Any, Any] = self.x.grad.to_numpy()
        return found

    def check(self, gradient: np.ndarray[Any, Any]) -> None:
        along = np.cos(np.arange(ITEMS))
        slope = (self.run(BEGIN + 1e-6 * along) - self.run(BEGIN - 1e-6 * along)) / 2e-6
        assert gradient @ along == pytest.approx(slope, rel=1e-6)


class Steps(Program):
    """StepEvents that overwrite in place, one after the other, with a loop in a loop."""

    def __init__(self) -> None:
        super().__init__()
        x, v, loss = self.x, self.v, self.loss

        @qd.kernel
        def step(n: qd.i32):
            for i in x:
                for j in range(1 + (i % 8 == 5) * 4):
                    k = 0
                    while k < n and x[i] < 50.0:
                        v[i] -= 0.1 * qd.sin(x[i])
                        x[i] += 0.1 * v[i]
                        k += 1
                    x[i] *= 1.0 + 0.01 * j

        @qd.kernel
        def total():
            for i in x:
                loss[None] += x[i] * x[i]

        self.step, self.total = step, total

    def forward(self) -> None:
        for _ in range(3):
            self.step(40)
        self.total()


class Compaction(Program):
    """What an atomic returns says where values go; their places differ from run to run."""

    def __init__(self) -> None:
        super().__init__()
        self.count = qd.field(qd.i32, shape=())
        self.kept = qd.field(qd.f64, shape=50 * ITEMS, needs_grad=True)
        x, count, kept, loss = self.x, self.count, self.kept, self.loss

        @qd.kernel
        def step(n: qd.i32):
            for i in x:
                w = x[i]
                for j in range(n + (i % 8 == 5) * n * 4):
                    if qd.sin(w) > 0.3:
                        k = qd.atomic_add(count[None], 1)
                        kept[k] = w * w
                    for _ in range(j):
                        w = qd.sin(w) + 0.3
                x[i] = w

        @qd.kernel
        def total():
            for i in x:
                loss[None] += x[i] * x[i]
            for k in kept:
                loss[None] += kept[k] * kept[k]

        self.step, self.total = step, total

    def restart(self, begin: np.ndarray[Any, Any] = BEGIN) -> None:
        super().restart(begin)
        self.kept.fill(0)
        self.count[None] = 0

    def forward(self) -> None:
        self.step(9)
        self.total()


OPTIONS = [
    {"simd": "never"},
    {"simd": "always"},
    {"simd": "never", "debug": True},
    {"simd": "always", "debug": True},
    {"simd": "never", "deterministic": True},
    {"simd": "never", "ad_stack_budget_bytes": 500},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(map(str, options)))
@pytest.mark.parametrize(
    ("kind", "threads"),
    [
        (Steps, 1),
        (Compaction, 4),
        pytest.param(Steps, 4, marks=pytest.mark.slow),
        pytest.param(Compaction, 1, marks=pytest.mark.slow),
    ],
)
def test_memory_refused_at_random(
    heap: Heap, start: Start, kind: type[Program], threads: int, options: dict[str, Any]
) -> None:
    start(threads, **options)
    program = kind()
    expected = program.gradient()
    program.check(expected)
    chance = random.Random(threads)
    errors = 0
    for share in (0.1, 0.5, 1.0) * 3:
        driver.state.device.free_record_buffers()  # type: ignore[union-attr]
        heap.grants = lambda nbytes, total: chance.random() > share  # noqa: B023
        try:
            np.testing.assert_allclose(program.gradient(), expected, rtol=1e-11)
        except qd.OctantsMemoryError as error:
            errors += 1
            assert "kernel `step`: there is no memory for the records" in str(error)
        heap.grants = lambda nbytes, total: True
        np.testing.assert_allclose(program.gradient(), expected, rtol=1e-11)
    assert errors
    assert heap.refused > errors
