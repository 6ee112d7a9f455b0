"""Derivatives of atomic updates, and of the values that they return."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.golden_files import check_golden

Numbers = Any


@pytest.fixture(autouse=True, params=["cpu", "python"])
def arch(request: pytest.FixtureRequest) -> Iterator[None]:
    qd.init(arch=getattr(qd, request.param), default_fp=qd.f64, log_level="error")
    yield
    qd.reset()


def field(*shape: int, dtype: Any = None, values: Numbers = None) -> Any:
    is_float = dtype is None
    made = qd.field(qd.f64 if is_float else dtype, shape, needs_grad=is_float, needs_dual=is_float)
    if values is not None:
        made.from_numpy(np.asarray(values, made.dtype.numpy))
    return made


def both_modes(
    kernel: Callable[..., Any],
    inputs: list[Any],
    outputs: list[Any],
    arguments: tuple[Any, ...] = (),
) -> None:
    """Compare reverse mode under a tape and forward mode with central differences."""
    start = [array.to_numpy() for array in dict.fromkeys([*inputs, *outputs])]
    arrays = list(dict.fromkeys([*inputs, *outputs]))
    rng = np.random.default_rng(0)
    weights = [rng.uniform(-1, 1, array.shape) for array in outputs]

    def reset() -> None:
        for array, values in zip(arrays, start, strict=True):
            array.from_numpy(values)

    def objective(moved: Any, direction: Numbers) -> float:
        reset()
        moved.from_numpy(np.asarray(moved.to_numpy() + direction))
        kernel(*arguments)
        return sum(
            float((array.to_numpy() * w).sum()) for array, w in zip(outputs, weights, strict=True)
        )

    reset()
    with qd.ad.Tape():
        kernel(*arguments)
        for array, w in zip(outputs, weights, strict=True):
            array.grad.from_numpy(w)
    gradients = [array.grad.to_numpy() for array in inputs]
    for array, gradient in zip(inputs, gradients, strict=True):
        slope = np.zeros(array.shape)
        for index in np.ndindex(array.shape):
            step = np.zeros(array.shape)
            step[index] = 1e-6
            slope[index] = (objective(array, step) - objective(array, -step)) / 2e-6
        np.testing.assert_allclose(gradient, slope, rtol=1e-6, atol=1e-7)
    directions = [rng.uniform(-1, 1, array.shape) for array in inputs]
    reset()
    seeds = [direction.ravel() for direction in directions]
    with qd.ad.FwdMode(loss=outputs, param=inputs, seed=seeds):
        kernel(*arguments)
        tangents = [array.dual.to_numpy() for array in outputs]
    along = sum(float((t * w).sum()) for t, w in zip(tangents, weights, strict=True))
    expected = sum(float((g * d).sum()) for g, d in zip(gradients, directions, strict=True))
    assert along == pytest.approx(expected, rel=1e-9, abs=1e-9)


# -- extremes --------------------------------------------------------------------------------------


def test_extremes_in_a_parallel_loop() -> None:
    x, low, high = field(6, values=[2.0, -1.0, 3.0, 0.5, 5.0, 1.5]), field(2), field(3)
    low.from_numpy(np.array([1.0, 1.0]))
    high.from_numpy(np.array([9.0, 0.0, 0.0]))  # the prior value of the first one wins

    @qd.kernel
    def extremes():
        for i in x:
            qd.atomic_min(low[i % 2], x[i] * x[i] - x[i])
            qd.atomic_max(high[i % 3], qd.sin(x[i]) + x[i])

    both_modes(extremes, [x, low, high], [low, high, x])


def test_what_extremes_return() -> None:
    x, top, seen = field(5, values=[0.3, 0.9, 0.2, 1.4, 1.1]), field(values=0.5), field(5)

    @qd.kernel
    def running():
        for i in x:
            seen[i] = qd.atomic_max(top[None], x[i]) * x[i]

    both_modes(running, [x, top], [top, seen])
    assert seen.to_numpy()[3] == pytest.approx(0.9 * 1.4)  # in order


def test_at_a_tie_the_prior_value_wins_where_the_order_is_known() -> None:
    x, top = field(3, values=[2.0, 2.0, 1.0]), field(values=1.0)

    @qd.kernel
    def highest():
        qd.loop_config(serialize=True)
        for i in range(3):
            x[i] = qd.atomic_max(top[None], x[i])

    with qd.ad.FwdMode(loss=[top, x], param=x, seed=[1.0, 10.0, 100.0]):
        highest()
        assert top.dual[None] == 1.0
    x.from_numpy(np.array([2.0, 2.0, 1.0]))
    top[None] = 1.0
    with qd.ad.Tape():
        highest()
        top.grad[None] = 1.0
    assert x.grad.to_numpy().tolist() == [1.0, 0.0, 0.0]


def test_several_functions_on_one_array() -> None:
    x, y = field(4, values=[0.3, 1.7, -0.4, 0.8]), field(2, values=[0.5, 0.25])

    @qd.kernel
    def mixed():
        for i in x:
            y[0] += x[i] * x[i]
            qd.atomic_max(y[0], 2 * x[i])
            qd.atomic_mul(y[1], 1 + x[i])
            qd.atomic_min(y[1], x[i] + 3)

    both_modes(mixed, [x, y], [y])


# -- products --------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [[2.0, -1.5, 0.5], [2.0, 0.0, 0.5], [0.0, 2.0, 0.0]])
@pytest.mark.parametrize("prior", [1.5, 0.0])
def test_products(values: list[float], prior: float) -> None:
    x, product = field(3, values=values), field(values=prior)

    @qd.kernel
    def multiply():
        for i in x:
            qd.atomic_mul(product[None], x[i])

    both_modes(multiply, [x, product], [product])


def test_a_product_that_underflows_has_a_gradient() -> None:
    x, product = field(3, values=[1e-200, 1e-200, 1e200]), field(values=1e200)

    @qd.kernel
    def multiply():
        for i in x:
            qd.atomic_mul(product[None], x[i])

    with qd.ad.Tape(loss=None):
        multiply()
        product.grad[None] = 1.0
    np.testing.assert_allclose(x.grad.to_numpy(), [1e200, 1e200, 1e-200], rtol=1e-12)


def test_products_of_own_places_stay_parallel() -> None:
    x, y = field(4, 3), field(4)
    x.from_numpy(np.linspace(0.5, 1.5, 12).reshape(4, 3))
    y.from_numpy(np.array([1.0, 2.0, 0.0, -1.0]))

    @qd.kernel
    def multiply():
        for i in y:
            for j in range(3):
                qd.atomic_mul(y[i], x[i, j])

    both_modes(multiply, [x, y], [y])
    assert "parallel @" in multiply.inspect(mode="forward").stages["forward"]


# -- sums ------------------------------------------------------------------------------------------


def test_what_sums_return() -> None:
    x, total, seen = field(5, values=[0.3, 0.9, 0.2, 1.4, 1.1]), field(values=0.5), field(5)

    @qd.kernel
    def running():
        for i in x:
            seen[i] = qd.sin(qd.atomic_add(total[None], x[i] * x[i]))
            qd.atomic_sub(total[None], 0.1 * x[i])

    both_modes(running, [x, total], [total, seen])


def test_a_sum_that_decides_without_a_derivative() -> None:
    """What is returned is logged: nothing differentiable comes of it."""
    x, total, seen = field(40), field(), field(40)
    x.from_numpy(np.linspace(0.1, 1.0, 40))

    @qd.kernel
    def fill_up():
        for i in x:
            if qd.atomic_add(total[None], 1.0) < 25.0:
                seen[i] = x[i] ** 3

    with qd.ad.Tape():
        fill_up()
        seen.grad.fill(1.0)
    taken = seen.to_numpy() != 0
    assert taken.sum() == 25
    wanted = np.where(taken, 3 * x.to_numpy() ** 2, 0)
    np.testing.assert_allclose(x.grad.to_numpy(), wanted, rtol=1e-12)


def test_one_array_under_two_names_in_forward_mode() -> None:
    a = qd.ndarray(qd.f64, shape=4, needs_grad=True, needs_dual=True)

    @qd.kernel
    def shift(x: qd.types.ndarray(ndim=1), y: qd.types.ndarray(ndim=1)):
        for i in range(2):
            x[i] += y[3 - i] * y[3 - i]

    a.from_numpy(np.array([1.0, 2.0, 3.0, 4.0]))
    with qd.ad.FwdMode(loss=a, param=a, seed=[0.0, 0.0, 1.0, 1.0]):
        shift(a, a)
        assert a.dual.to_numpy().tolist() == [8.0, 6.0, 1.0, 1.0]


# -- stream compaction -----------------------------------------------------------------------------


class Compaction:
    def __init__(self, count: int = 300) -> None:
        rng = np.random.default_rng(1)
        self.x = field(count, values=rng.uniform(0, 1, count))
        self.out = field(4 * count)
        self.source = field(4 * count, dtype=qd.i32)
        self.trips = field(count, dtype=qd.i32, values=rng.integers(0, 4, count))
        self.counter = field(dtype=qd.i32, values=7)
        self.total = field()

    def check(self, kernel: Callable[[], Any], factor: Callable[[int], float]) -> None:
        """Each place must have got the gradient of the item whose number it holds."""
        x = self.x.to_numpy()
        with qd.ad.Tape(loss=self.total) as tape:
            kernel()
        del tape
        count = self.counter[None]
        source = self.source.to_numpy()[7:count]
        np.testing.assert_allclose(
            self.out.to_numpy()[7:count],
            [x[s // 4] ** 2 * (s % 4 + 1) for s in source],
        )
        wanted = np.zeros_like(x)
        for k, s in zip(range(7, count), source, strict=True):
            wanted[s // 4] += 2 * x[s // 4] * (s % 4 + 1) * factor(k)
        np.testing.assert_allclose(self.x.grad.to_numpy(), wanted, rtol=1e-10)
        assert np.array_equal(self.x.to_numpy(), x)


def test_compaction() -> None:
    w = Compaction()

    @qd.kernel
    def compact():
        for i in w.x:
            if w.x[i] > 0.5:
                k = qd.atomic_add(w.counter[None], 1)
                w.out[k] = w.x[i] ** 2
                w.source[k] = 4 * i
        for k in w.out:
            w.total[None] += w.out[k] * (1.0 + 0.25 * k)

    w.check(compact, lambda k: 1 + 0.25 * k)
    assert w.counter[None] == 7 + (w.x.to_numpy() > 0.5).sum()  # counted only once


def test_compaction_in_loops_of_items_that_do_not_start_at_zero() -> None:
    w = Compaction()

    @qd.kernel
    def compact(first: qd.i32):
        for i in range(first, 290):
            for j in range(w.trips[i]):
                if w.x[i] > 0.1 * j:
                    k = qd.atomic_add(w.counter[None], 1)
                    w.out[k] = w.x[i] ** 2 * (j + 1)
                    w.source[k] = 4 * i + j
        for k in w.out:
            w.total[None] += w.out[k] * (1.0 + 0.25 * k)

    w.check(lambda: compact(5), lambda k: 1 + 0.25 * k)


def test_compaction_whose_count_the_loop_itself_decides() -> None:
    """How much there is to log is not known beforehand: the items run in order."""
    w = Compaction(60)

    @qd.kernel
    def compact():
        for i in w.x:
            j = 0
            while j < 3 and qd.atomic_add(w.counter[None], 0) < 100:
                k = qd.atomic_add(w.counter[None], 1)
                w.out[k] = w.x[i] ** 2 * (j + 1)
                w.source[k] = 4 * i + j
                j += 1
        for k in w.out:
            w.total[None] += w.out[k] * (1.0 + 0.25 * k)

    w.check(compact, lambda k: 1 + 0.25 * k)
    assert w.counter[None] == 100


@pytest.mark.parametrize("way", ["add", "max"])
def test_an_element_that_is_read_after_an_atomic_whose_result_is_an_index(way: str) -> None:
    """A log would pass on what was read, and not its derivative."""
    atomic = getattr(qd, f"atomic_{way}")
    x, y = field(3, values=[0.25, 0.5, 0.75]), field(3, values=[0.25, 1.0, 1.5])
    out, total = field(4), field()

    @qd.kernel
    def read_again():
        for _ in range(1):
            for i in range(3):
                k = int(atomic(y[i], x[i]) * 2.0)
                out[k] += (k + 1) * y[2] ** 2
        for k in out:
            total[None] += (k + 1) * out[k]

    with qd.ad.Tape(loss=total):
        read_again()
    before, after = 1 + 9, 16  # of the squares: what each work item's index makes of both factors
    assert out.to_numpy().tolist() == [2.25, 0.0, 3 * 2.25, 4 * y[2] ** 2]
    by_y = 2 * (before * 1.5 + after * y[2])
    by_x = 2 * after * y[2] if way == "add" else 0.0
    np.testing.assert_allclose(y.grad.to_numpy(), [0.0, 0.0, by_y])
    np.testing.assert_allclose(x.grad.to_numpy(), [0.0, 0.0, by_x])


def test_compaction_in_place() -> None:
    """What is overwritten needs the memory from before, and what is returned the log."""
    w = Compaction()

    @qd.kernel
    def compact():
        for i in w.x:
            value = w.x[i]
            w.x[i] = value * value
            k = qd.atomic_add(w.counter[None], 1)
            w.out[k] = qd.sin(value)
            w.source[k] = i
        for k in w.out:
            w.total[None] += w.out[k] * (1.0 + 0.25 * k)

    x = w.x.to_numpy()
    with qd.ad.Tape(loss=w.total):
        compact()
    source = w.source.to_numpy()[7 : w.counter[None]]
    wanted = np.zeros_like(x)
    wanted[source] = np.cos(x[source]) * (1 + 0.25 * np.arange(7, 7 + len(source)))
    np.testing.assert_allclose(w.x.grad.to_numpy(), wanted, rtol=1e-10)
    np.testing.assert_allclose(w.x.to_numpy(), x * x)


def test_a_bare_gradient_cannot_know_what_was_returned() -> None:
    w = Compaction()

    @qd.kernel
    def compact():
        for i in w.x:
            k = qd.atomic_add(w.counter[None], 1)
            w.out[k] = w.x[i]

    compact()
    with pytest.raises(qd.OctantsCompilationError, match=r"OCT301(.|\n)*k = qd.atomic_add"):
        compact.grad()


def test_a_bare_gradient_cannot_know_the_order() -> None:
    x, total, seen = field(4), field(), field(4)

    @qd.kernel
    def running():
        for i in x:
            seen[i] = qd.atomic_add(total[None], x[i])

    with pytest.raises(qd.OctantsCompilationError, match=r"needs the order(.|\n)*seen\[i\] ="):
        running.grad()


def test_a_checkpointed_loop_needs_a_fixed_order() -> None:
    w = Compaction(20)

    @qd.kernel
    def compact():
        for i in w.x:
            k = qd.atomic_add(w.counter[None], 1)
            w.out[k] = w.x[i]

    with pytest.raises(qd.OctantsRuntimeError) as caught, qd.ad.Tape(loss=w.total):
        qd.ad.checkpointed(lambda _: compact(), 3, slots=2)
    check_golden("errors/OCT336_order", str(caught.value))
