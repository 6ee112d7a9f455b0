"""StepEvents that a tape records without a look at memory, and what must end that."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver
from octants.ad.overwrites.needed_contents import Content
from octants.ad.tapes import fast_recording
from octants.ad.tapes import tape as tapes
from tests.devices import counts_driver, shares_memory


@qd.kernel
def square(x: qd.Tensor, y: qd.Tensor):
    for i in x:
        y[i] = x[i] * x[i]


@qd.kernel
def total(y: qd.Tensor, loss: qd.Tensor):
    for i in y:
        loss[None] += y[i]


@qd.kernel
def double(x: qd.Tensor):
    for i in x:
        x[i] = 2 * x[i]


MAKERS: dict[str, Callable[[Any], Any]] = {
    "fields": lambda shape: qd.field(qd.f64, shape, needs_grad=True),
    "ndarrays": lambda shape: qd.ndarray(qd.f64, shape, needs_grad=True),
}


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    return MAKERS[request.param]


@pytest.fixture
def xy(make: Callable[[Any], Any]) -> tuple[Any, Any]:
    x, y = make(3), make(3)
    x.from_numpy(np.array([1.0, 2.0, 3.0]))
    return x, y


@pytest.fixture
def loss(make: Callable[[Any], Any]) -> Any:
    return make(())


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How launches are recorded, as they are: "quick", or "care"."""
    found: list[str] = []
    names = {"_launch_on_fast_path": "quick", "_launch_on_slow_path": "care"}
    for name, way in names.items():
        method = getattr(tapes.Tape, name)

        def record(*args: Any, method: Any = method, way: str = way, **given: Any) -> Any:
            result = method(*args, **given)
            found.append(way)
            return result

        monkeypatch.setattr(tapes.Tape, name, record)
    return found


def record(xy: tuple[Any, Any], loss: Any, between: Callable[[], Any] = lambda: None) -> None:
    """The sum of squares, with something that happens after the square was taken."""
    x, y = xy
    with qd.ad.Tape(loss=loss):
        square(x, y)
        between()
        total(y, loss)


# -- quick ----------------------------------------------------------------------------------------


def test_a_program_that_overwrites_nothing_keeps_no_contents(
    xy: Any, loss: Any, ways: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record(xy, loss)
    ways.clear()
    monkeypatch.setattr(Content, "__init__", None)
    record(xy, loss)
    assert ways == ["quick", "quick"]
    assert xy[0].grad.to_numpy().tolist() == [2.0, 4.0, 6.0]


@counts_driver
def test_a_recorded_launch_is_small(xy: Any, loss: Any, ways: list[str]) -> None:
    x, y = xy
    record(xy, loss)
    tape = qd.ad.Tape()
    with tape:
        square(x, y)
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(200):
                square(x, y)
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        ways.clear()
        tape._entries.clear()
    assert grown < 200 * 520  # 510 with Python 3.10


def test_returned_values_and_vectors_by_value(xy: Any, ways: list[str]) -> None:
    x, _ = xy

    @qd.kernel
    def weighted(x: qd.Tensor, w: qd.types.vector(3, qd.f64)) -> qd.f64:
        return x[0] * w[0] + x[1] * w[1] * w[2]

    weights = qd.Vector([1.0, 2.0, 3.0])
    for _ in range(2):
        with qd.ad.Tape(loss=weighted):
            assert weighted(x, weights) == 13.0
            weights[0] = 5.0
        assert x.grad.to_numpy().tolist() == [1.0, 6.0, 0.0]
        weights[0] = 1.0
    assert ways == ["quick", "care", "quick"]


STEPS = 5


@qd.kernel
def advance(x: qd.Tensor, t: qd.i32):
    for i in range(3):
        x[t + 1, i] = x[t, i] * x[t, i] * 0.5


@qd.kernel
def last_row(x: qd.Tensor, loss: qd.Tensor):
    for i in range(3):
        loss[None] += x[STEPS, i]


def gradient_through(start: Any, steps: int = STEPS) -> Any:
    """That of the sum of x after steps of ``x * x / 2``."""
    x, gradient = start, np.ones(3)
    for _ in range(steps):
        x, gradient = x * x * 0.5, gradient * x
    return gradient


def test_steps_through_the_rows_of_an_array(
    make: Callable[[Any], Any], loss: Any, ways: list[str]
) -> None:
    x, start = make((STEPS + 1, 3)), np.array([1.0, 2.0, 0.5])
    for _ in range(2):
        for i in range(3):
            x[0, i] = start[i]
        ways.clear()
        with qd.ad.Tape(loss=loss) as tape:
            for t in range(STEPS):
                advance(x, t)
            last_row(x, loss)
        assert tape.snapshot_bytes == 0
        np.testing.assert_allclose(x.grad.to_numpy()[0], gradient_through(start))
    assert ways == ["quick"] * (STEPS + 1)


def test_rows_are_found_once_for_the_same_numbers(
    make: Callable[[Any], Any], loss: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each pair of an array and a number: another array has rows of its own."""
    found: list[Any] = []
    rows_of = fast_recording.rows_of
    monkeypatch.setattr(
        fast_recording, "rows_of", lambda region: found.append(region) or rows_of(region)
    )
    start, counts = np.array([1.0, 2.0, 0.5]), []
    first, second = make((STEPS + 1, 3)), make((STEPS + 1, 3))
    for x in (first, second, first, second):
        for i in range(3):
            x[0, i] = start[i]
        with qd.ad.Tape(loss=loss) as tape:
            for t in range(STEPS):
                advance(x, t)
            last_row(x, loss)
            if x is second:
                advance(x, 1)  # a row that is needed: it is saved, with what it holds
        assert tape.snapshot_bytes == (24 if x is second else 0)
        np.testing.assert_allclose(x.grad.to_numpy()[0], gradient_through(start))
        counts.append(len(found))
    assert 0 < counts[0]
    assert counts[2] == counts[3] == counts[1]


@pytest.mark.parametrize("by", ["launch", "host"])
def test_a_row_that_is_needed_and_overwritten(
    make: Callable[[Any], Any], loss: Any, ways: list[str], by: str
) -> None:
    x, start = make((STEPS + 1, 3)), np.array([1.0, 2.0, 0.5])

    @qd.kernel
    def spoil(x: qd.Tensor, t: qd.i32):
        for i in range(3):
            x[t, i] = 7.0

    for i in range(3):
        x[0, i] = start[i]
    with qd.ad.Tape():
        spoil(x, STEPS)
    ways.clear()
    with qd.ad.Tape(loss=loss) as tape:
        for t in range(STEPS):
            advance(x, t)
        last_row(x, loss)
        if by == "host":
            x[2, 0] = 7.0
        else:
            spoil(x, 2)
    first_launches = 2
    assert ways.count("care") == first_launches + (by == "launch")
    assert tape.snapshot_bytes == (8 if by == "host" else 24)
    np.testing.assert_allclose(x.grad.to_numpy()[0], gradient_through(start))
    assert x[2, 0] == 7.0


# -- what ends it ---------------------------------------------------------------------------------


def test_a_needed_array_that_is_overwritten(xy: Any, loss: Any, ways: list[str]) -> None:
    x, y = xy
    for _ in range(2):
        before = len(ways)
        x.from_numpy(np.array([1.0, 2.0, 3.0]))
        record(xy, loss, lambda: double(x))
        assert x.grad.to_numpy().tolist() == [2.0, 4.0, 6.0]
        assert x.to_numpy().tolist() == [2.0, 4.0, 6.0]
    assert "care" in ways
    assert len(ways) == before  # the second tape follows the first one


def test_an_overwritten_array_is_saved_once(xy: Any, loss: Any) -> None:
    x, y = xy
    record(xy, loss)
    tape = qd.ad.Tape(loss=loss)
    with tape:
        square(x, y)
        square(x, y)
        assert tape.snapshot_bytes == 0
        x.fill(7.0)
        assert tape.snapshot_bytes == 24
        total(y, loss)
    assert x.grad.to_numpy().tolist() == [2.0, 4.0, 6.0]
    assert x.to_numpy().tolist() == [7.0] * 3


def test_an_overwrite_that_is_forbidden(xy: Any, loss: Any) -> None:
    x, y = xy
    record(xy, loss)
    tape = qd.ad.Tape(loss=loss, on_overwrite="error")
    with pytest.raises(qd.OctantsError, match="overwrite"), tape:
        square(x, y)
        double(x)
    assert x.to_numpy().tolist() == [1.0, 2.0, 3.0]


def test_an_overwrite_under_no_grad(xy: Any, loss: Any) -> None:
    x, _ = xy
    record(xy, loss)
    record(xy, loss, lambda: qd.ad.no_grad(double)(x))
    assert x.grad.to_numpy().tolist() == [2.0, 4.0, 6.0]
    assert x.to_numpy().tolist() == [2.0, 4.0, 6.0]


@shares_memory
def test_an_overwrite_through_a_view_of_numpy(xy: Any, loss: Any) -> None:
    x, _ = xy
    record(xy, loss)
    record(xy, loss, lambda: double(x.to_numpy(copy=False)))
    assert x.grad.to_numpy().tolist() == [2.0, 4.0, 6.0]
    assert x.to_numpy().tolist() == [2.0, 4.0, 6.0]


@shares_memory
def test_a_write_that_is_told_of_afterwards(xy: Any, loss: Any) -> None:
    x, _ = xy
    record(xy, loss)

    def write() -> None:
        x.to_numpy(copy=False)[0] = 9.0
        x.mark_written()

    record(xy, loss, write)
    assert x.grad.to_numpy().tolist() == [2.0, 4.0, 6.0]
    assert x.to_numpy().tolist() == [9.0, 2.0, 3.0]


@shares_memory
def test_a_write_by_torch_to_memory_that_it_has_just_seen(xy: Any, loss: Any) -> None:
    pytest.importorskip("torch")
    x, y = xy
    record(xy, loss)
    record(xy, loss, lambda: x.to_torch(copy=False).add_(1.0))
    assert x.grad.to_numpy().tolist() == [2.0, 4.0, 6.0]
    with pytest.raises(qd.OctantsRuntimeError, match="OCT320"):
        record(xy, loss, lambda: y.to_torch(copy=False).add_(1.0))


@shares_memory
def test_memory_that_torch_sees_is_looked_at(xy: Any, loss: Any, ways: list[str]) -> None:
    pytest.importorskip("torch")
    x, _ = xy
    record(xy, loss)
    x.to_torch(copy=False)
    ways.clear()
    record(xy, loss)
    assert ways == ["care", "quick"]
    assert x.grad.to_numpy().tolist() == [2.0, 4.0, 6.0]


def test_a_custom_gradient_that_writes_what_is_needed(xy: Any, loss: Any) -> None:
    x, y = xy
    record(xy, loss)

    @qd.ad.grad_replaced
    def summed(y: Any, loss: Any) -> None:
        total(y, loss)

    @qd.ad.grad_for(summed)
    def spread(y: Any, loss: Any) -> None:
        x.fill(100.0)
        double(x)
        y.grad.fill(loss.grad[None])

    with qd.ad.Tape(loss=loss):
        square(x, y)
        summed(y, loss)
    assert x.grad.to_numpy().tolist() == [2.0, 4.0, 6.0]
    assert x.to_numpy().tolist() == [1.0, 2.0, 3.0]


def test_one_array_in_two_places() -> None:
    x, y = (qd.ndarray(qd.f64, 2, needs_grad=True) for _ in range(2))
    loss = qd.ndarray(qd.f64, (), needs_grad=True)
    for one, other in ((x, y), (x, x), (y, x), (x, x)):
        one.fill(3.0)
        with qd.ad.Tape(loss=loss):
            square(one, other)
            total(other, loss)
        assert one.grad.to_numpy().tolist() == [6.0] * 2


def test_a_gradient_as_an_argument(ways: list[str]) -> None:
    x = qd.ndarray(qd.f64, 3, needs_grad=True)
    y = qd.ndarray(qd.f64, 3, needs_grad=True)
    with qd.ad.Tape(clear_gradients=False):
        square(x, y)
        square(x.grad, y.grad)
    assert ways == ["quick", "care", "care", "care"]


def test_an_array_that_ended_a_gradient_is_still_warned_of(xy: Any, loss: Any) -> None:
    x, _ = xy
    plain = qd.field(qd.f64, 3)

    @qd.kernel
    def collect(loss: qd.Tensor):
        for i in plain:
            loss[None] += plain[i]

    with qd.ad.Tape(loss=loss):
        collect(loss)
    with pytest.warns(qd.OctantsWarning, match="the gradient ends"), qd.ad.Tape(loss=loss):
        square(x, plain)
        collect(loss)


def test_a_launch_with_validation_is_looked_at(xy: Any, loss: Any, ways: list[str]) -> None:
    x, y = xy
    record(xy, loss)
    ways.clear()
    with qd.ad.Tape(loss=loss, validation=True):
        square(x, y)
        total(y, loss)
    assert ways == ["care", "care"]


def test_a_second_init_forgets_quick_ways() -> None:
    def run() -> list[float]:
        x, y, loss = (MAKERS["fields"](shape) for shape in (3, 3, ()))
        x.fill(2.0)
        record((x, y), loss)
        found: list[float] = x.grad.to_numpy().tolist()
        return found

    for _ in range(2):
        assert run() == [4.0] * 3
        qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error")
    assert driver.state.recorder is None
