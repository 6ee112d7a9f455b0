"""Sums of loops that are added product by product: which, and that they stay what they were."""

from __future__ import annotations

import numpy as np
import pytest

from octants.interpreter import run
from octants.ir.core import Module
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.passes.sums.fuse_product_sums import fuse_product_sums
from tests.ir.parser import parse

LOOP = """\
kernel @k
array @x: f64, 1, ndarray, () [primal]
array @y: f64, 1, ndarray, () [primal]
array @z: f64, 1, ndarray, () [primal]
parallel @k_0 {{{options}}} {{
  %0: i32 = constant<0>()
  %1: i32 = shape<@y, 0>()
  yield(%0, %1)
}} {{ (%2: i32):
  %3: i32 = constant<0>()
  %4: i32 = shape<@x, 0>()
  %5: f64 = load<@y, primal>(%2)
  %6: f64 = constant<1.5>()
  %7: f64, %8: f64 = for(%3, %4, %5, %6) {{ (%9: i32, %10: f64, %11: f64):
    %12: f64 = load<@x, primal>(%9)
    %13: f64 = binary<mul>(%12, %5)
{body}
    yield(%30, {second})
  }}
  %31: f64 = binary<add>(%7, %8)
{after}
  store<@z, primal>(%31, %2)
  yield()
}}
"""

FUSED = {
    "two products": """
    %20: f64 = fma(%12, %12, %13)
    %30: f64 = binary<add>(%10, %20)""",
    "on the left": """
    %20: f64 = fma(%12, %12, %13)
    %30: f64 = binary<add>(%20, %10)""",
    "taken away": """
    %20: f64 = fma(%12, %12, %13)
    %30: f64 = binary<sub>(%10, %20)""",
    "negative": """
    %20: f64 = fma(%12, %12, %13)
    %21: f64 = unary<neg>(%20)
    %30: f64 = binary<add>(%10, %21)""",
    "a difference": """
    %20: f64 = binary<mul>(%12, %12)
    %21: f64 = binary<sub>(%13, %20)
    %22: f64 = unary<neg>(%21)
    %30: f64 = binary<sub>(%10, %22)""",
    "after another": """
    %20: f64 = binary<add>(%10, %12)
    %21: f64 = fma(%12, %5, %13)
    %30: f64 = binary<sub>(%20, %21)""",
}
LEFT = {
    "a sum": """
    %20: f64 = binary<add>(%12, %13)
    %21: f64 = unary<sin>(%20)
    %30: f64 = binary<add>(%10, %21)""",
    "used twice": """
    %20: f64 = fma(%12, %12, %13)
    %21: f64 = binary<mul>(%20, %20)
    %22: f64 = unary<sin>(%21)
    %23: f64 = binary<mul>(%22, %20)
    %24: f64 = unary<cos>(%23)
    %30: f64 = binary<add>(%10, %24)""",
    "looked at": """
    %20: f64 = fma(%12, %12, %13)
    %21: f64 = binary<add>(%10, %20)
    %22: f64 = unary<sin>(%21)
    %30: f64 = binary<add>(%21, %22)""",
    "no sum": """
    %20: f64 = fma(%12, %12, %13)
    %30: f64 = binary<sub>(%20, %10)""",
    "a product of it": """
    %20: f64 = fma(%12, %12, %13)
    %21: f64 = binary<mul>(%10, %6)
    %30: f64 = binary<add>(%21, %20)""",
}
DECIDES = """
  %32: f64 = constant<0.5>()
  %33: u1 = compare<lt>(%7, %32)
  if(%33) {
    store<@z, primal>(%32, %2)
    yield()
  } {
    yield()
  }"""


def loop(body: str, second: str = "%11", after: str = "", options: str = "") -> Module:
    lines = (body.strip("\n"), after.strip("\n"))
    text = LOOP.format(body=lines[0], second=second, after=lines[1], options=options)
    module = parse(text.replace("parallel @k_0 {} {", "parallel @k_0 {").replace("\n\n", "\n"))
    verify(module)
    return module


def outputs(module: Module) -> np.ndarray:
    rng = np.random.default_rng(1)
    arrays = {"x": rng.uniform(-1, 1, 20), "y": rng.uniform(-1, 1, 5), "z": np.zeros(5)}
    run(module, arrays)
    return arrays["z"]


def fused(module: Module) -> bool:
    """Whether the pass changes anything; results stay what they were."""
    before, text = outputs(module), to_text(module)
    count = sum(1 for op in module.walk() if type(op).__name__ in ("Binary", "Fma"))
    fuse_product_sums(module)
    verify(module)
    np.testing.assert_allclose(outputs(module), before, rtol=1e-12)
    left = sum(1 for op in module.walk() if type(op).__name__ in ("Binary", "Fma"))
    assert (left < count) == (to_text(module) != text)
    return left < count


@pytest.mark.parametrize("name", FUSED)
def test_fused(name: str) -> None:
    assert fused(loop(FUSED[name]))
    assert fused(loop(FUSED[name], after=DECIDES, options="'reassociate_sums': True"))


@pytest.mark.parametrize("name", LEFT)
def test_left_alone(name: str) -> None:
    assert not fused(loop(LEFT[name]))


def test_what_decides_is_left_alone() -> None:
    """A replay must take the same way."""
    assert not fused(loop(FUSED["two products"], after=DECIDES))


def test_a_product_that_another_sum_has_too() -> None:
    body = FUSED["two products"] + "\n    %40: f64 = binary<add>(%11, %20)"
    assert not fused(loop(body, second="%40"))
