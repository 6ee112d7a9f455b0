"""Tests of `share_slow_paths`: bit by bit what functions give that test their own angles."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from octants.analysis.floats import slow_paths
from octants.interpreter import run
from octants.ir import ops
from octants.ir.cloning import copy_module
from octants.ir.core import Module
from octants.ir.verifier import verify
from octants.passes.arithmetic import share_slow_paths as passes
from octants.passes.arithmetic.share_slow_paths import MOST_FUNCTIONS, share_slow_paths
from octants.passes.loops.unroll_loops import unroll_loops
from tests.ir.parser import parse
from tests.passes.test_unroll_loops import ANGLES, LOOP, wrong_from_far

KERNEL = """\
kernel @k
array @x: f32, 1, ndarray, () [primal]
array @y: f32, 1, ndarray, () [primal]
parallel @k_0 {{
  %0: i32 = constant<0>()
  %1: i32 = shape<@x, 0>()
  yield(%0, %1)
}} {{ (%2: i32):
  %3: f32 = load<@x, primal>(%2)
  %4: f32 = constant<0.25>()
  %5: f32 = constant<-3.0>()
{body}
  store<@y, primal>(%9, %2)
  yield()
}}
"""

MIXED = """\
  %10: f32 = unary<sin>(%3)
  %11: f32 = binary<mul>(%10, %4)
  %12: f32 = binary<mul>(%3, %5)
  %13: f32 = unary<cos>(%12)
  %14: f32 = binary<mul>(%4, %3)
  %15: f32 = unary<sin>(%14)
  %16: f32 = fma(%3, %5, %4)
  %17: f32 = unary<cos_beside_sin>(%16)
  %18: f32 = unary<sin>(%16)
  %19: f32 = fma(%13, %17, %11)
  %20: f32 = unary<sin>(%19)
  %21: f32 = unary<cos>(%11)
  %22: f32 = fma(%15, %18, %20)
  %9: f32 = fma(%21, %22, %22)"""

BRANCHES = """\
  %10: f32 = unary<sin>(%3)
  %11: u1 = compare<gt>(%10, %4)
  %12: f32, %13: f32 = if(%11) {
    %14: f32 = binary<mul>(%3, %5)
    %15: f32 = unary<sin>(%14)
    %16: f32 = unary<cos>(%3)
    yield(%15, %16)
  } {
    %17: f32 = unary<sin>(%5)
    yield(%17, %10)
  }
  %18: f32 = unary<sin>(%12)
  %19: f32 = unary<sin>(%13)
  %20: f32 = binary<add>(%18, %19)
  %9: f32 = fma(%12, %13, %20)"""

WRITES = """\
  %10: f32 = unary<sin>(%3)
  store<@x, primal>(%10, %2)
  %11: f32 = load<@x, primal>(%2)
  %12: f32 = unary<sin>(%11)
  %13: i32 = constant<0>()
  %14: f32 = load<@y, primal>(%2)
  %15: f32 = unary<cos>(%14)
  %9: f32 = fma(%12, %10, %15)"""


@pytest.fixture(autouse=True)
def pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two functions be enough."""
    monkeypatch.setattr(passes, "LEAST_FUNCTIONS", 2)


def kernel(body: str) -> Module:
    return parse(KERNEL.format(body=body))


def values(module: Module) -> Any:
    arrays = {"x": ANGLES.copy(), "y": np.zeros_like(ANGLES)}
    with np.errstate(all="ignore"):
        run(module, arrays)
    return arrays["y"].view(np.uint32)


def groups(module: Module) -> list[int]:
    """The numbers of functions of each group, in order."""
    return [len(op.results) for op in module.walk() if slow_paths.is_shared(op)]


@pytest.mark.parametrize(
    ("body", "sizes"), [(MIXED, [5, 2]), (BRANCHES, [2, 2]), (WRITES, [2])], ids="mbw"
)
def test_the_same_bits(body: str, sizes: list[int]) -> None:
    module = kernel(body)
    expected = values(copy_module(module))
    share_slow_paths(module)
    verify(module)
    assert groups(module) == sizes
    assert wrong_from_far(module) == sum(sizes)
    assert values(module).tobytes() == expected.tobytes()


def test_functions_of_a_group_may_be_many() -> None:
    count = 2 * MOST_FUNCTIONS + 3
    lines = ["  %10: f32 = constant<0.0>()"]
    for k in range(count):
        lines.append(f"  %{3 * k + 11}: f32 = unary<sin>(%3)")
        lines.append(f"  %{3 * k + 12}: f32 = constant<{k + 0.5}>()")
        before = 10 if k == 0 else 3 * k + 10
        lines.append(f"  %{3 * k + 13}: f32 = fma(%{3 * k + 11}, %{3 * k + 12}, %{before})")
    lines.append(f"  %9: f32 = fma(%{3 * count + 10}, %4, %4)")
    module = kernel("\n".join(lines))
    expected = values(copy_module(module))
    share_slow_paths(module)
    verify(module)
    assert groups(module) == [MOST_FUNCTIONS, MOST_FUNCTIONS, 3]
    assert wrong_from_far(module) == count
    assert values(module).tobytes() == expected.tobytes()


def test_the_largest_multiple_has_the_test() -> None:
    """Of 0.25 x, -3 x and x: only -3 x. Factors that are not finite have tests of their own."""
    lines = [
        "  %10: f32 = binary<mul>(%3, %4)",
        "  %11: f32 = unary<sin>(%10)",
        "  %12: f32 = binary<mul>(%5, %3)",
        "  %13: f32 = unary<cos>(%12)",
        "  %14: f32 = unary<cos>(%3)",
        "  %15: f32 = constant<inf>()",
        "  %16: f32 = binary<mul>(%3, %15)",
        "  %17: f32 = unary<sin>(%16)",
        "  %18: f32 = fma(%11, %13, %14)",
        "  %9: f32 = select(%20, %18, %17)",
    ]
    lines.insert(-1, "  %20: u1 = compare<lt>(%3, %4)")
    module = kernel("\n".join(lines))
    expected = values(copy_module(module))
    share_slow_paths(module)
    verify(module)
    assert groups(module) == [4]
    assert sum(isinstance(op, ops.Unary) and op.fn == "abs" for op in module.walk()) == 2
    wrong_from_far(module)
    assert values(module).tobytes() == expected.tobytes()


def test_few_functions_have_a_test_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "LEAST_FUNCTIONS", 6)
    module = kernel(MIXED)
    share_slow_paths(module)
    assert groups(module) == []


def test_chunks_of_loops_keep_their_tests() -> None:
    """What `unroll_loops` repeats for large angles has no groups."""
    module = parse(LOOP.format(int="i32", fn="cos"))
    unroll_loops(module, estimate_sums=1)
    before = sum(1 for _ in module.walk())
    share_slow_paths(module)
    assert groups(module) == [] and sum(1 for _ in module.walk()) == before


def random_body(seed: int) -> str:
    """Functions, sums, products, loads and stores of two arrays, in any order."""
    pick = random.Random(seed)
    known, lines = [3, 4, 5], []
    for number in range(10, 10 + pick.randrange(10, 60)):
        one, other = (f"%{pick.choice(known[-9:])}" for _ in range(2))
        kind = pick.choices(("sine", "sum", "load", "store"), (5, 5, 2, 1))[0]
        if kind == "store":
            lines.append(f"  store<@{pick.choice('xy')}, primal>({one}, %2)")
            continue
        known.append(number)
        made = {
            "sine": f"unary<{pick.choice(('sin', 'cos', 'cos_beside_sin'))}>({one})",
            "sum": f"binary<{pick.choice(('add', 'mul'))}>({one}, {other})",
            "load": f"load<@{pick.choice('xy')}, primal>(%2)",
        }[kind]
        lines.append(f"  %{number}: f32 = {made}")
    used = sorted(pick.sample(known, 2))
    lines.append(f"  %9: f32 = binary<add>(%{used[0]}, %{used[1]})")
    return "\n".join(lines)


def test_random_kernels() -> None:
    grouped = 0
    for seed in range(300):
        module = kernel(random_body(seed))
        expected = values(copy_module(module))
        share_slow_paths(module)
        verify(module)
        found = sum(groups(module))
        assert wrong_from_far(module) == found
        assert values(module).tobytes() == expected.tobytes(), seed
        grouped += found
    assert grouped > 300
