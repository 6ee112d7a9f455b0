"""Ndarrays that kernels find in attributes, lists, closures and globals."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

import octants as qd
from tests.devices import shares_memory


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


@qd.data_oriented
class Solver:
    def __init__(self, value: float = 2.0) -> None:
        self.x = qd.ndarray(qd.f32, 3, needs_grad=True)
        self.y = qd.ndarray(qd.f32, 3)
        self.loss = qd.ndarray(qd.f32, (), needs_grad=True)
        self.list = [qd.Vector.ndarray(2, qd.i32, 2), qd.Vector.ndarray(2, qd.i32, 2)]
        self.x.fill(value)

    @qd.func
    def at(self, i):
        return self.x[i]

    @qd.kernel
    def double(self):
        for i in self.y:
            self.y[i] = self.at(i) * 2 + i

    @qd.kernel
    def energy(self):
        for i in self.x:
            self.loss[None] += self.at(i) ** 2

    @qd.kernel
    def mark(self):
        for k in qd.static(range(2)):
            self.list[k][1] = qd.Vector([k, 7])
        for _ in qd.static(range(self.y.shape[0])):
            self.list[0][0][0] += 1


def test_members_are_those_of_the_object() -> None:
    first, second = Solver(), Solver(5.0)
    for solver in (first, second):
        solver.double()
        solver.mark()
    assert first.y.to_numpy().tolist() == [4, 5, 6]
    assert second.y.to_numpy().tolist() == [10, 11, 12]
    assert first.list[0].to_numpy().tolist() == [[3, 0], [0, 7]]
    assert second.list[1].to_numpy().tolist() == [[0, 0], [1, 7]]


def test_a_member_that_is_replaced_or_changed_is_seen() -> None:
    solver = Solver()
    solver.double()
    solver.x.fill(1)
    solver.double()
    assert solver.y.to_numpy().tolist() == [2, 3, 4]
    kept = solver.y
    for dtype in (qd.f32, qd.f64):
        solver.x = qd.ndarray(dtype, 3, needs_grad=True)
        solver.y = qd.ndarray(dtype, 3)
        solver.x.fill(0.25)
        solver.double()
        assert solver.y.to_numpy().tolist() == [0.5, 1.5, 2.5]
    assert kept.to_numpy().tolist() == [2, 3, 4]


def test_members_have_gradients_with_and_without_a_tape() -> None:
    solver = Solver(3.0)
    solver.energy()
    solver.loss.grad.fill(1)
    solver.energy.grad()
    assert solver.x.grad.to_numpy().tolist() == [6, 6, 6]

    solver = Solver(3.0)
    for _ in range(2):
        with qd.ad.Tape(solver.loss):
            solver.energy()
        assert solver.loss[None] == 27
        assert solver.x.grad.to_numpy().tolist() == [6, 6, 6]


@dataclasses.dataclass
class State:
    x: qd.types.ndarray()
    y: qd.types.ndarray()


def test_dataclasses_are_templates_members_and_arguments() -> None:
    def state() -> State:
        made = State(qd.ndarray(qd.f32, 2), qd.ndarray(qd.f32, 2))
        made.x.fill(4)
        return made

    @qd.kernel
    def template(s: qd.template()):
        for i in s.x:
            s.y[i] = s.x[i] + i

    @qd.kernel
    def argument(s: State):
        for i in s.x:
            s.y[i] = s.x[i] + i

    class Holder:
        def __init__(self) -> None:
            self.state = state()

        @qd.kernel
        def run(self):
            for i in self.state.x:
                self.state.y[i] = self.state.x[i] + i

    for kernel in (template, argument):
        for given in (state(), state()):
            kernel(given)
            assert given.y.to_numpy().tolist() == [4, 5]
    holder = Holder()
    holder.run()
    assert holder.state.y.to_numpy().tolist() == [4, 5]


def test_globals_and_arguments_may_be_one_array() -> None:
    x = qd.ndarray(qd.f32, 4)

    @qd.kernel
    def shift(y: qd.types.ndarray()):
        for _ in range(1):
            for i in range(3):
                y[i + 1] = x[i] + 1

    shift(x)
    assert x.to_numpy().tolist() == [0, 1, 2, 3]
    other = qd.ndarray(qd.f32, 4)
    shift(other)
    assert other.to_numpy().tolist() == [0, 1, 2, 3]


def test_gradients_of_members_are_found_as_such() -> None:
    solver = Solver()
    solver.loss.grad.fill(2)

    @qd.kernel
    def clear():
        solver.x.grad[1] = 5
        solver.loss.grad.fill(0)

    clear()
    assert solver.x.grad.to_numpy().tolist() == [0, 5, 0]
    assert solver.loss.grad[None] == 0


@shares_memory
def test_a_member_that_is_read_only_is_not_written() -> None:
    given = np.ones(3, np.float32)
    given.flags.writeable = False
    array = qd.from_dlpack(given)

    @qd.kernel
    def read() -> qd.f32:
        return array[1]

    @qd.kernel
    def write():
        array[1] = 2

    assert read() == 1
    with pytest.raises(qd.OctantsArgumentError, match="which is read-only"):
        write()
    assert given[1] == 1
