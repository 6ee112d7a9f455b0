"""Loops that a tape records as snapshots: the same gradients as with all steps recorded."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver
from octants.demos.cloth import Cloth
from tests.ad.loops import (
    LOOPS,
    STEPS,
    Chain,
    N,
    assert_same,
    checkpointed,
    in_place,
    plainly,
    recorded,
    run,
    until_false,
    with_host_reads,
    with_loss,
    with_trajectory,
    without_gradients,
)
from tests.ad.test_random_tapes import add_square, entangle, multiply, shift, total, turn
from tests.devices import DISCRETE
from tests.seeds import pairwise, seeds


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    """One thread: sums in parallel loops are then the same, bit by bit."""
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error", cpu_max_num_threads=1)
    yield
    assert driver.state.recorder is None
    qd.reset()


@pytest.mark.parametrize(("step", "name", "n"), pairwise(STEPS, list(LOOPS), [2, 11]))
def test_gradients_are_those_of_a_full_record(
    step: Callable[[Chain, int], None], name: str, n: int
) -> None:
    gradients, values, number = recorded(step, n)
    ours, our_values, our_number = run(step, LOOPS[name], n)
    assert np.abs(gradients["x"]).max() > 1e-3
    assert_same(gradients, ours)
    assert_same(values, our_values)
    assert number == our_number


# A gradient knows nothing of launches under `no_grad`, and of numbers that Python has read.
COMPLETE = [step for step in STEPS if step not in (without_gradients, with_host_reads)]


@pytest.mark.parametrize("step", COMPLETE, ids=lambda step: step.__name__)
def test_gradients_against_central_differences(step: Callable[[Chain, int], None]) -> None:
    def loss(at: np.ndarray[Any, Any]) -> float:
        c = Chain()
        c.reset()
        c.x.from_numpy(at[:N])
        c.v.from_numpy(at[N:])
        c.loss[None] = 0.0
        driver.state.numbers = itertools.count(1)
        plainly(functools.partial(step, c), 9)
        c.total()
        return float(c.loss[None])

    c = Chain()
    c.reset()
    at = np.concatenate([c.x.to_numpy(), c.v.to_numpy()])
    driver.state.numbers = itertools.count(1)
    with qd.ad.Tape(loss=c.loss):
        qd.ad.checkpointed(functools.partial(step, c), 9, slots=2)
        c.total()
    differences = [(loss(at + e) - loss(at - e)) / 2e-6 for e in 1e-6 * np.eye(2 * N)]
    ours = np.concatenate([c.x.grad.to_numpy(), c.v.grad.to_numpy()])
    assert ours == pytest.approx(differences, rel=1e-5, abs=1e-6)


def test_a_cloth() -> None:
    cloth = Cloth(5)

    def run(loop: Callable[[], Any]) -> list[Any]:
        cloth.wind.from_numpy(np.array([1.0, 6.0, 3.0]))
        with qd.ad.Tape(loss=cloth.loss):
            loop()
            cloth.miss(0.5, 0.4, -0.3)
        arrays = cloth.wind.grad, cloth.stiffness.grad, cloth.x, cloth.v
        return [array.to_numpy() for array in arrays]

    def plain() -> None:
        cloth.start()
        plainly(cloth.step, 300)

    full, ours = run(plain), run(lambda: cloth.run(300, slots=6))
    assert np.abs(full[0]).min() > 1e-3
    assert all(np.array_equal(one, other) for one, other in zip(full, ours, strict=True))


# -- what it costs --------------------------------------------------------------------------------


@functools.cache
def fewest_runs(n: int, slots: int) -> int:
    """The steps to run, by dynamic programming: forward, and each once more to be reversed.

    The last step of a chain is reversed when it is reached.
    """
    if n == 1:
        return 1
    candidates = [n + fewest_runs(n - 1, slots)]
    if slots > 1:
        candidates += [
            distance + fewest_runs(n - distance, slots - 1) + fewest_runs(distance, slots)
            for distance in range(1, n)
        ]
    return min(candidates)


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 40])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 20, 30])
def test_steps_are_run_as_seldom_as_can_be(n: int, slots: int) -> None:
    c = Chain()
    c.reset()
    called: list[int] = []

    def step(i: int) -> None:
        called.append(i)
        in_place(c, i)

    with qd.ad.Tape(loss=c.loss):
        loop = qd.ad.checkpointed(step, n, slots=slots)
        assert called == list(range(n))
        c.total()
    assert len(called) == loop.statistics.runs == fewest_runs(n, slots)
    assert loop.statistics.steps == n
    if slots >= n > 1:
        assert loop.statistics.runs == 2 * n - 1


def test_snapshots_hold_what_steps_write() -> None:
    c = Chain()
    c.reset()
    state = c.x.nbytes + c.v.nbytes + c.loss.nbytes
    with qd.ad.Tape(loss=c.loss) as tape:
        loop = qd.ad.checkpointed(functools.partial(with_loss, c), 30, slots=4)
        assert loop.statistics.peak_bytes == 4 * state
        assert 4 * state < tape.snapshot_bytes < 6 * state  # with the last step, which is recorded
        c.total()
    assert loop.statistics.peak_bytes == 4 * state


def test_a_trajectory_is_held_once() -> None:
    c = Chain()
    c.reset()
    state = c.x.nbytes + c.v.nbytes
    with qd.ad.Tape(loss=c.loss):
        loop = qd.ad.checkpointed(functools.partial(with_trajectory, c), 30, slots=4)
        c.total()
    assert loop.statistics.peak_bytes <= 4 * state + c.trajectory.nbytes


def test_snapshots_of_an_unknown_length_stay_within_their_slots() -> None:
    c = Chain()
    c.reset()
    state = c.x.nbytes + c.v.nbytes
    with qd.ad.Tape(loss=c.loss):
        loop = until_false(4)(functools.partial(in_place, c), 30)
        c.total()
    assert loop.statistics.peak_bytes == 4 * state
    assert loop.statistics.runs <= 30 + 31 * 3  # most_steps(4, 3) is 35


@pytest.mark.parametrize("width", [3, 12])
def test_a_window_that_moves(width: int) -> None:
    """Its parts overlap; when they have become as much as the array, the array is held."""
    line = qd.field(qd.f64, 24, needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def shrink(t: qd.i32):
        for k in range(t, t + width):
            line[k] = line[k] * (1.0 - 0.1 * line[k])

    @qd.kernel
    def end_of_the_line():
        for k in range(20, 24):
            loss[None] += line[k] ** 3

    gradients, one_snapshot = [], checkpointed(1)
    for loop in plainly, one_snapshot, checkpointed(3), until_false(2):
        line.from_numpy(np.linspace(1.0, 2.0, 24))
        with qd.ad.Tape(loss=loss):
            end_of_the_line()
            made = loop(shrink, 24 - width)
            end_of_the_line()
        gradients.append(line.grad.to_numpy().tolist())
        if loop is one_snapshot:
            assert made.statistics.peak_bytes <= 2 * line.nbytes
    assert all(gradient == gradients[0] for gradient in gradients)


# -- arrays of all kinds, and random programs ------------------------------------------------------


def interleaved(x: Any) -> None:
    qd.root.dense(qd.i, N).place(x, x.grad)


def split(x: Any) -> None:
    qd.root.dense(qd.i, 2).dense(qd.i, N // 2).place(x, x.grad)


def apart(x: Any) -> None:
    qd.root.dense(qd.i, N).place(x)
    qd.root.dense(qd.i, N).place(x.grad)


@pytest.mark.parametrize("place", [interleaved, split, apart])
def test_layouts_of_fields(place: Callable[[Any], None]) -> None:
    gradients = []
    for loop in plainly, *LOOPS.values():
        x, loss = qd.field(qd.f64, needs_grad=True), qd.field(qd.f64, needs_grad=True)
        place(x)
        qd.root.place(loss, loss.grad)

        @qd.kernel
        def turn(x: qd.template(), i: qd.i32):
            for k in x:
                x[k] = x[k] + 0.1 * qd.sin(x[k] * (k + i))
            x[i % N] = x[i % N] * x[(i + 1) % N]

        @qd.kernel
        def total(x: qd.template(), loss: qd.template()):
            for k in x:
                loss[None] += x[k] * x[k]

        x.from_numpy(np.linspace(0.5, 1.5, N))
        with qd.ad.Tape(loss=loss):
            loop(functools.partial(turn, x), 9)
            total(x, loss)
        gradients.append(x.grad.to_numpy().tolist())
    assert all(gradient == gradients[0] for gradient in gradients)
    assert gradients[0][0] != 0


@pytest.mark.parametrize("seed", seeds(5, 25))
def test_random_steps(seed: int) -> None:
    choose = random.Random(seed)
    arrays = {name: qd.ndarray(qd.f64, 3, needs_grad=True) for name in ("a", "b", "c")}
    loss = qd.ndarray(qd.f64, (), needs_grad=True)
    actions = [make_action(choose, arrays) for _ in range(choose.randrange(2, 6))]
    periods = [choose.randrange(1, 4) for _ in actions]

    def step(i: int) -> None:
        for action, period in zip(actions, periods, strict=True):
            if i % period == 0:
                action(i)
        if i % 2:
            total(arrays["b"], loss)

    n, slots = choose.randrange(1, 14), choose.randrange(1, 6)
    results = []
    for loop in plainly, checkpointed(slots), until_false(slots):
        for number, array in enumerate(arrays.values()):
            array.from_numpy(np.linspace(0.2, 0.9, 3) + 0.1 * number)
        with qd.ad.Tape(loss=loss):
            shift(arrays["a"], arrays["b"])
            loop(step, n)
            multiply(arrays["c"], arrays["a"])
            total(arrays["c"], loss)
        kept = [*arrays.values(), *(array.grad for array in arrays.values()), loss]
        results.append([array.to_numpy().tobytes() for array in kept])
    assert results[0] == results[1] == results[2]


def make_action(choose: random.Random, arrays: dict[str, Any]) -> Callable[[int], None]:
    """A launch or a host write, which may depend on the number of the step."""
    one, other = choose.sample(list(arrays.values()), 2)
    data = qd.ndarray(qd.f64, 3)

    def write_view(i: int) -> None:
        data.to_numpy(copy=False)[:] = factor + 0.01 * i
        multiply(one, data)

    where, factor = choose.randrange(3), choose.uniform(0.5, 1.5)
    actions: list[Callable[[int], None]] = [
        lambda i: turn(one, factor + 0.01 * i),
        lambda i: multiply(one, other),
        lambda i: add_square(one, other),
        lambda i: shift(one, other),
        lambda i: entangle(one, other),
        lambda i: one.fill(factor),
        lambda i: one.__setitem__(where, factor * i),
        lambda i: one.copy_from(other),
    ]
    if not DISCRETE:
        actions.append(write_view)
    return choose.choice([*actions[:5], *actions])
