"""Functions of kernels with an adjoint of their own: ``@f.adjoint``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.diagnostics.exceptions import OctantsError
from tests.golden_files import check_golden, without_lines

vec = qd.types.ndarray(qd.f64, 1)
vec3 = qd.types.vector(3, qd.f64)
points = qd.types.ndarray(vec3, 1)
X = np.array([0.7, 1.6, 2.4, 3.1, 0.2])


@qd.func
def root(a, n):
    """The square root by Newton's iterations, whose number the derivative does not depend on."""
    x = 1.0
    for _ in range(n):
        x = 0.5 * (x + a / x)
    return x


@root.adjoint
def root_adjoint(a, n, g):
    return g * 0.5 / root(a, n)


@qd.func
def straight(x):
    return qd.round(x)


@straight.adjoint
def straight_adjoint(x, g):
    return g


@qd.func
def clipped(x):
    return 1.0 * x


@clipped.adjoint
def clipped_adjoint(x, g):
    return qd.min(qd.max(g, -1.0), 1.0)


@qd.func
def turned(p, angle: qd.f64, k: qd.i32):
    """Two results, of a vector, a number and an integer."""
    s, c = qd.sin(angle) * k, qd.cos(angle) * k
    moved = qd.Vector([c * p[0] - s * p[1], s * p[0] + c * p[1], p[2]])
    return moved, moved.dot(p)


@turned.adjoint
def turned_adjoint(p, angle, k, g, h):
    """A thousandth of the true derivative for the angle, to tell them apart."""
    s, c = qd.sin(angle) * k, qd.cos(angle) * k
    x = c * p[0] - s * p[1]
    y = s * p[0] + c * p[1]
    v = g + h * p
    back = qd.Vector([c * v[0] + s * v[1], c * v[1] - s * v[0], v[2]])
    return back + h * qd.Vector([x, y, p[2]]), (x * v[1] - y * v[0]) * 1e-3


@qd.kernel
def recorded(x: vec, y: vec, n: qd.i32):
    for i in x:
        v = x[i]
        for j in range(n):
            if v > 0.3:
                v = root(v * x[i], 20) + 0.1 * j
        y[i] = v


@qd.kernel
def plain(x: vec, y: vec, n: qd.i32):
    for i in x:
        v = x[i]
        for j in range(n):
            if v > 0.3:
                v = qd.sqrt(v * x[i]) + 0.1 * j
        y[i] = v


@qd.kernel
def rounded(x: vec, y: vec):
    for i in x:
        y[i] = straight(x[i]) * x[i]


@qd.kernel
def clip(x: vec, y: vec):
    for i in x:
        y[i] = 5.0 * clipped(x[i]) ** 2


@qd.kernel
def turn(p: points, angle: vec, y: points, z: vec):
    for i in p:
        k = i + 1
        y[i], z[i] = turned(p[i], angle[i], k)


@qd.kernel
def energy(x: vec) -> qd.f64:
    total = 0.0
    for i in range(x.shape[0]):
        total += root(x[i], 20) * x[i]
    return total


def gradient(kernel: Any, x: Any = X, adjoint: Any = None, **given: Any) -> Any:
    adjoint = np.linspace(1.0, 2.0, x.size) if adjoint is None else adjoint
    function = qd.ad.vjp(kernel, out={"y": "x"}, by="x")
    results, gradients = function(x, **given, adjoints=adjoint)
    return results, gradients["x"]


def test_a_recorded_loop_with_branches() -> None:
    for found, wanted in zip(gradient(recorded, n=6), gradient(plain, n=6), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_loops_in_blocks_of_a_small_tape() -> None:
    qd.init(arch=qd.cpu, default_fp=qd.f64, ad_stack_budget_bytes=256, log_level="error")
    np.testing.assert_allclose(gradient(recorded, n=40)[1], gradient(plain, n=40)[1], rtol=1e-9)


def test_a_straight_through_estimator() -> None:
    values, slopes = gradient(rounded, adjoint=np.ones(5))
    np.testing.assert_allclose(values, np.round(X) * X)
    np.testing.assert_allclose(slopes, np.round(X) + X)


def test_a_clipped_gradient() -> None:
    np.testing.assert_allclose(gradient(clip, adjoint=np.ones(5))[1], np.minimum(10.0 * X, 1.0))


def test_several_results_and_arguments_of_several_sorts() -> None:
    p = np.arange(6.0).reshape(2, 3) + 0.5
    angle = np.array([0.3, -1.1])
    g, h = np.linspace(-1.0, 1.0, 6).reshape(2, 3), np.array([0.4, -0.7])
    function = qd.ad.vjp(turn, out={"y": "p", "z": "angle"}, by=("p", "angle"))
    (y, z), found = function(p, angle, adjoints=(g, h))

    def value(p: Any, angle: Any) -> Any:
        k = np.array([1, 2])
        c, s = np.cos(angle) * k, np.sin(angle) * k
        x = np.stack([c * p[:, 0] - s * p[:, 1], s * p[:, 0] + c * p[:, 1], p[:, 2]], axis=1)
        return x, (x * p).sum(1)

    for one, other in zip((y, z), value(p, angle), strict=True):
        np.testing.assert_allclose(one, other)

    def loss(p: Any, angle: Any) -> Any:
        x, dot = value(p, angle)
        return (x * g).sum() + (dot * h).sum()

    step = 1e-6
    wanted = np.zeros_like(p)
    for k in np.ndindex(p.shape):
        e = np.zeros_like(p)
        e[k] = step
        wanted[k] = (loss(p + e, angle) - loss(p - e, angle)) / (2 * step)
    np.testing.assert_allclose(found["p"], wanted, rtol=1e-7)
    for k in range(2):
        e = np.zeros(2)
        e[k] = step
        slope = (loss(p, angle + e) - loss(p, angle - e)) / (2 * step)
        np.testing.assert_allclose(found["angle"][k], slope * 1e-3, rtol=1e-7)
    tangents = {"p": g, "angle": h}
    forward = qd.ad.jvp(turn, out={"y": "p", "z": "angle"})
    _, (along, dots) = forward(p, angle, tangents=tangents)
    product = sum((found[name] * tangents[name]).sum() for name in tangents)
    np.testing.assert_allclose((along * g).sum() + (dots * h).sum(), product)


def test_tangents_and_second_derivatives() -> None:
    forward = qd.ad.jvp(recorded, out={"y": "x"})
    direction = np.linspace(-1.0, 1.0, 5)
    _, tangent = forward(X, n=6, tangents={"x": direction})
    _, slopes = gradient(recorded, n=6, adjoint=np.ones(5))
    np.testing.assert_allclose(tangent, slopes * direction, rtol=1e-12)
    _, found, products = qd.ad.hvp(energy, by="x")(X, direction={"x": direction})
    np.testing.assert_allclose(found["x"], 1.5 * np.sqrt(X))
    np.testing.assert_allclose(products["x"], 0.75 / np.sqrt(X) * direction)


def test_a_nonlinear_adjoint_has_no_tangents() -> None:
    with pytest.raises(OctantsError) as caught:
        qd.ad.jvp(clip, out={"y": "x"})(X, tangents={"x": X})
    check_golden("errors/OCT362_clipped", without_lines(str(caught.value)))


def test_functions_of_a_tape() -> None:
    x = qd.field(qd.f64, shape=5, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def step():
        for i in x:
            x[i] = root(x[i], 20) * x[(i + 1) % 5 // 5 + i]

    @qd.kernel
    def total():
        for i in x:
            loss[None] += x[i]

    x.from_numpy(X)
    with qd.ad.Tape(loss=loss):
        step()
        step()
        total()
    np.testing.assert_allclose(x.grad.to_numpy(), 2.25 * X**1.25)


def test_a_method_a_constant_and_a_function_within() -> None:
    class Law:
        def __init__(self, slope: float) -> None:
            self.slope = slope

        @qd.func
        def at(self, x, table: qd.template()):
            return qd.floor(x) + table[0]

        @at.adjoint
        def at_adjoint(self, x, table, g):
            return straight(g * self.slope)

    law = Law(3.0)
    table = qd.field(qd.f64, shape=1)
    table[0] = 2.0

    @qd.kernel
    def apply(x: vec, y: vec):
        for i in x:
            y[i] = law.at(x[i], table)

    values, slopes = gradient(apply, adjoint=np.ones(5))
    np.testing.assert_allclose(values, np.floor(X) + 2.0)
    np.testing.assert_allclose(slopes, np.full(5, 3.0))


def test_an_unused_branch_whose_adjoint_is_infinite() -> None:
    @qd.func
    def inverse(x):
        return qd.select(x > 0.0, 1.0 / x, 0.0)

    @inverse.adjoint
    def inverse_adjoint(x, g):
        return -g / (x * x)

    @qd.kernel
    def safe(x: vec, y: vec):
        for i in x:
            y[i] = qd.select(x[i] > 0.0, inverse(x[i]), 2.0 * x[i])

    x = np.array([0.0, 2.0])
    np.testing.assert_allclose(gradient(safe, x, np.ones(2))[1], [2.0, -0.25])


def test_f16_and_f32() -> None:
    for dtype, kind in ((qd.f16, np.float16), (qd.f32, np.float32)):
        small = qd.types.ndarray(dtype, 1)

        @qd.kernel
        def apply(x: small, y: small):
            for i in x:
                y[i] = straight(x[i]) * x[i]

        x = np.array([0.75, 2.25], kind)
        _, found = gradient(apply, x, np.ones(2, kind))
        np.testing.assert_allclose(found, np.round(x) + x)


# -- mistakes --------------------------------------------------------------------------------------


def _mistakes() -> dict[str, Any]:
    @qd.func
    def f(x, y):
        return x * y

    @f.adjoint
    def f_adjoint(x, g):
        return g

    @qd.func
    def one(x, y):
        return x * y

    @one.adjoint
    def one_adjoint(x, y, g):
        return g * y

    @qd.func
    def shape(v):
        return v.sum()

    @shape.adjoint
    def shape_adjoint(v, g):
        return g

    @qd.func
    def whole(x):
        return qd.cast(x, qd.i32)

    @whole.adjoint
    def whole_adjoint(x, g):
        return g

    @qd.func
    def nothing(x):
        return 2.0 * x

    @nothing.adjoint
    def nothing_adjoint(x, g):
        y = g  # noqa: F841

    @qd.func
    def writes(x, to: qd.template()):
        to[0] = x
        return x

    @writes.adjoint
    def writes_adjoint(x, to, g):
        return g

    @qd.func
    def reads(x, table: qd.template()):
        return x * table[0]

    @reads.adjoint
    def reads_adjoint(x, table, g):
        return g

    @qd.func
    def loads(x, table: qd.template()):
        return 2.0 * x

    @loads.adjoint
    def loads_adjoint(x, table, g):
        return g * table[0]

    @qd.func
    def reference(x: qd.template()):
        return 2.0 * x

    @reference.adjoint
    def reference_adjoint(x: qd.template(), g):
        return g

    @qd.kernel
    def arity(x: vec):
        for i in x:
            x[i] = f(x[i], 2.0)

    @qd.kernel
    def too_few(x: vec):
        for i in x:
            x[i] = one(x[i], 2.0)

    @qd.kernel
    def wrong_shape(x: vec):
        for i in x:
            x[i] = shape(qd.Vector([x[i], 2.0]))

    @qd.kernel
    def integer(x: vec):
        for i in x:
            x[i] = whole(x[i])

    @qd.kernel
    def no_return(x: vec):
        for i in x:
            x[i] = nothing(x[i])

    @qd.kernel
    def write(x: vec):
        for i in x:
            x[i] = writes(x[i], x)

    @qd.kernel
    def read(x: vec):
        for i in x:
            x[i] = reads(x[i], x)

    @qd.kernel
    def load(x: vec):
        for i in x:
            x[i] = loads(x[i], x)

    @qd.kernel
    def by_reference(x: vec):
        for i in x:
            x[i] = reference(x[i])

    return {
        "OCT360_arity": arity,
        "OCT360_too_few": too_few,
        "OCT360_wrong_shape": wrong_shape,
        "OCT360_integer": integer,
        "OCT360_no_return": no_return,
        "OCT360_by_reference": by_reference,
        "OCT361_write": write,
        "OCT361_read": read,
        "OCT361_load": load,
    }


@pytest.mark.parametrize("name", list(_mistakes()))
def test_mistakes(name: str) -> None:
    kernel = _mistakes()[name]
    x = qd.ndarray(qd.f64, 2, needs_grad=True)
    with pytest.raises(OctantsError) as caught:
        kernel(x)
    check_golden(f"errors/{name}", without_lines(str(caught.value)))


def test_what_is_returned_for_an_integer_is_left_out() -> None:
    @qd.func
    def scaled(x, n):
        return x * n

    @scaled.adjoint
    def scaled_adjoint(x, n, g):
        return 10.0 * g * n, g * x

    x = qd.field(qd.f64, shape=3, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)
    x.from_numpy(np.array([1.0, 2.0, 3.0]))

    @qd.kernel
    def kernel():
        for i in x:
            loss[None] += scaled(x[i], 2) + scaled(x[i], i) + scaled(3, x[i])

    with qd.ad.Tape(loss=loss):
        kernel()
    assert x.grad.to_numpy().tolist() == [23.0, 33.0, 43.0]


def test_an_adjoint_that_comes_too_late(tmp_path: Path) -> None:
    """A kernel that was compiled, or loaded from the cache, would keep its derivative."""
    program = tmp_path / "late.py"
    program.write_text(
        "import octants as qd\n"
        "qd.init(arch=qd.cpu, offline_cache=True, offline_cache_file_path='cache')\n"
        "@qd.func\n"
        "def f(x):\n    return 2.0 * x\n"
        "@qd.kernel\n"
        "def k(x: qd.f32) -> qd.f32:\n    return f(x)\n"
        "k(1.0)\n"
        "@f.adjoint\n"
        "def f_adjoint(x, g):\n    return g\n"
    )
    for _ in range(2):
        found = subprocess.run(
            [sys.executable, program.name],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        text = found.stderr[found.stderr.index("OCT365") :].strip()
        check_golden("errors/OCT365_late", text)


def test_what_is_no_function() -> None:
    with pytest.raises(TypeError, match=r"`@root\.adjoint` decorates functions"):
        root.adjoint(3)  # type: ignore[attr-defined]
