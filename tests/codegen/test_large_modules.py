"""Large modules are optimised less, which changes no bit of what they compute."""

from __future__ import annotations

import numpy as np
import pytest

import octants as qd
from octants import driver
from octants.codegen.llvm import llvmlite_driver


def test_level_is_lowered_for_large_texts_only() -> None:
    large = "x\n" * (llvmlite_driver.LARGE + 1)
    assert [llvmlite_driver.passes_level(large, level) for level in (0, 1, 2, 3)] == [0, 1, 1, 1]
    assert [llvmlite_driver.passes_level(large[2:], level) for level in (0, 1, 2, 3)] == [
        0,
        1,
        2,
        3,
    ]


def results(limit: int, simd: str, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bits of values and gradients of loops that LLVM likes to transform."""
    monkeypatch.setattr(llvmlite_driver, "LARGE", limit)
    monkeypatch.setattr(driver, "_artifacts", {})  # or the second call has the code of the first
    qd.init(arch=qd.cpu, simd=simd, offline_cache=False, cpu_max_num_threads=1)
    x = qd.field(qd.f32, shape=37, needs_grad=True)
    y = qd.field(qd.f32, shape=37, needs_grad=True)

    @qd.kernel
    def waves():
        for i in x:
            v, total = x[i], 0.0
            for j in range(i % 7 + 3):
                if v > 0.3:
                    v = qd.sin(v * 1.7) + x[j] / 3.0
                total += v * v - 0.1 * j
            y[i] = total + qd.exp(-v)

    x.from_numpy(np.linspace(-1, 1, 37, dtype=np.float32))
    y.grad.fill(1)
    waves()
    waves.grad()
    return [array.to_numpy().tobytes() for array in (x, y, x.grad, y.grad)]


@pytest.mark.parametrize("simd", ["never", "always"])
def test_bits_do_not_depend_on_the_size_of_a_module(
    simd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels = []
    level_of = llvmlite_driver.passes_level

    def seen(text: str, level: int) -> int:
        levels.append(level_of(text, level))
        return levels[-1]

    monkeypatch.setattr(llvmlite_driver, "passes_level", seen)
    small = results(1 << 30, simd, monkeypatch)
    large = results(0, simd, monkeypatch)
    assert levels == [2, 2, 1, 1]
    assert large == small
