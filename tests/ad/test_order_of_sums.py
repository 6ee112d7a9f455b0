"""The order in which a loop's adjoints are added: the budget of the tape does not decide it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.devices import ARCH

N = 37


class Chains:
    """Loops that read places which all of their iterations share, in all sorts of nests."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.x = qd.field(qd.f32, N, needs_grad=True)
        self.z = qd.field(qd.f32, 24, needs_grad=True)
        self.loss = qd.field(qd.f32, (), needs_grad=True)
        self.x.from_numpy(rng.uniform(-1, 1, N).astype(np.float32))
        self.z.from_numpy(rng.uniform(-1, 1, 24).astype(np.float32))

    @qd.kernel
    def run(self, count: qd.i32):
        for i in self.x:
            v, w = self.x[i], 0
            while w < count + i % 3:
                w += 1
                v = qd.sin(v) * 0.5 + 0.4 * self.z[i % 7] * v
                if v > 0.1:
                    v -= self.z[i % 5 + 7] * 0.01 * v * v
            self.loss[None] += v
        for i in self.x:
            v = self.x[i]
            for t in range(count):
                for k in range(3 + (i + t) % 4):
                    v = qd.sin(v) * 0.9 + 0.1 * self.z[k] * v + 0.01 * self.z[i % 7 + 8] * qd.cos(v)
            self.loss[None] += v
        for i in self.x:  # more places than a loop has registers for
            v = self.x[i]
            for _ in range(count):
                v = qd.sin(v) * 0.9
                for k in qd.static(range(9)):
                    v += 0.01 * self.z[k] * v
            self.loss[None] += v


def bits(budget: int, kind: type[Chains] = Chains, **chosen: Any) -> list[bytes]:
    """The gradients of the chains with a budget of the tape."""
    qd.init(
        arch=getattr(qd, ARCH),
        ad_stack_budget_bytes=budget,
        offline_cache=False,
        log_level="error",
        **chosen,
    )
    chains = kind()
    with qd.ad.Tape(loss=chains.loss):
        chains.run(60)
    return [x.to_numpy().tobytes() for x in (chains.x.grad, chains.z.grad, chains.loss)]


@pytest.mark.skipif(ARCH != "cpu", reason="without threads, work items come in one order")
def test_the_budget_changes_no_bit() -> None:
    usual, *others = (bits(budget, cpu_max_num_threads=1) for budget in (0, 150, 4000))
    assert others == [usual, usual]


def test_deterministic_results_know_neither_threads_nor_budgets() -> None:
    usual, *others = (
        bits(budget, deterministic=True, cpu_max_num_threads=threads, simd="never")
        for threads, budget in ((1, 0), (2, 600), (8, 4000))
    )
    assert others == [usual, usual]


class LoadedIndices(Chains):
    """A place that all iterations of a loop read, whose index is loaded in the loop."""

    @qd.kernel
    def run(self, count: qd.i32):
        for i in self.x:
            v, w = self.x[i], 0
            while w < count:
                w += 1
                v = qd.sin(v) * 0.9 + 0.1 * self.z[self.index[i % 7]] * v
            self.loss[None] += v

    def __init__(self) -> None:
        super().__init__()
        self.index = qd.field(qd.i32, 7)
        self.index.from_numpy(np.arange(7, dtype=np.int32) * 3)


@pytest.mark.parametrize("debug", [False, True])
def test_deterministic_sums_at_loaded_indices_know_no_budgets(debug: bool) -> None:
    chosen = {"deterministic": True, "debug": debug, "simd": "never"}
    usual, *others = (
        bits(budget, LoadedIndices, cpu_max_num_threads=threads, **chosen)
        for threads, budget in ((1, 0), (1, 300), (2, 600), (8, 4000))
    )
    assert others == [usual, usual, usual]
