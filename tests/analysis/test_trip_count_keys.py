"""Which tasks have work items worth sorting, and by which number."""

from __future__ import annotations

import pytest

from octants.analysis.control_flow.trip_count_keys import find_key
from octants.ir import ops
from octants.ir.verifier import verify
from tests.ir.parser import parse

HEAD = """\
kernel @k
array @n: i32, 1, ndarray, () [primal]
array @x: f32, 2, ndarray, () [primal]
array @y: f32, 1, ndarray, () [primal]
parallel @k_0 OPTIONS {
  %0: i32 = constant<0>()
  %1: i32 = shape<@n, 0>()
  yield(%0, %1)
} { (%2: i32):
  %3: i32 = constant<0>()
  %4: i32 = constant<8>()
  %5: f32 = constant<0.5>()
  %6: i32 = load<@n, primal>(%2)
  %7: i32 = binary<add>(%2, %4)
  %8: i32 = load<@n, primal>(%7)
  %9: i32 = binary<add>(%6, %4)
  %10: i32 = binary<floordiv>(%9, %4)
  %11: i32 = binary<sub>(%4, %6)
  %12: i32 = load<@n, primal>(%3)
  %13: i32 = constant<1>()
  %14: i32 = binary<ushr>(%6, %13)
"""
LOOP = """\
  %20: f32 = for(LOWER, UPPER, %5) { (%21: i32, %22: f32):
    %23: f32 = for(%3, %4, %22) { (%24: i32, %25: f32):
      %26: f32 = unary<sin>(%25)
      yield(%26)
    }
    yield(%23)
  }
  store<@y, primal>(%20, %2)
  yield()
}
"""


def key_of(
    loop: str, lower: str = "%3", upper: str = "%6", options: str = "", arrays: str = "array @y"
) -> list[str]:
    """The texts of the slice of a task's key and, last, the values of the key."""
    loop = loop.replace("LOWER", lower).replace("UPPER", upper)
    module = parse((HEAD + loop).replace("OPTIONS ", options).replace("array @y", arrays))
    verify(module)
    (task,) = module.tasks
    key = find_key(task, noalias=True)
    if key is None:
        return []
    names = {value: op for op in task.body.ops for value in op.results}
    ends = [names[value] for value in (key.end, key.start) if value is not None]
    return [op.NAME if not isinstance(op, ops.Binary) else op.fn for op in (*key.slice, *ends)]


def test_bounds_that_work_items_load() -> None:
    assert key_of(LOOP) == ["load", "load"]
    assert key_of(LOOP, "%6", "%8") == ["constant", "load", "add", "load", "load", "load"]


def test_a_number_that_is_used_twice_is_looked_at_once() -> None:
    names = ["%6", *(f"%{k}" for k in range(101, 161))]
    doubled = "".join(
        f"  {one}: i32 = binary<xor>({before}, {before})\n"
        for before, one in zip(names, names[1:], strict=False)
    )
    assert key_of(doubled + LOOP, upper="%160") == ["load", *["xor"] * 61]


def test_a_loop_in_blocks_has_the_key_of_its_iterations() -> None:
    assert key_of(LOOP, upper="%10") == ["load", "load"]


def test_a_loop_in_chunks_is_as_long_as_one_of_its_iterations() -> None:
    assert not key_of(LOOP, upper="%14")
    long = LOOP.replace("unary<sin>(%25)", "unary<sin>(%25)\n      %27: f32 = unary<sin>(%26)")
    long = long.replace("yield(%26)", "yield(%27)")
    assert key_of(long, upper="%14") == ["load", "load"]


def test_numbers_that_get_smaller() -> None:
    assert key_of(LOOP, upper="%11") == ["constant", "load", "sub", "sub"]


@pytest.mark.parametrize("upper", ["%4", "%12", "%7"])
def test_bounds_of_all_work_items_or_their_numbers(upper: str) -> None:
    found = key_of(LOOP, upper=upper)
    assert not found


def test_indices_that_are_loaded() -> None:
    """They must not change: the key is computed before the work item, or after it has run."""
    loads = "  %13: i32 = load<@n, primal>(%6)\n" + LOOP
    assert key_of(loads, upper="%13") == ["load", "load", "load"]
    stores = loads.replace("  store<@y", "  store<@n, primal>(%3, %2)\n  store<@y")
    assert not key_of(stores, upper="%13")
    assert key_of(stores, upper="%6") == ["load", "load"]


def test_bounds_that_follow_from_the_number_of_the_work_item() -> None:
    """They are as in the chunks of a sum in a fixed order: neighbours have about equal ones."""
    assert not key_of("  %13: i32 = binary<mul>(%12, %2)\n" + LOOP, upper="%13")


def test_bounds_in_memory_of_the_work_item() -> None:
    array = "array @l: i32, 0, local, (4,) [primal]\narray @y"
    loads = "  %13: i32 = load<@l, primal>(%3)\n" + LOOP
    assert not key_of(loads, upper="%13", arrays=array)
    stores = "  store<@l, primal>(%6, %3)\n" + loads
    assert not key_of(stores, upper="%13", arrays=array)


def test_short_loops() -> None:
    assert not key_of(LOOP.replace("unary<sin>", "unary<neg>"))


def test_accesses_to_neighbours() -> None:
    """A subgroup accesses these together as long as its work items are neighbours."""
    assert not key_of(LOOP.replace("unary<sin>(%25)", "load<@x, primal>(%24, %2)"))


def test_work_items_that_may_end() -> None:
    check = "  assert<'assertion', 'x'>(%30)\n  %20: f32"
    asserts = LOOP.replace("  %20: f32", "  %30: u1 = compare<lt>(%3, %4)\n" + check)
    assert not key_of(asserts)


@pytest.mark.parametrize(
    "option", ["'block_dim': 64", "'fixed_order': True", "'all_registers': True"]
)
def test_blocks_of_a_size_and_few_work_items(option: str) -> None:
    assert not key_of(LOOP, options=f"{{{option}}} ")
