"""Loops in fours: bit by bit what loops give that test each operand."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.codegen.llvm import nvptx
from octants.codegen.llvm.estimates import unless_rare
from octants.codegen.llvm.function import FunctionText
from octants.codegen.llvm.gpu import emulated
from octants.codegen.llvm.library import Call
from octants.codegen.llvm.text import float_literal
from octants.launch.kernel import Kernel
from octants.mathlib.table import function
from octants.types.scalars import f32
from tests.codegen.on_emulated_gpu import emulated_gpu

NEAR = 2.0


class RoughlyQuick(emulated.Emulated):
    """A GPU whose sine and cosine are nonsense beyond two."""

    def quick(self, f: FunctionText, fn: str, operands: list[str]) -> str | None:
        name = {"sin": "sin", "cos": "cos", "cos_beside_sin": "cos"}.get(fn)
        if name is None:
            return None
        (x,) = operands

        def right() -> str:
            found: str = f.table[Call](f, Call(function(name, f32, True), [x], ""))
            return found

        size = f.intrinsic("fabs", "float", [("float", x)])
        is_near = f.apply("fcmp olt", "float", size, float_literal(NEAR))
        near = f.choose(is_near, "float", right(), float_literal(77.0))
        if f.doubts is not None:
            f.doubts.append(is_near)
            return near
        return unless_rare(f, near, is_near, right)


class Guessing(RoughlyQuick):
    """The same, where nobody tests each operand."""

    guessed = frozenset(("sin", "cos", "cos_beside_sin"))


def _run(machine: type[emulated.Emulated], trips: list[int]) -> list[Any]:
    """Values and gradients of loops whose operands are far from zero now and then."""
    with pytest.MonkeyPatch.context() as patch, emulated_gpu(total=1 << 28):
        patch.setattr(emulated, "Emulated", machine)
        qd.init(arch=qd.cuda)
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
        x.from_numpy(rng.uniform(-1, 1, 50).astype(np.float32))
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
    for found, wanted in zip(_run(Guessing, trips), _run(RoughlyQuick, trips), strict=True):
        assert np.array_equal(found, wanted)
        assert np.abs(found).max() > 0


# -- which loops -----------------------------------------------------------------------------------


def _is_in_fours(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether code for a real GPU guesses."""
    texts: list[str] = []
    compile_ = emulated.compile_module

    def see(module: Any, target: Any, **options: Any) -> Any:
        texts.append(nvptx.llvm_text(module, fast_math=True))
        return compile_(module, target, **options)

    monkeypatch.setattr(emulated, "compile_module", see)
    kernel()
    return any(re.search(r"^chunk\d+:", text, re.MULTILINE) for text in texts)


def test_what_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
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

        assert _is_in_fours(plain, monkeypatch)
        for kernel in (stores, looks_up, chooses, roots):
            assert not _is_in_fours(kernel, monkeypatch), kernel
