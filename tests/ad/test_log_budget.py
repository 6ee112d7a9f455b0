"""What a tape keeps of what atomics return: it counts as its copies do, and `explain` shows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver
from tests.golden_files import check_golden

N = 32


def compaction(budget: int) -> tuple[Any, Any, Any]:
    """A kernel that gives the places of a list to those that ask first, one word for each."""
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error", ad_snapshot_budget_bytes=budget)
    samples = qd.field(qd.f64, shape=N, needs_grad=True)
    chosen = qd.field(qd.f64, shape=N, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)
    count = qd.field(qd.i32, shape=())

    @qd.kernel
    def choose():
        for i in samples:
            if samples[i] > 0.5:
                k = qd.atomic_add(count[None], 1)
                chosen[k] = samples[i] ** 2

    @qd.kernel
    def total():
        count[None] = 0
        for k in chosen:
            loss[None] += chosen[k]

    def forward() -> None:
        choose()
        total()

    samples.from_numpy(np.linspace(0, 1, N))
    return forward, samples, loss


def test_it_counts_as_copies_do() -> None:
    forward, samples, loss = compaction(3 * 8 * N)
    with qd.ad.Tape(loss=loss) as tape:
        forward()
    copied = tape.snapshot_bytes - 8 * N
    assert 0 <= copied < 8 * N
    values = samples.to_numpy()
    assert samples.grad.to_numpy() == pytest.approx(np.where(values > 0.5, 2 * values, 0))


def test_one_that_does_not_fit_is_refused() -> None:
    forward, samples, loss = compaction(8 * N - 1)
    with pytest.raises(qd.OctantsMemoryError) as caught:
        with qd.ad.Tape(loss=loss):
            forward()
    check_golden("errors/OCT328_log", str(caught.value))
    forward, samples, loss = compaction(8 * N + 8)
    with qd.ad.Tape(loss=loss):
        forward()
    assert samples.grad.to_numpy().any()


def test_explain_says_what_is_kept() -> None:
    compaction(0)
    places = qd.field(qd.f64, shape=N, needs_grad=True)
    count = qd.field(qd.i32, shape=())

    @qd.kernel
    def several(n: qd.i32):
        for i in range(4):
            v = places[i]
            for _ in range(n + i):
                k = qd.atomic_add(count[None], 1)
                v += places[k % 3 + 8] * v
            places[i + 4] = v

    before = [places.to_numpy(), count[None], driver.state.seed]
    found = several.grad.explain(3)
    assert found.log_bytes == 8 * (3 + 4 + 5 + 6)
    assert f"{found.log_bytes} bytes of what atomics return" in found.text()
    after = [places.to_numpy(), count[None], driver.state.seed]
    assert np.array_equal(before[0], after[0])
    assert before[1:] == after[1:]
    assert several.grad.explain(0).log_bytes == 8 * (1 + 2 + 3)
