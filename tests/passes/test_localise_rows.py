"""Rows in memory of the work item: which, and that results are the same."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from octants.interpreter import run
from octants.ir.cloning import copy_module
from octants.ir.core import Companion, Module, Space
from octants.ir.ops import Load
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.passes.storage.localise_rows import localise_rows
from octants.target import LaneCosts, Vectors
from tests.ir.parser import parse

KERNEL = """\
kernel @k
array @x: f32, 2, field, () [adjoint (4, 16) ((0, 1, 0, 64), (1, 1, 0, 4)) ()]
array @p: f32, 2, field, () [primal (4, 16) ((0, 1, 0, 64), (1, 1, 0, 4)) ()]
array @w: f32, 2, field, () [primal (8, 16) ((0, 1, 0, 64), (1, 1, 0, 4)) ()]
array @n: i32, 1, field, () [primal (4,) ((0, 1, 0, 4),) ()]
parallel @k_0 {{
  %0: i32 = constant<0>()
  %1: i32 = constant<4>()
  yield(%0, %1)
}} {{ (%2: i32):
  %3: i32 = constant<0>()
  %4: i32 = {rows}
  %5: i32 = constant<{first}>()
  %6: i32 = {last}
  %7: i32 = load<@n, primal>(%3)
  %8: i32 = constant<15>()
  for(%3, %4) {{ (%9: i32):
    for(%5, %6) {{ (%10: i32):
      %11: f32 = load<@w, primal>(%9, %10)
      {body}
      yield()
    }}
    {behind}
    yield()
  }}
  yield()
}}
"""
ADD = "%12: f32 = load<@{0}>({1})\n%13: f32 = binary<add>(%12, %11)\nstore<@{0}>(%13, {1})".format
BODY = ADD("x, adjoint", "%2, %10")
DOWN = "%14: i32 = binary<sub>(%8, %10)\n" + ADD("x, adjoint", "%2, %14")


def kernel(
    body: str = BODY,
    rows: str = "constant<6>()",
    first: int = 0,
    last: str = "constant<16>()",
    behind: str = "",
) -> Module:
    text = KERNEL.format(rows=rows, first=first, last=last, body=body, behind=behind)
    module = parse(text)
    verify(module)
    return module


def rewritten(module: Module) -> tuple[Module, int]:
    """A copy after the pass, and how many rows it has found."""
    result = copy_module(module)
    localise_rows(result)
    verify(result)
    return result, sum(array.space is Space.LOCAL for array in result.arrays)


def results(module: Module, width: int = 16) -> list[Any]:
    """Of whole numbers, whose sums are exact."""
    rng = np.random.default_rng(0)
    shapes = (4, width), (4, width), (8, width)
    x, p, w = (rng.integers(-99, 99, shape).astype(np.float32) for shape in shapes)
    arrays = {("x", Companion.ADJOINT): x, "p": p, "w": w, "n": np.array([6, 0, 0, 0], np.int32)}
    run(module, arrays)
    return [x, p]


ROWS: dict[str, dict[str, Any]] = {
    "upwards": {},
    "downwards": {"body": DOWN},
    "a part of the row": {"first": 3, "last": "constant<9>()"},
    "as many times as the launch says": {"rows": "load<@n, primal>(%3)"},
}


@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str) -> None:
    module = kernel(**ROWS[name])
    result, count = rewritten(module)
    assert count == 1
    for one, other in zip(results(module), results(result), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_narrow_counter_whose_range_is_wider_than_its_numbers() -> None:
    """There are 200 numbers from -100 to 100, more than an i8 can count from zero."""
    text = KERNEL.format(
        rows="constant<6>()", first=-100, last="constant<100>()", body="", behind=""
    )
    text = text.replace("16) ((0, 1, 0, 64)", "200) ((0, 1, 0, 800)")
    text = text.replace("%5: i32", "%5: i8").replace("%6: i32", "%6: i8")
    start = text.index("    for(%5, %6)")
    body = """\
    for(%5, %6) { (%10: i8):
      %20: i32 = cast(%10)
      %21: i32 = constant<100>()
      %22: i32 = binary<add>(%20, %21)
      %11: f32 = load<@w, primal>(%9, %22)
      %12: f32 = load<@x, adjoint>(%2, %22)
      %13: f32 = binary<add>(%12, %11)
      store<@x, adjoint>(%13, %2, %22)
"""
    module = parse(text[:start] + body + text[text.index("      yield()", start) :])
    result, count = rewritten(module)
    assert count == 1
    for one, other in zip(results(module, 200), results(result, 200), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_row_that_is_nowhere_where_no_iteration_runs() -> None:
    """Work items other than the first one have no iterations, and row 99."""
    rows = """load<@n, primal>(%2)
  %15: u1 = compare<gt>(%4, %3)
  %16: i32 = constant<99>()
  %17: i32 = select(%15, %2, %16)"""
    module = kernel(ADD("x, adjoint", "%17, %10"), rows=rows)
    result, count = rewritten(module)
    assert count == 1
    for one, other in zip(results(module), results(result), strict=True):
        np.testing.assert_array_equal(one, other)


LEFT: dict[str, dict[str, Any]] = {
    "primal values, which replays must reproduce": {"body": ADD("p, primal", "%2, %10")},
    "few times": {"rows": "constant<3>()"},
    "a row of the matrix": {"body": ADD("x, adjoint", "%3, %9")},
    "a diagonal": {
        "body": "%14: i32 = binary<add>(%9, %10)\n" + ADD("x, adjoint", "%2, %14"),
        "last": "constant<8>()",
    },
    "a row that depends on the iteration": {"body": ADD("x, adjoint", "%9, %10")},
    "a row of unknown length": {"last": "load<@n, primal>(%3)"},
    "one that is read": {
        "behind": "%20: f32 = load<@x, adjoint>(%2, %3)\nstore<@p, primal>(%20, %2, %3)"
    },
    "a product": {"body": BODY.replace("add", "mul")},
}


@pytest.mark.parametrize("name", LEFT)
def test_what_stays(name: str) -> None:
    assert rewritten(kernel(**LEFT[name]))[1] == 0


READ = """%12: f32 = load<@p, primal>({0})
%13: f32 = binary<mul>(%12, %11)
%19: f32 = atomic<add, @x, adjoint>(%13, %2, %3)"""
READ_ADJOINT = """%12: f32 = load<@x, adjoint>(%2, %10)
%13: f32 = binary<mul>(%12, %11)
%19: f32 = atomic<add, @p, primal>(%13, %2, %3)"""
TWICE = (
    READ.format("%2, %10")
    + """
%20: f32 = load<@p, primal>(%2, %10)
%21: f32 = atomic<add, @x, adjoint>(%20, %2, %8)"""
)
AGAIN = """for(%5, %6) {{ (%30: i32):
      %31: f32 = load<@p, primal>(%2, %30)
      %32: f32 = atomic<add, @x, adjoint>(%31, %2, %30)
      yield()
    }}"""
COPIED: dict[str, dict[str, Any]] = {
    "upwards": {"body": READ.format("%2, %10")},
    "downwards": {"body": "%14: i32 = binary<sub>(%8, %10)\n" + READ.format("%2, %14")},
    "a part of the row": {
        "body": READ.format("%2, %10"),
        "first": 3,
        "last": "constant<9>()",
    },
    "as many times as the launch says": {
        "body": READ.format("%2, %10"),
        "rows": "load<@n, primal>(%3)",
    },
    "twice in an iteration": {"body": TWICE},
    "in two loops": {"body": READ.format("%2, %10"), "behind": AGAIN.format()},
}


@pytest.mark.parametrize("name", COPIED)
def test_rows_that_are_read(name: str) -> None:
    module = kernel(**COPIED[name])
    result, count = rewritten(module)
    assert count == 1
    loads = [op for op in result.walk() if isinstance(op, Load) and op.array.name == "p"]
    assert len(loads) == 1
    for one, other in zip(results(module), results(result), strict=True):
        np.testing.assert_array_equal(one, other)


STORE = "  %40: f32 = constant<7.0>()\n  store<@p, primal>(%40, %2, %3)\n"
SIX = "  %60: i32 = constant<6>()\n"
PAIRS = {
    "both run": ("constant<6>()", "", "%4", 1),
    "the row is written between": ("constant<6>()", STORE, "%4", 2),
    "both run as often": ("load<@n, primal>(%2)", "", "%4", 1),
    "the first one may not run": ("load<@n, primal>(%2)", SIX, "%60", 2),
    "the second one may not run": (
        "constant<6>()",
        "  %60: i32 = load<@n, primal>(%2)\n",
        "%60",
        1,
    ),
}
"""The trip count of a loop; what is between it and the next; the trip count of that; copies."""


def renumbered(loop: str, digit: int) -> str:
    """The text of a loop whose values have a digit before their numbers."""
    text = re.sub(r"%(\d+)", rf"%{digit}\1", loop)
    for value in (2, 3, 4, 5, 6, 8):  # what the loop uses from outside
        text = re.sub(rf"%{digit}{value}\b", f"%{value}", text)
    return text


def test_no_copy_outlives_a_sum_that_is_added_behind_a_loop() -> None:
    reads, adds = (to_text(kernel(body)) for body in (READ_ADJOINT, BODY))
    start, end = reads.index("  for("), reads.rindex("  yield()")
    loop = reads[start:end]
    added = adds[adds.index("  for(") : adds.rindex("  yield()")]
    module = parse(reads[:end] + renumbered(added, 1) + renumbered(loop, 2) + reads[end:])
    verify(module)
    result, count = rewritten(module)
    assert count == 3
    for one, other in zip(results(module), results(result), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", PAIRS)
def test_copies_that_two_loops_share(name: str) -> None:
    rows, between, trips, copies = PAIRS[name]
    text = to_text(kernel(READ.format("%2, %10"), rows=rows))
    start, end = text.index("  for("), text.rindex("  yield()")
    again = renumbered(text[start:end], 1).replace("for(%3, %4)", f"for(%3, {trips})")
    module = parse(text[:end] + between + again + text[end:])
    verify(module)
    result, count = rewritten(module)
    assert count == copies
    for one, other in zip(results(module), results(result), strict=True):
        np.testing.assert_array_equal(one, other)


NOT_COPIED: dict[str, dict[str, Any]] = {
    "few times": {"body": READ.format("%2, %10"), "rows": "constant<3>()"},
    "neighbours": {"body": READ.format("%3, %2")},
    "a row of all work items": {"body": READ.format("%3, %10")},
    "a row that depends on the iteration": {"body": READ.format("%9, %10")},
    "a row of unknown length": {
        "body": READ.format("%2, %10"),
        "last": "load<@n, primal>(%3)",
    },
    "one that is written": {
        "body": READ.format("%2, %10"),
        "behind": "%20: f32 = constant<1.0>()\nstore<@p, primal>(%20, %2, %3)",
    },
    "where a branch may skip it": {
        "body": """%22: u1 = compare<lt>(%10, %9)
%23: f32 = if(%22) {
%24: f32 = load<@p, primal>(%2, %10)
yield(%24)
} {
yield(%11)
}
%19: f32 = atomic<add, @x, adjoint>(%23, %2, %3)"""
    },
}


@pytest.mark.parametrize("name", NOT_COPIED)
def test_what_is_not_copied(name: str) -> None:
    assert rewritten(kernel(**NOT_COPIED[name]))[1] == 0


def test_no_more_memory_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octants.passes.storage.localise_rows._MOST_BYTES", 63)
    assert rewritten(kernel())[1] == 0


def test_long_rows_are_copied_on_a_cpu() -> None:
    text = to_text(kernel(**COPIED["upwards"]))
    text = text.replace("(4, 16) ((0, 1, 0, 64)", "(4, 512) ((0, 1, 0, 2048)")
    text = text.replace("(8, 16) ((0, 1, 0, 64)", "(8, 512) ((0, 1, 0, 2048)")
    text = text.replace("constant<16>", "constant<512>")
    for vectors, count in (None, 0), (Vectors(8, "auto", (), LaneCosts(4, 12, 3, 4, 1.5, 3)), 1):
        module = parse(text)
        localise_rows(module, vectors)
        assert sum(array.space is Space.LOCAL for array in module.arrays) == count
