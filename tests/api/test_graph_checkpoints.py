"""``with checkpoint(label, yield_on=flag):`` - kernels that pause, and are resumed."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.types import ndarray

Flag = ndarray(qd.i32, 0)


class Stage(IntEnum):
    GROW = 3
    STORE = 7


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


def scalar(value: int = 0) -> Any:
    made = qd.ndarray(qd.i32, shape=())
    made.fill(value)
    return made


@qd.kernel(graph=True, checkpoints=True)
def steps(x: ndarray(qd.i32, 1), grow: Flag, store: Flag, rounds: Flag):
    """Count in decimal digits which part has run how often; the last digit is that before."""
    n = x.shape[0]
    for i in range(n):
        x[i] += 1
    while qd.graph.do_while(rounds):
        for i in range(n):
            x[i] += 10
        with qd.checkpoint(Stage.GROW, yield_on=grow):
            m = n
            for i in range(m):
                x[i] += 100
            for _ in range(1):
                if x[0] > 250:
                    grow[None] = 1
        for i in range(m):
            x[i] += 1000
        with qd.checkpoint(Stage.STORE, store):
            for i in range(n):
                x[i] += 10000
        rounds[None] -= 1
    for i in x:
        x[i] += 100000


def test_a_kernel_pauses_and_is_resumed() -> None:
    x, grow, store, rounds = qd.ndarray(qd.i32, 4), scalar(), scalar(), scalar(3)
    status = steps(x, grow, store, rounds)
    assert (status.yielded, status.checkpoint) == (True, Stage.GROW)
    assert status.checkpoint is Stage.GROW
    assert (x[1], rounds[None], grow[None]) == (11221, 2, 1)
    x.fill(0)
    grow.fill(0)
    status = steps.resume(x, grow, store, rounds=rounds, from_checkpoint=status.checkpoint)
    assert status.checkpoint == 3
    assert (x[1], rounds[None]) == (11210, 1)  # 100 + 1000 + 10000 of the second round, then 110
    x.fill(0)
    grow.fill(0)
    stream = qd.create_stream()
    status = steps.resume(x, grow, store, rounds, from_checkpoint=7, qd_stream=stream)
    assert status == qd.GraphStatus(yielded=False, checkpoint=None)
    assert (x[1], rounds[None]) == (110000, 0)


def test_a_flag_that_is_set_pauses_at_once() -> None:
    x, rounds = qd.ndarray(qd.i32, 4), scalar(5)
    assert steps(x, scalar(), scalar(2), rounds).checkpoint is Stage.STORE
    assert (x[0], rounds[None]) == (11111, 5)
    with pytest.raises(qd.OctantsRuntimeError, match=r"OCT486.*no checkpoint 4 among \[.*3.*7"):
        steps.resume(x, scalar(), scalar(), rounds, from_checkpoint=4)


@qd.data_oriented
class Solver:
    def __init__(self, pauses: bool) -> None:
        self.pauses = pauses
        self.flag = qd.field(qd.i32, ())
        self.x = qd.field(qd.f64, 3, needs_grad=True)
        self.loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel(checkpoints=True)
    def run(self):
        if qd.static(self.pauses):
            with qd.checkpoint(0, yield_on=self.flag):
                for i in self.x:
                    self.x[i] = self.x[i] * self.x[i]
        else:
            for i in self.x:
                self.x[i] = self.x[i] * 2.0
        for i in self.x:
            self.loss[None] += self.x[i]


def test_gradients_of_what_has_run() -> None:
    made = Solver(pauses=True)
    made.x.from_numpy(np.array([1.0, 2.0, 3.0]))
    with qd.ad.Tape(loss=made.loss):
        made.flag[None] = 1
        assert made.run().yielded
        made.flag[None] = 0
        assert not made.run.resume(from_checkpoint=0).yielded
    assert made.loss[None] == 1 + 16 + 81
    assert made.x.grad.to_numpy().tolist() == [4.0, 32.0, 108.0]


def test_static_conditions_choose_checkpoints() -> None:
    made = Solver(pauses=False)
    made.x.fill(3.0)
    made.flag[None] = 1
    assert not made.run().yielded
    assert made.x.to_numpy().tolist() == [6.0] * 3
    with pytest.raises(qd.OctantsRuntimeError, match="OCT486"):
        made.run.resume(from_checkpoint=0)


def test_a_kernel_without_checkpoints_is_complete() -> None:
    x = qd.field(qd.i32, 3)

    @qd.kernel(checkpoints=True)
    def fill():
        for i in x:
            x[i] = i

    assert fill() == qd.GraphStatus(False, None)
    assert copy.deepcopy(fill) is fill
    assert x.to_numpy().tolist() == [0, 1, 2]


def test_what_cannot_pause_is_an_error() -> None:
    x, flag = qd.field(qd.i32, 3), qd.field(qd.i32, ())

    @qd.kernel(checkpoints=True)
    def in_a_loop():
        for i in x:
            with qd.checkpoint(0, yield_on=flag):
                x[i] = 1

    @qd.kernel
    def without_the_option():
        with qd.checkpoint(0, yield_on=flag):
            for i in x:
                x[i] = 1

    for kernel in (in_a_loop, without_the_option):
        with pytest.raises(qd.OctantsSyntaxError, match="OCT161"):
            kernel()
    assert x.to_numpy().tolist() == [0, 0, 0]


def test_a_graph_cannot_contain_pauses() -> None:
    x = qd.ndarray(qd.i32, 4)
    with pytest.raises(qd.OctantsRuntimeError, match="OCT460"), qd.graph.capture():
        steps(x, scalar(), scalar(), scalar(1))


def test_on_the_host_it_does_nothing() -> None:
    with qd.checkpoint(0, yield_on=None):
        pass
