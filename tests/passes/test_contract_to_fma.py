"""Which products and sums are rounded once."""

from __future__ import annotations

import numpy as np
import pytest

import octants as qd
from octants.codegen.llvm.cpu import has_fused, host_target
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.passes.arithmetic.contract_to_fma import contract_to_fma
from tests.devices import on_cpu
from tests.ir.parser import parse

HEAD = "kernel @k\narray @x: {0}, 1, ndarray, () [primal]\nserial @k_0 {{\n"
LOADS = "".join(
    f"  %{2 * k}: i32 = constant<{k}>()\n  %{2 * k + 1}: {{0}} = load<@x, primal>(%{2 * k})\n"
    for k in range(4)
)
MUL, AGAIN = "%8: {0} = binary<mul>(%1, %3)", "%9: {0} = binary<mul>(%5, %7)"


def contracted(*lines: str, dtype: str = "f32") -> list[str]:
    """The operations after four loads, %1, %3, %5 and %7, contracted; %10 is stored."""
    tail = "  store<@x, primal>(%10, %0)\n  yield()\n}}\n"
    module = parse((HEAD + LOADS + "".join(f"  {line}\n" for line in lines) + tail).format(dtype))
    contract_to_fma(module)
    verify(module)
    return [line.strip() for line in to_text(module).splitlines()[11:-3]]


def test_a_difference_negates_what_is_taken_away() -> None:
    found = contracted(MUL, "%10: {0} = binary<sub>(%5, %8)")
    assert found == ["%8: f32 = unary<neg>(%1)", "%9: f32 = fma(%8, %3, %5)"]
    found = contracted(MUL, "%10: {0} = binary<sub>(%8, %5)", dtype="f64")
    assert found == ["%8: f64 = unary<neg>(%5)", "%9: f64 = fma(%1, %3, %8)"]


def test_of_two_products_the_first_is_taken_in() -> None:
    found = contracted(MUL, AGAIN, "%10: {0} = binary<add>(%8, %9)")
    assert found == ["%8: f32 = binary<mul>(%5, %7)", "%9: f32 = fma(%1, %3, %8)"]


USED_TWICE = (MUL, "%9: {0} = binary<add>(%8, %5)", "%10: {0} = binary<add>(%9, %8)")
DOUBLED = (MUL, "%10: {0} = binary<add>(%8, %8)")
SIMPLE = (MUL, "%10: {0} = binary<add>(%8, %5)")


@pytest.mark.parametrize(
    ("lines", "dtype"), [(USED_TWICE, "f32"), (DOUBLED, "f32"), (SIMPLE, "f16"), (SIMPLE, "i32")]
)
def test_what_stays(lines: tuple[str, ...], dtype: str) -> None:
    assert len(contracted(*lines, dtype=dtype)) == len(lines)
    assert not any("fma" in line for line in contracted(*lines, dtype=dtype))


CONSTANT = "%11: {0} = constant<0.5>()"
DOT = (MUL, AGAIN, "%12: {0} = binary<add>(%8, %9)")
SQUARED = "%13: {0} = fma(%7, %7, %12)"


@pytest.mark.parametrize("last", ["add>(%12, %11)", "add>(%11, %12)", "sub>(%12, %11)"])
def test_a_constant_comes_first(last: str) -> None:
    found = contracted(CONSTANT, *DOT, f"%10: {{0}} = binary<{last}")
    number = -0.5 if "sub" in last else 0.5
    assert f"%9: f32 = constant<{number}>()" in found[1:]
    assert found[-2:] == ["%10: f32 = fma(%5, %7, %9)", "%11: f32 = fma(%1, %3, %10)"]


def test_a_constant_comes_before_all_products() -> None:
    found = contracted(*DOT, SQUARED, CONSTANT, "%10: {0} = binary<add>(%13, %11)")
    assert [line.split(" = ")[1][:3] for line in found] == ["con", "fma", "fma", "fma", "con"]


ELSEWHERE = (
    (CONSTANT, *DOT, "%13: {0} = binary<mul>(%12, %12)", "%10: {0} = binary<add>(%13, %11)"),
    (CONSTANT, *DOT, "%13: {0} = binary<sub>(%11, %12)", "%10: {0} = binary<sub>(%13, %1)"),
    (*DOT, "%10: {0} = binary<add>(%12, %1)"),
    (CONSTANT, *DOT, "%13: {0} = binary<add>(%12, %11)", "%10: {0} = binary<mul>(%13, %12)"),
)


@pytest.mark.parametrize("lines", ELSEWHERE, ids=["product", "taken from", "variable", "seen"])
def test_sums_that_end_with_something_else(lines: tuple[str, ...]) -> None:
    assert sum("fma(%5, %7" in line for line in contracted(*lines)) == 0


@pytest.mark.parametrize(
    ("last", "number"), [("add>(%9, %c)", 0.25), ("add>(%c, %9)", 0.25), ("sub>(%9, %c)", -0.25)]
)
def test_what_is_taken_away_is_taken_from_the_constant(last: str, number: float) -> None:
    constant = "%c: {0} = constant<0.25>()"
    difference = "%9: {0} = binary<sub>(%8, %5)"
    found = contracted(constant, MUL, difference, f"%10: {{0}} = binary<{last}")
    assert found == [
        "%8: f32 = constant<0.25>()",
        f"%9: f32 = constant<{number}>()",
        "%10: f32 = binary<sub>(%9, %5)",
        "%11: f32 = fma(%1, %3, %10)",
    ]


def test_what_is_taken_away_from_a_sum_that_others_need_stays() -> None:
    lines = ("%c: {0} = constant<0.25>()", MUL, "%9: {0} = binary<sub>(%8, %5)")
    other = ("%11: {0} = binary<add>(%9, %c)", "%10: {0} = binary<mul>(%9, %11)")
    found = contracted(*lines, *other)
    assert found[1:3] == ["%9: f32 = unary<neg>(%5)", "%10: f32 = fma(%1, %3, %9)"]


@on_cpu
@pytest.mark.parametrize("simd", [False, True])
def test_fast_math_decides(simd: bool) -> None:
    """The rounding error of a product is left over where the sum rounds once, and only there."""
    x = np.linspace(1.0, 2.0, 64, dtype=np.float32)
    found = {}
    for fast_math in (False, True):
        qd.init(arch=qd.cpu, fast_math=fast_math, simd=simd)

        @qd.kernel
        def error(x: qd.types.ndarray(qd.f32, ndim=1), y: qd.types.ndarray(qd.f32, ndim=1)):
            for i in x:
                y[i] = x[i] * x[i] + y[i]

        y = -(x * x)
        error(x, y)
        found[fast_math] = y
    exact = x.astype(np.float64) ** 2 - (x * x).astype(np.float64)
    assert not found[False].any()
    if has_fused(host_target()):
        np.testing.assert_array_equal(found[True], exact.astype(np.float32))
