"""Loops whose work items all add to one element in an iteration: what is unrolled, and how far."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octants.analysis.indices.affine_analysis import AffineExpressions
from octants.codegen.llvm.lanes.vector_capabilities import vectors_of
from octants.interpreter import run
from octants.ir import ops
from octants.ir.cloning import copy_module
from octants.ir.core import Block, Module
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.passes.loops.unroll_shared_sums import unroll_shared_sums
from octants.target import ALWAYS, NEVER, Target, Vectors
from tests.ir.parser import parse

KERNEL = """\
kernel @k
array @x: f32, 1, ndarray, () [primal]
array @y: f32, 1, ndarray, () [primal]
array @w: f32, 1, ndarray, () [primal]
array @n: i32, 1, ndarray, () [primal]
parallel @k_0 {{
  %0: i32 = constant<0>()
  %1: i32 = {items}
  yield(%0, %1)
}} {{ (%2: i32):
  %3: i32 = constant<0>()
  %4: i32 = constant<1>()
  %60: i32 = load<@n, primal>(%3)
  %61: i32 = load<@n, primal>(%4)
  %5: {int} = {lower}
  %6: {int} = {upper}
  %7: f32 = load<@x, primal>(%2)
  {before}
  %8: f32 = for(%5, %6, %7) {{ (%10: {int}, %11: f32):
    %12: f32 = cast(%10)
    %13: f32 = binary<add>(%11, %12)
    {update}
    yield(%13)
  }}
  store<@y, primal>(%8, %2)
  yield()
}}
"""
UPDATE = "%14: f32 = atomic<add, @w, primal>(%11, %10)"


def kernel(
    lower: Any,
    upper: Any,
    update: str = UPDATE,
    dtype: str = "i32",
    before: str = "",
    items: str = "shape<@x, 0>()",
) -> Module:
    """Bounds are constants, or operations."""
    bounds = (each if isinstance(each, str) else f"constant<{each}>()" for each in (lower, upper))
    places = {
        "lower": next(bounds),
        "upper": next(bounds),
        "update": update,
        "before": before,
        "items": items,
    }
    module = parse(KERNEL.format(int=dtype, **places))
    module.noalias = True
    verify(module)
    return module


AVX512 = Target("cpu", "x86_64-unknown-linux-gnu", "skylake-avx512", "+avx512vl")
IN_LANES, ONE_BY_ONE = vectors_of(AVX512, ALWAYS), vectors_of(AVX512, NEVER)


def unrolled(module: Module, vectors: Vectors | None = None, *, exchanges: bool = False) -> Module:
    result = copy_module(module)
    result.noalias = True
    unroll_shared_sums(result, vectors, exchanges=exchanges)
    verify(result)
    return result


def updates(block: Block) -> list[int]:
    """How many atomic updates each block of loops has, the outermost first."""
    own = sum(isinstance(op, ops.Atomic) for op in block.ops)
    inner = [each for op in block.ops for region in op.regions for each in updates(region)]
    return [own, *inner]


def results(module: Module, bounds: tuple[int, int]) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    arrays = {
        "x": rng.normal(size=5).astype(np.float32),
        "y": np.zeros(5, np.float32),
        "w": np.zeros(800, np.float32),  # as `products` has elements
        "n": np.array(bounds, np.int32),
    }
    run(module, arrays)
    return arrays["y"], arrays["w"]


@pytest.mark.parametrize(
    ("lower", "upper", "blocks"),
    [
        (0, 1, [1]),
        (0, 5, [5]),
        (3, 35, [32]),
        (0, 48, [0, 16]),
        (1, 36, [3, 16]),
        (7, 7, [0]),
        (7, 2, [0]),
    ],
)
@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_constant_trip_counts(lower: int, upper: int, blocks: list[int], dtype: str) -> None:
    module = kernel(lower, upper, dtype=dtype)
    result = unrolled(module)
    assert updates(result.tasks[0].body) == blocks
    for before, after in zip(results(module, (0, 0)), results(result, (0, 0)), strict=True):
        assert np.array_equal(before, after)


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_trip_counts_of_the_launch(dtype: str) -> None:
    module = kernel("cast(%60)", "cast(%61)", dtype=dtype)
    result = unrolled(module)
    assert updates(result.tasks[0].body) == [0, 16, 1]
    for lower in (0, 3):
        for trips in (-4, 0, 1, 15, 16, 17, 32, 63):
            bounds = lower, lower + trips
            for one, other in zip(results(module, bounds), results(result, bounds), strict=True):
                assert np.array_equal(one, other)


STAYS = {
    "varying bounds": ("cast(%2)", "constant<16>()", UPDATE),
    "own elements": (0, 16, "%14: f32 = atomic<add, @w, primal>(%11, %2)"),
    "one element": (0, 16, "%14: f32 = atomic<add, @w, primal>(%11, %3)"),
    "elements that depend on data": (
        0,
        16,
        "%15: i32 = load<@n, primal>(%10)\n%14: f32 = atomic<add, @w, primal>(%11, %15)",
    ),
    "elements that are read": (
        0,
        16,
        f"{UPDATE}\n%15: f32 = load<@w, primal>(%3)\nstore<@y, primal>(%15, %2)",
    ),
    "values before": (0, 16, f"{UPDATE}\nstore<@y, primal>(%14, %2)"),
    "inner loops": (
        0,
        16,
        f"{UPDATE}\nfor(%3, %4) {{ (%15: i32):\nstore<@y, primal>(%7, %2)\nyield()\n}}",
    ),
    "messages": (0, 16, f"{UPDATE}\nprint<('x',), False>()"),
    "iterations of more work than a chunk may have": (
        0,
        16,
        "\n".join([UPDATE, *(f"%{k}: f32 = load<@y, primal>(%2)" for k in range(100, 601))]),
    ),
}


@pytest.mark.parametrize("case", STAYS)
def test_loops_that_stay(case: str) -> None:
    result = unrolled(kernel(*STAYS[case]))
    loops = [op for op in result.walk() if isinstance(op, ops.For)]
    assert loops
    assert sum(isinstance(op, ops.Atomic) for op in result.walk()) == 1


def test_a_chunk_makes_as_many_updates_as_fit() -> None:
    """Four updates of one matrix in an iteration, as of its columns: eight iterations a chunk."""
    lines = "\n".join(
        f"%{20 + k}: i32 = constant<{k}>()\n%{30 + k}: i32 = binary<add>(%9, %{20 + k})\n"
        f"%{40 + k}: f32 = atomic<add, @w, primal>(%11, %{30 + k})"
        for k in range(4)
    )
    module = kernel(0, 20, f"%16: i32 = constant<4>()\n%9: i32 = binary<mul>(%10, %16)\n{lines}")
    result = unrolled(module)
    assert updates(result.tasks[0].body) == [16, 32]
    for before, after in zip(results(module, (0, 0)), results(result, (0, 0)), strict=True):
        assert np.array_equal(before, after)


ROWS = """\
kernel @k
array @x: f32, 1, ndarray, () [primal]
array @y: f32, 1, ndarray, () [primal]
array @w: f32, 1, ndarray, () [primal]
array @v: f32, 1, local, () [primal (40,) ((0, 1, 0, 4),) ()]
parallel @k_0 {{
  %0: i32 = constant<0>()
  %1: i32 = shape<@x, 0>()
  yield(%0, %1)
}} {{ (%2: i32):
  %3: i32 = constant<0>()
  %4: i32 = constant<32>()
  %5: f32 = load<@x, primal>(%2)
  for(%3, %4) {{ (%10: i32):
    %11: f32 = cast(%10)
    store<@v, primal>(%11, %10)
    yield()
  }}
  for(%3, %4) {{ (%10: i32):
    %11: f32 = load<@v, primal>(%10)
    %12: f32 = binary<add>(%11, %5)
    {lines}
    yield()
  }}
  %6: f32 = load<@v, primal>(%3)
  store<@y, primal>(%6, %2)
  yield()
}}
"""


@pytest.mark.parametrize(
    ("written", "is_side_by_side"), [("%10", True), ("%3", False), ("%14", False)]
)
@pytest.mark.parametrize("rows", [4, 8])
def test_iterations_side_by_side(written: str, is_side_by_side: bool, rows: int) -> None:
    """Eight of them add up the columns of a row one after the other; no bit changes."""
    lines = [
        "%13: i32 = constant<1>()",
        "%14: i32 = binary<add>(%10, %13)",
        f"store<@v, primal>(%12, {written})",
    ]
    for row in range(rows):
        lines += [
            f"%{20 + row}: i32 = constant<{32 * row}>()",
            f"%{40 + row}: i32 = binary<add>(%10, %{20 + row})",
            f"%{60 + row}: f32 = atomic<add, @w, primal>(%12, %{40 + row})",
        ]
    module = parse(ROWS.format(lines="\n".join(lines)))
    verify(module)
    result = unrolled(module)
    chunks = [op for op in result.walk() if isinstance(op, ops.For)]
    updated = [op.indices[0] for op in chunks[-1].body.ops if isinstance(op, ops.Atomic)]
    affine = AffineExpressions(result.tasks[0])
    found = [affine.expression(index).constant for index in updated]
    if is_side_by_side:
        assert found == [32 * row + column for row in range(rows) for column in range(8)]
    else:
        assert found[:2] == [0, 32]
    before, after = (each_result(each, rows) for each in (module, result))
    for name, array in before.items():
        assert np.array_equal(array, after[name])


def each_result(module: Module, rows: int) -> dict[str, Any]:
    arrays = {
        "x": np.arange(5, dtype=np.float32),
        "y": np.zeros(5, np.float32),
        "w": np.zeros(32 * rows, np.float32),
    }
    run(module, arrays)
    return arrays


# -- for the lanes of a CPU ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "upper", "blocks"),
    [
        ("f32", 32, [0, 4]),
        ("f32", 35, [3, 4]),
        ("f32", 4, [4]),
        ("f64", 32, [0, 2]),
        ("f64", 33, [1, 2]),
    ],
)
def test_chunks_of_as_many_numbers_as_lanes_add_to_together(
    dtype: str, upper: int, blocks: list[int]
) -> None:
    module = kernel(0, upper)
    module = parse(to_text(module).replace("f32", dtype))
    module.noalias = True
    assert updates(unrolled(module, IN_LANES).tasks[0].body) == blocks


def test_loops_that_stay_without_lanes() -> None:
    assert updates(unrolled(kernel(0, 32), ONE_BY_ONE).tasks[0].body) == [0, 1]


def test_long_iterations_stay_in_lanes() -> None:
    lines = (f"%{k}: f32 = load<@y, primal>(%2)" for k in range(100, 160))
    module = kernel(0, 32, "\n".join([UPDATE, *lines]))
    assert updates(unrolled(module, IN_LANES).tasks[0].body) == [0, 1]
    assert updates(unrolled(module).tasks[0].body) == [0, 4]


def products(rows: int, upper: int) -> Module:
    """A loop whose iterations add a product to a column of so many rows."""
    factors = [f"%{20 + row}: f32 = unary<sin>(%{19 + row if row else 7})" for row in range(rows)]
    lines = ["%15: f32 = load<@x, primal>(%3)", "%16: f32 = binary<mul>(%15, %12)"]
    for row in range(rows):
        lines += [
            f"%{40 + row}: i32 = constant<{50 * row}>()",
            f"%{60 + row}: i32 = binary<add>(%10, %{40 + row})",
            f"%{80 + row}: i32 = binary<add>(%{60 + row}, %{40 + row})",
            f"%{100 + row}: f32 = binary<mul>(%{20 + row}, %16)",
            f"%{120 + row}: f32 = atomic<add, @w, primal>(%{100 + row}, %{80 + row})",
        ]
    return kernel(0, upper, "\n    ".join(lines), before="\n  ".join(factors))


@pytest.mark.parametrize(
    ("rows", "blocks"), [(1, [0, 32]), (2, [0, 32]), (4, [0, 64]), (8, [0, 128]), (16, [0, 128])]
)
def test_more_products_of_few_factors_are_added_together(rows: int, blocks: list[int]) -> None:
    """Threads that exchange factors do so for up to 128 products of at most 24 factors."""
    module = products(rows, 96)
    assert updates(unrolled(module, exchanges=True).tasks[0].body) == blocks
    assert updates(unrolled(module).tasks[0].body) == [0, 32]


@pytest.mark.parametrize(
    ("rows", "upper", "blocks"),
    [
        (4, 31, [15 * 4, 16 * 4]),  # a chunk, and the rest: 8, 4 and 3 columns
        (8, 31, [3 * 8, 16 * 8, 4 * 8]),  # a loop over 4 columns each, and 3
        (8, 28, [12 * 8, 16 * 8]),
    ],
)
def test_a_long_rest_of_products_is_a_loop(rows: int, upper: int, blocks: list[int]) -> None:
    module = products(rows, upper)
    result = unrolled(module, exchanges=True)
    assert updates(result.tasks[0].body) == blocks
    for before, after in zip(results(module, (0, 0)), results(result, (0, 0)), strict=True):
        assert np.array_equal(before, after)
