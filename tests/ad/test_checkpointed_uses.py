"""Where checkpointed loops may be, what they may use, and what happens when a step raises."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver
from octants.diagnostics.exceptions import OctantsError
from tests.ad.loops import (
    Chain,
    N,
    assert_same,
    checkpointed,
    decay,
    in_place,
    plainly,
    run,
    sum_up,
    until_false,
    with_host_writes,
    with_loss,
    with_random_numbers,
    without_gradients,
)


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    """One thread: sums in parallel loops are then the same, bit by bit."""
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error", cpu_max_num_threads=1)
    yield
    assert driver.state.recorder is None
    qd.reset()


# -- where it is called ---------------------------------------------------------------------------


def test_without_a_tape_it_is_a_loop() -> None:
    c = Chain()
    called: list[int] = []
    loop = qd.ad.checkpointed(called.append, 5)
    assert called == [0, 1, 2, 3, 4]
    assert loop.statistics == type(loop.statistics)(steps=5, runs=5)
    loop = qd.ad.checkpointed(lambda i: i < 3)
    assert loop.statistics.steps == 4
    assert c.loss[None] == 0


def test_only_a_truth_value_ends_the_loop() -> None:
    assert qd.ad.checkpointed(lambda i: np.float64(i) < 2).statistics.steps == 3
    assert qd.ad.checkpointed(lambda i: 0.0, 4).statistics.steps == 4


def test_a_kernel_may_be_a_step() -> None:
    c = Chain()
    c.reset()
    with qd.ad.Tape(loss=c.loss):
        qd.ad.checkpointed(c.pay, 5, slots=2)
    assert c.x.grad[1] == pytest.approx(15 * 2 * c.x[1] / 2)


def test_no_steps() -> None:
    c = Chain()
    c.reset()
    with qd.ad.Tape(loss=c.loss):
        loop = qd.ad.checkpointed(c.pay, 0)
        c.pay(0)
    assert loop.statistics.runs == 0
    assert c.x.grad[0] == 2 * c.x[0]


def test_a_known_length_may_end_early() -> None:
    c = Chain()
    c.reset()

    def step(i: int) -> bool:
        c.pay(i)
        return i < 6

    with qd.ad.Tape(loss=c.loss):
        loop = qd.ad.checkpointed(step, 25, slots=3)
        c.pay(0)
    assert loop.statistics.steps == 7
    assert c.x.grad[0] == pytest.approx((28 + 1) * 2 * c.x[0])


def test_data_may_end_the_loop() -> None:
    c = Chain()
    c.reset()

    def step(i: int) -> bool:
        c.square()
        return c.x[N - 1] - c.x[0] > 0.05

    with qd.ad.Tape(loss=c.loss):
        steps = qd.ad.checkpointed(step, slots=2).statistics.steps
        c.pay(0)
    gradient = c.x.grad.to_numpy()
    c.reset()
    with qd.ad.Tape(loss=c.loss):
        plainly(lambda _: c.square(), steps)
        c.pay(0)
    assert steps > 2
    assert_same({"x": gradient}, {"x": c.x.grad.to_numpy()})


def test_under_no_grad() -> None:
    c = Chain()
    c.reset()
    with qd.ad.Tape(loss=c.loss):
        loop = qd.ad.no_grad(qd.ad.checkpointed)(functools.partial(in_place, c), 5)
        c.pay(0)
    assert loop.statistics.runs == 5
    assert c.x.grad[0] == 2 * c.x[0]


def test_in_forward_mode() -> None:
    x = qd.field(qd.f64, (), needs_dual=True)

    @qd.kernel
    def square():
        x[None] = x[None] * x[None]

    x[None] = 1.5
    with qd.ad.FwdMode(loss=x, param=x):
        qd.ad.checkpointed(lambda _: square(), 3, slots=1)
        assert x.dual[None] == pytest.approx(8 * 1.5**7)


def test_in_a_function_with_a_gradient_of_its_own() -> None:
    c = Chain()
    c.reset()

    @qd.ad.grad_replaced
    def both() -> None:
        qd.ad.checkpointed(lambda i: c.square(), 3, slots=1)

    @qd.ad.grad_for(both)
    def both_grad() -> None:
        c.x.grad.from_numpy(3.0 * c.x.grad.to_numpy())

    def step(i: int) -> None:
        both()
        c.pay(i)

    with qd.ad.Tape(loss=c.loss):
        qd.ad.checkpointed(step, 2, slots=1)
    c2, gradient = Chain(), c.x.grad.to_numpy()
    c2.reset()
    plainly(lambda _: c2.square(), 3)
    first = c2.x.to_numpy()
    plainly(lambda _: c2.square(), 3)
    weights = 2.0 / (1.0 + np.arange(N))
    assert gradient == pytest.approx(3 * (weights * first + 3 * 2 * weights * c2.x.to_numpy()))


def test_launches_of_other_threads_are_no_part_of_it() -> None:
    c = Chain()
    c.reset()
    other = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def count():
        other[None] += 1.0

    def step(i: int) -> None:
        if i == 1 and not other[None]:
            thread = threading.Thread(target=count)
            thread.start()
            thread.join()
        c.pay(i)

    with qd.ad.Tape(loss=c.loss):
        qd.ad.checkpointed(step, 4, slots=2)
    assert other[None] == 1
    assert c.x.grad[0] == pytest.approx(20 * c.x[0])


@pytest.mark.parametrize("validation", [False, True])
@pytest.mark.parametrize("on_overwrite", ["save", "error", "trust"])
def test_under_tapes_of_all_kinds(on_overwrite: str, validation: bool) -> None:
    c = Chain()
    c.reset()
    with qd.ad.Tape(loss=c.loss):
        plainly(functools.partial(in_place, c), 9)
        c.pay(0)
    expected = c.gradients()
    c.reset()
    with qd.ad.Tape(loss=c.loss, on_overwrite=on_overwrite, validation=validation):
        qd.ad.checkpointed(functools.partial(in_place, c), 9, slots=2)
        c.pay(0)
    assert_same(expected, c.gradients())


def test_a_write_that_the_tape_forbids() -> None:
    c = Chain()
    c.reset()
    tape = qd.ad.Tape(loss=c.loss, on_overwrite="error")
    with pytest.raises(qd.OctantsError, match="OCT314"), tape:
        c.pay(0)
        qd.ad.checkpointed(functools.partial(in_place, c), 3)


def test_grad_check_runs_the_loop_again() -> None:
    c = Chain()
    c.reset()
    with qd.ad.Tape(loss=c.loss, grad_check=[c.x, c.stiffness]):
        qd.ad.checkpointed(functools.partial(with_loss, c), 5, slots=2)
    with pytest.raises(qd.OctantsError, match="OCT318"):
        with qd.ad.Tape(loss=c.loss, grad_check=[c.x]):
            qd.ad.checkpointed(functools.partial(without_gradients, c), 5, slots=2)
            c.pay(0)


def test_bare_gradients_after_it_draw_the_numbers_of_the_last_launch() -> None:
    c = Chain()
    gradients = []
    for loop in plainly, checkpointed(1):
        c.reset()
        driver.state.numbers = itertools.count(1)
        with qd.ad.Tape(loss=c.loss):
            loop(functools.partial(with_random_numbers, c), 4)
            c.pay(0)
        c.x.grad.fill(1.0)
        c.shake.grad.using(on_overwrite="trust")()
        gradients.append(c.x.grad.to_numpy())
    assert gradients[0].tolist() == gradients[1].tolist()


# -- arrays of others -----------------------------------------------------------------------------


def test_numpy_arrays_that_are_made_in_each_step() -> None:
    gradients = []
    for loop in plainly, checkpointed(2), until_false(2):
        x, loss = (qd.ndarray(qd.f64, shape, needs_grad=True) for shape in (3, ()))
        x.from_numpy(np.array([0.5, 1.0, 1.5]))
        with qd.ad.Tape(loss=loss):
            loop(lambda i: decay(x, np.cos(np.arange(3) + i)), 8)
            sum_up(x, loss)
        gradients.append(x.grad.to_numpy().tolist())
    assert gradients[0] == gradients[1] == gradients[2]


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    results = []
    for loop in plainly, checkpointed(2), until_false(2):
        x = torch.tensor([0.5, 1.0, 1.5], dtype=torch.float64)
        rate = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
        x.grad, rate.grad = torch.zeros_like(x), torch.zeros_like(rate)
        loss = qd.ndarray(qd.f64, (), needs_grad=True)
        with qd.ad.Tape(loss=loss):
            loop(lambda i: decay(x, rate), 8)
            sum_up(x, loss)
        results.append([each.tolist() for each in (x, x.grad, rate.grad)])
    assert results[0] == results[1] == results[2]


def test_python_may_write_numpy_arrays_that_kernels_write() -> None:
    rate = qd.ndarray(qd.f64, 3, needs_grad=True)
    rate.fill(0.5)
    results = []
    for loop in plainly, checkpointed(2):
        x = np.array([0.5, 1.0, 1.5])
        seen: dict[int, list[float]] = {}

        def step(i: int, x: Any = x, seen: Any = seen) -> None:
            x *= 1.0 + 0.01 * i
            decay(x, rate)
            assert seen.setdefault(i, x.tolist()) == x.tolist()

        with qd.ad.Tape():
            loop(step, 8)
        results.append(x.tolist())
    assert results[0] == results[1]


# -- exceptions -----------------------------------------------------------------------------------


class Stopped(BaseException):
    """Like a KeyboardInterrupt."""


@pytest.mark.parametrize("kind", [ValueError, Stopped, KeyboardInterrupt])
@pytest.mark.parametrize("at", [1, 8, 9, 10, 14, 20, 25])
def test_a_step_that_raises(kind: type[BaseException], at: int) -> None:
    """Forward up to run 9 of the step, then backward; arrays are as the forward run left them."""
    c = Chain()
    c.reset()
    values: dict[str, Any] = {}
    numbers: list[int] = []
    count = [0]

    def step(i: int) -> None:
        with_host_writes(c, i)
        count[0] += 1
        if count[0] == at:
            c.trajectory.fill(5.0)
            raise kind

    with pytest.raises(kind), qd.ad.Tape(loss=c.loss):
        c.square()
        qd.ad.checkpointed(step, 9, slots=2)
        c.pay(0)
        c.square()
        values = c.values()
        numbers.append(next(driver.state.numbers))
    assert driver.state.recorder is None
    if at > 9:
        assert_same(values, c.values())
        assert next(driver.state.numbers) == numbers[0] + 1
    gradients, *_ = run(in_place, checkpointed(2), 9)
    assert np.isfinite(gradients["x"]).all()


def test_a_step_that_is_another_leaves_the_arrays_as_they_were() -> None:
    c, elsewhere = Chain(), qd.field(qd.f64, 3)
    c.reset()
    count = [0]

    @qd.kernel
    def spoil():
        for k in elsewhere:
            elsewhere[k] = 1.0

    def step(i: int) -> None:
        in_place(c, i)
        count[0] += 1
        if count[0] > 12:
            spoil()
            elsewhere[0] = 2.0

    values = {}
    with pytest.raises(OctantsError, match="OCT331"), qd.ad.Tape(loss=c.loss):
        qd.ad.checkpointed(step, 9, slots=2)
        c.pay(0)
        values = c.values()
    assert_same(values, c.values())
    assert elsewhere.to_numpy().tolist() == [0, 0, 0]


def test_errors_of_the_reverse_come_with_the_first_run() -> None:
    c = Chain()

    @qd.kernel
    def look():
        c.loss[None] += c.x.grad[0]

    called: list[int] = []

    def step(i: int) -> None:
        called.append(i)
        look() if i == 0 else c.pay(i)

    with pytest.raises(OctantsError, match="OCT302"), qd.ad.Tape(loss=c.loss):
        qd.ad.checkpointed(step, 5)
    assert called == [0]


def test_loops_share_the_budget_of_a_tape() -> None:
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error", ad_snapshot_budget_bytes=900)
    c, loops = Chain(), []
    c.reset()
    with pytest.raises(OctantsError, match="OCT334"), qd.ad.Tape(loss=c.loss):
        for _ in range(4):
            loops.append(qd.ad.checkpointed(functools.partial(in_place, c), 20, slots=4))
    assert len(loops) == 2
