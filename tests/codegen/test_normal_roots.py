"""Roots of what is never subnormal, which GPUs take without a look at the exponent."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pytest

from octants.analysis.floats.subnormals import normal_numbers
from octants.codegen.llvm import nvptx
from octants.codegen.llvm.gpu import compilation
from octants.ir.builder import Builder
from octants.ir.core import Module, Value
from octants.types.scalars import f32, f64, i32
from tests.codegen.compiled import ndarray, parallel

Make = Callable[[Builder, Value, Value], Value]


def constant(build: Builder, number: float) -> Value:
    return build.constant(number, f32)


def dot(build: Builder, x: Value, y: Value, least: float) -> Value:
    """x x + y y, on top of a number."""
    return build.fma(x, x, build.fma(y, y, constant(build, least)))


NORMAL: dict[str, Make] = {
    "a sum": lambda b, x, y: b.binary("add", b.binary("mul", x, y), constant(b, 0.01)),
    "a difference": lambda b, x, _: b.binary("sub", constant(b, 1.0), x),
    "a constant from it": lambda b, x, _: b.binary("sub", x, constant(b, 2.0**-64)),
    "a fused sum": lambda b, x, y: b.fma(x, y, constant(b, -3.0)),
    "squares": lambda b, x, y: dot(b, x, y, 2.0**-110),
    "absolutes": lambda b, x, _: b.binary("add", b.unary("abs", x), constant(b, 2.0**-100)),
    "a maximum": lambda b, x, _: b.binary("max", x, constant(b, 2.0**-100)),
    "a maximum of both": lambda b, x, y: b.binary("max", dot(b, x, y, 1.0), dot(b, y, y, 0.5)),
    "a constant": lambda b, *_: constant(b, 2.0),
}
UNKNOWN: dict[str, Make] = {
    "anything": lambda b, x, _: b.unary("neg", x),
    "a sum of two": lambda b, x, y: b.binary("add", x, y),
    "a product": lambda b, x, _: b.binary("mul", x, constant(b, 2.0)),
    "a tiny summand": lambda b, x, _: b.binary("add", x, constant(b, 2.0**-65)),
    "squares alone": lambda b, x, y: dot(b, x, y, 0.0),
    "tiny squares": lambda b, x, y: dot(b, x, y, 2.0**-125),
    "less than nothing": lambda b, x, y: b.binary("add", dot(b, x, y, 1.0), x),
    "a minimum": lambda b, x, _: b.binary("min", x, constant(b, 1.0)),
    "a maximum of either": lambda b, x, y: b.binary("max", x, dot(b, y, y, 1.0)),
}


def rooted(make: Make, dtype: object = f32) -> Module:
    x, y = ndarray("x", f32), ndarray("y", f32)

    def body(build: Builder, item: Value) -> None:
        number = make(build, build.load(x, [item]), build.load(y, [item]))
        build.store(y, [item], build.unary("rsqrt", number))

    task = parallel("t", lambda build: (build.constant(0, i32), build.shape(x, 0)), body)
    return Module("k", [x, y], None, [task])


@pytest.mark.parametrize("name", [*NORMAL, *UNKNOWN])
def test_instructions(name: str) -> None:
    module = rooted((NORMAL | UNKNOWN)[name])
    text = compilation.compile_module(
        module, nvptx.Nvptx(nvptx.target(80)), fast_math=True
    ).code.decode()
    found = re.findall(r"rsqrt\.approx\S*", text)
    assert found == ["rsqrt.approx.ftz.f32" if name in NORMAL else "rsqrt.approx.f32"]
    exact = compilation.compile_module(module, nvptx.Nvptx(nvptx.target(80))).code.decode()
    assert "rsqrt.approx" not in exact


def test_numbers_of_other_types_are_not_told() -> None:
    build = Builder()
    wide = build.binary("add", build.constant(1.0, f64), build.constant(1.0, f64))
    build.yield_([wide])
    assert not normal_numbers(build.block)


TINY = float(np.finfo(np.float32).tiny)


@pytest.mark.parametrize("constant", [2.0**-64, 1.5 * 2.0**-64, 0.01, 1.0, math.pi, 2.0**100])
def test_sums_with_constants(constant: float) -> None:
    """Numbers, and products of two, that are nearest to minus the constant leave the least."""
    c = np.float32(constant)
    near = np.nextafter(-c, np.float32(0))
    beside = [near, np.nextafter(-c, -np.inf, dtype=np.float32)]
    rng = np.random.default_rng(1)
    for _ in range(20):
        beside.append(np.nextafter(beside[-2], np.float32(0)))
        beside.append(np.nextafter(beside[-2], -np.inf, dtype=np.float32))
    others = rng.integers(0, 1 << 32, 10_000, np.uint64).astype(np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        sums = np.concatenate([np.array(beside), others]) + c
    sums = np.abs(sums[np.isfinite(sums)])
    assert sums[sums > 0].min() >= TINY
    for _ in range(2000):
        a = float(np.float32(rng.uniform(1, 2) * 2.0 ** rng.integers(-25, 60)))
        b = float(np.float32(-float(c) / a))
        for other in (b, float(np.nextafter(np.float32(b), np.float32(0)))):
            exact = math.fsum((a * other, float(c)))  # a * other has 48 bits
            assert exact == 0 or abs(exact) >= 2.0**-113
