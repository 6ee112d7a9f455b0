"""Random sequences of launches and host writes, against central differences of a numpy program.

The host also writes through views of numpy. Unless it marks a write to an array with a gradient,
that is an error, or the gradient is right.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.devices import DISCRETE
from tests.seeds import seeds

SIZE = 3
NAMES = ("a", "b", "c")
DATA = "d"  # which has no gradient


@qd.kernel
def turn(x: qd.Tensor, factor: qd.f64):
    for i in range(SIZE):
        x[i] = qd.sin(x[i]) * factor


@qd.kernel
def multiply(x: qd.Tensor, y: qd.Tensor):
    for i in range(SIZE):
        x[i] = x[i] * y[i]


@qd.kernel
def add_square(x: qd.Tensor, y: qd.Tensor):
    for i in range(SIZE):
        x[i] += y[i] * y[i]


@qd.kernel
def shift(x: qd.Tensor, y: qd.Tensor):
    for i in range(SIZE):
        x[i] = y[(i + 1) % SIZE]


@qd.kernel
def entangle(x: qd.Tensor, y: qd.Tensor):
    for i in range(SIZE):
        x[i] = x[i] * y[i]
    first = x[0]
    for i in range(SIZE):
        y[i] = y[i] + x[i] * first
    for i in range(SIZE):
        x[i] = qd.cos(y[i]) + x[i]


@qd.kernel
def total(x: qd.Tensor, loss: qd.Tensor):
    for i in range(SIZE):
        loss[None] += x[i] * (i + 1)


def numpy_turn(x: Any, factor: float) -> None:
    x[:] = np.sin(x) * factor


def numpy_multiply(x: Any, y: Any) -> None:
    x[:] = x * y


def numpy_add_square(x: Any, y: Any) -> None:
    x += y * y


def numpy_shift(x: Any, y: Any) -> None:
    x[:] = np.roll(y, -1)


def numpy_entangle(x: Any, y: Any) -> None:
    x[:] = x * y
    y[:] = y + x * x[0]
    x[:] = np.cos(y) + x


PAIRS: list[tuple[Any, Callable[..., None]]] = [
    (multiply, numpy_multiply),
    (add_square, numpy_add_square),
    (shift, numpy_shift),
    (entangle, numpy_entangle),
]

Step = tuple[Callable[[dict[str, Any]], Any], Callable[[dict[str, Any]], Any]]


def random_step(
    generator: random.Random, constants: set[str], touched: set[str], *, with_views: bool
) -> Step:
    """A step on our arrays, and the same on numpy's."""
    x, y = generator.choice(NAMES), generator.choice((*NAMES, DATA))
    kind = generator.randrange(12)
    if kind >= 10:
        x, kind = DATA, 0
    elif kind == 2 and y == DATA:
        kind = 4
    if kind == 2 and x == y:
        kind = 3
    value = generator.uniform(0.3, 1.2)
    if kind >= 4:
        ours, theirs = generator.choice(PAIRS[: -1 if y == DATA else None])
        if ours in (shift, entangle) and x == y:
            ours, theirs = multiply, numpy_multiply
        touched |= {x, y}
        return lambda arrays: ours(arrays[x], arrays[y]), lambda a: theirs(a[x], a[y])
    if kind == 3:
        touched.add(x)
        return lambda arrays: turn(arrays[x], value), lambda a: numpy_turn(a[x], value)
    if kind == 2:
        touched |= {x, y}
        return lambda arrays: arrays[x].copy_from(arrays[y]), lambda a: a[x].__setitem__(..., a[y])
    if x not in touched:  # the gradient of what the body writes first is that of the written value
        constants.add(x)
    touched.add(x)
    if kind == 1:
        return lambda arrays: arrays[x].fill(value), lambda a: a[x].fill(value)
    k = generator.randrange(SIZE)
    if with_views and (x == DATA or generator.random() < 0.5):
        marks = x != DATA and generator.random() < 0.8
        return lambda a: write_view(a[x], k, value, marks), lambda a: a[x].__setitem__(k, value)
    return lambda arrays: arrays[x].__setitem__(k, value), lambda a: a[x].__setitem__(k, value)


def write_view(x: Any, k: int, value: float, marks: bool) -> None:
    x.to_numpy(copy=False)[k] = value
    if marks:
        x.mark_written(k)
    elif x.has_grad():
        UNMARKED.append(x)


UNMARKED: list[Any] = []
"""The arrays with a gradient of which a write was not marked."""


def make_arrays(generator: random.Random) -> tuple[dict[str, Any], Any]:
    backends = (qd.Backend.FIELD, qd.Backend.NDARRAY)
    arrays = {
        name: qd.tensor(qd.f64, SIZE, backend=generator.choice(backends), needs_grad=name != DATA)
        for name in (*NAMES, DATA)
    }
    return arrays, qd.tensor(qd.f64, (), backend=generator.choice(backends), needs_grad=True)


@pytest.mark.parametrize("seed", seeds(20, 200, first=1))
def test_random_tape(seed: int) -> None:
    generator = random.Random(seed)
    constants: set[str] = set()
    touched: set[str] = set()
    steps = [
        random_step(generator, constants, touched, with_views=not DISCRETE)
        for _ in range(generator.randrange(1, 9))
    ]
    arrays, loss = make_arrays(generator)
    start = {
        name: np.array([generator.uniform(0.3, 1.2) for _ in range(SIZE)])
        for name in (*NAMES, DATA)
    }

    def value(given: dict[str, Any]) -> float:
        state = {name: x.copy() for name, x in given.items()}
        for _, theirs in steps:
            theirs(state)
        return float(
            sum((x * np.arange(1, SIZE + 1)).sum() for x in (state[name] for name in NAMES))
        )

    for name, x in arrays.items():
        x.from_numpy(start[name])
    UNMARKED.clear()
    try:
        with qd.ad.Tape(loss=loss):
            for ours, _ in steps:
                ours(arrays)
            for name in NAMES:
                total(arrays[name], loss)
            end = {name: x.to_numpy() for name, x in arrays.items()}
    except qd.OctantsRuntimeError as error:
        if not (UNMARKED and "OCT320" in str(error)):
            raise
        return
    if any(abs(x).max() > 100 for x in end.values()):
        pytest.skip("too steep for differences")
    assert loss.to_numpy() == pytest.approx(value(start), rel=1e-12)
    for name, x in arrays.items():
        assert (x.to_numpy() == end[name]).all()
        if name in constants or name == DATA:
            continue
        for k in range(SIZE):
            difference = 0.0
            for sign in (1, -1):
                moved = {other: y.copy() for other, y in start.items()}
                moved[name][k] += sign * 1e-6
                difference += sign * value(moved) / 2e-6
            assert x.grad.to_numpy()[k] == pytest.approx(difference, rel=1e-5, abs=1e-6)
