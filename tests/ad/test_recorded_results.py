"""Records that hold results: functions are computed once, and gradients stay as they are."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.codegen.llvm.cpu import has_fused, host_target
from tests.ad.record_buffers import check_gradient, iteration_bytes
from tests.seeds import pairwise


@qd.kernel
def decay(x: qd.Tensor, y: qd.Tensor, n: qd.Tensor):
    for i in range(x.shape[0]):
        v = x[i]
        for _ in range(n[i]):
            v = 0.3 + qd.exp(-0.8 * v)
        y[i] = v


@qd.kernel
def nested(x: qd.Tensor, y: qd.Tensor, n: qd.Tensor):
    for i in range(x.shape[0]):
        v, total = x[i], 0.0
        for j in range(n[i]):
            for _ in range(j):
                total += 0.1 * v
                v = qd.tanh(v) + 0.2
            if v > 0.5:
                v = 0.9 * qd.tanh(v)
        y[i] = total


@qd.kernel
def two_functions(x: qd.Tensor, y: qd.Tensor, n: qd.Tensor):
    for i in range(x.shape[0]):
        v = x[i]
        for _ in range(n[i]):
            v = qd.exp(-v) + 0.1 * qd.tanh(v) + 0.1 * v * v
        y[i] = v


@qd.kernel
def only_sometimes(x: qd.Tensor, y: qd.Tensor, n: qd.Tensor):
    for i in range(x.shape[0]):
        v = x[i]
        for _ in range(n[i]):
            if v > 0.6:
                v = qd.exp(-v)
            v += 0.1
        y[i] = v


@qd.kernel
def of_the_counter(x: qd.Tensor, y: qd.Tensor, n: qd.Tensor):
    for i in range(x.shape[0]):
        v = x[i]
        for j in range(n[i]):
            for k in range(2, j):
                v = 0.2 * x[i] + qd.exp(0.01 * k - v)
        y[i] = v


@qd.kernel
def of_loads(x: qd.Tensor, y: qd.Tensor, n: qd.Tensor):
    for i in range(x.shape[0]):
        v, k = x[i], 0
        while k < n[i] and v < 3.0:
            v = 0.1 + qd.tanh(v - x[(i + k) % 11])
            k += 2
        y[i] = v


@qd.kernel
def of_two_carried(x: qd.Tensor, y: qd.Tensor, n: qd.Tensor):
    for i in range(x.shape[0]):
        v, w = x[i], 0.1
        for _ in range(n[i]):
            v = qd.tanh(v + 0.3 * w)
            w = 0.5 * w + 0.1
        y[i] = v


@qd.kernel
def behind_a_loop(x: qd.Tensor, y: qd.Tensor, n: qd.Tensor):
    for i in range(x.shape[0]):
        v = x[i]
        for _ in range(n[i]):
            s = 0.0
            for k in range(3):
                s += 0.1 * k * x[i]
            v = qd.tanh(v - s)
        y[i] = v


def arrays() -> tuple[Any, Any, Any]:
    x, y = (qd.ndarray(qd.f64, shape=11, needs_grad=True) for _ in range(2))
    n = qd.ndarray(qd.i32, shape=11)
    x.from_numpy(np.linspace(0.2, 1.5, 11))
    n.from_numpy((np.arange(11) * 5 % 12).astype(np.int32))
    return x, y, n


@pytest.mark.parametrize(
    ("kernel", "simd", "budget"),
    pairwise(
        [
            decay,
            nested,
            two_functions,
            only_sometimes,
            of_the_counter,
            of_loads,
            of_two_carried,
            behind_a_loop,
        ],
        ["always", "never"],
        [0, 300],
    ),
)
def test_gradients(kernel: Any, simd: str, budget: int) -> None:
    qd.init(arch=qd.cpu, default_fp=qd.f64, simd=simd, ad_stack_budget_bytes=budget)
    x, y, n = arrays()
    check_gradient(lambda: kernel(x, y, n), lambda: kernel.grad(x, y, n), x, y)


def test_a_result_is_recorded_instead_of_what_it_is_made_from() -> None:
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    x, y, n = arrays()
    text = decay.inspect(x, y, n, mode="reverse").stages["reverse"]
    popped = re.findall(r"(%\d+): f64 = record_pop<#r\d", text)
    assert len(popped) == 1
    assert not re.search(rf"unary<\w+>\({popped[0]}\)", text)
    assert iteration_bytes(decay, x, y, n) == [8]
    (loop,) = decay.grad.explain(x, y, n).loops
    assert [slot.name for slot in loop.slots] == ["exp(mul(v))"]


@pytest.mark.parametrize(
    ("kernel", "names"),
    [
        (of_the_counter, ["exp(fma(-v))"]),
        (of_loads, ["tanh(sub(v))"]),
        (of_two_carried, ["tanh(fma(w))"]),
    ],
)
def test_other_values_of_the_iteration_take_part(kernel: Any, names: list[str]) -> None:
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    x, y, n = arrays()
    *_, loop = kernel.grad.explain(x, y, n).loops
    assert [slot.name for slot in loop.slots if slot.name.startswith(("exp", "tanh"))] == names


@pytest.mark.parametrize("kernel", [two_functions, only_sometimes])
def test_what_is_made_into_several_things_is_recorded_itself(kernel: Any) -> None:
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    x, y, n = arrays()
    (loop,) = kernel.grad.explain(x, y, n).loops
    assert [slot.name for slot in loop.slots] == ["v"]


@qd.kernel
def swing(x: qd.Tensor, y: qd.Tensor, n: qd.Tensor):
    for i in range(x.shape[0]):
        v = x[i]
        for _ in range(n[i]):
            v = qd.sin(v) * 0.95 + 0.1
        y[i] = v


@qd.kernel
def swing_and_turn(x: qd.Tensor, y: qd.Tensor, n: qd.Tensor):
    for i in range(x.shape[0]):
        v = x[i]
        for _ in range(n[i]):
            v = qd.sin(v) * 0.95 + 0.1
            if qd.cos(v) < 0.5:
                v -= 0.2
        y[i] = v


def reverse_text(kernel: Any, fast_math: bool, dtype: Any) -> str:
    qd.init(arch=qd.cpu, default_fp=dtype, fast_math=fast_math)
    x, y = (qd.ndarray(dtype, shape=11, needs_grad=True) for _ in range(2))
    n = qd.ndarray(qd.i32, shape=11)
    return str(kernel.inspect(x, y, n, mode="reverse").stages["reverse"])


@pytest.mark.skipif(not has_fused(host_target()), reason="there are no short ways here")
def test_cosines_are_recorded_beside_sines() -> None:
    text = reverse_text(swing, True, qd.f32)
    assert "cos_beside_sin" in text
    assert "unary<cos>" not in text
    for fast_math, dtype in ((False, qd.f32), (True, qd.f64)):
        assert "cos_beside_sin" not in reverse_text(swing, fast_math, dtype)
    text = reverse_text(swing_and_turn, True, qd.f32)
    assert "unary<cos>" in text  # what decides about a branch is exact


@pytest.mark.parametrize("kernel", [swing, swing_and_turn])
def test_gradients_beside_sines(kernel: Any) -> None:
    found = {}
    for dtype in (qd.f32, qd.f64):
        qd.init(arch=qd.cpu, default_fp=dtype)
        x, y = (qd.ndarray(dtype, shape=50, needs_grad=True) for _ in range(2))
        n = qd.ndarray(qd.i32, shape=50)
        n.from_numpy((np.arange(50) % 40).astype(np.int32))
        x.from_numpy(np.linspace(-2, 2, 50).astype(y.to_numpy().dtype))
        kernel(x, y, n)
        y.grad.fill(1)
        kernel.grad(x, y, n)
        found[dtype] = x.grad.to_numpy()
    np.testing.assert_allclose(found[qd.f32], found[qd.f64], rtol=2e-5, atol=1e-6)
