"""What the compiler does for a statement does not depend on how many there are: by counts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import octants as qd
from octants import pipeline
from octants.codegen.llvm import nvptx
from octants.codegen.llvm.gpu import compilation
from octants.pass_context import Stage
from octants.target import Blocks, Capabilities
from tests.api.test_deep_programs import define
from tests.devices import on_cpu
from tests.ir.parser import parse

SHAPES: dict[str, Callable[[int], list[str]]] = {
    "chain": lambda n: ["for j in range(i):", *["    v = qd.sin(v) * 0.9 + v * v"] * n],
    "branches": lambda n: [
        "for j in range(i):",
        *[f"    if v > 0.{k}: v = v * v" for k in range(n)],
    ],
    "alternatives": lambda n: [
        line
        for k in range(n)
        for line in (f"{'el' if k else ''}if v > 0.{999 - k}:", f"    v = v * qd.sin(v) * {k}.5")
    ],
    "alternative loops": lambda n: [
        line
        for k in range(n)
        for line in (
            f"{'el' if k else ''}if v > 0.{999 - k}:",
            f"    for j in range(i + {k}):",
            "        v = v * v * 0.5 + 0.1",
        )
    ],
    "ifs in ifs": lambda n: [
        line
        for k in range(n)
        for line in ("    " * k + f"if v > 0.00{k}:", "    " * (k + 1) + "v = v * 0.9 + v * v")
    ],
    "matrices": lambda n: [
        "a = qd.Matrix([[v, 0.1], [0.2, v]])",
        "m = a",
        "for j in range(i):",
        *["    m = m @ a * 0.5 + m"] * n,
        "v = m[0, 1]",
    ],
    "components": lambda n: [
        "w = qd.Vector([v, v, v, v])",
        "for j in range(i):",
        *["    w[j % 4] = w[i % 4] * w[(i + j) % 4]"] * n,
        "v = w.sum()",
    ],
    "stores": lambda n: [f"y[i // {k + 2}] += v * x[i // {k + 3}]" for k in range(n)],
    "uniform index": lambda n: [
        "k = x.shape[0]",
        *["k = (k + k) ^ (k >> 1)"] * n,
        "v = v * x[k & 3]",
    ],
    "loaded index": lambda n: [
        "k = qd.i32(x[0])",
        *["k = (k + k) ^ (k >> 1)"] * n,
        "v = v * x[k & 3]",
    ],
    "unrolled": lambda n: [f"for _ in qd.static(range({n})):", "    v = v * 0.5 + v * v * x[i]"],
}


class Counter:
    """Counts calls of Python functions of the package, generators that go on included."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and "octants" in frame.f_code.co_filename:
            self.calls += 1


def cost(lines: list[str], simd: str) -> tuple[int, int]:
    """Calls to make the text of a gradient for LLVM, and the lines of the text."""
    qd.init(arch=qd.cpu, offline_cache=False, simd=simd)
    x, y = (qd.ndarray(qd.f32, 4, needs_grad=True) for _ in range(2))
    kernel, counter, before = define(lines), Counter(), sys.getprofile()
    sys.setprofile(counter)
    try:
        text = kernel.inspect(x, y, mode="reverse").llvm_ir
    finally:
        sys.setprofile(before)
    return counter.calls, text.count("\n")


SIZES = {
    "alternatives": 9,
    "alternative loops": 12,
    "ifs in ifs": 12,
    "branches": 5,
    "components": 2,
}
"""Of branches in branches the first few cost less."""

LONG = ("alternative loops", "ifs in ifs", "matrices")
QUICK = [*((shape, "never") for shape in SHAPES if shape not in LONG), ("stores", "always")]
CASES = [(shape, simd) for shape in SHAPES for simd in ("never", "always")]


@on_cpu
@pytest.mark.parametrize(
    ("shape", "simd"),
    [pytest.param(*each, marks=() if each in QUICK else pytest.mark.slow) for each in CASES],
)
def test_twice_the_program_costs_twice_as_much(shape: str, simd: str) -> None:
    size = SIZES.get(shape, 4)
    cost(SHAPES[shape](1), simd)  # what is done once in a process
    small, middle, large = (cost(SHAPES[shape](factor * size), simd) for factor in (2, 3, 4))
    for one, two, three in zip(small, middle, large, strict=True):
        assert three - two == pytest.approx(two - one, rel=0.1)


def test_a_chain_of_conditions_is_compiled_for_a_gpu() -> None:
    """LLVM 22 looks for checksums in the loop, and would not end."""
    qd.init(arch=qd.cpu, offline_cache=False)
    arrays = [qd.ndarray(qd.f32, 4, needs_grad=True) for _ in range(2)]
    lowered = define(SHAPES["branches"](18)).inspect(*arrays).stages["contract_to_fma"]
    gpu = Stage(
        Capabilities(contracts=True, fills=1 << 16, blocks=Blocks(), local_record_bytes=256)
    )
    made = pipeline.differentiate_reverse(parse(lowered), gpu, before_launch=False, split=False)
    artifact = compilation.compile_module(
        pipeline.finish(made.module, gpu), nvptx.Nvptx(nvptx.target(90))
    )
    assert b"ret;" in artifact.code
