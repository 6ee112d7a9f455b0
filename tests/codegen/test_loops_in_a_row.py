"""Loops one after the other, whose reverse divides integers to find checkpoints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.codegen.llvm import cpu
from octants.codegen.llvm.lanes.vector_capabilities import lanes_of_target
from tests.api.test_deep_programs import define

has_lanes = pytest.mark.skipif(
    not lanes_of_target(cpu.host_target()), reason="this processor has no lanes"
)


def loops(count: int) -> list[str]:
    """So many loops, one after the other, of as many iterations as there are work items."""
    return [
        line
        for number in range(count)
        for line in (f"for t{number} in range(x.shape[0]):", "    v = v * v * 0.5 + 0.1")
    ]


def arrays(count: int = 5) -> tuple[Any, Any]:
    x, y = (qd.ndarray(qd.f64, count, needs_grad=True) for _ in range(2))
    x.from_numpy(np.linspace(0.1, 0.9, count))
    y.grad.fill(1)
    return x, y


@pytest.mark.parametrize("simd", ["never", pytest.param("always", marks=has_lanes)])
@pytest.mark.parametrize("budget", [0, 1024])
def test_gradients_are_right(simd: str, budget: int) -> None:
    """The smaller budget needs checkpoints, on levels."""
    qd.init(arch=qd.cpu, simd=simd, ad_stack_budget_bytes=budget, cpu_max_num_threads=1)
    x, y = arrays(300)
    kernel = define(loops(2))
    kernel(x, y)
    kernel.grad(x, y)
    values, step = x.to_numpy(), 1e-6
    found = []
    for sign in (1, -1):
        x.from_numpy(values + sign * step)
        kernel(x, y)
        found.append(y.to_numpy())
    slopes = (found[0] - found[1]) / (2 * step)
    np.testing.assert_allclose(x.grad.to_numpy(), slopes, rtol=1e-6, atol=1e-9)


def test_loops_that_divide_integers() -> None:
    @qd.kernel
    def digits(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in range(x.shape[0]):
            left, found, seen = qd.cast(x[i], qd.u64), qd.cast(0, qd.u64), 0
            while left > 0 and seen < 40:
                found = found * 7 + left % 10
                left = left // 10
                seen += 1
            y[i] = qd.cast(found, qd.f64)

    qd.init(arch=qd.cpu)
    x, y = (qd.ndarray(qd.f64, 20) for _ in range(2))
    numbers = np.arange(20) ** 7
    x.from_numpy(numbers.astype(np.float64))
    digits(x, y)
    expected = []
    for number in numbers.tolist():
        found = 0
        while number:
            number, digit = divmod(number, 10)
            found = found * 7 + digit
        expected.append(found)
    np.testing.assert_array_equal(y.to_numpy(), expected)
