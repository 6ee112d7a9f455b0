"""Launches of a capture are checked for races as others are, and the check is not replayed."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.devices import ARCH

N = 8
RACES = pytest.mark.parametrize(
    ("indices", "race"),
    [([0, 0, 1, 2, 3, 4, 5, 6], True), ([7, 6, 5, 4, 3, 2, 1, 0], False)],
    ids=["race", "no race"],
)


@pytest.fixture(autouse=True)
def session() -> Iterator[None]:
    qd.init(arch=getattr(qd, ARCH))
    yield
    qd.reset()


class Program:
    """``y[index[i]] = 2 * x[i]`` and a loss; ``index`` decides whether work items race."""

    def __init__(self, indices: list[int]) -> None:
        x, y = (qd.field(qd.f32, N, needs_grad=True, needs_dual=True) for _ in range(2))
        index, loss = qd.field(qd.i32, N), qd.field(qd.f32, (), needs_grad=True, needs_dual=True)

        @qd.kernel
        def scatter():
            for i in range(N):
                y[index[i]] = 2.0 * x[i]

        @qd.kernel
        def total():
            for i in range(N):
                loss[None] += y[i] * y[i]

        self.x, self.y, self.loss, self.scatter, self.total = x, y, loss, scatter, total
        index.from_numpy(np.array(indices, np.int32))
        x.from_numpy(np.arange(N, dtype=np.float32))

    def run(self) -> None:
        self.scatter()
        self.total()

    def gradient(self) -> None:
        with qd.ad.Tape(loss=self.loss):
            self.run()

    def bare(self) -> None:
        self.scatter()
        self.y.grad.fill(1.0)
        self.scatter.grad()

    def tangent(self) -> None:
        with qd.ad.FwdMode(loss=self.loss, param=self.x, seed=[1.0] * N):
            self.run()


def replayed(body: Any) -> None:
    with qd.graph.capture() as graph:
        body()
    graph.replay()


@RACES
@pytest.mark.parametrize("mode", ["gradient", "bare", "tangent"])
@pytest.mark.parametrize("captured", [False, True])
def test_races_of_derivatives(indices: list[int], race: bool, mode: str, captured: bool) -> None:
    program = Program(indices)
    body = getattr(program, mode)
    expected = pytest.raises(qd.QuadrantsAssertionError, match="OCT304")
    with expected if race else contextlib.nullcontext():
        replayed(body) if captured else body()
    if not race and mode == "gradient":
        assert program.x.grad.to_numpy().tolist() == [8.0 * k for k in range(N)]
        assert program.loss[None] == sum(4.0 * k * k for k in range(N))


@RACES
def test_debug_mode_warns_of_captured_launches(indices: list[int], race: bool) -> None:
    qd.init(arch=getattr(qd, ARCH), debug=True)
    program = Program(indices)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        replayed(program.scatter)
    assert any("OCT304" in str(each.message) for each in caught) == race
