"""Iterations side by side: which loops, and that results stay the same, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.interpreter import run
from octants.ir import ops
from octants.ir.cloning import copy_module
from octants.ir.core import Module
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.passes.loops.jam_loops import jam_loops
from octants.target import LaneCosts, Vectors
from tests.ir.parser import parse

KERNEL = """\
kernel @k
array @w: f32, 2, field, () [primal (16, 32) ((0, 1, 0, 128), (1, 1, 0, 4)) ()]
array @x: f32, 1, field, () [primal (64,) ((0, 1, 0, 4),) ()]
array @y: f32, 1, field, () [primal (64,) ((0, 1, 0, 4),) ()]
array @z: f32, 1, field, () [primal (64,) ((0, 1, 0, 4),) ()]
array @n: i32, 1, field, () [primal (4,) ((0, 1, 0, 4),) ()]
{record}
parallel @k_0 {{
  %0: i32 = constant<0>()
  %1: i32 = constant<1>()
  yield(%0, %1)
}} {{ (%2: i32):
  %3: i32 = constant<0>()
  %4: i32 = constant<1>()
  %5: i32 = constant<7>()
  %6: f32 = constant<0.5>()
  %7: i32 = load<@n, primal>(%3)
  %8: i32 = load<@n, primal>(%4)
  %9: i32 = {rows}
  %10: i32 = {columns}
  %11: f32 = for(%3, %9, %6) {{ (%12: i32, %13: f32):
    {before}
    %14: f32 = for(%3, %10, %6) {{ (%15: i32, %16: f32):
      %17: f32 = load<@w, primal>(%12, %15)
      %18: f32 = load<@x, primal>(%15)
      %19: f32 = fma(%17, %18, %16)
      {inside}
      yield(%19)
    }}
    {behind}
    yield({carried})
  }}
  store<@z, primal>(%11, %5)
  {end}
  yield()
}}
"""
SUM = "%20: f32 = fma(%14, %14, %13)", "%20"
UPDATE = "%30: f32 = atomic<add, @z, primal>(%18, %12)"


def kernel(
    rows: Any = 8,
    columns: Any = 20,
    before: str = "",
    inside: str = "",
    behind: str = SUM[0],
    carried: str = SUM[1],
    record: str = "",
    end: str = "",
) -> Module:
    """Bounds are constants, or names of values."""
    bounds = {
        name: f"constant<{each}>()" if isinstance(each, int) else f"binary<add>({each}, %3)"
        for name, each in (("rows", rows), ("columns", columns))
    }
    parts = {"before": before, "inside": inside, "behind": behind, "carried": carried}
    text = KERNEL.format(**bounds, **parts, record=record, end=end)
    module = parse(text)
    verify(module)
    return module


def jammed(module: Module, leaves_rests: bool = False) -> tuple[Module, bool]:
    """A copy after the pass, and whether that has changed."""
    result = copy_module(module)
    jam_loops(result, None, leaves_rests)
    verify(result)
    return result, to_text(result) != to_text(module)


def on_a_cpu(module: Module) -> Module:
    """A copy after the pass for a CPU."""
    result = copy_module(module)
    jam_loops(result, Vectors(8, "auto", (), LaneCosts(4, 12, 3, 4, 1.5, 3)))
    return result


def results(module: Module, bounds: tuple[int, int] = (0, 0)) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {name: rng.normal(size=64).astype(np.float32) for name in "xyz"}
    arrays["w"] = rng.normal(size=(16, 32)).astype(np.float32)
    arrays["n"] = np.array([*bounds, 0, 0], np.int32)
    run(module, arrays)
    return arrays


def assert_same(module: Module, other: Module, bounds: tuple[int, int] = (0, 0)) -> None:
    for one, two in zip(*(results(each, bounds).values() for each in (module, other)), strict=True):
        np.testing.assert_array_equal(one, two)


def sums_of_loops(module: Module) -> list[int]:
    """The number of values that each innermost loop carries."""
    loops = [op for op in module.walk() if isinstance(op, ops.For)]
    return [len(op.inits) for op in loops if not any(each.regions for each in op.body.ops)]


def sums_at_once(module: Module) -> int:
    """The most values that an innermost loop carries."""
    return max(sums_of_loops(module), default=0)


@pytest.mark.parametrize(
    ("rows", "count"),
    [(8, 8), (12, 4), (6, 2), (2, 2), (5, 2), (10, 4), (15, 4), (3, 1), (1, 1), (0, 0)],
)
def test_rows_whose_number_is_known_are_divided_evenly_or_a_few_are_left(
    rows: int, count: int
) -> None:
    module = kernel(rows)
    result, _ = jammed(module, leaves_rests=True)
    assert sums_at_once(result) == count or rows == 0
    assert_same(module, result)
    if count and rows % count:
        assert sums_at_once(jammed(module)[0]) == (2 if rows % 2 == 0 else 1)


@pytest.mark.parametrize(
    ("inside", "rows", "sums"),
    [("", 15, [4, 3]), ("", 13, [4, 1]), ("", 16, [8])]
    + [(UPDATE, 15, [4, 1]), (UPDATE, 12, [4]), (UPDATE, 13, [4, 1])],
)
def test_rows_that_are_left_run_side_by_side_where_nothing_is_updated(
    inside: str, rows: int, sums: list[int]
) -> None:
    module = kernel(rows, inside=inside)
    result, _ = jammed(module, leaves_rests=True)
    assert sums_of_loops(result) == sums
    assert_same(module, result)


def test_loops_without_updates_leave_rows_over_of_any_number() -> None:
    text = to_text(kernel(20)).replace("(16, 32)", "(20, 32)")
    assert sums_of_loops(jammed(parse(text), leaves_rests=True)[0]) == [8, 4]
    assert sums_of_loops(jammed(parse(text))[0]) == [4]
    text = to_text(kernel(20, inside=UPDATE)).replace("(16, 32)", "(20, 32)")
    assert sums_of_loops(jammed(parse(text), leaves_rests=True)[0]) == [4]


def test_rows_that_are_left_of_a_number_of_the_launch() -> None:
    module = kernel("%7", "%8")
    result, has_changed = jammed(module)
    assert has_changed
    for rows in (-1, 0, 1, 3, 4, 5, 8, 11):
        for columns in (-1, 0, 1, 7):
            assert_same(module, result, (rows, columns))


def test_short_loops_are_left_to_be_unrolled() -> None:
    assert not jammed(kernel(columns=16))[1]
    assert jammed(kernel(columns=17))[1]


LOAD_Z = "%30: f32 = load<@z, primal>({0})\n"
JAMMED = {
    "a store of the row": {"behind": "store<@y, primal>(%14, %12)", "carried": "%13"},
    "an element that the row replaces": {
        "before": LOAD_Z.format("%12"),
        "behind": "%31: f32 = binary<add>(%30, %14)\nstore<@z, primal>(%31, %12)",
        "carried": "%13",
    },
    "sums of columns": {
        "inside": LOAD_Z.format("%15")
        + "%31: f32 = binary<add>(%30, %17)\nstore<@z, primal>(%31, %15)"
    },
    "sums of elements": {"inside": "store<@w, primal>(%19, %12, %15)"},
    "atomic sums": {"inside": UPDATE},
    "another loop": {
        "behind": "%40: f32 = for(%3, %10, %14) { (%41: i32, %42: f32):\n"
        "%43: f32 = load<@x, primal>(%41)\n%44: f32 = fma(%43, %43, %42)\nyield(%44)\n}\n"
        "%20: f32 = fma(%40, %14, %13)"
    },
    "a value that comes in the next iteration": {"carried": "%14", "behind": ""},
    "an element that the row replaces and reads": {
        "behind": LOAD_Z.format("%12")
        + "%31: f32 = binary<add>(%30, %14)\nstore<@z, primal>(%31, %12)\n"
        + "%32: f32 = load<@z, primal>(%12)\nstore<@y, primal>(%32, %12)\n"
        + "%20: f32 = fma(%32, %14, %13)",
    },
    "an element that all rows replace": {
        "behind": LOAD_Z.format("%3")
        + "%31: f32 = binary<sub>(%14, %30)\nstore<@z, primal>(%31, %3)",
        "carried": "%13",
    },
    "an element of the next row": {
        "behind": "%32: i32 = binary<add>(%12, %4)\n"
        + LOAD_Z.format("%32")
        + "%31: f32 = binary<sub>(%14, %30)\nstore<@z, primal>(%31, %12)",
        "carried": "%13",
    },
    "an element that has what is carried": {
        "behind": LOAD_Z.format("%12")
        + "%31: f32 = fma(%14, %30, %13)\nstore<@z, primal>(%31, %12)\n"
        + "%32: f32 = load<@z, primal>(%12)\n%33: f32 = load<@y, primal>(%12)\n"
        + "%34: f32 = binary<mul>(%32, %33)\nstore<@y, primal>(%34, %12)",
        "carried": "%31",
    },
}


@pytest.mark.parametrize("name", JAMMED)
def test_what_runs_side_by_side(name: str) -> None:
    for rows, columns in ((8, 20), ("%7", "%8")):
        module = kernel(rows, columns, **JAMMED[name])
        result, has_changed = jammed(module)
        assert has_changed
        assert_same(module, result, (7, 6))


def test_operations_between_loops_alternate_between_rows_on_a_gpu() -> None:
    """Each is written for all rows; what was stored is not loaded again."""
    module = kernel(2, **JAMMED["an element that the row replaces and reads"])
    after = [
        [op for op in result.walk() if isinstance(op, (ops.Load, ops.Store, ops.Fma))][-9:]
        for result in (jammed(module)[0], on_a_cpu(module))
    ]
    load, store, fma = ops.Load, ops.Store, ops.Fma
    kinds = [list(map(type, each)) for each in after]
    assert kinds[0] == [load, load, store, store, store, store, fma, fma, store]
    assert kinds[1] == [load, store, store, fma, load, store, store, fma, store]


RECORD = "record #r (16,): f32"
PUSH = "%33: i64 = constant<0>()\n%34: i64 = cast(%12)\nrecord_push<#r>(%33, %34, %14)\n"
POP = "%35: f32 = record_pop<#r>(%33, %33)\n"
READ = """
%50: i64 = constant<0>()
%51: f32 = record_pop<#r>(%50, %50)
store<@z, primal>(%51, %4)
"""


def recording(record: str = RECORD, behind: str = PUSH + SUM[0], inside: str = "") -> Module:
    """A kernel that records its rows, and reads the first of them behind its loop."""
    return kernel(record=record, behind=behind, inside=inside, end=READ)


def test_rows_that_are_recorded_in_memory_of_the_work_item() -> None:
    module = recording()
    result, has_changed = jammed(module)
    assert has_changed
    assert_same(module, result)


BUFFER = "record #r: f32"
PUSH_IF_IT_FITS = """
%34: i64 = cast(%12)
%60: u1 = compare<gt>(%14, %6)
%61: f32 = if(%60) {
record_push<#r>(%33, %34, %14)
%62: f32 = binary<add>(%14, %6)
yield(%62)
} {
yield(%14)
}
%20: f32 = fma(%61, %14, %13)
"""
FROM_WHAT_IS_CARRIED = "%40: f32 = binary<mul>(%13, %6)\n%41: f32 = binary<add>(%40, %6)"


def test_rows_that_are_recorded_in_the_record_buffer() -> None:
    base = "%33: i64 = constant<0>()\n"
    for parts in (
        {"behind": PUSH + SUM[0]},
        {"before": base, "behind": PUSH_IF_IT_FITS},
        {"before": FROM_WHAT_IS_CARRIED, "behind": PUSH + SUM[0].replace("%13", "%41")},
    ):
        module = kernel(record=BUFFER, end=READ, **parts)
        result, has_changed = jammed(module)
        assert has_changed
        assert sums_at_once(result) == 8
        assert_same(module, result)


def test_few_sums_side_by_side_on_a_cpu() -> None:
    module = on_a_cpu(kernel())
    assert sums_at_once(module) == 4
    assert sums_at_once(on_a_cpu(module)) == 4


def test_what_is_carried_into_an_inner_loop_stays_there() -> None:
    inside = "%42: f32 = binary<mul>(%41, %17)\nstore<@y, primal>(%42, %15)"
    assert not jammed(kernel(before=FROM_WHAT_IS_CARRIED, inside=inside))[1]


def test_records_whose_order_matters() -> None:
    assert not jammed(kernel("%7", record=BUFFER, behind=PUSH + SUM[0], end=READ))[1]
    read = "%44: i64 = constant<0>()\n%45: f32 = record_pop<#r>(%44, %44)"
    write = "%50: i64 = constant<0>()\nrecord_push<#r>(%50, %50, %6)"
    assert not jammed(kernel("%7", record=BUFFER, before=read, end=write))[1]
    assert jammed(kernel(record=BUFFER, before=read, end=write))[1]
    again = "%43: i64 = constant<0>()\nrecord_push<#r>(%43, %43, %13)"
    assert not jammed(kernel(record=BUFFER, before=again, behind=PUSH + SUM[0], end=READ))[1]
    assert not jammed(recording("record #r (8, 'unrolled'): f32"))[1]
    assert not jammed(recording(behind=PUSH + POP + SUM[0]))[1]
    assert not jammed(recording(inside=PUSH.replace("%14", "%19"), behind=SUM[0]))[1]


ADD = "%31: f32 = binary<add>(%30, %17)\n"
LEFT = {
    "a sum of the rows before": {"before": "store<@x, primal>(%13, %3)"},
    "an inner loop that goes on with what the outer one carries": {
        "inside": "%30: f32 = binary<mul>(%13, %17)\nstore<@y, primal>(%30, %15)"
    },
    "a row that the next one reads": {"behind": "store<@x, primal>(%14, %12)", "carried": "%13"},
    "one element for all columns": {
        "inside": LOAD_Z.format("%3") + ADD + "store<@z, primal>(%31, %3)"
    },
    "elements of diagonals": {
        "inside": "%32: i32 = binary<add>(%12, %15)\n"
        + LOAD_Z.format("%32")
        + ADD
        + "store<@z, primal>(%31, %32)"
    },
    "elements of the next column": {
        "inside": "%32: i32 = binary<add>(%15, %4)\n"
        + LOAD_Z.format("%32")
        + ADD
        + "store<@z, primal>(%31, %15)"
    },
    "a long iteration": {
        "inside": "".join(
            f"%{k}: f32 = unary<exp>(%{k - 1 if k > 30 else 19})\n" for k in range(30, 100)
        )
        + "store<@w, primal>(%99, %12, %15)"
    },
    "a sum that is read": {
        "inside": "%30: f32 = atomic<add, @z, primal>(%18, %3)",
        "behind": "%31: f32 = load<@z, primal>(%3)\n%20: f32 = fma(%31, %14, %13)",
    },
    "branches": {
        "inside": "%30: u1 = compare<gt>(%19, %6)\nif(%30) {\nstore<@y, primal>(%6, %15)\nyield()"
        "\n} {\nyield()\n}"
    },
}


@pytest.mark.parametrize("name", LEFT)
def test_what_stays(name: str) -> None:
    assert not jammed(kernel(**LEFT[name]))[1]


def test_a_trip_count_of_the_row() -> None:
    text = to_text(kernel(before="%33: i32 = binary<add>(%12, %3)"))
    assert "for(%3, %10, %6)" in text
    module = parse(text.replace("for(%3, %10, %6)", "for(%3, %14, %6)"))
    verify(module)
    assert not jammed(module)[1]
    assert not jammed(module)[1]


def test_an_array_that_may_be_another_one() -> None:
    text = to_text(kernel(behind="store<@y, primal>(%14, %12)", carried="%13"))
    for name in "xy":
        text = text.replace(
            f"@{name}: f32, 1, field, () [primal (64,) ((0, 1, 0, 4),) ()]",
            f"@{name}: f32, 1, ndarray, () [primal]",
        )
    module = parse(text)
    assert not jammed(module)[1]
    module.noalias = True
    copy = copy_module(module)
    copy.noalias = True
    jam_loops(copy)
    assert sums_at_once(copy) == 8


@pytest.mark.parametrize("dtype", [qd.f32, qd.f64], ids=str)
def test_products_of_matrices_on_a_cpu(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns share what they load, as far as registers go; sums are rounded as without that."""
    found: list[int] = []

    def see(module: Module, vectors: Vectors | None, leaves_rests: bool) -> None:
        assert vectors is not None and not leaves_rests
        jam_loops(module, vectors)
        found.append(sums_at_once(module))

    @qd.kernel
    def product(n: int, m: int):
        for i in range(n):
            for j in range(m):
                s = dtype(0.0)
                for k in range(x.shape[1]):
                    s += x[i, k] * y[k, j]
                z[i, j] = s
                total[None] += s

    rng = np.random.default_rng(0)
    results = []
    for take in (see, lambda *_: None):
        monkeypatch.setattr("octants.passes.loops.jam_loops.jam_loops", take)
        qd.init(arch=qd.cpu, offline_cache=False, log_level="error")
        x, y, z = (qd.field(dtype, (33, 33), needs_grad=True) for _ in "xyz")
        total = qd.field(dtype, (), needs_grad=True)
        for each in (x, y):
            each.from_numpy(rng.normal(size=(33, 33)).astype(dtype.numpy))
        for n, m in ((33, 33), (2, 7), (5, 3), (1, 1), (4, 0)):
            with qd.ad.Tape(loss=total):
                product(n, m)
        results.append([each.to_numpy() for each in (x, y, z, x.grad, y.grad)])
        rng = np.random.default_rng(0)
    assert found[0] == 4
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(results[0][2], results[1][2])
