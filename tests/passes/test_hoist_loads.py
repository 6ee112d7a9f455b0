"""Loads that move over branches: which of them, and that results stay the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octants.interpreter import run
from octants.ir.cloning import copy_module
from octants.ir.core import Module
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.passes.code_motion.hoist_loads import hoist_loads
from tests.ir.parser import parse

KERNEL = """\
kernel @k
array @x: f32, 1, field, () [primal (8,) ((0, 1, 0, 4),) ()]
array @y: f32, 1, field, () [primal (8,) ((0, 1, 0, 4),) ()]
array @z: f32, 1, ndarray, () [primal]
array @n: i32, 0, argument, () [primal]
array @m: i32, 1, field, () [primal (8,) ((0, 1, 0, 4),) ()]
parallel @k_0 {{
  %0: i32 = constant<0>()
  %1: i32 = constant<8>()
  yield(%0, %1)
}} {{ (%2: i32):
  %3: i32 = constant<1>()
  %4: i32 = constant<7>()
  %5: f32 = constant<0.5>()
  %6: i32 = load<@n, primal>()
  {before}
  %10: u1 = {condition}
  %11: f32 = if(%10) {{
    {then}
    yield(%20)
  }} {{
    {orelse}
    yield({other})
  }}
  {behind}
  store<@y, primal>(%11, %2)
  yield()
}}
"""
NEXT = "%19: i32 = binary<add>(%2, %3)\n%20: f32 = load<@x, primal>(%19)"
IS_INSIDE = "compare<lt>(%2, %4)"


def kernel(
    before: str = "%7: f32 = load<@x, primal>(%2)",
    condition: str = IS_INSIDE,
    then: str = NEXT,
    orelse: str = "",
    other: str = "%5",
    behind: str = "",
) -> Module:
    parts = {"then": then, "orelse": orelse, "other": other, "behind": behind}
    module = parse(KERNEL.format(before=before, condition=condition, **parts))
    verify(module)
    return module


def hoisted(module: Module, *, noalias: bool = True) -> Module:
    """A copy after the pass, which gives the same results."""
    result = copy_module(module)
    hoist_loads(result, noalias)
    verify(result)
    for one, other in zip(outcome(module), outcome(result), strict=True):
        np.testing.assert_array_equal(one, other)
    return result


def outcome(module: Module) -> list[Any]:
    random = np.random.default_rng(3)
    arrays: dict[str, Any] = {name: random.random(8).astype(np.float32) for name in "xyz"}
    arrays |= {"n": np.array(3, np.int32), "m": np.arange(8, dtype=np.int32)[::-1].copy()}
    run(module, arrays)
    return list(arrays.values())


def body(module: Module) -> list[str]:
    """The operations of the work item outside of branches, by their names."""
    return [type(op).__name__.lower() for op in module.tasks[0].body.ops]


def before_branch(module: Module) -> list[str]:
    names = body(module)
    return names[: names.index("if")]


def test_a_neighbour_that_the_boundary_may_cut_off() -> None:
    module = kernel()
    assert before_branch(module).count("load") == 2
    result = hoisted(module)
    assert before_branch(result).count("load") == 3
    assert "select(%10, %19, %2)" in to_text(result).replace("%9", "%19") or (
        before_branch(result).count("select") == 1
    )


def test_the_other_branch() -> None:
    module = kernel(
        condition="compare<ge>(%2, %4)",
        then="%20: f32 = load<@x, primal>(%2)",
        orelse=NEXT.replace("%19", "%29").replace("%20", "%30"),
        other="%30",
    )
    assert before_branch(hoisted(module)).count("load") == 4


def test_an_element_that_exists_takes_the_place_of_one_that_was_loaded() -> None:
    assert before_branch(hoisted(kernel(before=""))).count("load") == 2


def test_indices_of_another_type_than_those_of_the_element_that_was_loaded() -> None:
    then = "%18: i32 = binary<add>(%2, %3)\n%19: i64 = cast(%18)\n%20: f32 = load<@x, primal>(%19)"
    assert before_branch(hoisted(kernel(then=then))).count("load") == 3


@pytest.mark.parametrize("is_loaded", [False, True])
def test_arrays_of_unknown_shape_need_an_element_that_was_loaded(is_loaded: bool) -> None:
    before = "%7: f32 = load<@z, primal>(%2)" if is_loaded else ""
    module = kernel(before=before, then=NEXT.replace("@x", "@z"))
    assert before_branch(hoisted(module)).count("load") == 1 + 2 * is_loaded


STAYS = {
    "a condition that is loaded": {
        "before": "%8: i32 = load<@m, primal>(%2)",
        "condition": "compare<lt>(%8, %4)",
        "then": "%20: f32 = load<@x, primal>(%2)",
    },
    "an index that is loaded in the branch after a write": {
        "before": "",
        "then": "store<@x, primal>(%5, %2)\n%20: f32 = load<@x, primal>(%2)",
    },
    "a branch with a loop": {
        "before": "",
        "then": "%20: f32 = for(%3, %4, %5) { (%21: i32, %22: f32):\n"
        "%23: f32 = load<@x, primal>(%21)\nyield(%23)\n}",
    },
    "what the branch may have written": {
        "before": "",
        "then": "%19: i32 = binary<add>(%2, %3)\n%20: f32 = unary<neg>(%5)\n"
        "store<@x, primal>(%20, %6)",
        "behind": "%41: f32 = load<@x, primal>(%2)\nstore<@y, primal>(%41, %2)",
    },
}


@pytest.mark.parametrize("name", STAYS)
def test_what_stays(name: str) -> None:
    module = kernel(**STAYS[name])
    assert to_text(hoisted(module)) == to_text(module)


def test_loads_behind_a_branch() -> None:
    behind = "%40: f32 = load<@x, primal>(%2)\nstore<@y, primal>(%40, %2)"
    assert before_branch(hoisted(kernel(before="", behind=behind))).count("load") == 3


def test_an_element_that_the_branch_does_not_write() -> None:
    then = "%19: i32 = binary<add>(%2, %3)\nstore<@x, primal>(%5, %19)\n%20: f32 = unary<neg>(%5)"
    behind = "%40: f32 = load<@x, primal>(%2)\nstore<@y, primal>(%40, %2)"
    module = kernel(before="", then=then, behind=behind)
    assert before_branch(hoisted(module)).count("load") == 2


def test_arrays_that_may_be_the_same_memory() -> None:
    module = kernel(
        before="",
        then="%20: f32 = unary<neg>(%5)\nstore<@z, primal>(%20, %2)",
        behind="%40: f32 = load<@x, primal>(%2)\nstore<@y, primal>(%40, %2)",
    )
    text = to_text(module).replace(
        "@x: f32, 1, field, () [primal (8,) ((0, 1, 0, 4),) ()]", "@x: f32, 1, ndarray, () [primal]"
    )
    assert before_branch(hoisted(parse(text), noalias=False)).count("load") == 1
    assert before_branch(hoisted(parse(text))).count("load") == 2


def test_a_load_behind_a_deep_nest_of_branches() -> None:
    """The operations of a nest are looked at once, not once for each branch around them."""
    depth = 60
    then = "%100: f32 = unary<neg>(%5)"
    for k in range(1, depth):
        then = f"%{100 + k}: f32 = if(%10) {{\n{then}\nyield(%{99 + k})\n}} {{\nyield(%5)\n}}"
    then += f"\n%20: f32 = unary<neg>(%{99 + depth})"
    behind = "%40: f32 = load<@x, primal>(%2)\nstore<@y, primal>(%40, %2)"
    module = kernel(before="", then=then, behind=behind)
    assert before_branch(hoisted(module)).count("load") == 2
