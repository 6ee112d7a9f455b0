"""The operations of work items that work together: text, verifier, what passes make of them."""

from __future__ import annotations

import numpy as np
import pytest

from octants import interpreter
from octants.analysis.control_flow.uniformity import Uniformity
from octants.block_interpreter import Divergence
from octants.diagnostics.exceptions import OctantsRuntimeError
from octants.ir.core import InvalidIR, Module
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.passes.checks.check_bounds import check_bounds
from octants.passes.sums.demote_atomics import demote_atomics
from octants.passes.sums.fix_summation_order import fix_summation_order
from octants.passes.sums.sum_in_registers import sum_in_registers
from octants.pipeline import Stage, serialise
from octants.simplify import simplify
from tests.ir.parser import parse

HEAD = """\
kernel @k
array @x: f32, 1, ndarray, () [primal]
array @n: i32, 1, ndarray, () [primal]
array @pad: f32, 1, shared, () [primal (8,) ((0, 1, 0, 4),) ()]
array @grid: u1, 2, shared, (2,) [primal (4, 2) ((0, 1, 0, 4), (1, 1, 0, 2)) (1,)]
parallel @k_0 {'block_dim': 8, 'subgroup_size': 4} {
  %0: i32 = constant<0>()
  %1: i32 = shape<@x, 0>()
  yield(%0, %1)
} { (%2: i32):
"""


def module(body: str, head: str = HEAD) -> Module:
    """A kernel whose work item is %2, and its number in the block %t."""
    start = "  %seven: i32 = constant<7>()\n  %t: i32 = binary<and>(%2, %seven)\n"
    parsed = parse(head + start + body + "  yield()\n}\n")
    verify(parsed)
    return parsed


ALL = """\
  %a: f32 = load<@x, primal>(%2)
  store<@pad, primal>(%a, %t)
  barrier<block>()
  barrier<subgroup>()
  fence<subgroup>()
  fence<block>()
  fence<device>()
  %b: f32 = subgroup<shuffle, 4>(%a, %t)
  %c: f32 = subgroup<shuffle_up, 2>(%b, %t)
  %d: f32 = subgroup<add, 4>(%c)
  %e: f32 = subgroup<inclusive_max, 1>(%d)
  %f: i32 = subgroup<and, 4>(%t)
  %g: i32 = subgroup<inclusive_or, 4>(%f)
  %h: u1 = compare<lt>(%t, %g)
  %i: u64 = subgroup<ballot, 4>(%h)
  %j: u1 = subgroup<xor, 2>(%h)
  store<@grid, primal>(%j, %t, %t, %t)
"""


def test_round_trip_is_exact():
    text = to_text(module(ALL))
    assert "subgroup<inclusive_max, 1>" in text
    assert "array @grid: u1, 2, shared, (2,)" in text
    assert to_text(parse(text)) == text


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("barrier<device>()", "no barrier"),
        ("fence<grid>()", "no fence"),
        ("%a: i32 = subgroup<add, 3>(%t)", "3 lanes"),
        ("%a: i32 = subgroup<add, 8>(%t)", "8 of 4 lanes"),
        ("%a: i32 = subgroup<sub, 4>(%t)", "subgroup sub"),
        ("%a: f32 = subgroup<add, 4>(%t)", "of i32 as f32"),
        ("%a: i32 = subgroup<ballot, 4>(%t)", "ballot"),
        ("%a: i32 = subgroup<shuffle, 4>(%t)", "lanes"),
        ("%a: i32 = subgroup<add, 4>(%t, %t)", "lanes"),
        ("%a: f32 = load<@pad, primal>(%t)\n  %b: f32 = subgroup<or, 4>(%a)", "or of f32"),
        ("%a: u1 = compare<eq>(%t, %t)\n  %b: u1 = subgroup<add, 4>(%a)", "add of u1"),
    ],
)
def test_what_is_not_well_formed(wrong, why):
    with pytest.raises(InvalidIR, match=why):
        module(f"  {wrong}\n")


@pytest.mark.parametrize(
    "head",
    [
        HEAD.replace(" {'block_dim': 8, 'subgroup_size': 4}", ""),
        HEAD.replace("'subgroup_size': 4", "'subgroup_size': 3"),
        HEAD.replace("shared, () [primal (8,) ((0, 1, 0, 4),) ()]", "shared, () [primal]"),
    ],
)
def test_tasks_of_blocks_know_their_sizes(head):
    with pytest.raises(InvalidIR):
        module("  %a: f32 = load<@pad, primal>(%t)\n  barrier<block>()\n", head)


def test_a_serial_task_has_no_blocks():
    with pytest.raises(InvalidIR, match="serial"):
        verify(parse("kernel @k\nserial @k_0 {\n  barrier<block>()\n  yield()\n}\n"))


# -- passes ----------------------------------------------------------------------------------------


def simplified(body: str) -> str:
    result = module(body)
    simplify(result)
    verify(result)
    return to_text(result)


READ_TWICE = """\
  %a: f32 = load<@{0}, primal>(%t)
  {1}
  %b: f32 = load<@{0}, primal>(%t)
  %c: f32 = binary<add>(%a, %b)
  store<@x, primal>(%c, %2)
"""
WRITE_AND_READ = """\
  %a: f32 = constant<1.0>()
  store<@{0}, primal>(%a, %t)
  {1}
  %b: f32 = load<@{0}, primal>(%t)
  %i: i32 = constant<5>()
  store<@x, primal>(%b, %i)
"""


@pytest.mark.parametrize("array", ["pad", "x"])
@pytest.mark.parametrize("text", [READ_TWICE, WRITE_AND_READ])
def test_memory_is_read_again_behind_a_barrier(array, text):
    most, least = text.count("load<"), text.count("load<") - 1
    for between in ("barrier<block>()", "barrier<subgroup>()", "fence<device>()"):
        assert simplified(text.format(array, between)).count("load<") == most
    assert simplified(text.format(array, "")).count("load<") == least
    lanes = "%z: i32 = subgroup<add, 4>(%t)\n  print<(('',),), False>(%z)"
    assert simplified(text.format(array, lanes)).count("load<") == least


LOOP = """\
  %zero: i32 = constant<0>()
  for(%zero, %seven) {{ (%k: i32):
    %a: f32 = load<@pad, primal>(%t)
    {0}
    %old: f32 = atomic<add, @x, primal>(%a, %t)
    yield()
  }}
"""


def test_loads_stay_in_loops_with_barriers():
    def reads_early(text: str) -> bool:
        return text.index("load<@pad") < text.index("for(")

    assert reads_early(simplified(LOOP.format("")))
    assert not reads_early(simplified(LOOP.format("barrier<block>()")))
    inner = "if(%c) {\n barrier<block>()\n yield()\n} {\n yield()\n}"
    nested = LOOP.format("%c: u1 = compare<lt>(%k, %seven)\n" + inner)
    assert not reads_early(simplified(nested))


def test_what_lanes_do_stays_where_it_is():
    """It is not shared with an equal one, and not taken out of a loop."""
    text = simplified("""\
  %zero: i32 = constant<0>()
  %a: i32 = subgroup<add, 4>(%t)
  store<@n, primal>(%a, %zero)
  for(%zero, %seven) { (%k: i32):
    %b: i32 = subgroup<add, 4>(%t)
    store<@n, primal>(%b, %k)
    yield()
  }
""")
    assert text.count("subgroup<") == 2
    assert text.index("for(") < text.rindex("subgroup<")


def test_barriers_are_no_dead_code():
    text = simplified("""\
  %zero: i32 = constant<0>()
  for(%zero, %seven) { (%k: i32):
    barrier<block>()
    fence<block>()
    %a: i32 = subgroup<add, 4>(%t)
    yield()
  }
""")
    assert "barrier<block>()" in text
    assert "fence<block>()" in text
    assert "subgroup<" not in text, "its result is unused"


def test_sums_stay_in_loops_with_barriers():
    def collected(body: str) -> bool:
        result = module(body)
        sum_in_registers(result)
        return "atomic<" not in to_text(result).split("for(")[1].split("yield")[0]

    body = LOOP.format("").replace("%t)\n    yield", "%zero)\n    yield")
    assert collected(body)
    assert not collected(body.replace("%old", "barrier<block>()\n    %old"))


def test_a_shared_array_is_no_work_items_own():
    """Equal indices mean other memory in another block; those of one block may be equal."""
    result = module("""\
  %a: f32 = load<@x, primal>(%2)
  %old: f32 = atomic<add, @pad, primal>(%a, %t)
  %other: f32 = atomic<add, @x, primal>(%a, %2)
""")
    demote_atomics(result)
    text = to_text(result)
    assert "atomic<add, @pad" in text
    assert "atomic<add, @x" not in text


def test_indices_of_shared_arrays_are_checked():
    result = module("  store<@pad, primal>(%z, %2)\n", HEAD + "  %z: f32 = constant<0.0>()\n")
    check_bounds(result)
    assert "assert<bounds" in to_text(result)
    with pytest.raises(interpreter.AssertionFailed, match="index 8 .* of `pad`"):
        interpreter.run(result, {"x": np.zeros(9, np.float32), "n": np.zeros(1, np.int32)})


UPDATES = "  %a: f32 = load<@x, primal>(%2)\n  barrier<block>()\n"
UPDATES += "  %old: f32 = atomic<mul, @x, primal>(%a, %t)\n"


def test_work_items_that_work_together_have_no_order():
    with pytest.raises(OctantsRuntimeError, match="OCT245"):
        fix_summation_order(module(UPDATES))
    with pytest.raises(OctantsRuntimeError, match="OCT245"):
        serialise(module(UPDATES), Stage())
    fix_summation_order(module(UPDATES.replace("(%a, %t)", "(%a, %2)")))


def test_values_of_lanes_vary():
    result = module(ALL)
    facts = Uniformity(result.tasks[0].body)
    found = [op for op in result.walk() if op.NAME == "subgroup"]
    assert all(facts.varies(op.result) for op in found)


# -- running ---------------------------------------------------------------------------------------


def test_who_does_not_come_is_found():
    body = """\
  %four: i32 = constant<4>()
  %c: u1 = compare<lt>(%t, %four)
  if(%c) {
    MEET
    yield()
  } {
    yield()
  }
"""
    data = {"x": np.zeros(12, np.float32), "n": np.zeros(12, np.int32)}
    with pytest.raises(Divergence):
        interpreter.run(module(body.replace("MEET", "barrier<block>()")), data)
    interpreter.run(module(body.replace("MEET", "barrier<subgroup>()")), data)
    interpreter.run(module(body.replace("MEET", "%a: i32 = subgroup<add, 4>(%t)")), data)
    three = body.replace("constant<4>", "constant<3>")
    for meet in ("barrier<subgroup>()", "%a: i32 = subgroup<add, 4>(%t)"):
        with pytest.raises(Divergence):
            interpreter.run(module(three.replace("MEET", meet)), data)
    interpreter.run(module(three.replace("MEET", "%a: i32 = subgroup<add, 1>(%t)")), data)


def test_two_barriers_are_two_places():
    body = """\
  %four: i32 = constant<4>()
  %c: u1 = compare<lt>(%t, %four)
  if(%c) {
    barrier<block>()
    yield()
  } {
    barrier<block>()
    yield()
  }
"""
    data = {"x": np.zeros(8, np.float32), "n": np.zeros(8, np.int32)}
    with pytest.raises(Divergence):
        interpreter.run(module(body), data)


def test_subgroups_go_on_by_themselves():
    """Lanes of one subgroup meet as often as they like, while others are ahead of them."""
    body = """\
  %two: i32 = constant<2>()
  %zero: i32 = constant<0>()
  %group: i32 = binary<shr>(%t, %two)
  %a: i32 = for(%zero, %group, %t) { (%k: i32, %v: i32):
    %w: i32 = subgroup<add, 4>(%v)
    yield(%w)
  }
  barrier<block>()
  store<@n, primal>(%a, %2)
"""
    n = np.zeros(8, np.int32)
    interpreter.run(module(body), {"x": np.zeros(8, np.float32), "n": n})
    assert list(n) == [0, 1, 2, 3, 22, 22, 22, 22]


def test_a_while_with_a_barrier_in_its_condition():
    body = """\
  %one: i32 = constant<1>()
  %four: i32 = constant<4>()
  %a: i32 = while(%t) { (%v: i32):
    %least: i32 = subgroup<min, 4>(%v)
    %go: u1 = compare<lt>(%least, %four)
    yield(%go)
  } { (%u: i32):
    %next: i32 = binary<add>(%u, %one)
    yield(%next)
  }
  store<@n, primal>(%a, %2)
"""
    n = np.zeros(8, np.int32)
    interpreter.run(module(body), {"x": np.zeros(8, np.float32), "n": n})
    assert list(n) == [4, 5, 6, 7, 4, 5, 6, 7]
