"""Reverse kernels that propagate several adjoints, as text."""

from __future__ import annotations

import pytest

from octants.autodiff.reverse import reverse
from octants.autodiff.variants import batched_adjoints
from octants.autodiff.variants.batched_adjoints import CannotBatch, batch_adjoints
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from tests.ir.parser import parse
from tests.passes.test_pictures import pictures


def test_picture() -> None:
    ((before, after),) = pictures(batched_adjoints)
    result = batch_adjoints(parse(before), 2).module
    verify(result)
    assert to_text(result) == to_text(parse(after))


LOOPS = """\
kernel @k
array @x: f64, 1, ndarray, () [primal, adjoint]
array @t: f64, 0, temporary, () [primal]
array @y: f64, 0, return, () [primal]
serial @k_0 {
  %0: i32 = constant<0>()
  %1: i32 = constant<9>()
  %2: f64 = load<@x, primal>(%0)
  %3: f64 = for(%0, %1, %2) { (%4: i32, %5: f64):
    %6: f64 = unary<sin>(%5)
    yield(%6)
  }
  store<@t, primal>(%3)
  yield()
}
serial @k_1 {
  %0: f64 = load<@t, primal>()
  %1: f64 = binary<mul>(%0, %0)
  store<@y, primal>(%1)
  yield()
}
"""


def test_records_and_values_are_those_of_one_adjoint() -> None:
    module = reverse(parse(LOOPS)).module
    before = to_text(module)
    made = batch_adjoints(module, 3)
    verify(made.module)
    text = to_text(made.module)
    assert to_text(module) == before
    for once in ("record_push", "record_pop", "unary<sin>", "unary<cos>", "load<@x, primal>"):
        assert text.count(once) == before.count(once), once
    assert text.count("atomic<add, @x_adjoint, primal>") == 3
    assert [module.arrays[k].name for k in made.outer] == ["x"]
    assert {module.arrays[k].name: len(several) for k, several in made.inner.items()} == {
        "t": 3,
        "y": 3,
    }
    assert all(each.space.value == "temporary" for many in made.inner.values() for each in many)


ON_AN_ADJOINT = """\
kernel @k_reverse
array @x: f64, 0, field, () [primal, adjoint]
array @y: f64, 0, field, () [primal, adjoint]
serial @k_0_reverse {
  %0: f64 = load<@y, adjoint>()
  %1: f64 = constant<0.0>()
  %2: u1 = compare<gt>(%0, %1)
  BODY
  yield()
}
"""
STORES = "if(%2) { store<@x, adjoint>(%0) yield() } { yield() }"
LOOP = "while() { yield(%2) } { store<@x, adjoint>(%0) yield() }"
PRIMAL = "store<@x, primal>(%0)"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (STORES, "control flow depends on an adjoint"),
        (LOOP, "control flow depends on an adjoint"),
        (PRIMAL, "`store` depends on an adjoint"),
    ],
)
def test_what_cannot_be_batched(body: str, reason: str) -> None:
    module = parse(ON_AN_ADJOINT.replace("BODY", body))
    with pytest.raises(CannotBatch, match=reason):
        batch_adjoints(module, 2)


def test_a_select_by_an_adjoint_is_one_for_each() -> None:
    select = "%3: f64 = select(%2, %0, %1)\n  store<@x, adjoint>(%3)"
    result = batch_adjoints(parse(ON_AN_ADJOINT.replace("BODY", select)), 2).module
    verify(result)
    assert to_text(result).count("select(") == 2
