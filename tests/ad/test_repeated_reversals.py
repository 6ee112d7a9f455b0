"""Tapes that repeat as a whole: their reversal is captured and replayed, and only if nothing else
has happened.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.ad.overwrites import packed_copies, repeated_reversals
from octants.ad.overwrites.repeated_reversals import CapturedReversal
from tests.devices import shares_memory
from tests.seeds import seeds

SIZE = 5


@qd.kernel
def square(x: qd.Tensor, y: qd.Tensor):
    for i in x:
        y[i] = x[i] * x[i]


@qd.kernel
def scale(x: qd.Tensor, y: qd.Tensor, factor: qd.f64):
    for i in x:
        y[i] = x[i] * factor


@qd.kernel
def signed(x: qd.Tensor, y: qd.Tensor, zero: qd.f64):
    for i in x:
        y[i] = qd.sin(x[i]) / zero


@qd.kernel
def advance(x: qd.Tensor, t: qd.i32):
    for i in range(SIZE):
        x[t + 1, i] = qd.sin(x[t, i]) * 1.5


@qd.kernel
def total(y: qd.Tensor, loss: qd.Tensor):
    for i in y:
        loss[None] += y[i] * (i + 1)


@qd.kernel
def noisy(x: qd.Tensor, y: qd.Tensor):
    for i in x:
        y[i] = x[i] * qd.random(qd.f64)


MAKERS: dict[str, Callable[[Any], Any]] = {
    "fields": lambda shape: qd.field(qd.f64, shape, needs_grad=True),
    "ndarrays": lambda shape: qd.ndarray(qd.f64, shape, needs_grad=True),
}
WEIGHTS = np.arange(1.0, SIZE + 1)


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    return MAKERS[request.param]


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A number for each replay of a reversal; the first tape alike is captured."""
    found: list[int] = []
    run = CapturedReversal.run

    def count(self: CapturedReversal) -> bool:
        has_run = run(self)
        found.append(self.launches)
        return has_run

    monkeypatch.setattr(CapturedReversal, "run", count)
    monkeypatch.setattr(repeated_reversals, "REPEATED", 1)
    most = packed_copies.CopyArena._bytes_of_all + (1 << 28)
    monkeypatch.setattr(packed_copies, "MOST_ARENA_BYTES", most)
    return found


class Arrays:
    """Arrays with a loss, and the gradient of programs on them."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.x, self.y, self.z, self.loss = make(SIZE), make(SIZE), make(SIZE), make(())
        self.values = np.linspace(0.3, 1.1, SIZE)

    def gradient(self, body: Callable[[Arrays], Any], **given: Any) -> Any:
        self.values = self.values + 0.125
        self.x.from_numpy(self.values)
        with qd.ad.Tape(loss=self.loss, **given):
            body(self)
        return self.x.grad.to_numpy()


def sum_of_squares(a: Arrays) -> None:
    square(a.x, a.y)
    total(a.y, a.loss)


def expect(gradient: Any, expected: Any) -> None:
    np.testing.assert_allclose(gradient, expected, rtol=1e-12)


def test_a_tape_that_repeats_is_replayed_on_what_memory_holds(make: Any, replays: Any) -> None:
    a = Arrays(make)
    for _ in range(6):
        expect(a.gradient(sum_of_squares), 2 * a.values * WEIGHTS)
    assert replays == [2, 2, 2, 2]


def test_how_often_it_has_to_repeat(
    make: Any, replays: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated_reversals, "REPEATED", 3)
    a = Arrays(make)
    for _ in range(7):
        expect(a.gradient(sum_of_squares), 2 * a.values * WEIGHTS)
    assert replays == [2, 2]  # seen, seen again, two that repeat, captured


@pytest.mark.parametrize("kind", [int, np.int64, np.uint8])
def test_rows_that_a_number_selects(make: Any, replays: Any, kind: Any) -> None:
    x, loss = make((4, SIZE)), make(())

    @qd.kernel
    def measure(x: qd.Tensor, loss: qd.Tensor):
        for i in range(SIZE):
            loss[None] += x[3, i]

    def gradient(first: int) -> Any:
        x[first, 0] = 0.5
        with qd.ad.Tape(loss=loss):
            for t in range(first, 3):
                advance(x, kind(t))
            measure(x, loss)
        return x.grad.to_numpy()

    alone = [gradient(first) for first in (0, 1, 2)]
    assert not replays
    for _ in range(3):
        for first in (0, 1, 2):
            expect(gradient(first), alone[first])
    assert replays == [4, 3, 2, 4, 3, 2]


def test_another_number_is_another_tape(make: Any, replays: Any) -> None:
    a = Arrays(make)
    for factor in (2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 2.0, 2):

        def body(a: Arrays, factor: float = factor) -> None:
            scale(a.x, a.y, factor)
            total(a.y, a.loss)

        expect(a.gradient(body), factor * WEIGHTS)
    assert len(replays) == 5  # the third of the first three, all but the first of the others


def test_the_sign_of_a_zero_counts(make: Any, replays: Any) -> None:
    a = Arrays(make)
    for zero in (0.0, 0.0, 0.0, -0.0, -0.0, -0.0, 0.0):

        def body(a: Arrays, zero: float = zero) -> None:
            signed(a.x, a.y, zero)
            total(a.y, a.loss)

        expect(a.gradient(body), np.copysign(np.inf, zero) * np.cos(a.values) * WEIGHTS)
    assert len(replays) == 4


def test_another_seed_is_another_tape(make: Any, replays: Any) -> None:
    a = Arrays(make)
    for seed in (1.0, 1.0, 1.0, -2.5, -2.5, -2.5, None, None, None):
        expected = (1.0 if seed is None else seed) * 2 * WEIGHTS
        expect(a.gradient(sum_of_squares, seed=seed), expected * a.values)
    assert len(replays) == 5


def test_a_seed_for_each_element(make: Any, replays: Any) -> None:
    x, y = make(SIZE), make(SIZE)
    for k in range(6):
        x.from_numpy(WEIGHTS + k)
        seed = WEIGHTS * (1 + k // 3)
        with qd.ad.Tape(loss=y, seed=seed):
            square(x, y)
        expect(x.grad.to_numpy(), 2 * (WEIGHTS + k) * seed)
    assert replays == [1, 1, 1]


def test_two_losses(make: Any, replays: Any) -> None:
    a, other = Arrays(make), make(())
    for k in range(5):
        a.x.from_numpy(WEIGHTS + k)
        with qd.ad.Tape(loss=[a.loss, other], seed=[1.0, 3.0]):
            square(a.x, a.y)
            total(a.y, a.loss)
            total(a.x, other)
        expect(a.x.grad.to_numpy(), 2 * (WEIGHTS + k) * WEIGHTS + 3 * WEIGHTS)
    assert replays == [3, 3, 3]


def test_other_arrays_are_another_tape(make: Any, replays: Any) -> None:
    a = Arrays(make)
    for number in (0, 0, 0, 1, 1, 1, 0):

        def body(a: Arrays, number: int = number) -> None:
            between = (a.y, a.z)[number]
            square(a.x, between)
            total(between, a.loss)

        a.y.fill(7.0)
        a.z.fill(7.0)
        expect(a.gradient(body), 2 * a.values * WEIGHTS)
    assert len(replays) == 3


def test_gradients_that_are_not_cleared_accumulate(make: Any, replays: Any) -> None:
    a = Arrays(make)
    a.gradient(sum_of_squares)
    expected = a.x.grad.to_numpy()
    for _ in range(5):
        found = a.gradient(sum_of_squares, clear_gradients=False)
        expected = expected + 2 * a.values * WEIGHTS
        a.y.grad.fill(0.0)
        expect(found, expected)
    assert len(replays) == 4


# -- what else may happen -------------------------------------------------------------------------


def test_a_tape_that_ends_earlier_or_later(make: Any, replays: Any) -> None:
    a = Arrays(make)
    for count in (2, 2, 2, 1, 3, 2, 1, 3, 1, 3, 2):

        def body(a: Arrays, count: int = count) -> None:
            square(a.x, a.y)
            for _ in range(count):
                total(a.y, a.loss)

        expect(a.gradient(body), count * 2 * a.values * WEIGHTS)
    assert sorted(replays) == [2, 2, 3, 3, 3, 4]


@pytest.mark.parametrize(
    "what",
    ["write", "overwrite", "element", "pause", pytest.param("export", marks=shares_memory), "grad"],
)
def test_what_happens_in_between(make: Any, replays: Any, what: str) -> None:
    a = Arrays(make)
    expect(a.gradient(sum_of_squares), 2 * a.values * WEIGHTS)
    expect(a.gradient(sum_of_squares), 2 * a.values * WEIGHTS)
    kept = []

    def body(a: Arrays) -> None:
        square(a.x, a.y)
        if what == "write":
            a.y.fill(3.0)
        elif what == "overwrite":
            scale(a.z, a.x, 1.0)
        elif what == "element":
            a.y[0] = 2.0
        elif what == "pause":
            qd.ad.no_grad(lambda: scale(a.z, a.x, 1.0))()
        elif what == "export":
            kept.append(a.y.to_dlpack())
        else:
            a.y.grad.fill(1.0)
        total(a.y, a.loss)

    expected = 2 * a.values * WEIGHTS
    found = a.gradient(body)
    expected = 2 * a.values * WEIGHTS
    if what == "write":
        expected = 0 * expected
    elif what == "element":
        expected = expected * (np.arange(SIZE) > 0)
    elif what == "grad":
        expected = expected + 2 * a.values
    expect(found, expected)
    assert len(replays) == (what == "grad")  # the host writes no array but its gradient
    for _ in range(3):
        expect(a.gradient(sum_of_squares), 2 * a.values * WEIGHTS)
    assert len(replays) == {"export": 0, "grad": 4}.get(what, 3)


def test_a_launch_that_fails(make: Any, replays: Any) -> None:
    a = Arrays(make)

    def body(a: Arrays) -> None:
        square(a.x, a.y)
        scale(a.y, a.z, 2.0)
        total(a.z, a.loss)

    def without(a: Arrays) -> None:
        square(a.x, a.y)
        with pytest.raises(qd.OctantsError):
            scale(a.y, a.z, "two")
        total(a.z, a.loss)

    for _ in range(3):
        expect(a.gradient(body), 4 * a.values * WEIGHTS)
    expect(a.gradient(without), 0 * WEIGHTS)
    expect(a.gradient(body), 4 * a.values * WEIGHTS)
    assert replays == [3, 3]


def test_a_body_that_fails_is_not_reversed(make: Any, replays: Any) -> None:
    a = Arrays(make)

    def fails(a: Arrays) -> None:
        sum_of_squares(a)
        raise ZeroDivisionError

    for _ in range(3):
        expect(a.gradient(sum_of_squares), 2 * a.values * WEIGHTS)
    with pytest.raises(ZeroDivisionError):
        a.gradient(fails)
    assert not a.x.grad.to_numpy().any()
    expect(a.gradient(sum_of_squares), 2 * a.values * WEIGHTS)
    assert len(replays) == 2


def test_random_numbers_are_those_of_the_launch(make: Any, replays: Any) -> None:
    a = Arrays(make)
    found = []
    for _ in range(5):

        def body(a: Arrays) -> None:
            noisy(a.x, a.y)
            total(a.y, a.loss)

        gradient = a.gradient(body)
        expect(gradient, a.y.to_numpy() / a.values * WEIGHTS)
        found.append(gradient[0])
    assert len(set(found)) == 5
    assert not replays


def test_results_and_options_that_are_left_to_the_usual_way(make: Any, replays: Any) -> None:
    a = Arrays(make)

    @qd.kernel
    def norm(x: qd.Tensor) -> qd.f64:
        found = 0.0
        for i in x:
            found += x[i] * x[i]
        return found

    for _ in range(4):
        a.x.from_numpy(WEIGHTS)
        with qd.ad.Tape(loss=norm):
            norm(a.x)
        expect(a.x.grad.to_numpy(), 2 * WEIGHTS)
        for options in ({"validation": True}, {"on_overwrite": "trust"}, {"grad_check": [a.x]}):
            expect(a.gradient(sum_of_squares, **options), 2 * a.values * WEIGHTS)
    for _ in range(4):
        a.x.from_numpy(WEIGHTS)
        tape = qd.ad.Tape(loss=a.loss, argument_gradients=scale)
        with tape:
            scale(a.x, a.y, 2.0)
            total(a.y, a.loss)
        expect(a.x.grad.to_numpy(), 2 * WEIGHTS)
        assert tape.argument_gradients(scale)[0]["factor"] == pytest.approx((WEIGHTS**2).sum())
    assert not replays


def test_a_kernel_without_a_gradient_and_an_empty_loop(make: Any, replays: Any) -> None:
    a = Arrays(make)
    n = qd.field(qd.i32, SIZE)

    @qd.kernel
    def count(n: qd.Tensor):
        for i in n:
            n[i] += 1

    @qd.kernel
    def nothing(x: qd.Tensor, y: qd.Tensor, most: qd.i32):
        for i in range(most):
            y[i] = x[i]

    def body(a: Arrays) -> None:
        count(n)
        nothing(a.x, a.z, 0)
        sum_of_squares(a)

    for _ in range(4):
        expect(a.gradient(body), 2 * a.values * WEIGHTS)
    assert n.to_numpy().tolist() == [4] * SIZE
    assert len(replays) == 2


def test_a_recorded_loop_whose_length_is_in_memory(make: Any, replays: Any) -> None:
    a = Arrays(make)
    n = qd.field(qd.i32, SIZE)

    @qd.kernel
    def repeat(x: qd.Tensor, y: qd.Tensor, n: qd.Tensor):
        for i in x:
            v = x[i]
            for _ in range(n[i]):
                v = v * v * 0.5 + 0.25 * x[i]
            y[i] = v

    def expected(values: Any, count: int) -> Any:
        v, d = values, np.ones(SIZE)
        for _ in range(count):
            v, d = v * v * 0.5 + 0.25 * values, v * d + 0.25
        return d * WEIGHTS

    def body(a: Arrays) -> None:
        repeat(a.x, a.y, n)
        total(a.y, a.loss)

    for count in (3, 3, 3, 50, 2, 200, 7):
        a.values = np.linspace(0.1, 0.3, SIZE) - 0.125
        n.fill(count)
        expect(a.gradient(body), expected(a.values, count))


# -- what it keeps, and where it runs -------------------------------------------------------------


def test_arrays_are_not_kept_alive(make: Any, replays: Any) -> None:
    a = Arrays(make)
    for _ in range(4):
        a.gradient(sum_of_squares)
    assert len(replays) == 2
    references = [weakref.ref(each) for each in (a.x, a.y, a.loss, a.loss.grad)]
    del a
    gc.collect()
    assert [each() for each in references] == [None] * 4


def test_only_so_many_launches_are_remembered(
    make: Any, replays: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated_reversals, "_remembered", {})
    monkeypatch.setattr(repeated_reversals, "MOST_LAUNCHES", 3)
    a, b = Arrays(make), Arrays(make)

    def thrice(arrays: Arrays) -> None:
        sum_of_squares(arrays)
        total(arrays.y, arrays.loss)

    for arrays in (a, a, a, b, b, b, a, a, a):  # those of the last are remembered
        expect(arrays.gradient(sum_of_squares), 2 * arrays.values * WEIGHTS)
    assert sum(each() is not None for each in repeated_reversals._remembered.values()) == 1
    assert replays == [2, 2, 2, 2]
    for _ in range(3):
        expect(a.gradient(thrice), 4 * a.values * WEIGHTS)
    assert replays == [2, 2, 2, 2, 3]
    monkeypatch.setattr(repeated_reversals, "MOST_LAUNCHES", 1)
    for _ in range(4):
        expect(b.gradient(sum_of_squares), 2 * b.values * WEIGHTS)
    assert len(replays) == 5


def test_after_another_init(make: Any, replays: Any) -> None:
    for _ in range(2):
        a = Arrays(make)
        for _ in range(4):
            expect(a.gradient(sum_of_squares), 2 * a.values * WEIGHTS)
        qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error")
    assert len(replays) == 4


def test_within_a_capture_of_the_user(make: Any, replays: Any) -> None:
    a = Arrays(make)
    for _ in range(4):
        a.gradient(sum_of_squares)
    replays.clear()
    with qd.graph.capture() as graph, qd.ad.Tape(loss=a.loss):
        sum_of_squares(a)
    assert not replays
    for k in range(3):
        a.x.from_numpy(WEIGHTS + k)
        graph()
        expect(a.x.grad.to_numpy(), 2 * (WEIGHTS + k) * WEIGHTS)
    expect(a.gradient(sum_of_squares), 2 * a.values * WEIGHTS)
    assert replays == [2]


def test_in_other_threads(make: Any, replays: Any) -> None:
    a = Arrays(make)
    found: list[Any] = []
    for _ in range(5):
        thread = threading.Thread(target=lambda: found.append(a.gradient(sum_of_squares)))
        thread.start()
        thread.join()
        expect(found.pop(), 2 * a.values * WEIGHTS)
        expect(a.gradient(sum_of_squares), 2 * a.values * WEIGHTS)
    assert len(replays) == 8


def test_a_replay_that_another_thread_runs(
    make: Any, replays: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = Arrays(make)
    for _ in range(3):
        a.gradient(sum_of_squares)
    run, refused = CapturedReversal.run, []

    def taken(self: CapturedReversal) -> bool:
        with self._lock:
            refused.append(not run(self))
        return False

    monkeypatch.setattr(CapturedReversal, "run", taken)
    expect(a.gradient(sum_of_squares), 2 * a.values * WEIGHTS)
    assert refused == [True]


def test_snapshot_bytes_and_explain(make: Any, replays: Any) -> None:
    a = Arrays(make)
    for _ in range(4):
        tape = qd.ad.Tape(loss=a.loss)
        with tape:
            sum_of_squares(a)
        assert tape.snapshot_bytes == 0
        assert "2 launches" in str(tape.explain())
    assert len(replays) == 2


# -- with copies of what launches overwrite --------------------------------------------------------


@qd.kernel
def turn(x: qd.Tensor, factor: qd.f64):
    for i in x:
        x[i] = qd.sin(x[i]) * factor


@qd.kernel
def several(x: qd.Tensor, y: qd.Tensor):
    for i in range(SIZE):
        x[i] = x[i] * y[i]
    for i in range(SIZE):
        y[i] = y[i] * x[i] + x[i]


def turned(values: Any, *factors: float) -> tuple[Any, Any]:
    """What the array holds in the end, and the derivative of its sum."""
    slope = np.ones(SIZE)
    for factor in factors:
        slope = slope * np.cos(values) * factor
        values = np.sin(values) * factor
    return values, slope * WEIGHTS


def check_turns(a: Arrays, *factors: float, **given: Any) -> None:
    def body(a: Arrays) -> None:
        for factor in factors:
            turn(a.x, factor)
        total(a.x, a.loss)

    found = a.gradient(body, **given)
    values, slope = turned(a.values, *factors)
    expect(found, slope)
    expect(a.x.to_numpy(), values)


def test_arrays_that_are_overwritten(make: Any, replays: Any) -> None:
    a = Arrays(make)
    for _ in range(6):
        check_turns(a, 1.5, 2.0, 0.5)
    assert replays == [4] * 3  # recorded, copied to an arena, captured


def test_other_numbers_with_copies(make: Any, replays: Any) -> None:
    a = Arrays(make)
    for factor in (1.5, 1.5, 1.5, 0.25, 0.25, 0.25, 1.5, 0.25):
        check_turns(a, 1.0, factor)
    assert len(replays) == 4


def test_kernels_of_several_tasks(make: Any, replays: Any) -> None:
    a = Arrays(make)
    for _ in range(5):
        a.y.from_numpy(2 * WEIGHTS)

        def body(a: Arrays) -> None:
            several(a.x, a.y)
            several(a.x, a.y)
            total(a.x, a.loss)

        found = a.gradient(body)
        x, y = a.values, 2 * WEIGHTS  # after one step: xy, xy(y + 1); after the second the product
        expect(a.x.to_numpy(), (x * y) ** 2 * (y + 1))
        expect(found, 2 * x * y**2 * (y + 1) * WEIGHTS)


def test_a_tape_that_does_something_else(make: Any, replays: Any) -> None:
    a = Arrays(make)
    for number in range(12):
        if number % 3 < 2:
            check_turns(a, 1.5, 2.0, 0.5)
        else:
            check_turns(a, *[1.5] * (number % 5))
    assert replays


def test_a_body_that_fails_with_copies(make: Any, replays: Any) -> None:
    a = Arrays(make)
    failed = []
    for number in range(8):
        check_turns(a, 1.5, 2.0)
        tape = qd.ad.Tape(loss=a.loss)
        with pytest.raises(ZeroDivisionError), tape:
            turn(a.x, 1.5)
            turn(a.x, 2.0)
            _ = 1 / 0
        failed.append(tape)  # it could still be reversed, so that its copies stay
        if number == 3:
            assert not replays
            failed.clear()
            del tape
            gc.collect()
        elif number > 3:
            failed.clear()
            del tape
    assert len(replays) == 3


def test_there_is_a_bound_of_the_memory_for_copies(
    make: Any, replays: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_copies, "MOST_ARENA_BYTES", 0)
    a = Arrays(make)
    for _ in range(5):
        check_turns(a, 1.5, 2.0)
    assert not replays


def test_arenas_that_no_tape_uses_any_more_are_freed(
    make: Any, replays: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may make new arrays again and again: the last ones get memory for copies, too."""
    monkeypatch.setattr(packed_copies, "MOST_ARENA_BYTES", 3 << 16)  # three arenas
    monkeypatch.setattr(packed_copies, "_IDLE", 8)
    monkeypatch.setattr(packed_copies.CopyArena, "_bytes_of_all", 0)
    for _ in range(6):
        a = Arrays(make)
        replays.clear()
        for _ in range(6):
            check_turns(a, 1.5, 2.0)
        assert len(replays) == 3
    both = Arrays(make), Arrays(make), Arrays(make), Arrays(make)
    replays.clear()
    for _ in range(8):  # in turns: the first ones stay
        for each in both:
            check_turns(each, 1.5, 2.0)
    assert replays


def test_captured_reversals_take_so_many_bytes_together(
    make: Any, replays: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest ones are forgotten: those of arrays that are gone would keep their memory."""
    made: list[weakref.ref[Any]] = []
    usual = repeated_reversals._reverse_and_capture

    def capture(*given: Any) -> Any:
        found = usual(*given)
        if found is not None:
            made.append(weakref.ref(found))
            found.nbytes = 1000
        return found

    monkeypatch.setattr(repeated_reversals, "_reverse_and_capture", capture)
    monkeypatch.setattr(repeated_reversals, "MOST_BYTES", 2500)
    monkeypatch.setattr(repeated_reversals, "_remembered", {})
    for _ in range(5):
        a = Arrays(make)
        for _ in range(6):
            a.gradient(sum_of_squares)
    assert len(made) == 5
    assert [each() is not None for each in made] == [False] * 3 + [True] * 2


def test_arrays_with_copies_are_not_kept_alive(make: Any, replays: Any) -> None:
    a = Arrays(make)
    for _ in range(5):
        check_turns(a, 1.5, 2.0)
    references = [weakref.ref(each) for each in (a.x, a.loss, a.x.grad)]
    del a
    gc.collect()
    assert [each() for each in references] == [None] * 3


@qd.kernel
def multiply(x: qd.Tensor, y: qd.Tensor):
    for i in range(SIZE):
        x[i] = x[i] * y[i]


@qd.kernel
def accumulate(x: qd.Tensor, y: qd.Tensor, factor: qd.f64):
    for i in range(SIZE):
        x[i] += y[i] * y[(i + 1) % SIZE] * factor


KERNELS = (
    (square, 2, False),
    (scale, 2, True),
    (turn, 1, True),
    (several, 2, False),
    (multiply, 2, False),
    (accumulate, 2, True),
)
Step = tuple[Any, tuple[int, ...], tuple[float, ...]]


def random_steps(random: Random) -> list[Step]:
    steps = []
    for _ in range(random.randrange(1, 6)):
        kernel, count, has_number = random.choice(KERNELS)
        numbers = (random.choice((0.5, -0.75)),) if has_number else ()
        steps.append((kernel, tuple(random.sample(range(3), count)), numbers))
    return steps


@pytest.mark.parametrize("seed", seeds(4, 40))
def test_random_programs_in_turns(
    make: Any, replays: Any, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random, a = Random(seed), Arrays(make)
    arrays = a.x, a.y, a.z
    programs = [random_steps(random) for _ in range(3)]

    def results(steps: list[Step], values: list[Any], write: int) -> list[Any]:
        for array, initial in zip(arrays, values, strict=True):
            array.from_numpy(initial)
        with qd.ad.Tape(loss=a.loss):
            for number, (kernel, chosen, numbers) in enumerate(steps):
                if number == write:
                    a.z.fill(0.5)
                kernel(*[arrays[k] for k in chosen], *numbers)
            for array in arrays:
                total(array, a.loss)
        return [each.to_numpy() for array in arrays for each in (array, array.grad)]

    for _ in range(24):
        number = random.randrange(len(programs))
        if random.random() < 0.1:
            programs[number] = random_steps(random)
        steps, write = programs[number], -1
        if random.random() < 0.1:
            write = random.randrange(len(steps))
        values = [np.array([random.uniform(0.2, 1.2) for _ in range(SIZE)]) for _ in arrays]
        found = results(steps, values, write)
        with monkeypatch.context() as context:
            context.setattr(qd.ad.Tape, "_uses_fast_path", False)
            wanted = results(steps, values, write)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
    assert replays
