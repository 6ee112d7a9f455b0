"""Subnormal results: with `fast_math` they are zero on x64, and nowhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.codegen.llvm.llvmlite_driver import is_x64
from octants.ir.core import Module
from octants.runtime.cpu import CpuDevice
from octants.types.scalars import DType, f32, f64
from tests.codegen.compiled import TARGET, Compiled, ndarray, parallel, serial

FLUSHES = is_x64(TARGET)


def product(dtype: DType, simd: Any) -> Module:
    """``z[i] = x[i] * y[i]``, in lanes, one by one, or (None) in a serial task for one element."""
    x, y, z = (ndarray(name, dtype) for name in "xyz")

    def multiply(build: Any, i: Any) -> None:
        value = build.binary("mul", build.load(x, [i]), build.load(y, [i]))
        build.store(z, [i], value)

    if simd is None:
        task = serial("t", lambda build: multiply(build, build.index(0)))
    else:
        task = parallel("t", lambda build: (build.index(0), build.shape(x, 0)), multiply)
        task.options["simd"] = simd
    return Module("product", [x, y, z], tasks=[task])


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("simd", [True, False, None])
@pytest.mark.parametrize("fast_math", [True, False])
@pytest.mark.parametrize("threads", [1, 3])
def test_results(dtype: DType, simd: Any, fast_math: bool, threads: int) -> None:
    device = CpuDevice(threads)
    count = 1 if simd is None else 200_003
    tiny = np.full(count, np.finfo(dtype.numpy).tiny)
    halves = np.where(np.arange(count) % 5 == 0, 0.5, 2.0).astype(dtype.numpy)
    z = np.zeros_like(tiny)
    Compiled(product(dtype, simd), device, fast_math=fast_math).run(
        {"x": tiny, "y": halves, "z": z}
    )
    wanted = tiny * halves
    assert wanted[0] != 0  # numpy's mode has not changed, also in the thread of the launch
    if fast_math and FLUSHES:
        wanted[::5] = 0
    np.testing.assert_array_equal(z, wanted)
    z[:] = 0  # a factor that is subnormal keeps its value
    Compiled(product(dtype, simd), device, fast_math=fast_math).run(
        {"x": tiny * tiny.dtype.type(0.5), "y": np.full_like(tiny, 4.0), "z": z}
    )
    np.testing.assert_array_equal(z, tiny * 2)
    device.close()


@pytest.mark.parametrize("fast_math", [True, False])
def test_adjoints(fast_math: bool) -> None:
    qd.init(arch=qd.cpu, fast_math=fast_math)
    x = qd.field(qd.f32, shape=8, needs_grad=True)
    y = qd.field(qd.f32, shape=8, needs_grad=True)

    @qd.kernel
    def shrink():
        for i in x:
            v = x[i]
            for _ in range(i * 20):
                v *= 0.5
            y[i] = v

    x.fill(1.0)
    shrink()
    y.grad.fill(1.0)
    shrink.grad()
    powers = np.ldexp(np.float32(1), -20 * np.arange(8)).astype(np.float32)
    if fast_math and FLUSHES:
        powers[powers < np.finfo(np.float32).tiny] = 0
    np.testing.assert_array_equal(y.to_numpy(), powers)
    np.testing.assert_array_equal(x.grad.to_numpy(), powers)
