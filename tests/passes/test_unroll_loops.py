"""Tests of `passes.loops.unroll_loops`: bit by bit what loops give, whatever their trip counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from octants.abi import MAXIMUM_RECORD_BUFFER
from octants.autodiff.plan import records_in_registers
from octants.interpreter import run
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import copy_module
from octants.ir.core import Block, Companion, Module
from octants.ir.verifier import verify
from octants.mathlib.fast_by_estimates import FAR
from octants.passes.loops.unroll_loops import unroll_loops
from octants.types.scalars import f32
from tests.autodiff.random_ir import forward, inputs
from tests.autodiff.reversing import differentiate
from tests.autodiff.test_whole_blocks import ManyLoops
from tests.ir.parser import parse
from tests.seeds import counts

LOOP = """\
kernel @k
array @x: f32, 1, ndarray, () [primal]
array @y: f32, 1, ndarray, () [primal]
array @n: {int}, 1, ndarray, () [primal]
parallel @k_0 {{
  %0: i32 = constant<0>()
  %1: i32 = shape<@x, 0>()
  yield(%0, %1)
}} {{ (%2: i32):
  %3: i32 = constant<0>()
  %4: i32 = constant<1>()
  %5: {int} = load<@n, primal>(%3)
  %6: {int} = load<@n, primal>(%4)
  %7: f32 = load<@x, primal>(%2)
  %8: f32 = constant<0.25>()
  %9: f32 = for(%5, %6, %7) {{ (%10: {int}, %11: f32):
    %12: f32 = cast(%10)
    %13: f32 = unary<sin>(%11)
    %14: f32 = unary<{fn}>(%11)
    %15: f32 = binary<mul>(%14, %12)
    %16: f32 = fma(%15, %8, %13)
    yield(%16)
  }}
  store<@y, primal>(%9, %2)
  yield()
}}
"""

RECORDS = """\
kernel @k
array @x: f32, 1, ndarray, () [primal]
array @y: f32, 1, ndarray, () [primal]
record #r0 (4, 'unrolled'): f32
parallel @k_0 {
  %0: i32 = constant<0>()
  %1: i32 = shape<@x, 0>()
  yield(%0, %1)
} { (%2: i32):
  %3: i64 = constant<0>()
  %4: i64 = constant<4>()
  %5: i64 = constant<3>()
  %6: f32 = constant<9.0>()
  %7: f32 = load<@x, primal>(%2)
  %8: f32 = for(%3, %4, %7) { (%9: i64, %10: f32):
    %11: f32 = unary<sin>(%10)
    %12: f32 = unary<cos_beside_sin>(%10)
    record_push<#r0>(%3, %9, %12)
    %13: f32 = fma(%11, %6, %10)
    yield(%13)
  }
  %14: f32 = for(%3, %4, %8) { (%15: i64, %16: f32):
    %17: i64 = binary<sub>(%5, %15)
    %18: f32 = record_pop<#r0>(%3, %17)
    %19: f32 = fma(%16, %18, %6)
    yield(%19)
  }
  store<@y, primal>(%14, %2)
  yield()
}
"""

ANGLES = np.array([0.3, -1.7, 63.9, -64.0, 64.1, 1e9, 50.0, 1e30, np.nan, np.inf], np.float32)


def wrong_from_far(module: Module) -> int:
    """Let estimates be the functions of small angles, and wrong for others; gives their number."""
    found = 0
    for block in _blocks(module.tasks[0].body):
        builder = Builder(Block())
        for op in block.ops:
            if not isinstance(op, ops.Unary) or not op.fn.endswith("_estimate"):
                builder.append(op)
                continue
            found += 1
            exact = builder.unary(op.fn.removesuffix("_estimate"), op.x)
            is_small = builder.compare("lt", builder.unary("abs", op.x), builder.constant(FAR, f32))
            wrong = builder.constant(17.0, f32)
            builder.append(ops.Select(is_small, exact, wrong, results=op.results))
        block.ops[:] = builder.block.ops
    return found


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for op in block.ops:
        for region in op.regions:
            yield from _blocks(region)


def result(module: Module, bounds: list[int], dtype: Any) -> Any:
    arrays: dict[Any, Any] = {"x": ANGLES.copy(), "y": np.zeros_like(ANGLES)}
    if any(array.name == "n" for array in module.arrays):
        arrays["n"] = np.array(bounds, dtype)
    with np.errstate(all="ignore"):
        run(module, arrays)
    return arrays["y"].view(np.uint32)


LOWEST, HIGHEST = -(2**31), 2**31 - 1


@pytest.mark.parametrize("fn", ["cos", "cos_beside_sin"])
@pytest.mark.parametrize(
    ("bounds", "dtype"),
    [
        *(([3, 3 + trips], np.int32) for trips in (-4, 0, 1, 15, 16, 17, 32, 71)),
        ([HIGHEST - 37, HIGHEST], np.int32),
        ([LOWEST, LOWEST + 33], np.int32),
        ([HIGHEST, LOWEST], np.int32),
        ([-(2**40), 37 - 2**40], np.int64),
    ],
)
def test_chunks_of_a_loop(bounds: list[int], dtype: Any, fn: str) -> None:
    module = parse(LOOP.format(fn=fn, int="i32" if dtype is np.int32 else "i64"))
    expected = result(copy_module(module), bounds, dtype)
    unroll_loops(module, estimate_sums=1)
    verify(module)
    assert wrong_from_far(module) == 2 * (16 + 1)  # in a chunk, and behind the last one
    assert result(module, bounds, dtype).tolist() == expected.tolist()


BOUNDED = """\
kernel @k
array @x: f32, 1, ndarray, () [primal]
array @y: f32, 1, ndarray, () [primal]
parallel @k_0 {
  %0: i32 = constant<0>()
  %1: i32 = shape<@x, 0>()
  yield(%0, %1)
} { (%2: i32):
  %3: i32 = constant<0>()
  %4: i32 = constant<70>()
  %5: f32 = load<@x, primal>(%2)
  %6: f32 = constant<0.9375>()
  %7: f32 = constant<0.0078125>()
  %8: f32 = for(%3, %4, %5) { (%9: i32, %10: f32):
    %11: f32 = unary<sin>(%10)
    %12: f32 = fma(%11, %6, %7)
    yield(%12)
  }
  store<@y, primal>(%8, %2)
  yield()
}
"""
DECIDES = BOUNDED.replace(
    "  store<@y, primal>(%8, %2)",
    """\
  %20: u1 = compare<lt>(%8, %7)
  %21: f32 = if(%20) {
    yield(%6)
  } {
    yield(%8)
  }
  store<@y, primal>(%21, %2)""",
)


@pytest.mark.parametrize(
    ("text", "sums", "estimated"), [(BOUNDED, 8, 10), (BOUNDED, 1, 17), (DECIDES, 8, 17)]
)
def test_polynomials_where_no_bits_matter(text: str, sums: int, estimated: int) -> None:
    """Angles behind the first one of a chunk are known to be small: they need no guard.

    Those behind the last chunk have one each.
    """
    module = parse(text)
    expected = result(copy_module(module), [], None).view(np.float32)
    unroll_loops(module, estimate_sums=sums)
    verify(module)
    decisions = [op for op in module.walk() if isinstance(op, ops.Compare)]
    assert len(decisions) == 2 + (text is DECIDES)
    assert wrong_from_far(module) == estimated
    found = result(module, [], None).view(np.float32)
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-6, equal_nan=True)
    assert (found.tobytes() == expected.tobytes()) == (estimated == 17)


@pytest.mark.parametrize("estimates", [False, True])
def test_records_of_an_unrolled_block(estimates: bool) -> None:
    module = parse(RECORDS)
    expected = result(copy_module(module), [], None)
    unroll_loops(module, estimate_sums=estimates)
    verify(module)
    assert wrong_from_far(module) == (2 * 4 if estimates else 0)
    assert not any(isinstance(op, ops.For) for op in module.walk())
    assert result(module, [], None).tolist() == expected.tolist()


def test_loops_that_stay() -> None:
    """Short loops without records or barriers, and those that update memory."""
    few = LOOP.format(fn="cos", int="i32").replace("load<@n, primal>(%4)", "binary<add>(%5, %3)")
    few = few.replace("%5: i32 = load<@n, primal>(%3)", "%5: i32 = constant<0>()")
    few = few.replace("binary<add>(%5, %3)", "constant<7>()")
    updates = RECORDS.replace(
        "    %17: i64", "    %20: f32 = atomic<add, @y, primal>(%16, %2)\n    %17: i64"
    )
    for text in (few, updates):
        module = parse(text)
        unroll_loops(module)
        assert sum(isinstance(op, ops.For) for op in module.walk()) == text.count(" for(")
    module = parse(few)
    expected = result(copy_module(module), [0, 0], np.int32)
    unroll_loops(module, estimate_sums=1, unrolls=False)
    assert wrong_from_far(module) == 2
    assert result(module, [0, 0], np.int32).tolist() == expected.tolist()


def test_only_loops_of_sines() -> None:
    """Where code generation unrolls other loops."""
    for text in (
        HALVING,
        RECORDS.replace("unary<sin>", "unary<exp>").replace("cos_beside_sin", "exp"),
    ):
        module = parse(text)
        unroll_loops(module, estimate_sums=1, unrolls=False)
        assert sum(isinstance(op, ops.For) for op in module.walk()) == text.count(" for(")
        unroll_loops(module, estimate_sums=1)
        assert not any(isinstance(op, ops.For) for op in module.walk())


BRANCH = LOOP.replace(
    "    yield(%16)",
    """\
    %17: u1 = compare<lt>(%16, %8)
    %18: f32 = if(%17) {{
      yield(%12)
    }} {{
      yield(%16)
    }}
    yield(%18)""",
)


def test_branches_without_sines() -> None:
    module = parse(BRANCH.format(fn="cos", int="i32"))
    expected = result(copy_module(module), [-3, 70], np.int32)
    unroll_loops(module, estimate_sums=1)
    verify(module)
    assert wrong_from_far(module) == 2 * (8 + 1)
    assert result(module, [-3, 70], np.int32).tolist() == expected.tolist()


CONVERTS = LOOP.replace("load<@n, primal>(%3)", "constant<-9>()").replace(
    "load<@n, primal>(%4)", "constant<70>()"
)


def test_conversions_of_the_counter() -> None:
    """One in a chunk, one in each of the other loops: an estimate's, and the function's."""
    module = parse(CONVERTS.format(fn="cos", int="i32"))
    expected = result(copy_module(module), [], None)
    unroll_loops(module, estimate_sums=1)
    verify(module)
    assert wrong_from_far(module) == 2 * (16 + 1)
    assert sum(isinstance(op, ops.Cast) for op in module.walk()) == 4
    assert result(module, [0, 0], np.int32).tolist() == expected.tolist()


HALVING = """\
kernel @k
array @x: f32, 1, ndarray, () [primal]
array @y: f32, 1, shared, () [primal (64,) ((0, 1, 0, 4),) ()]
parallel @k_0 {'block_dim': 64, 'subgroup_size': 32} {
  %0: i32 = constant<0>()
  %1: i32 = shape<@x, 0>()
  yield(%0, %1)
} { (%2: i32):
  %3: i32 = constant<0>()
  %4: i32 = constant<6>()
  %5: i32 = constant<32>()
  for(%3, %4) { (%6: i32):
    %7: i32 = binary<shr>(%5, %6)
    barrier<block>()
    %8: f32 = load<@y, primal>(%7)
    store<@y, primal>(%8, %6)
    yield()
  }
  yield()
}
"""


def test_loops_with_barriers() -> None:
    """Halvings of a block are unrolled; not many iterations, and no loops in loops."""
    module = parse(HALVING)
    unroll_loops(module)
    verify(module)
    assert not any(isinstance(op, ops.For) for op in module.walk())
    found = [op for op in module.walk() if isinstance(op, (ops.Barrier, ops.Load))]
    assert [isinstance(op, ops.Barrier) for op in found] == 6 * [True, False]
    constants = ops.constants_in(module)
    loads = [op for op in found if isinstance(op, ops.Load)]
    assert [constants[op.indices[0]] for op in loads] == [32, 16, 8, 4, 2, 1]
    inner = "    for(%3, %4) { (%9: i32):\n      yield()\n    }\n    barrier<block>()\n"
    for text in (
        HALVING.replace("constant<6>", "constant<11>"),
        HALVING.replace("constant<6>()", "shape<@x, 0>()"),
        HALVING.replace("    barrier<block>()\n", inner),
        HALVING.replace("    barrier<block>()\n", ""),
    ):
        module = parse(text)
        unroll_loops(module)
        assert sum(isinstance(op, ops.For) for op in module.walk()) == text.count(" for(")


@pytest.mark.parametrize("count", counts(6, 16))
@pytest.mark.parametrize("share", [0, 40])
def test_random_reverse_kernels(share: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_in_registers, "MAX_ITERATIONS", 4)
    monkeypatch.setattr(records_in_registers, "MAX_WORK", 1 << 20)
    unrolled = 0
    for seed in range(count):
        module = ManyLoops(seed).simplified()
        reversed_ = differentiate(module, whole_record_bytes=share, local_record_bytes=256)
        if reversed_.hazards:
            continue
        state = inputs(seed) if reversed_.state == "before" else forward(module, inputs(seed))
        found = []
        loops = []
        for changes in (False, True):
            again = copy_module(reversed_.module)
            if changes:
                unroll_loops(again)
                verify(again)
            adjoints = inputs(seed + 1)
            both: dict[Any, Any] = {name: value.copy() for name, value in state.items()}
            both |= {(name, Companion.ADJOINT): value for name, value in adjoints.items()}
            run(again, both, share=share or MAXIMUM_RECORD_BUFFER)
            found.append(adjoints)
            loops.append(sum(isinstance(op, ops.For) for op in again.walk()))
        for name, value in found[0].items():
            assert np.array_equal(value, found[1][name], equal_nan=True), (seed, name)
        unrolled += loops[0] - loops[1]
    assert unrolled >= count // 3
