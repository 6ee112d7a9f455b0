"""Replays whose gradients outgrow the record buffers of earlier ones: nothing is lost or repeated.

Arrays decide how long loops are, and the graph itself lets these grow. What replays leave is what
the same launches leave without a graph, to the bit.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.runtime.capture import captures
from octants.runtime.gpu import record_buffer_growth

SIZE = 40


@pytest.fixture(autouse=True)
def _start(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(record_buffer_growth, "_FIRST_CAPACITY", 16)  # bytes
    qd.init(arch=qd.cpu)
    yield
    assert not captures


class Growing:
    """Chains that are twice as long at each step, of which the state descends the gradient."""

    def __init__(self) -> None:
        self.x = qd.field(qd.f32, SIZE, needs_grad=True)
        self.y = qd.field(qd.f32, SIZE, needs_grad=True)
        self.n = qd.field(qd.i32, SIZE)
        self.log = qd.field(qd.f32, (SIZE, 2))
        self.steps = qd.field(qd.i32, ())
        self.draws = qd.field(qd.f32, SIZE)
        self.reset()

    def reset(self) -> None:
        self.x.from_numpy(np.linspace(0.2, 0.9, SIZE, dtype=np.float32))
        self.x.grad.fill(0)
        self.y.fill(0)
        self.n.from_numpy((np.arange(SIZE) % 5 + 1).astype(np.int32))
        self.log.fill(0)
        self.steps.fill(0)
        self.draws.fill(0)

    @qd.kernel
    def chain(self):
        for i in self.x:
            v = self.x[i]
            for _ in range(self.n[i]):
                v = qd.sin(v) * 1.1 + 0.01
            self.y[i] = v

    @qd.kernel
    def reach(self):
        for i in self.x:
            v = qd.sin(self.x[i]) + 1.0
            while v < 40.0 + self.n[i]:
                v = v * 1.01 + 0.1
            self.y[i] += v

    @qd.kernel
    def descend(self):
        for i in self.x:
            self.x[i] -= 0.001 * qd.sin(self.x.grad[i])
            self.log[i, 1] += self.log[i, 0]
            self.draws[i] += qd.random()
        for i in self.n:
            self.n[i] = self.n[i] * 2
        self.steps[None] += 1

    def step(self) -> None:
        self.x.grad.fill(0)
        self.y.grad.fill(1)
        self.chain()
        self.chain.grad()
        self.reach()
        self.y.grad.fill(0.5)
        self.reach.grad()
        self.log.fill(1.5)
        self.descend()

    def results(self) -> list[Any]:
        fields = [self.x, self.x.grad, self.y, self.n, self.log, self.steps, self.draws]
        return [field.to_numpy() for field in fields]


def compare(run: Callable[[Growing, Callable[[], None]], None], world: Any = None) -> Growing:
    """Check that a program does the same with a step that is a graph, and with one that is not."""
    found: list[list[Any]] = []
    world = world or Growing()
    with qd.graph.capture() as graph:  # while the loops are short, and so the record buffers small
        world.step()
    for step in (graph, world.step):
        world.reset()
        qd.sync()
        qd.driver.state.numbers = itertools.count(1000)
        run(world, step)
        found.append(world.results())
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.abs(world.x.grad.to_numpy()).max() > 0
    return world


def test_replays_that_follow_one_another() -> None:
    def run(world: Growing, step: Callable[[], None]) -> None:
        for _ in range(10):
            step()

    world = compare(run)
    assert world.steps[None] == 10
    assert world.n[0] == 1024


def test_replays_with_synchronisations_between() -> None:
    def run(world: Growing, step: Callable[[], None]) -> None:
        for k in range(10):
            step()
            if k % 3 == 0:
                qd.sync()
            if k % 4 == 1:
                assert world.steps[None] == k + 1

    compare(run)


def test_launches_between() -> None:
    @qd.kernel
    def disturb(x: qd.template(), k: qd.f32):
        for i in x:
            x[i] = x[i] * 0.9 + k * 0.01

    def run(world: Growing, step: Callable[[], None]) -> None:
        for k in range(10):
            step()
            if k % 2:
                disturb(world.x, k)

    compare(run)


def test_what_the_host_does_between() -> None:
    def run(world: Growing, step: Callable[[], None]) -> None:
        kept = qd.field(qd.f32, SIZE)
        for k in range(10):
            step()
            if k == 2:
                world.x.grad.fill(3)
                kept.copy_from(world.x)
            elif k == 5:
                world.n[3] = 900
            elif k == 6:
                world.x.copy_from(kept)
            elif k == 7:
                world.y.from_numpy(np.ones(SIZE, np.float32))

    compare(run)


def test_the_last_replay() -> None:
    def run(world: Growing, step: Callable[[], None]) -> None:
        step()
        world.n[7] = 3000
        step()

    compare(run)


def test_two_graphs_that_take_turns() -> None:
    one, two = Growing(), Growing()
    steps = []
    for world in (one, two):
        world.step()
        with qd.graph.capture() as step:
            world.step()
        steps.append(step)
    one.reset()
    two.reset()
    for _ in range(4):
        steps[0]()
        steps[1]()
        steps[1]()
    two_found, one_found = two.results(), one.results()
    other = Growing()
    for times, found in ((4, one_found), (8, two_found)):
        other.reset()
        for _ in range(times):
            other.step()
        for a, b in zip(other.results()[:-1], found[:-1], strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_whole_tape() -> None:
    class Taped(Growing):
        def __init__(self) -> None:
            super().__init__()
            self.loss = qd.field(qd.f32, (), needs_grad=True)
            self.z = qd.field(qd.f32, (4, SIZE), needs_grad=True)

        @qd.kernel
        def advance(self, k: qd.i32):
            for i in self.x:
                v = self.x[i] if k == 0 else self.z[k, i]
                for _ in range(self.n[i]):
                    v = qd.sin(v) * 1.05 + 0.01
                self.z[k + 1, i] = v

        @qd.kernel
        def total(self):
            qd.loop_config(serialize=True)
            for i in range(SIZE):
                self.loss[None] += self.z[3, i] * self.z[3, i]

        def step(self) -> None:
            with qd.ad.Tape(loss=self.loss):
                for k in range(3):
                    self.advance(k)
                self.total()
            self.descend()

    def run(world: Growing, step: Callable[[], None]) -> None:
        for _ in range(7):  # more would leave subnormal gradients, which a GPU may flush to zero
            step()

    compare(run, Taped())


def test_copies_and_fills_of_all_sizes() -> None:
    class Moving(Growing):
        def __init__(self) -> None:
            pair = qd.types.struct(a=qd.f32, b=qd.i8, c=qd.f64)
            self.pairs = pair.field(shape=33)
            self.small = [qd.field(dtype, 33) for dtype in (qd.u8, qd.i16, qd.f64, qd.u1)]
            self.copies = [qd.field(dtype, 33) for dtype in (qd.u8, qd.i16, qd.f64, qd.u1)]
            super().__init__()

        def reset(self) -> None:
            super().reset()
            for field in (*self.small, *self.copies):
                field.fill(0)
            for field in (self.pairs.a, self.pairs.b, self.pairs.c):
                field.fill(0)

        @qd.kernel
        def count(self):
            for i in range(33):
                self.small[0][i] += qd.u8(i)
                self.small[1][i] += qd.i16(3 * i)
                self.small[2][i] += 0.5 * i
                self.small[3][i] = i % 3 == 0
                self.pairs[i].a += 1.0
                self.pairs[i].c += 2.0

        def step(self) -> None:
            super().step()
            self.count()
            for copy, field in zip(self.copies, self.small, strict=True):
                copy.copy_from(field)
            self.pairs.b.fill(7)
            self.small[0].fill(200)
            self.small[1].fill(-300)
            self.small[2].fill(1.25)
            self.pairs.c.copy_from(self.small[2])
            self.pairs.a.fill(0.75)

        def results(self) -> list[Any]:
            fields = [*self.small, *self.copies, self.pairs.a, self.pairs.b, self.pairs.c]
            return [*super().results(), *(field.to_numpy() for field in fields)]

    def run(world: Growing, step: Callable[[], None]) -> None:
        for _ in range(9):
            step()

    compare(run, Moving())


def test_what_is_told(capfd: Any) -> None:
    class Telling(Growing):
        @qd.kernel
        def tell(self):
            print("step", self.steps[None], "of", self.n[0])

        def step(self) -> None:
            super().step()
            self.tell()

    world = Telling()
    with qd.graph.capture() as step:
        world.step()
    world.reset()
    qd.sync()
    capfd.readouterr()
    for _ in range(8):
        step()
    qd.sync()
    expected = "".join(f"step {k} of {2**k}\n" for k in range(1, 9))
    assert capfd.readouterr().out == expected


def test_arrays_that_are_gone_from_the_program() -> None:
    world = Growing()
    with qd.graph.capture() as step:
        scratch = qd.ndarray(qd.f32, SIZE)
        world.step()
        scratch.copy_from(world.x)
        world.log.fill(2.5)
    world.reset()
    for _ in range(8):
        step()
    del step, scratch
    gc.collect()
    others = [np.full(1 << k, 255, np.uint8) for k in range(5, 16) for _ in range(50)]
    keep = [qd.ndarray(qd.f32, SIZE) for _ in range(20)]
    assert world.steps[None] == 8
    assert not any(array.to_numpy().any() for array in keep)
    assert all((each == 255).all() for each in others)
    found = world.results()
    world.reset()
    for _ in range(8):
        world.step()
    np.testing.assert_array_equal(found[0], world.x.to_numpy())
