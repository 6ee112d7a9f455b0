"""Chunks of loops with sines: bit by bit what loops give that test each operand."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

import octants as qd
from octants.backends.cuda import CudaBackend
from octants.codegen.llvm import nvptx
from octants.codegen.llvm.function_text import FunctionText
from octants.codegen.llvm.gpu import compilation
from octants.codegen.llvm.math_functions import MathCall
from octants.codegen.llvm.types_and_literals import float_literal
from octants.ir import ops
from octants.ir.cloning import copy_module
from octants.ir.core import Module
from octants.mathlib.fast_by_estimates import FAR
from octants.mathlib.function_registry import function
from octants.mathlib.sine_series import series
from octants.types.scalars import f32
from tests.codegen import on_emulated_gpu
from tests.codegen.on_emulated_gpu import emulated_gpu
from tests.codegen.warps import Warps


def _call(f: FunctionText, fn: str, x: str) -> str:
    found: str = f.table[MathCall](f, MathCall(function(fn, f32, True), [x], ""))
    return found


def _estimate(fn: str, f: FunctionText, x: str) -> str:
    size = f.intrinsic("fabs", "float", [("float", x)])
    is_near = f.apply("fcmp olt", "float", size, float_literal(FAR))
    return f.choose(is_near, "float", _call(f, fn, x), float_literal(77.0))


class Estimating(Warps):
    """A GPU whose estimates are the functions of small angles, and nonsense for others."""

    estimates: ClassVar = {
        "sin_estimate": functools.partial(_estimate, "sin"),
        "cos_estimate": functools.partial(_estimate, "cos"),
    }

    def quick(self, f: FunctionText, fn: str, operands: list[str]) -> str | None:
        return _call(f, "cos", *operands) if fn == "cos_beside_sin" else None


def _started(patch: pytest.MonkeyPatch, sums: int) -> None:
    """Start on this GPU, whose estimates take as long as so many additions."""
    patch.setattr(on_emulated_gpu, "Warps", Estimating)
    patch.setattr(CudaBackend, "estimate_sums", lambda *_: sums)
    qd.init(arch=qd.cuda)


def _run(sums: int, trips: list[int]) -> list[Any]:
    """Values and gradients of loops whose operands are far from zero now and then."""
    with pytest.MonkeyPatch.context() as patch, emulated_gpu(total=1 << 28):
        _started(patch, sums)
        x, a, y = (qd.field(qd.f32, shape=50, needs_grad=True) for _ in "xay")
        n = qd.field(qd.i32, shape=())

        @qd.kernel
        def wander():
            for i in x:
                v, w = x[i], a[i]
                for k in range(-1, n[None] - 1):
                    w = qd.cos(w) + 0.01 * k
                    v = qd.sin(v) * 1.5 + (w if w > 0.5 else v) + a[i]
                y[i] = v * w

        rng = np.random.default_rng(5)
        x.from_numpy((rng.uniform(-1, 1, 50) * np.tile([1, 70], 25)).astype(np.float32))
        a.from_numpy(rng.uniform(-0.4, 0.4, 50).astype(np.float32))
        found = []
        for n[None] in trips:
            with qd.ad.Tape():
                wander()
                y.grad.fill(1.0)
            found += [array.to_numpy() for array in (y, x.grad, a.grad)]
    return found


def test_the_same_bits() -> None:
    trips = [-3, 0, 1, 3, 4, 7, 8, 16, 21, 40]
    for found, wanted in zip(_run(1, trips), _run(0, trips), strict=True):
        assert np.array_equal(found, wanted)
        assert np.abs(found).max() > 0


def _series(sums: int, x: Any) -> list[Any]:
    """Values and gradients of loops of which sines and cosines are most of the work."""
    with pytest.MonkeyPatch.context() as patch, emulated_gpu(total=1 << 28):
        _started(patch, sums)
        size = len(x)
        a, b, c = (qd.field(qd.f32, shape=size, needs_grad=True) for _ in "abc")

        @qd.kernel
        def waves():
            for i in a:
                v, w, total = a[i], b[i], 0.0
                for _ in range(37):
                    v = qd.sin(v) * 0.95 + 0.01
                for k in range(-17, 23):
                    total += qd.cos(w * k) - qd.sin(0.5 * w * (k - 3.0))
                c[i] = v + total

        a.from_numpy(x)
        b.from_numpy(x)
        waves()
        c.grad.fill(1.0)
        waves.grad()
        return [array.to_numpy() for array in (c, a.grad, b.grad)]


def test_operands_that_are_surely_usual_need_no_look() -> None:
    x = np.random.default_rng(3).uniform(-0.2, 0.2, 100).astype(np.float32)
    x[::5] *= 50
    x[:4] = np.inf, -np.inf, np.nan, 1e30
    for found, wanted in zip(_series(1, x), _series(0, x), strict=True):
        assert np.array_equal(found, wanted, equal_nan=True)
    assert np.isnan(wanted[:3]).all() and not np.isnan(wanted[3:]).any()


@pytest.mark.parametrize("size", [0.5, 1.0, 1.6, 3.2, 40.0])
def test_series(size: float) -> None:
    """In f32, but for their first product, which may be in turns."""
    chosen = series(size)
    x = np.linspace(-size, size, 100_000)
    some = x.astype(np.float32)
    if size > 4:
        some = (x / (2 * np.pi) - np.rint(x / (2 * np.pi))).astype(np.float32)
    square = some * some
    for coefficients, exact in ((chosen.sin, np.sin(x)), (chosen.cos, np.cos(x))):
        total = np.zeros(len(x), np.float32)
        for each in reversed(coefficients):
            total = np.float32(each) + square * total
        found = total * some if coefficients is chosen.sin else total
        assert np.abs(found - exact).max() < 1.2e-6
    assert chosen.size >= size


def test_computed_ones_are_right_to_six_digits() -> None:
    x = np.random.default_rng(4).uniform(-1, 1, 100).astype(np.float32)
    wanted, found = _series(0, x), _series(8, x)
    assert not np.array_equal(found[0], wanted[0])
    for some, right, size in zip(found, wanted, (40, 1, 500), strict=True):
        np.testing.assert_allclose(some, right, atol=2e-6 * size)


def _grouped(sums: int, x: Any) -> list[Any]:
    """Values and gradients of sines that do not depend on each other, also in a branch."""
    with pytest.MonkeyPatch.context() as patch, emulated_gpu(total=1 << 28):
        _started(patch, sums)
        a, b = (qd.field(qd.f32, shape=len(x), needs_grad=True) for _ in "ab")
        d = qd.field(qd.f64, shape=len(x), needs_grad=True)

        @qd.kernel
        def waves():
            for i in a:
                v = a[i]
                total = qd.sin(v) * qd.cos(2.0 * v) + qd.sin(3.0 * v) * qd.cos(v - 1.0)
                if v > 0.25:
                    w = qd.sin(d[i]) + qd.cos(d[i])
                    total += qd.sin(0.5 * v) * qd.sin(v + 0.25) * qd.cast(w, qd.f32)
                b[i] += qd.sin(total) + qd.sin(total * v)

        a.from_numpy(x)
        d.from_numpy(x.astype(np.float64))
        waves()
        b.grad.fill(1.0)
        waves.grad()
        return [array.to_numpy() for array in (b, a.grad, d.grad)]


def test_sines_that_share_a_slow_path() -> None:
    x = np.random.default_rng(6).uniform(-9, 9, 100).astype(np.float32)
    x[::3] *= 50
    x[1:11] = np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-42, -1e-42, 0.0, 64.0, -64.0
    for found, wanted in zip(_grouped(1, x), _grouped(0, x), strict=True):
        assert np.array_equal(found, wanted, equal_nan=True)
    assert not np.isnan(wanted[11:]).any()


# -- which loops -----------------------------------------------------------------------------------


def test_what_is_not_speculated(monkeypatch: pytest.MonkeyPatch) -> None:
    with emulated_gpu(total=1 << 28):
        qd.init(arch=qd.cuda)
        x, y = (qd.field(qd.f32, shape=50) for _ in "xy")

        @qd.kernel
        def plain():
            for i in x:
                v = x[i]
                for k in range(9):
                    v = qd.sin(v) + y[k]
                x[i] = v

        @qd.kernel
        def stores():
            for i in x:
                for _ in range(9):
                    x[i] = qd.sin(x[i])

        @qd.kernel
        def looks_up():
            for i in x:
                v = x[i]
                for _ in range(9):
                    v = y[qd.cast(qd.sin(v) * 9.0, qd.i32) + 10]
                x[i] = v

        @qd.kernel
        def chooses():
            for i in x:
                v = x[i]
                for _ in range(9):
                    if v > 0.5:
                        v = qd.sin(v)
                x[i] = v

        @qd.kernel
        def roots():
            for i in x:
                v = x[i]
                for _ in range(9):
                    v = qd.sqrt(v)
                x[i] = v

        assert _estimates(_module(plain, monkeypatch))
        for kernel in (stores, looks_up, chooses, roots):
            assert not _estimates(_module(kernel, monkeypatch)), kernel


def _module(kernel: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> Module:
    """What code is made of."""
    found: list[Module] = []
    compile_ = compilation.compile_module

    def see(module: Module, *rest: Any, **options: Any) -> Any:
        found.append(copy_module(module))
        return compile_(module, *rest, **options)

    monkeypatch.setattr(compilation, "compile_module", see)
    kernel()
    monkeypatch.undo()
    (module,) = found
    return module


def _estimates(module: Module) -> int:
    unary = (op for op in module.walk() if isinstance(op, ops.Unary))
    return sum(op.fn.endswith("_estimate") for op in unary)


def _instructions(module: Module, capability: int) -> tuple[int, int]:
    """How many sines there are by the instruction, and how many looks at their operands."""
    text = compilation.optimised_llvm_text(
        module, nvptx.Nvptx(nvptx.target(capability)), fast_math=True
    )
    sines = len(re.findall(r" call .*@llvm.nvvm.sin.approx.f\(", text))
    return sines, len(re.findall(r"fcmp .*, 6\.400000e\+01", text))


@pytest.mark.parametrize(("capability", "sines"), [(90, (9, 16, 12, 16)), (75, (15, 16, 16, 16))])
def test_what_is_computed(
    capability: int, sines: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    with emulated_gpu(total=1 << 28, capability=divmod(capability, 10)):
        qd.init(arch=qd.cuda)
        x, y = (qd.field(qd.f32, shape=50) for _ in "xy")

        @qd.kernel
        def plain():
            for i in x:
                v = x[i]
                for _ in range(64):
                    v = qd.sin(v) * 0.95 + 0.01
                y[i] = v

        @qd.kernel
        def decides():
            for i in x:
                v = x[i]
                for _ in range(64):
                    v = qd.sin(v) * 0.95 + 0.01
                y[i] = v if v > 0.5 else 0.0

        @qd.kernel
        def grows():
            for i in x:
                v = x[i]
                for _ in range(64):
                    v += 0.1 * qd.sin(v)
                y[i] = v

        @qd.kernel
        def counts():
            for i in x:
                v = 0.0
                for k in range(64):
                    v += qd.sin(x[i] * k + y[i])
                y[i] = v if v > 0.5 else 0.0

        @qd.kernel
        def short(trips: qd.i32):
            for i in x:
                v = 0.0
                for k in range(trips):
                    v += qd.sin(x[i] * k + y[i])
                y[i] = v if v > 0.5 else 0.0

        # There is one more in the loop for failed speculation. 16 iterations are speculated on,
        # some of them computed; the rest check operands without bounds, or with bounds of the ends.
        # Fewer are computed where sums take twice as long.
        kernels, checks = (plain, decides, grows, counts), (1, 1, 16, 2)
        for kernel, wanted, some in zip(kernels, sines, checks, strict=True):
            module = _module(kernel, monkeypatch)
            assert _instructions(module, capability) == (wanted + 1, some + 1), kernel
        gpu = nvptx.Nvptx(nvptx.target(capability))
        text = compilation.optimised_llvm_text(module, gpu, fast_math=True)
        assert len(re.findall("[su]itofp (nneg )?i32", text)) == 1 + 1
        # Four of the rest are speculated on at a time, or one, which has a loop for failure, too.
        more = _instructions(_module(lambda: short(3), monkeypatch), capability)
        assert more == (16 + 1 + 4 + 1 + 1, 2 + 1 + 4 + 1 + 1)


def test_sines_of_one_number_share_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    with emulated_gpu(total=1 << 28, capability=(9, 0)):
        qd.init(arch=qd.cuda)
        x, y = (qd.field(qd.f32, shape=50) for _ in "xy")

        @qd.kernel
        def waves():
            for i in x:
                total = 0.0
                for k in qd.static(range(8)):
                    total += qd.sin((k + 1.5) * x[i]) * qd.cos((k + 1.5) * y[i])
                y[i] = total

        module = _module(waves, monkeypatch)
        # Slow paths are calls of two functions, which test their operands, too.
        assert _instructions(module, 90) == (8 + 1, 2 + 2)
        gpu = nvptx.Nvptx(nvptx.target(90))
        text = compilation.optimised_llvm_text(module, gpu, fast_math=True)
        assert len(re.findall(r"call [^@\n]*@octants\.math\.exact", text)) == 8 + 8
        assert text.count("define internal") == 2 + 2
