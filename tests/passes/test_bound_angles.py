"""Tests of `passes.arithmetic.bound_angles`: bit by bit what functions with slow paths give."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import pipeline
from octants.ir import ops
from octants.ir.core import Module
from octants.ir.ops.arithmetic import BOUNDED
from octants.mathlib.evaluate_with_numpy import evaluate
from octants.mathlib.function_registry import function
from octants.passes.arithmetic import bound_angles
from octants.types.scalars import DType, f32, f64
from tests.devices import ARCH

SIZES = (0.0, 1.0, 63.9, 64.1, 5000.0, 6100.0, 9e5, 2e6, 1e30, math.inf, -math.inf, math.nan)


def bits(x: np.ndarray[Any, Any]) -> list[int]:
    """The bits of floats, where all NaN are the same."""
    words = np.where(np.isnan(x), np.float64("nan"), x).astype(x.dtype)
    return words.view(f"u{x.itemsize}").ravel().tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("machine", ["fused", "plain"])
@pytest.mark.parametrize("fast_math", [False, True])
@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("name", BOUNDED)
def test_functions_without_slow_path(
    name: str, dtype: DType, fast_math: bool, machine: str
) -> None:
    block = function(name, dtype, fast_math, machine).block
    assert not any(isinstance(op, ops.If) for op in block.walk())
    for x in (*np.linspace(-60.0, 60.0, 23), math.inf, math.nan):
        found, wanted = (evaluate(fn, dtype, float(x)) for fn in (name, BOUNDED[name]))
        assert found == wanted or (math.isnan(found) and math.isnan(wanted))


@pytest.mark.parametrize("simd", ["always", "never"])
@pytest.mark.parametrize("fast_math", [False, True])
@pytest.mark.parametrize("dtype", [qd.f32, qd.f64], ids=str)
def test_bits_are_those_of_functions_with_slow_paths(
    dtype: DType, fast_math: bool, simd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.array([*SIZES, *np.linspace(-9, 9, 50)]).astype(dtype.numpy)

    @qd.kernel
    def waves(x: qd.types.NDArray[dtype, 1], y: qd.types.NDArray[dtype, 2]):
        for i in x:
            a = 2.0 * np.pi * qd.random(dtype)
            y[i, 0], y[i, 1] = qd.sin(a), qd.cos(a)
            y[i, 2] = qd.tan(qd.min(qd.cos(x[i]), 0.5) * 5900.0)
            y[i, 3] = qd.sin(-qd.sin(x[i]) * 100.0 - a)
            y[i, 4] = qd.cos(qd.sin(x[i]) * 5900.0)
            u = qd.cast(i, dtype) / (x.shape[0] - 1)
            y[i, 5] = qd.sin(60.0 * u) + qd.cos(60.0 * u)
            y[i, 6] = qd.sin(x[i] / (x.shape[0] - i - 1))
            v = u
            for k in range(9):
                v = qd.sin(3.0 * v + x[k] * 0.0) + qd.cos(k / 9.0 * v)
            y[i, 7] = v

    counts = []
    finish = pipeline.finish

    def finish_and_count(module: Module, *given: Any, **options: Any) -> Module:
        result = finish(module, *given, **options)
        named = [op.fn for op in result.walk() if isinstance(op, ops.Unary)]
        counts.append(sum(fn in BOUNDED or fn.endswith("_estimate") for fn in named))
        return result

    monkeypatch.setattr(pipeline, "finish", finish_and_count)

    def run() -> np.ndarray[Any, Any]:
        qd.init(
            arch=getattr(qd, ARCH),
            offline_cache=False,
            log_level="error",
            fast_math=fast_math,
            simd=simd,
        )
        y = np.zeros((len(x), 8), dtype.numpy)
        waves(x, y)
        return y

    found = run()
    monkeypatch.setattr(bound_angles, "_limit", lambda *_: 0.0)
    wanted = run()
    assert counts[0] >= 5
    assert bits(found) == bits(wanted)
    assert np.isfinite(found[:9, :6]).all()


def test_gradients_stay() -> None:
    """A gradient replays sines of a grid, and has cosines of it."""
    qd.init(arch=getattr(qd, ARCH), offline_cache=False, log_level="error")
    w, loss = (qd.field(qd.f32, shape=k, needs_grad=True) for k in (8, ()))

    @qd.kernel
    def run(n: qd.i32, m: qd.i32):
        for i, j in qd.ndrange(n, m):
            s = 0.0
            for k in range(8):
                s += w[k] * qd.sin((k + 1) * np.pi * (i + 0.5) / n) * qd.cos(9.0 * j / m)
            loss[None] += qd.sin(s)

    values = np.linspace(-1.0, 1.0, 8).astype(np.float32)
    w.from_numpy(values)
    loss.grad[None] = 1.0
    run.grad(5, 7)
    i, j, k = np.ogrid[:5, :7, :8]
    terms = np.sin((k + 1) * np.pi * (i + 0.5) / 5) * np.cos(9.0 * j / 7)
    wanted = (np.cos(terms @ values.astype(float))[..., None] * terms).sum((0, 1))
    assert w.grad.to_numpy() == pytest.approx(wanted, rel=1e-4, abs=1e-4)
