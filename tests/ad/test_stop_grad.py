"""``stop_grad(field)`` is for the block of statements that it stands in, and for that only.

What is expected was found by running the same programs in Quadrants, where it accepts them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import numpy as np
import pytest

import octants as qd
from tests.frontend.frontend_programs import define

X = np.arange(1.0, 5.0)
NONE, SQUARE, CUBE = 0 * X, 2 * X, 3 * X**2

CASES = {
    "one loop of two": (
        """
        for i in range(4):
            qd.stop_grad(x)
            loss[None] += x[i] ** 2
        for i in range(4):
            loss[None] += x[i] ** 2
        """,
        SQUARE,
    ),
    "what is before it": (
        """
        for i in range(4):
            loss[None] += x[i] ** 2
            qd.stop_grad(x)
            loss[None] += x[i] ** 3
        """,
        NONE,
    ),
    "the kernel": (
        """
        for i in range(4):
            loss[None] += x[i] ** 2
        qd.stop_grad(x)
        for i in range(4):
            loss[None] += x[i] ** 2
        """,
        NONE,
    ),
    "a branch": (
        """
        for i in range(4):
            if i > 1:
                qd.stop_grad(x)
                loss[None] += x[i] ** 2
            else:
                loss[None] += x[i] ** 3
        """,
        CUBE * [1, 1, 0, 0],
    ),
    "behind a branch": (
        """
        for i in range(4):
            if i > 0:
                stop(x)
            loss[None] += x[i] ** 2
        """,
        SQUARE,
    ),
    "an if that is known": (
        """
        for i in range(4):
            if True:
                qd.stop_grad(x)
                loss[None] += x[i] ** 2
            loss[None] += x[i] ** 3
        """,
        CUBE,
    ),
    "static": (
        """
        for i in range(4):
            if qd.static(True):
                for j in qd.static(range(2)):
                    qd.stop_grad(x)
            loss[None] += x[i] ** 2
        """,
        NONE,
    ),
    "a conditional expression": (
        """
        for i in range(4):
            loss[None] += x[i] ** 2 if i > 1 else 0.0
            qd.stop_grad(x)
        """,
        NONE,
    ),
    "in a func": (
        """
        for i in range(4):
            loss[None] += stopped_square(x, i) + x[i] ** 3
        for i in range(4):
            loss[None] += x[i] ** 2
        """,
        SQUARE,
    ),
    "for a func": (
        """
        for i in range(4):
            qd.stop_grad(x)
            loss[None] += square(x, i)
        for i in range(4):
            loss[None] += square(x, i)
        """,
        SQUARE,
    ),
    "an inner loop": (
        """
        for i in range(4):
            for j in range(i):
                loss[None] += x[i] ** 3
                qd.stop_grad(x)
            loss[None] += x[i] ** 2
        """,
        SQUARE,
    ),
    "a while": (
        """
        for i in range(4):
            j = 0
            while j < i:
                qd.stop_grad(x)
                loss[None] += x[j] ** 3
                j += 1
            loss[None] += x[i] ** 2
        """,
        SQUARE,
    ),
    "a loop that is left": (
        """
        for i in range(4):
            for j in range(4):
                if j > i:
                    break
                loss[None] += x[j] ** 3
                qd.stop_grad(x)
            loss[None] += x[i] ** 2
        """,
        SQUARE,
    ),
    "what follows continue": (
        """
        for i in range(4):
            loss[None] += x[i] ** 2
            if i > 1:
                continue
            qd.stop_grad(x)
        """,
        NONE,
    ),
    "stores": (
        """
        for i in range(4):
            qd.stop_grad(y)
            y[i] += x[i] ** 2
        for i in range(4):
            loss[None] += y[i]
        """,
        SQUARE,
    ),
}


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error")
    yield
    qd.reset()


@qd.func
def stop(a: qd.template()):
    qd.stop_grad(a)


@qd.func
def square(a: qd.template(), i):
    return a[i] ** 2


@qd.func
def stopped_square(a: qd.template(), i):
    qd.stop_grad(a)
    return a[i] ** 2


@pytest.mark.parametrize("name", CASES)
def test_stop_grad_of_a_field(name: str) -> None:
    body, wanted = CASES[name]
    x, y = (qd.field(qd.f64, 4, needs_grad=True) for _ in range(2))
    loss = qd.field(qd.f64, (), needs_grad=True)
    text = "def kernel():\n" + textwrap.indent(textwrap.dedent(body), "    ")
    names = {"stop": stop, "square": square, "stopped_square": stopped_square}
    kernel = qd.kernel(define(text, qd=qd, x=x, y=y, loss=loss, **names))
    x.from_numpy(X)
    with qd.ad.Tape(loss):
        kernel()
    np.testing.assert_allclose(x.grad.to_numpy(), wanted, rtol=1e-12)
