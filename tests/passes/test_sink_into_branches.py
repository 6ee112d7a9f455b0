"""What only one branch makes different from nothing moves into that branch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.passes.code_motion.sink_into_branches import sink_into_branches
from tests.ir.parser import parse

N = 24
HEAD = """\
kernel @k
array @x: f32, 1, ndarray, () [primal]
array @y: f32, 1, ndarray, () [primal]
array @n: i32, 1, ndarray, () [primal]
parallel @k_0 {
  %0: i32 = constant<0>()
  %1: i32 = shape<@x, 0>()
  yield(%0, %1)
} { (%2: i32):
  %3: f32 = constant<0.0>()
  %4: f32 = constant<1.0>()
  %5: f32 = load<@x, primal>(%2)
  %6: u1 = compare<gt>(%5, %4)
  %7: f32, %8: f32 = if(%6) {
    %9: f32 = unary<exp>(%5)
    yield(%9, %5)
  } {
    yield(%3, %4)
  }
"""


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    yield
    qd.reset()


def rewritten(*lines: str) -> str:
    """A module whose task has lines behind an if that yields 0 and 1 in its second branch."""
    module = parse(HEAD + "".join(f"  {line}\n" for line in (*lines, "yield()")) + "}\n")
    sink_into_branches(module)
    verify(module)
    return to_text(module)


def adds_in_branch(text: str) -> bool:
    """Whether the only addition to memory is in an if."""
    (line,) = (line for line in text.splitlines() if "atomic" in line)
    return line.startswith("    ")


ADD = "%20: f32 = atomic<add, @y, primal>(%19, %2)"
SUNK: dict[str, tuple[str, ...]] = {
    "as it is": ("%19: f32 = select(%6, %7, %7)",),
    "product": ("%19: f32 = binary<mul>(%7, %5)",),
    "product of the other": ("%18: f32 = binary<sub>(%8, %4)", "%19: f32 = binary<mul>(%5, %18)"),
    "negated": ("%19: f32 = unary<neg>(%7)",),
    "fused": ("%19: f32 = fma(%7, %5, %7)",),
    "select": (
        "%17: u1 = compare<ne>(%7, %3)",
        "%18: f32 = binary<div>(%5, %7)",
        "%19: f32 = select(%17, %18, %3)",
    ),
    "branch": (
        "%17: u1 = compare<ne>(%7, %3)",
        "%19: f32 = if(%17) {",
        "  %18: f32 = unary<exp>(%7)",
        "  yield(%18)",
        "} {",
        "  yield(%7)",
        "}",
    ),
    "the same branch": (
        "%19: f32 = if(%6) {",
        "  %18: f32 = unary<exp>(%7)",
        "  yield(%18)",
        "} {",
        "  yield(%3)",
        "}",
    ),
}
LEFT: dict[str, tuple[str, ...]] = {
    "one": ("%19: f32 = select(%6, %8, %8)",),
    "exponential": ("%19: f32 = unary<exp>(%7)",),
    "quotient": ("%19: f32 = binary<div>(%7, %5)",),
    "sum": ("%19: f32 = binary<add>(%7, %5)",),
    "read between": ("%18: f32 = load<@y, primal>(%2)", "%19: f32 = binary<mul>(%7, %18)"),
    "index": (
        "%18: f32 = binary<add>(%7, %5)",
        "%17: i32 = cast(%18)",
        "%16: i32 = load<@n, primal>(%17)",
        "%15: f32 = cast(%16)",
        "%19: f32 = binary<mul>(%7, %15)",
    ),
}


@pytest.mark.parametrize("name", SUNK)
def test_what_is_sunk(name: str) -> None:
    assert adds_in_branch(rewritten(*SUNK[name], ADD))


@pytest.mark.parametrize("name", LEFT)
def test_what_stays(name: str) -> None:
    assert not adds_in_branch(rewritten(*LEFT[name], ADD))


@pytest.mark.parametrize("fn", ["max", "or"])
def test_other_updates_stay(fn: str) -> None:
    array, value = ("y", "%7") if fn == "max" else ("n", "%18")
    line = f"%20: {'f32' if fn == 'max' else 'i32'} = atomic<{fn}, @{array}, primal>({value}, %2)"
    assert not adds_in_branch(rewritten("%18: i32 = cast(%7)", line))


def test_a_result_that_is_used_stays() -> None:
    add = "%20: f32 = atomic<add, @y, primal>(%7, %2)"
    assert not adds_in_branch(rewritten(add, "store<@x, primal>(%20, %2)"))


# -- gradients -------------------------------------------------------------------------------------


@qd.kernel
def near(x: qd.types.NDArray[qd.f64, 2], out: qd.types.NDArray[qd.f64, 1], reach: qd.f64):
    for i in range(x.shape[0]):
        total = 0.0
        for j in range(x.shape[0]):
            d0, d1 = x[i, 0] - x[j, 0], x[i, 1] - x[j, 1]
            r2 = d0 * d0 + d1 * d1
            if i != j and r2 < reach:
                r = qd.sqrt(r2)
                q = r / reach
                if q < 0.7:
                    total += (1.0 - q) ** 3 * d0
                else:
                    total += q * d1
        out[i] = total


@qd.kernel
def outside(x: qd.types.NDArray[qd.f64, 2], out: qd.types.NDArray[qd.f64, 1], reach: qd.f64):
    """The distance is taken before the branch, and both branches use it."""
    for i in range(x.shape[0]):
        for j in range(x.shape[0]):
            r = qd.sqrt((x[i, 0] - x[j, 0]) ** 2 + (x[i, 1] - x[j, 1]) ** 2 + 0.01)
            push = 0.0
            if r < reach:
                push = (reach - r) ** 2
            elif r > 2.0 * reach:
                push = 0.1 * r
            out[i] += push * x[j, 0]


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("kernel", [near, outside])
def test_gradients_of_pairs(kernel: Any, fast: bool) -> None:
    qd.init(arch=qd.cpu, default_fp=qd.f64, fast_math=fast, offline_cache=False)
    rng = np.random.default_rng(2)
    x, out = qd.ndarray(qd.f64, (N, 2), needs_grad=True), qd.ndarray(qd.f64, N, needs_grad=True)
    start, weights = rng.random((N, 2)), rng.random(N)

    def value(at: Any) -> float:
        x.from_numpy(at)
        out.fill(0.0)
        kernel(x, out, 0.4)
        return float(weights @ out.to_numpy())

    value(start)
    out.grad.from_numpy(weights)
    kernel.grad(x, out, 0.4)
    found = x.grad.to_numpy()
    for index in np.ndindex(N, 2):
        assert found[index] == pytest.approx(slope(value, start, index), abs=1e-6)


def slope(value: Callable[[Any], float], start: Any, index: tuple[int, ...]) -> float:
    step = np.zeros_like(start)
    step[index] = 1e-6
    return (value(start + step) - value(start - step)) / 2e-6


def test_only_pairs_that_are_near_are_added() -> None:
    qd.init(arch=qd.cpu, default_fp=qd.f64, offline_cache=False)
    x, out = qd.ndarray(qd.f64, (N, 2), needs_grad=True), qd.ndarray(qd.f64, N, needs_grad=True)
    stages = near.inspect(x, out, 0.4, mode="reverse").stages["finish"]
    lines = [line for line in stages.splitlines() if "atomic<add, @x, adjoint>" in line]
    assert sum(line.startswith(" " * 6) for line in lines) == 2  # in the branch in the loop
