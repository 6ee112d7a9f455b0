"""Products that are doubled: when a constant factor is doubled instead, with the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octants.interpreter import run
from octants.ir.parser import parse
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.passes.double_factors import double_factors

KERNEL = """\
kernel @k
array @x: f32, 1, field, () [primal (8,) ((0, 1, 0, 4),) ()]
array @y: f32, 1, field, () [primal (8,) ((0, 1, 0, 4),) ()]
array @z: f32, 1, field, () [primal (8,) ((0, 1, 0, 4),) ()]
parallel @k_0 {{
  %0: i32 = constant<0>()
  %1: i32 = constant<8>()
  yield(%0, %1)
}} {{ (%2: i32):
  %3: f32 = load<@x, primal>(%2)
  %4: f32 = constant<-1.5>()
  %5: f32 = binary<mul>({scaled})
  %6: f32 = binary<mul>({product})
  %7: f32 = binary<add>(%6, %6)
  {more}
  store<@y, primal>(%7, %2)
  yield()
}}
"""


def results(module: Any) -> list[Any]:
    random = np.random.default_rng(4)
    arrays: dict[str, Any] = {each: random.normal(size=8).astype(np.float32) for each in "xyz"}
    run(module, arrays)
    return list(arrays.values())


def is_doubled(scaled: str = "%4, %3", product: str = "%3, %5", more: str = "") -> bool:
    text = KERNEL.format(scaled=scaled, product=product, more=more)
    module = parse(text)
    verify(module)
    double_factors(module)
    verify(module)
    for one, other in zip(results(parse(text)), results(module), strict=True):
        np.testing.assert_array_equal(one, other)
    return "add" not in to_text(module)


BRANCH = """%8: u1 = compare<lt>(%7, %3)
if(%8) {
store<@z, primal>(%3, %2)
yield()
} {
yield()
}"""
TWICE = "%8: f32 = binary<mul>(%5, %5)\n%9: f32 = binary<add>(%8, %8)\nstore<@z, primal>(%9, %2)"


def test_which_products() -> None:
    assert is_doubled()
    assert is_doubled("%3, %4", "%5, %3")
    another = "%8: f32 = binary<mul>(%5, %4)\n%9: f32 = binary<add>(%8, %8)\n"
    assert is_doubled(more=another + "store<@z, primal>(%9, %2)")


@pytest.mark.parametrize(
    "more",
    [
        "store<@z, primal>(%5, %2)",
        "store<@z, primal>(%6, %2)",
        TWICE,
        BRANCH,
    ],
    ids=["the factor is needed", "the product is needed", "a square", "a branch depends on it"],
)
def test_what_stays(more: str) -> None:
    assert not is_doubled(more=more)


def test_numbers_of_16_bits_which_might_overflow() -> None:
    """-1.5 * 30000 fits in an f16, and so does twice its product with 0.001."""
    text = KERNEL.format(scaled="%4, %3", product="%3, %5", more="").replace("f32", "f16")
    module = parse(text)
    double_factors(module)
    assert "add" in to_text(module)


def test_a_factor_without_a_constant() -> None:
    assert not is_doubled("%3, %3")
