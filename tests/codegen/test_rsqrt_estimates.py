"""1 / sqrt by the estimate of a machine: its errors, its special values, and the same bits."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest

from octants.codegen.llvm import cpu
from octants.codegen.llvm.rsqrt_estimates import estimate_of
from octants.fuzz.backends import without_avx512
from octants.ir.core import Module
from octants.runtime.cpu import CpuDevice
from octants.target import Target
from octants.types.scalars import DType, f16, f32, f64
from tests.codegen.compiled import TARGET, Compiled, ndarray, parallel, serial
from tests.mathlib.bounds import bound
from tests.mathlib.compiled_functions import bits, units
from tests.mathlib.samples import random_bits

COUNT = 200_003
ARM64 = Target("cpu", "aarch64-unknown-linux-gnu", "generic", "+neon,+fp-armv8")
INF, NAN = math.inf, math.nan
SPECIAL = [
    (0.0, INF), (-0.0, -INF), (INF, 0.0), (-INF, NAN), (NAN, NAN), (-1.0, NAN), (-1e-45, NAN),
    (1.0, 1.0), (4.0, 0.5), (2.0**-126, 2.0**63), (2.0**-148, 2.0**74), (2.0**126, 2.0**-63),
]  # fmt: skip


def targets() -> dict[str, Target]:
    """This machine, and what it would be without its longest vectors."""
    found = {"host": TARGET}
    if "+avx512vl" in TARGET.features:
        found["avx2"] = without_avx512(TARGET)
    return {name: target for name, target in found.items() if estimate_of(target)}


TARGETS = pytest.mark.parametrize("target", targets().values(), ids=targets())


def roots(simd: Any, dtype: DType = f32, plus: float = 0.0) -> Module:
    """A kernel that computes rsqrt of arrays and a number."""
    x, y = ndarray("x", dtype), ndarray("y", dtype)

    def body(build: Any, i: Any) -> None:
        number = build.load(x, [i])
        if plus:
            number = build.binary("add", number, build.constant(plus, dtype))
        build.store(y, [i], build.unary("rsqrt", number))

    task = parallel("all", lambda build: (build.index(0), build.shape(x, 0)), body)
    task.options["simd"] = simd
    return Module("root", [x, y], tasks=[task])


@functools.cache
def root(
    target: Target, simd: Any, dtype: DType = f32, fast_math: bool = True, plus: float = 0.0
) -> Any:
    """rsqrt of arrays and a number, in so many lanes."""
    module, device = roots(simd, dtype, plus), CpuDevice(max_threads=1)
    kernel = Compiled(module, device, target, fast_math=fast_math)

    def run(values: Any) -> Any:
        result = np.empty_like(values)
        kernel.run({"x": values, "y": result})
        return result

    return run


@functools.cache
def numbers() -> Any:
    """All exponents, all signs, numbers around one, and the special ones."""
    near = np.random.default_rng(5).uniform(0.25, 4.0, COUNT).astype(np.float32)
    ends = np.array([x for x, _ in SPECIAL], np.float32)
    subnormal = np.arange(1, 1 << 23, 4099, dtype=np.uint32).view(np.float32)
    return np.concatenate([random_bits(f32, COUNT, 1), near, ends, subnormal, -subnormal])


@TARGETS
@pytest.mark.parametrize("simd", [False, True])
def test_errors_are_within_the_stated_bound(target: Target, simd: bool) -> None:
    x = numbers()
    with np.errstate(all="ignore"):
        exact = 1 / np.sqrt(x.astype(np.float64))
    errors = units(root(target, simd)(x), exact)
    assert errors.max() <= bound("rsqrt", f32, True), x[errors.argmax()]
    assert errors.max() > 0.5


@TARGETS
@pytest.mark.parametrize("simd", [False, True, 64])
def test_special_values(target: Target, simd: Any) -> None:
    x, wanted = (np.array(column, np.float32) for column in zip(*SPECIAL, strict=True))
    run = root(target, simd)
    assert bits(run(x)).tolist() == bits(wanted).tolist()
    for one, value in zip(x, wanted, strict=True):  # and with others of its kind alone
        assert bits(run(np.full(64, one))).tolist() == bits(np.full(64, value)).tolist()


@TARGETS
@pytest.mark.parametrize("simd", [2, 4, 8, 16, 32, 64])
def test_lanes_have_the_bits_of_one_number(target: Target, simd: int) -> None:
    x = numbers()
    assert np.array_equal(bits(root(target, simd)(x)), bits(root(target, False)(x)))


@TARGETS
@pytest.mark.parametrize("simd", [False, 4, 8, 32])
def test_normal_numbers_have_the_same_bits_without_a_slow_path(target: Target, simd: Any) -> None:
    x = np.concatenate([numbers(), np.array([-1.0, -2.0], np.float32)])
    with np.errstate(all="ignore"):
        sums = x + np.float32(1.0)
    assert np.isinf(sums).any() and np.isnan(sums).any() and (sums == 0).any() and (sums < 0).any()
    found, wanted = root(target, simd, plus=1.0)(x), root(target, False)(sums)
    assert np.array_equal(bits(found), bits(wanted))
    text = cpu.llvm_text(roots(simd, plus=1.0), target, fast_math=True)
    assert "fdiv" not in text
    slow = cpu.llvm_text(roots(simd), target, fast_math=True)
    estimate = estimate_of(target)
    assert estimate is not None and ("fdiv" in slow) == (not estimate.total)


@TARGETS
def test_halves_are_rounded_once(target: Target) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        wanted = root(target, True)(x.astype(np.float32)).astype(np.float16)
    assert np.array_equal(root(target, True, f16)(x), wanted, equal_nan=True)


@pytest.mark.parametrize("dtype", [f16, f32, f64], ids=str)
@pytest.mark.parametrize("fast_math", [False, True])
def test_who_divides(dtype: DType, fast_math: bool) -> None:
    """Without `fast_math` all do, and with it f64 does."""
    with np.errstate(all="ignore"):
        x = np.abs(numbers()).astype(dtype.numpy)
        quotient = dtype.numpy.type(1) / np.sqrt(x)
    found = root(TARGET, True, dtype, fast_math)(x)
    is_exact = np.array_equal(found, quotient, equal_nan=True)
    assert is_exact == (not fast_math or dtype is f64 or estimate_of(TARGET) is None)


def text(target: Target, fast_math: bool, simd: str) -> str:
    x = ndarray("x", f32)

    def body(build: Any, i: Any) -> None:
        build.store(x, [i], build.unary("rsqrt", build.load(x, [i])))

    task = parallel("all", lambda build: (build.index(0), build.shape(x, 0)), body)
    module = Module("root", [x], tasks=[task])
    return cpu.assembly_text(module, target, fast_math=fast_math, simd=simd)


@pytest.mark.parametrize("simd", ["never", "always"])
def test_arm64_has_an_estimate(simd: str) -> None:
    assert "frsqrte" in text(ARM64, True, simd)
    assert "frsqrte" not in text(ARM64, False, simd)


def test_arm64_is_as_exact() -> None:
    """By the estimate that the architecture defines, and the steps that code makes of it."""
    words = np.arange(127 << 23, 129 << 23, 7, dtype=np.uint32)
    x = words.view(np.float32)
    is_even = (words >> 23) % 2 == 0
    fraction = words & ((1 << 23) - 1)
    index = np.where(is_even, 256 + (fraction >> 15), 128 + (fraction >> 16))
    middle = np.where(is_even, 4 * (index // 2) + 2, 2 * index + 1) / 1024.0
    rough = (np.floor(512 / np.sqrt(middle)) + 1) // 2 / 512
    found = refined(x, refined(x, rough.astype(np.float32), True), False)
    errors = units(found, 1 / np.sqrt(x.astype(np.float64)))
    assert 0.5 < errors.max() <= bound("rsqrt", f32, True)


def refined(x: Any, r: Any, has_few_bits: bool) -> Any:
    """A step, as `codegen.llvm.rsqrt_estimates` says."""
    error = fused(-(x * r), r, 1.0)
    if has_few_bits:
        return fused(r * error, fused(error, 0.375, 0.5), r)
    return fused(r * np.float32(0.5), error, r)


def fused(a: Any, b: Any, c: Any) -> Any:
    return (np.float64(1) * a * b + c).astype(np.float32)


def test_a_loop_of_one_work_item_has_the_same_bits() -> None:
    x, y = ndarray("x", f32), ndarray("y", f32)

    def body(build: Any) -> None:
        for k in range(4):
            place = [build.index(k)]
            build.store(y, place, build.unary("rsqrt", build.load(x, place)))

    kernel = Compiled(Module("four", [x, y], tasks=[serial("t", body)]), fast_math=True)
    values = np.float32([0.3, 7.0, 1e-40, 3e30])
    result = np.empty_like(values)
    kernel.run({"x": values, "y": result})
    assert bits(result).tolist() == bits(root(TARGET, True)(values)).tolist()
