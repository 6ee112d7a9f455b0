"""Large modules, and those in lanes, are optimised less; no bit of a result changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver
from octants.codegen.llvm import cpu, llvmlite_driver
from octants.codegen.llvm.lanes.vector_capabilities import lanes_of_target
from tests.ir.parser import parse

SINE = """\
kernel @wave
array @x: f32, 1, ndarray, () [primal]
parallel @wave_0 {
  %0: i32 = constant<0>()
  %1: i32 = shape<@x, 0>()
  yield(%0, %1)
} { (%2: i32):
  %3: f32 = load<@x, primal>(%2)
  %4: f32 = unary<sin>(%3)
  store<@x, primal>(%4, %2)
  yield()
}
"""


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


def managers_made(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The lists of passes that are run by name from here on."""
    runs = []
    make = llvmlite_driver._manager_of

    def seen(names: Sequence[str]) -> Any:
        runs.append(names)
        return make(names)

    monkeypatch.setattr(llvmlite_driver, "_manager_of", seen)
    return runs


@pytest.mark.parametrize("simd", ["never", "always"])
def test_bits_do_not_depend_on_the_size_of_a_module(
    simd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = managers_made(monkeypatch)
    few = llvmlite_driver._FOR_LARGE
    small = results(1 << 30, simd, monkeypatch)
    assert few not in runs
    large = results(0, simd, monkeypatch)
    assert runs.count(few) == 2
    assert large == small


@pytest.mark.parametrize("simd", ["never", "always"])
def test_passes_run_by_function_if_no_loop_is_left_to_vectorise(
    simd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = managers_made(monkeypatch)
    target = cpu.host_target()
    cpu.compile_module(parse(SINE), target, simd=simd)
    is_in_lanes = simd == "always" and lanes_of_target(target) > 0
    assert (llvmlite_driver._BEFORE_FUNCTIONS in runs) == is_in_lanes
    cpu.compile_module(parse(SINE), target, simd=simd, opt_level=3)
    assert len(runs) == 2 * is_in_lanes


BRANCH = """\
kernel @positive
array @x: f32, 1, ndarray, () [primal]
array @n: i32, 1, ndarray, () [primal]
parallel @positive_0 {
  %0: i32 = constant<0>()
  %1: i32 = shape<@x, 0>()
  yield(%0, %1)
} { (%2: i32):
  %3: f32 = load<@x, primal>(%2)
  %4: f32 = constant<0.0>()
  %5: u1 = compare<lt>(%3, %4)
  if(%5) {
    store<@x, primal>(%4, %2)
    yield()
  } {
    yield()
  }
  yield()
}
"""


COUNT = """\
    %6: i32 = constant<1>()
    %7: i32 = constant<0>()
    %8: i32 = atomic<add, @n, primal>(%6, %7)
"""


@pytest.mark.parametrize("is_sum", [False, True])
def test_loops_with_branches_are_left_to_vectorise(
    is_sum: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LLVM turns branches into masks: such loops took two to four times as long without it.

    A sum of all work items is collected, so it needs no atomic updates.
    """
    text = BRANCH
    if is_sum:
        text = text.replace("    store<@x, primal>(%4, %2)\n", COUNT)
    runs = managers_made(monkeypatch)
    cpu.compile_module(parse(text), cpu.host_target(), simd="never")
    assert not runs


LOOP = """\
kernel @waves
array @x: f32, 1, ndarray, () [primal]
parallel @waves_0 {
  %0: i32 = constant<0>()
  %1: i32 = shape<@x, 0>()
  yield(%0, %1)
} { (%2: i32):
  %3: f32 = load<@x, primal>(%2)
  %4: f32 = unary<sin>(%3)
  %9: i32 = constant<0>()
  %5: f32 = for(%9, %2, %4) { (%6: i32, %7: f32):
    %8: f32 = unary<cos>(%7)
    yield(%8)
  }
  store<@x, primal>(%5, %2)
  yield()
}
"""


@pytest.mark.parametrize("simd", ["never", "always"])
def test_large_modules_inline_functions_in_loops_only(
    simd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is beside loops runs seldom, and takes as long to compile."""
    monkeypatch.setattr(llvmlite_driver, "LARGE", 0)
    text = cpu.optimised_llvm_text(parse(LOOP), cpu.host_target(), simd=simd)
    calls = [line for line in text.splitlines() if " call " in line]
    assert any("@octants.math.sin" in line for line in calls)
    assert not any("@octants.math.cos" in line for line in calls)


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_large_modules_inline_their_first_sines_unless_the_level_is_0(
    level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llvmlite_driver, "LARGE", 0)
    text = cpu.optimised_llvm_text(parse(SINE), cpu.host_target(), opt_level=level)
    assert ("call float @octants.math.sin.f32" in text) == (level == 0)


@pytest.mark.parametrize("count", [12, 60])
def test_sums_over_lanes_are_calls_however_many_there_are(count: int) -> None:
    """Register allocation is quadratic in the blocks of a function."""
    qd.init(arch=qd.cpu, simd="always", offline_cache=False)
    x = qd.field(qd.f32, shape=64, needs_grad=True)
    weights = qd.field(qd.f32, shape=count, needs_grad=True)

    @qd.kernel
    def sums():
        for i in x:
            for first in range(1):
                for k in qd.static(range(count)):
                    weights[first + k] += x[i] * (k + 1)

    text = sums.inspect().llvm_ir
    calls = [line for line in text.splitlines() if "call void @octants.add.total" in line]
    assert len(calls) == count // 4
    assert sum(line.endswith("#0") for line in calls) == min(count // 4, 8)
    assert text.count("atomicrmw fadd") == 4
    x.fill(1.0)
    sums()
    assert weights.to_numpy().tolist() == [64.0 * (k + 1) for k in range(count)]
