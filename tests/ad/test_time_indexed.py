"""Simulators whose fields have an axis for time: a tape copies nothing, and gradients are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.launch.gradients.taped_memory import TapedMemory

STEPS, N = 40, 9


@pytest.fixture
def snapshots(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each snapshot that is taken."""
    taken: list[int] = []
    plain = TapedMemory.snapshot

    def snapshot(self: TapedMemory, region: Any = None) -> Any:
        taken.append(self.nbytes(region))
        return plain(self, region)

    monkeypatch.setattr(TapedMemory, "snapshot", snapshot)
    return taken


class Springs:
    """A net of springs, whose muscles a small controller drives; its fields share a dense block."""

    def __init__(self) -> None:
        self.x, self.v, self.pushed = (qd.field(qd.f64) for _ in range(3))
        qd.root.dense(qd.ij, (STEPS + 1, N)).place(self.x, self.v, self.pushed)
        self.centre = qd.field(qd.f64, STEPS + 1)
        self.weights = qd.field(qd.f64, N)
        self.stiffness = qd.field(qd.f64, ())
        self.loss = qd.field(qd.f64, ())
        qd.root.lazy_grad()
        self.ends = qd.field(qd.i32, (2, N))
        self.ends.from_numpy(np.array([range(N), [(3 * i + 1) % N for i in range(N)]], np.int32))
        self.weights.from_numpy(np.linspace(-0.3, 0.4, N))
        self.stiffness[None] = 1.5
        x, v, pushed, centre, weights = self.x, self.v, self.pushed, self.centre, self.weights
        stiffness, loss, ends = self.stiffness, self.loss, self.ends

        @qd.kernel
        def find_centre(t: qd.i32):
            for _ in range(1):
                total = 0.0
                for j in qd.static(range(N)):
                    total += x[t, j] * qd.cos(x[t, j])
                centre[t] = total / N

        @qd.kernel
        def push(t: qd.i32):
            for i in range(N):
                a, b = ends[0, i], ends[1, i]
                apart = x[t, b] - x[t, a]
                drive = qd.tanh(weights[i] * (x[t, i] - centre[t]))
                force = stiffness[None] * (apart - 0.1 * (1 + drive)) * apart * apart
                pushed[t + 1, a] += force
                pushed[t + 1, b] += -force

        @qd.kernel
        def move(t: qd.i32):
            for i in range(N):
                v[t, i] = 0.99 * v[t - 1, i] + 0.05 * pushed[t, i]
                x[t, i] = x[t - 1, i] + 0.05 * v[t, i] * (1 - 0.1 * v[t, i])

        @qd.kernel
        def measure():
            for i in range(N):
                loss[None] += (x[STEPS, i] - 0.3) ** 2

        self.kernels = find_centre, push, move, measure

    def clear(self) -> None:
        self.x.fill(0)
        self.v.fill(0)
        self.pushed.fill(0)
        for i in range(N):
            self.x[0, i] = 0.2 * i

    def run(self) -> None:
        find_centre, push, move, measure = self.kernels
        for t in range(STEPS):
            find_centre(t)
            push(t)
            move(t + 1)
        measure()


def difference(run: Callable[[], float], change: Callable[[float], None]) -> float:
    step, values = 1e-5, []
    for sign in (1, -1):
        change(sign * step)
        values.append(run())
        change(-sign * step)
    return (values[0] - values[1]) / (2 * step)


def test_a_simulator_that_is_run_again_copies_nothing(snapshots: list[int]) -> None:
    net = Springs()
    gradients = []
    for _ in range(3):
        net.clear()
        with qd.ad.Tape(loss=net.loss) as tape:
            net.run()
        assert tape.snapshot_bytes == 0
        gradients.append((net.stiffness.grad[None], net.weights.grad.to_numpy(), net.x.grad[0, 2]))
    assert snapshots == []
    for again, *_ in gradients[1:]:  # the order of sums is free on a GPU
        assert again == pytest.approx(gradients[0][0], rel=1e-14)

    def run() -> float:
        net.loss[None] = 0
        net.run()
        return float(net.loss[None])

    def stiffen(change: float) -> None:
        net.clear()
        net.stiffness[None] += change

    def drive(change: float) -> None:
        net.clear()
        net.weights[3] += change

    stiffness, weights, _ = gradients[2]
    assert stiffness == pytest.approx(difference(run, stiffen), rel=1e-6)
    assert weights[3] == pytest.approx(difference(run, drive), rel=1e-6)
    assert abs(stiffness) > 1e-3
    assert abs(weights[3]) > 1e-5


def test_delays_cost_a_row_for_each_step(snapshots: list[int]) -> None:
    """Rows that are read are not known, those that are written are: these alone are copied."""
    x = qd.field(qd.f64, (STEPS + 1, N), needs_grad=True)
    delays = qd.field(qd.i32, N)
    delays.from_numpy(np.arange(N, dtype=np.int32) % 4)
    gain = qd.field(qd.f64, (), needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def step(t: qd.i32):
        for i in range(N):
            seen = x[qd.max(t - delays[i], 0), i]
            x[t + 1, i] = x[t, i] + 0.1 * gain[None] * qd.sin(seen) * x[t, (i + 1) % N]

    @qd.kernel
    def measure():
        for i in range(N):
            loss[None] += x[STEPS, i] ** 2

    def run() -> float:
        loss[None] = 0
        for t in range(STEPS):
            step(t)
        measure()
        return float(loss[None])

    def prepare(change: float) -> None:
        x.fill(0)
        for i in range(N):
            x[0, i] = 0.1 * i + 0.2
        gain[None] += change

    gain[None] = 0.8
    prepare(0)
    with qd.ad.Tape(loss=loss) as tape:
        run()
    final = x.to_numpy()
    row = 8 * N
    assert tape.snapshot_bytes <= (STEPS + 1) * row
    assert max(snapshots[:-1]) == row  # the last one is what the arrays hold in the end
    prepare(0)
    run()
    assert (final == x.to_numpy()).all()
    assert gain.grad[None] == pytest.approx(difference(run, prepare), rel=1e-6)
