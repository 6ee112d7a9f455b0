"""Which loops run in lanes by default: by an estimate, and by the items that they have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from octants.analysis.lanes.choose_loops import LaneChoice, choose
from octants.codegen.llvm.lanes.operations import TABLE
from octants.codegen.llvm.lanes.vector_capabilities import vectors_of
from octants.ir.core import OPERATIONS
from octants.target import ALWAYS, AUTO, Target
from tests.ir.parser import parse

AVX512 = Target("cpu", "x86_64-unknown-linux-gnu", "skylake-avx512", "+avx512vl")
AVX2 = Target("cpu", "x86_64-unknown-linux-gnu", "haswell", "+avx2")
PLAIN = Target("cpu", "x86_64-unknown-linux-gnu", "x86-64", "")

TEXT = """\
kernel @loop
array @x: f32, 1, ndarray, () [primal]
array @y: f32, 1, ndarray, () [primal]
array @k: i32, 1, ndarray, () [primal]
parallel @loop_0 {{
  %0: i32 = constant<0>()
  %1: i32 = {count}
  yield(%0, %1)
}} {{ (%2: i32):
{body}
  yield()
}}
"""
OPEN = "shape<@x, 0>()"

COPY = """\
  %3: f32 = load<@x, primal>(%2)
  store<@y, primal>(%3, %2)"""
HISTOGRAM = """\
  %3: i32 = load<@k, primal>(%2)
  %4: f32 = load<@x, primal>(%2)
  %5: f32 = atomic<mul, @y, primal>(%4, %3)"""
SINE = """\
  %3: f32 = load<@x, primal>(%2)
  %4: f32 = unary<sin>(%3)
  store<@y, primal>(%4, %2)"""
SUM = """\
  %3: f32 = load<@x, primal>(%2)
  %4: i32 = constant<0>()
  %5: f32 = atomic<add, @y, primal>(%3, %4)"""
RECURRENCE = """\
  %3: i32 = constant<0>()
  %4: i32 = load<@k, primal>(%2)
  %5: f32 = load<@x, primal>(%2)
  %6: f32 = for(%3, %4, %5) { (%7: i32, %8: f32):
    %9: f32 = binary<mul>(%8, %5)
    yield(%9)
  }
  store<@y, primal>(%6, %2)"""
ROWS_INSIDE = """\
  %3: i32 = constant<0>()
  %4: i32 = constant<64>()
  %5: i32 = binary<mul>(%2, %4)
  for(%3, %4) { (%7: i32):
    %8: i32 = binary<add>(%5, %7)
    %9: f32 = load<@x, primal>(%8)
    store<@y, primal>(%9, %8)
    yield()
  }"""


def chosen(body: str, count: str = OPEN, target: Target = AVX512, simd: str = AUTO) -> LaneChoice:
    (task,) = parse(TEXT.format(body=body, count=count)).tasks
    return choose(task, vectors_of(target, simd))


@pytest.mark.parametrize("body", [COPY, HISTOGRAM, ROWS_INSIDE], ids=["copy", "bins", "rows"])
@pytest.mark.parametrize("target", [AVX512, AVX2], ids=["avx512", "avx2"])
def test_loops_that_gain_nothing(body: str, target: Target) -> None:
    assert chosen(body, target=target).lanes == 0
    assert chosen(body, target=target, simd=ALWAYS).lanes > 0


@pytest.mark.parametrize("body", [SINE, SUM, RECURRENCE], ids=["sine", "sum", "recurrence"])
@pytest.mark.parametrize("target", [AVX512, AVX2], ids=["avx512", "avx2"])
def test_loops_that_gain(body: str, target: Target) -> None:
    choice = chosen(body, target=target)
    assert choice.lanes >= 8
    assert "lanes gain" in str(choice)


def test_few_work_items() -> None:
    """Where a launch counts them, it decides; where their number is known, the compiler does."""
    choice = chosen(RECURRENCE)
    assert 2 <= choice.fewest <= choice.lanes // 4
    assert choice.fewest - 1 < choice.lanes / choice.gain  # one thread would be done sooner
    assert chosen(RECURRENCE, "constant<1000>()").fewest == 0
    assert chosen(RECURRENCE, "constant<1>()").lanes == 0
    assert chosen(RECURRENCE, "constant<8>()").lanes == 8


SINES = """\
  %3: i32 = constant<0>()
  %4: i32 = constant<{trips}>()
  %5: f32 = load<@x, primal>(%2)
  %6: f32 = for(%3, %4, %5) {{ (%7: i32, %8: f32):
    %9: f32 = unary<sin>(%8)
    yield(%9)
  }}
  store<@y, primal>(%6, %2)"""


def test_short_work_items_are_compiled_for_tiles_only() -> None:
    """A tile of a few work items takes little time. One of long work items may take much."""
    assert chosen(SINE).fewest == 0
    assert chosen(SINES.format(trips=10)).fewest == 0
    assert chosen(SINES.format(trips=10_000)).fewest > 0


def test_a_very_long_body_is_compiled_once() -> None:
    """Few work items run in the lanes of a tile, too."""
    steps = "\n".join(f"  %{k + 1}: f32 = unary<sin>(%{k})" for k in range(3, 3100))
    body = f"  %3: f32 = load<@x, primal>(%2)\n{steps}\n  store<@y, primal>(%3100, %2)"
    assert chosen(RECURRENCE).fewest > 0
    choice = chosen(body)
    assert choice.lanes > 0
    assert choice.fewest == 0


def test_a_processor_without_vectors_to_rely_on() -> None:
    choice = chosen(RECURRENCE, target=PLAIN, simd=ALWAYS)
    assert choice.lanes == 0
    assert "no vectors to rely on" in str(choice)


THREE_CARRIED = """\
  %3: i32 = constant<0>()
  %4: f32 = load<@x, primal>(%2)
  %6: f32, %7: f32, %8: f32 = for(%3, %1, %4, %4, %4) {{ (%9: i32, %10: f32, %11: f32, %12: f32):
    %13: f32 = unary<sin>(%10)
    %14: f32 = atomic<add, @y, primal>(%13, {place})
    yield(%13, %10, %11)
  }}
  store<@x, primal>(%6, %2)"""


@pytest.mark.parametrize(("place", "lanes"), [("%9", 64), ("%2", 32)], ids=["one", "own"])
def test_tiles_are_wide_where_lanes_are_summed_up_in_each_turn(place: str, lanes: int) -> None:
    body = THREE_CARRIED.format(place=place).replace("%1,", "%30,")
    body = "  %30: i32 = constant<50>()\n" + body
    assert chosen(body, simd=ALWAYS).lanes == lanes


NEST = """\
  %3: i32 = constant<0>()
  %4: i32 = load<@k, primal>(%2)
  %5: f32 = load<@x, primal>(%2)
  %6: f32, %7: f32, %8: f32 = for(%3, %4, %5, %5, %5) {{ (%9: i32, %10: f32, %11: f32, %12: f32):
    %13: f32 = for(%3, {bound}, %10) {{ (%14: i32, %15: f32):
      %16: f32 = unary<sin>(%15)
      yield(%16)
    }}
    %17: f32 = binary<add>(%11, %13)
    %18: f32 = binary<mul>(%12, %17)
    yield(%13, %17, %18)
  }}
  %19: f32 = binary<add>(%7, %8)
  store<@y, primal>(%19, %2)"""


@pytest.mark.parametrize(("bound", "lanes"), [("%9", 64), ("%4", 32)])
def test_tiles_are_wide_where_lanes_leave_inner_loops_together(bound: str, lanes: int) -> None:
    assert chosen(NEST.format(bound=bound)).lanes == lanes


def test_lanes_have_a_handler_for_each_operation_that_analyses_choose_them_for() -> None:
    written = {name for name, operation in OPERATIONS.items() if operation in TABLE}
    assert set(vectors_of(AVX512, AUTO).operations) == written


def test_a_task_with_another_operation_runs_one_by_one() -> None:
    vectors = vectors_of(AVX512, ALWAYS)
    task = parse(TEXT.format(count=OPEN, body=SINE)).tasks[0]
    assert choose(task, vectors).lanes
    without = replace(vectors, operations=tuple({*vectors.operations} - {"unary"}))
    assert choose(task, without).reason == "it has a `unary`"


BRANCH = """\
  %3: i32 = constant<7>()
  %4: f32 = load<@x, primal>(%2)
  %5: i32 = load<@k, primal>(%2)
  %6: u1 = compare<lt>({tested}, %3)
  %7: f32 = if(%6) {{
    %8: f32 = unary<sin>(%4)
    %9: f32 = load<@y, primal>(%3)
    %10: f32 = binary<mul>(%8, %9)
    yield(%10)
  }} {{
    yield(%4)
  }}
  store<@y, primal>(%7, %2)"""
"""A branch of which the work item's index decides, or what memory holds."""


def test_a_branch_on_the_index_is_foreseen() -> None:
    index, data = (chosen(BRANCH.format(tested=x), simd=ALWAYS).gain for x in ("%2", "%5"))
    assert 1.1 * index < data


GATHERS = """\
  %3: i32 = load<@k, primal>(%2)
  %4: f32 = load<@x, primal>(%3)
  %5: i32 = constant<1>()
  %6: i32 = binary<add>(%3, %5)
  %7: f32 = load<@x, primal>(%6)
  %8: f32 = binary<mul>(%4, %7)
  %9: f32 = binary<mul>(%8, %8)
  store<@y, primal>(%9, %2)"""


def test_gathers_take_longer_than_loads() -> None:
    assert not chosen(GATHERS).lanes
