"""Which groups of updates add products of few factors."""

from __future__ import annotations

import pytest

from octants.analysis.sums.reductions import find_shared
from octants.analysis.sums.sum_groups import find_groups
from octants.analysis.sums.sums_of_products import (
    COLUMNS,
    MIXED,
    ROWS,
    ProductFinder,
    SumsOfProducts,
)
from octants.ir.core import Value
from octants.ir.verifier import verify
from octants.types.scalars import f32
from tests.ir.parser import parse

HEAD = """\
kernel @k
array @x: f32, 2, ndarray, () [primal]
array @w: {dtype}, 2, ndarray, () [primal, adjoint]
parallel @k_0 {{
  %0: i32 = constant<0>()
  %1: i32 = shape<@x, 0>()
  yield(%0, %1)
}} {{ (%2: i32):
  %3: i32 = constant<0>()
  %4: i32 = constant<1>()
  %5: f32 = constant<0.0>()
  %6: f32 = constant<1.0>()
  %a: f32 = load<@x, primal>(%2, %3)
  %b: f32 = load<@x, primal>(%2, %4)
  %p: f32 = binary<mul>(%a, %b)
  %q: f32 = binary<mul>(%a, %a)
  %c: u1 = compare<ne>(%a, %5)
  %d: u1 = compare<ne>(%p, %5)
  %e: u1 = compare<gt>(%a, %5)
  %f: f32 = select(%c, %p, %5)
"""


def found(*values: str, before: tuple[str, ...] = (), dtype: str = "f32") -> SumsOfProducts | None:
    updates = [
        f"%{50 + n}: {dtype} = atomic<add, @w, adjoint>({value}, %3, %{('3', '4')[n % 2]})"
        for n, value in enumerate(values)
    ]
    lines = "".join(f"  {line}\n" for line in (*before, *updates))
    module = parse(HEAD.format(dtype=dtype) + lines + "  yield()\n}\n")
    verify(module)
    (task,) = module.tasks
    (group,) = find_groups(task, find_shared(task.body), True, 32)
    return ProductFinder(task).find(group)


MORE = (
    "%g: f32 = unary<sin>(%b)",
    "%h: f32 = binary<mul>(%a, %g)",
    "%i: f32 = binary<mul>(%b, %g)",
    "%j: f32 = binary<mul>(%g, %a)",
)


@pytest.mark.parametrize(
    ("values", "rows", "columns"),
    [
        (("%p", "%q"), "a", "ba"),
        (("%p", "%h"), "a", "bg"),
        (("%h", "%i"), "g", "ab"),  # the column is the first factor
        (("%q", "%h"), "a", "ag"),
    ],
)
def test_outer_products(values: tuple[str, ...], rows: str, columns: str) -> None:
    products = found(*values, before=MORE)
    assert products is not None
    assert "".join(str(value.name) for value in products.rows) == rows
    assert "".join(str(value.name) for value in products.columns) == columns
    assert not products.guard


@pytest.mark.parametrize("values", [("%p", "%p"), ("%p", "%i"), ("%h", "%j"), ("%p", "%q", "%i")])
def test_other_products(values: tuple[str, ...]) -> None:
    assert found(*values, before=MORE) is None


GUARDED = (
    *MORE,
    "%k: f32 = select(%c, %h, %5)",
    "%m: u1 = compare<ne>(%b, %5)",
    "%n: f32 = select(%m, %i, %5)",
)


@pytest.mark.parametrize(
    ("values", "guard"),
    [
        (("%p", "%h"), ""),
        (("%f", "%k"), ROWS),  # products of a, where a is not zero
        (("%k", "%n"), COLUMNS),  # products of g, where the other factor is not zero
        (("%f", "%q"), MIXED),
        (("%k", "%i"), MIXED),
    ],
)
def test_guards_of_a_factor(values: tuple[str, ...], guard: str) -> None:
    products = found(*values, before=GUARDED)
    assert products is not None
    assert products.guard == guard


@pytest.mark.parametrize(
    ("rows", "columns", "fits"),
    [(8, 8, True), (4, 8, True), (2, 8, False), (4, 16, True), (3, 16, False), (1, 32, True)]
    + [(16, 2, False), (8, 12, False), (1, 64, False), (8, 4, True), (12, 8, True)],
)
def test_tiles_of_lanes(rows: int, columns: int, fits: bool) -> None:
    factors = [Value(f32) for _ in range(rows + columns)]
    products = SumsOfProducts(tuple(factors[:rows]), tuple(factors[rows:]), guard="")
    assert products.fits(32) == fits


@pytest.mark.parametrize(
    "value",
    [
        "select(%d, %p, %5)",  # not whether a factor is zero
        "select(%e, %p, %5)",
        "select(%c, %p, %6)",  # something else than zero
        "select(%c, %a, %5)",
        "binary<add>(%a, %b)",
        "fma(%a, %b, %a)",
    ],
)
def test_others(value: str) -> None:
    assert found("%g", "%p", before=(f"%g: f32 = {value}",)) is None


def test_numbers_of_other_types() -> None:
    wide = ("%g: f64 = cast(%a)", "%h: f64 = binary<mul>(%g, %g)")
    assert found("%h", "%h", before=wide, dtype="f64") is None


def test_many_factors() -> None:
    def products(count: int) -> SumsOfProducts | None:
        lines = []
        for n in range(count):
            lines += [f"%{20 + n}: f32 = unary<sin>(%{19 + n if n else 'a'})"]
            lines += [f"%g{n}: f32 = binary<mul>(%a, %{20 + n})"]
        return found(*(f"%g{n}" for n in range(count)), before=tuple(lines))

    assert products(23) is not None
    assert products(24) is None
