"""Gradients of branches deep within each other, which compute again what they need."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import octants as qd
from octants.autodiff.facts import deeply_nested_ifs
from tests.api.test_deep_programs import define
from tests.devices import beyond_llvmpipe, on_cpu

DEPTH = deeply_nested_ifs.MAX_DEPTH + 2
OF_LOOPS = 6
"""The depth from which loops compute again here: deeper ones take long to compile."""
POINTS = np.linspace(0.0213717, 0.9677731, 10)  # none of them is a limit of a branch
WEIGHTS = np.cos(np.arange(10))


def alternatives(*work: str, depth: int = DEPTH) -> list[str]:
    """A chain of alternatives of these lines."""
    lines = []
    for k in range(depth):
        lines.append(f"{'el' if k else ''}if v > {0.98 * (1 - (k + 1) / depth)!r}:")
        lines += ["    " + line.replace("#", str(k)) for line in work]
    return [*lines, "else:", "    v = v * 0.5"]


def nested(before: list[str], after: list[str], depth: int = DEPTH) -> list[str]:
    """Ifs within each other, with lines before the inner one and after it."""
    lines = []
    for k in range(depth):
        lines.append("    " * k + f"if v > {0.3 * k / depth!r}:")
        lines += ["    " * (k + 1) + line.replace("#", str(k)) for line in before]
    for k in reversed(range(depth)):
        lines += ["    " * (k + 1) + line.replace("#", str(k)) for line in after]
    return lines


PROGRAMS = {
    "work": alternatives("u = v * 1.#", "v = qd.sin(u) * u + qd.exp(u) + x[i] * v"),
    "used after": [
        "w = v",
        *alternatives("w = qd.sin(v) * #.5", "v = w * w"),
        "v = v * w + qd.sin(w)",
    ],
    "loops": alternatives(
        "for j in range(3 + i % 2):", "    v = v * v * 0.5 + qd.sin(v) * 0.#", depth=OF_LOOPS + 2
    ),
    "while": alternatives("u = v", "while u < 2.0:", "    u = u * 1.5 + v * v", "v = u * v"),
    "in a loop": [
        "for t in range(3):",
        *(f"    {line}" for line in alternatives("for j in range(2):", "    v = v * (v + 0.1)")),
        "    v = v * 0.9 + 0.05",
    ],
    "nested": nested(["v = v * 0.99 + 0.01 * v * v"], []),
    "nested, used after": nested(
        ["u# = v * 0.99 + 0.01 * v * v", "v = qd.sin(u#)"], ["v = v * u# + 0.5"]
    ),
    "nested loops": nested(
        ["for j in range(2 + i % 2):", "    v = v * 0.9 + 0.1 * v * v"], [], OF_LOOPS + 2
    ),
    "overwritten": alternatives("a = x[i]", "v = v * a * 1.#", "x[i] = v", "v = v * x[i]"),
    "atomic": alternatives("a = qd.atomic_add(y[i], v * v)", "v = v * a + v * 1.#"),
    "integers": ["c = 0", *alternatives("c = c + # % 3", "v = v * v * (1.0 + c)"), "v = v * c"],
}


def values(lines: list[str], points: NDArray[np.float64]) -> NDArray[np.float64]:
    x, y = qd.ndarray(qd.f64, points.size), qd.ndarray(qd.f64, points.size)
    x.from_numpy(points)
    define(lines)(x, y)
    return y.to_numpy()


def gradient(lines: list[str], simd: str) -> NDArray[np.float64]:
    qd.init(arch=qd.cpu, default_fp=qd.f64, offline_cache=False, simd=simd)
    x, y = (qd.ndarray(qd.f64, POINTS.size, needs_grad=True) for _ in range(2))
    x.from_numpy(POINTS)
    kernel = define(lines)
    with qd.ad.Tape(loss=y, seed=WEIGHTS):
        kernel(x, y)
    return x.grad.to_numpy()


LARGE = ("loops", "nested loops")  # for which Mesa's driver takes minutes


@pytest.fixture
def lines(program: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A program, with a limit that it exceeds."""
    if program in LARGE:
        monkeypatch.setattr(deeply_nested_ifs, "MAX_DEPTH", OF_LOOPS)
    return PROGRAMS[program]


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(
            p,
            marks=[beyond_llvmpipe] * (p in LARGE) + [pytest.mark.slow] * (p == "nested loops"),
        )
        for p in PROGRAMS
    ],
)
def test_gradient(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = gradient(lines, "never")
    both = values(lines, np.concatenate([POINTS + 1e-6, POINTS - 1e-6])).reshape(2, -1)
    assert np.allclose(found, WEIGHTS * (both[0] - both[1]) / 2e-6, rtol=1e-6, atol=1e-8)
    monkeypatch.setattr(deeply_nested_ifs, "MAX_DEPTH", 1000)  # all is handed out
    assert np.array_equal(gradient(lines, "never"), found)


@on_cpu
@pytest.mark.parametrize(
    "program", ["work", pytest.param("loops", marks=pytest.mark.slow), "overwritten", "integers"]
)
def test_gradient_in_lanes(lines: list[str]) -> None:
    assert np.array_equal(gradient(lines, "always"), gradient(lines, "never"))


def test_what_is_not_handed_out() -> None:
    qd.init(arch=qd.cpu, default_fp=qd.f64, offline_cache=False, simd="never")
    x, y = (qd.ndarray(qd.f64, 1, needs_grad=True) for _ in range(2))
    text = define(PROGRAMS["work"]).inspect(x, y, mode="reverse").llvm_ir
    assert text.count("phi i1") == 0
    assert text.count("phi double") <= 2 * DEPTH
