"""Several adjoints in each reverse launch, against one after the other, and central differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver
from tests.devices import ARCH

vec = qd.types.ndarray(qd.f64, 1)
POINT = np.linspace(0.3, 1.7, 9)
COUNT = 5


@qd.kernel
def plain(x: vec, y: vec):
    for i in x:
        y[i] = qd.sin(x[i]) * x[i]


@qd.kernel
def sums(x: vec, y: vec):
    for i in x:
        for j in range(x.shape[0]):
            y[(i + j) % 4] += x[i] * qd.exp(-((x[i] - x[j]) ** 2))


@qd.kernel
def carried(x: vec, y: vec):
    for i in x:
        v, w = x[i], 0.1
        for k in range(i + 4):
            v = qd.sin(v) + 0.1 * w
            if v > 0.9:
                w += v * x[(i + k) % x.shape[0]]
                continue
            w *= 0.9
        y[i] = v * w


@qd.kernel
def until(x: vec, y: vec):
    for i in x:
        v, steps = x[i], 0
        while v > 0.05:
            v = v * v * 0.5
            steps += 1
            if steps > 5:
                break
            for _ in range(steps):
                v = qd.cos(v) * 0.3
        y[i] = v * x[0]


@qd.kernel
def in_tasks(x: vec, y: vec) -> qd.f64:
    total = 0.0
    for i in x:
        total += x[i] ** 3
    scale = qd.sqrt(total)
    for i in x:
        y[i] = scale * x[i]
    for i in x:
        y[i] *= y[i] + scale
    return total * scale


@qd.kernel
def extrema(x: vec, y: vec):
    for i in x:
        qd.atomic_max(y[0], x[i] * qd.sin(3.0 * x[i]))
        qd.atomic_min(y[1], -x[i])


@qd.kernel
def products(x: vec, y: vec):
    for i in range(x.shape[0]):
        y[i] = x[i]
    qd.loop_config(serialize=True)
    for i in range(1, x.shape[0]):
        qd.atomic_mul(y[0], x[i])
        y[i] = y[0] * x[0]


@qd.kernel
def choose(x: vec, y: vec, count: qd.types.ndarray(qd.i32, 0)):
    for i in x:
        if x[i] > 0.5:
            k = qd.atomic_add(count[None], 1)
            y[k] = x[i] ** 2


def logged(x: Any, y: Any) -> None:
    inner = qd.ndarray(qd.f64, 9, needs_grad=True)
    choose(x, inner, qd.ndarray(qd.i32, ()))
    add_up(inner, y)


@qd.kernel
def add_up(x: vec, y: vec):
    for i in x:
        y[0] += x[i]
        y[1] += x[i] ** 2


@qd.kernel
def local_vectors(x: vec, y: vec):
    for i in x:
        v = qd.Vector([0.0] * 12)
        for k in range(20):
            v[(i * k) % 12] += x[i] * v[(k + 5) % 12] + 0.1
            v[k % 12] *= qd.cos(x[i])
        y[i] = v.norm_sqr()


@qd.func
def clipped(a):
    return a * a


@clipped.adjoint
def clipped_adjoint(a, g):
    return qd.max(-0.5, qd.min(2.0 * a * g, 0.5))


@qd.kernel
def own_adjoints(x: vec, y: vec):
    for i in x:
        y[i] = clipped(x[i]) + x[i]


@qd.func
def one_sided(a):
    return a * a


@one_sided.adjoint
def one_sided_adjoint(a, g):
    h = 0.0
    if g > 0.0:
        h = 2.0 * a * g
    return h


@qd.kernel
def on_condition_of_the_adjoint(x: vec, y: vec):
    for i in x:
        y[i] = one_sided(x[i])


@qd.kernel
def mixed_types(x: vec, y: vec):
    for i in x:
        half = qd.cast(x[i], qd.f16) * qd.f16(0.5)
        single = qd.sin(qd.cast(half, qd.f32))
        y[i] = qd.cast(single, qd.f64) * x[i]


@qd.kernel
def random(x: vec, y: vec):
    for i in x:
        if qd.random() < 0.5:
            y[i] = x[i] ** 2
        else:
            y[i] = -qd.random() * x[i]


@qd.kernel
def in_blocks(x: vec, y: vec):
    qd.loop_config(block_dim=8)
    for i in range(8):
        shared = qd.simt.block.SharedArray((8,), qd.f64)
        shared[i] = x[i] ** 2
        qd.simt.block.sync()
        y[i] = shared[(i + 1) % 8] * x[i]


@qd.kernel
def step(x: vec, y: vec):
    for i in x:
        y[i] = qd.sin(x[i]) + 0.5 * x[(i + 1) % x.shape[0]]


@qd.kernel
def square_in_place(y: vec):
    for i in y:
        y[i] = y[i] * y[i] + y[i]


def overwritten(x: Any, y: Any) -> None:
    step(x, y)
    square_in_place(y)
    y[2] = 0.7
    step(y, y_of_step())
    y.copy_from(y_of_step())
    square_in_place(y)


between: dict[str, Any] = {}


def y_of_step() -> Any:
    return between.setdefault("array", qd.ndarray(qd.f64, 9, needs_grad=True))


def of_views(x: Any, y: Any) -> None:
    of_view(x[2:6], y[1:5])
    of_view(y[0:4], y[5:9])


@qd.kernel
def of_view(x: qd.BufferView[qd.f64], y: qd.BufferView[qd.f64]):
    for i in range(4):
        y[i] += x[i] ** 2


@qd.ad.grad_replaced
def replaced(x: Any, y: Any) -> None:
    step(x, y)


@qd.ad.grad_for(replaced)
def replaced_grad(x: Any, y: Any) -> None:
    step.grad(x, y)


def with_replaced(x: Any, y: Any) -> None:
    inner = qd.ndarray(qd.f64, 9, needs_grad=True)
    step(x, inner)
    replaced(inner, y)
    square_in_place(y)


def in_checkpointed_steps(x: Any, y: Any) -> None:
    step(x, y)
    qd.ad.checkpointed(lambda _: square_in_place(y), 4, slots=2)


BATCHED: dict[str, Callable[..., Any]] = {
    "plain": plain,
    "sums": sums,
    "carried": carried,
    "until": until,
    "in tasks": in_tasks,
    "extrema": extrema,
    "products": products,
    "logged": logged,
    "local vectors": local_vectors,
    "own adjoints": own_adjoints,
    "mixed types": mixed_types,
    "random": random,
    "overwritten": overwritten,
    "views": of_views,
}
ONE_BY_ONE: dict[str, Callable[..., Any]] = {
    "on condition of the adjoint": on_condition_of_the_adjoint,
    "in blocks": in_blocks,
    "replaced": with_replaced,
    "checkpointed": in_checkpointed_steps,
}
NOT_TRUE = "own adjoints", "on condition of the adjoint"
"""The functions whose adjoints are not those of the function."""
IN_ANY_ORDER = "sums", "in tasks", "carried", "until"
"""The functions with gradients that work items add up."""


@pytest.fixture(autouse=True)
def no_arrays_of_before() -> None:
    between.clear()


def seeds(function: Any) -> Any:
    rng = np.random.default_rng(5)
    seed = rng.normal(size=(COUNT, 9))
    return [seed, rng.normal(size=COUNT)] if function is in_tasks else seed


def _listed(results: Any) -> Any:
    return results if isinstance(results, tuple) else [results]


def with_numbers_from(first: int) -> None:
    """Let launches draw the random numbers of those from a number on, and make new arrays."""
    driver.state.numbers = driver.launch_numbers(first)
    between.clear()


def one_of(adjoints: Any, k: int) -> Any:
    return [each[k] for each in adjoints] if isinstance(adjoints, list) else adjoints[k]


@pytest.mark.parametrize("name", [*BATCHED, *ONE_BY_ONE])
def test_adjoints_are_those_of_one_after_the_other(name: str) -> None:
    function = {**BATCHED, **ONE_BY_ONE}[name]
    backward, adjoints = qd.ad.vjp(function, out={"y": "x"}), seeds(function)
    first = driver.next_launch_number()
    results, found = backward(POINT, adjoints=adjoints)
    for k in range(COUNT):
        with_numbers_from(first)
        alone, expected = backward(POINT, adjoints=one_of(adjoints, k))
        for one, other in zip(_listed(results), _listed(alone), strict=True):
            np.testing.assert_allclose(one, other, rtol=0.0 if ARCH == "cpu" else 1e-14)
        if name in IN_ANY_ORDER or ARCH != "cpu":
            np.testing.assert_allclose(found["x"][k], expected["x"], rtol=1e-13, atol=1e-15)
        else:
            np.testing.assert_array_equal(found["x"][k], expected["x"])


@pytest.mark.parametrize("name", [each for each in BATCHED if each not in NOT_TRUE])
def test_adjoints_against_central_differences(name: str) -> None:
    function = BATCHED[name]
    rows = qd.ad.jacobian(function, out={"y": "x"}, mode="reverse")
    backward = qd.ad.vjp(function, out={"y": "x"})
    first = driver.next_launch_number()

    def value(x: Any) -> Any:
        with_numbers_from(first)
        return _listed(backward(x, adjoints=one_of(seeds(function), 0))[0])

    direction = np.random.default_rng(6).normal(size=9)
    size = 1e-2 if name == "mixed types" else 1e-6
    ahead, back = value(POINT + size * direction), value(POINT - size * direction)
    with_numbers_from(first)
    found = rows(POINT)
    matrices = [found["x"]] if "x" in found else [each["x"] for each in found.values()]
    allowed = 3e-2 if name == "mixed types" else 1e-7
    for matrix, one, other in zip(matrices, ahead, back, strict=True):
        expected = (one - other) / (2 * size)
        np.testing.assert_allclose(matrix @ direction, expected, rtol=allowed, atol=allowed)


class Counted:
    """How often a function is called."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.inner, self.count = function, 0

    def function(self, x: Any, y: Any) -> None:
        self.count += 1
        self.inner(x, y)


@pytest.mark.parametrize("count", [2, 7, 8, 9, 17])
def test_launches_propagate_up_to_eight_adjoints(count: int) -> None:
    counted = Counted(step)
    adjoints = np.random.default_rng(count).normal(size=(count, 9))
    _, found = qd.ad.vjp(counted.function, out={"y": "x"})(POINT, adjoints=adjoints)
    assert counted.count == -(-count // 8)
    matrix = np.diag(np.cos(POINT)) + 0.5 * np.roll(np.eye(9), 1, axis=1)
    np.testing.assert_allclose(found["x"], adjoints @ matrix, rtol=1e-13)


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_functions_that_go_one_by_one_are_remembered(name: str) -> None:
    counted = Counted(ONE_BY_ONE[name])
    backward, adjoints = qd.ad.vjp(counted.function, out={"y": "x"}), seeds(None)
    for runs in (1 + COUNT, COUNT):
        counted.count = 0
        backward(POINT, adjoints=adjoints)
        assert counted.count == runs


def test_adjoints_that_are_given_do_not_change() -> None:
    adjoints = seeds(None)
    before = adjoints.copy()
    qd.ad.vjp(overwritten, out={"y": "x"})(POINT, adjoints=adjoints)
    np.testing.assert_array_equal(adjoints, before)


def test_gradients_of_fields_between_stay_as_they_are() -> None:
    inner = qd.field(qd.f64, 9, needs_grad=True)

    @qd.kernel
    def into(x: vec):
        for i in x:
            inner[i] = x[i] ** 2

    @qd.kernel
    def out_of(y: vec):
        for i in y:
            y[i] = inner[i] * inner[i // 2]

    def through(x: Any, y: Any) -> None:
        into(x)
        out_of(y)

    inner.grad.fill(3.0)
    adjoints = seeds(None)
    _, found = qd.ad.vjp(through, out={"y": "x"})(POINT, adjoints=adjoints)
    assert (inner.grad.to_numpy() == 3.0).all()
    columns = np.arange(9)
    matrix = np.zeros((9, 9))
    matrix[columns, columns] += POINT[columns // 2] ** 2 * 2 * POINT
    matrix[columns, columns // 2] += POINT**2 * 2 * POINT[columns // 2]
    np.testing.assert_allclose(found["x"], adjoints @ matrix, rtol=1e-13)


@pytest.mark.parametrize("kind", ["blocks", "sparse", "vectors"])
def test_fields_of_all_kinds_between(kind: str) -> None:
    if kind == "blocks":
        inner = qd.field(qd.f64)
        qd.root.dense(qd.i, 3).dense(qd.i, 3).place(inner, inner.grad)
    elif kind == "sparse":
        inner = qd.field(qd.f64)
        qd.root.pointer(qd.i, 3).dense(qd.i, 3).place(inner)
        qd.root.lazy_grad()
    else:
        inner = qd.Vector.field(2, qd.f64, 9, needs_grad=True)

    @qd.kernel
    def into(x: vec):
        for i in x:
            if qd.static(kind == "vectors"):
                inner[i] = qd.Vector([x[i], x[i] ** 2])
            else:
                inner[i] = x[i] * 0.5

    @qd.kernel
    def out_of(y: vec):
        for i in range(9):
            if qd.static(kind == "vectors"):
                y[i] = inner[i].dot(inner[(i + 1) % 9])
            else:
                y[i] = inner[i] * inner[i // 2]

    def through(x: Any, y: Any) -> None:
        into(x)
        out_of(y)

    backward, adjoints = qd.ad.vjp(through, out={"y": "x"}), seeds(None)
    _, found = backward(POINT, adjoints=adjoints)
    for k in range(COUNT):
        _, expected = backward(POINT, adjoints=adjoints[k])
        assert expected["x"].any()
        np.testing.assert_allclose(found["x"][k], expected["x"], rtol=1e-14)


def test_arguments_of_numbers_and_vectors() -> None:
    vec2 = qd.types.vector(2, qd.f64)

    @qd.kernel
    def moved(scale: qd.f32, shift: vec2, unused: qd.f64, y: vec) -> qd.f64:
        for i in y:
            y[i] = scale * i + shift[i % 2]
        return scale**2

    adjoints, returned = seeds(None), np.arange(1.0, 1.0 + COUNT)
    backward = qd.ad.vjp(moved, out={"y": 9})
    _, found = backward(2.0, np.array([0.1, -0.2]), 3.0, adjoints=[adjoints, returned])
    scales = adjoints @ np.arange(9.0) + 4.0 * returned
    np.testing.assert_allclose(found["scale"], scales, rtol=1e-5)  # f32
    even = np.arange(9) % 2 == 0
    shifts = np.stack([adjoints[:, even].sum(1), adjoints[:, ~even].sum(1)], 1)
    np.testing.assert_allclose(found["shift"], shifts)
    np.testing.assert_array_equal(found["unused"], np.zeros(COUNT))
