"""Array arguments that are one array: no load is forwarded across a store to the other name."""

from __future__ import annotations

import numpy as np
import pytest

from octants.interpreter import run
from octants.simplify import simplify
from tests.ir.parser import parse

TEXT = """
kernel @k
array @a: f64, 1, ndarray, () [primal]
array @b: f64, 1, SPACE, () [primal]
array @y: f64, 1, ndarray, () [primal]
serial @k_0 {
  %zero: i32 = constant<0>()
  %three: i32 = constant<3>()
  %one: f64 = constant<1.0>()
  for(%zero, %three) { (%j: i32):
    %b1: f64 = load<@b, primal>(%zero)
    %a1: f64 = binary<add>(%b1, %one)
    store<@a, primal>(%a1, %zero)
    %b2: f64 = load<@b, primal>(%zero)
    %y1: f64 = load<@y, primal>(%zero)
    %y2: f64 = binary<add>(%y1, %b2)
    store<@y, primal>(%y2, %zero)
    yield()
  }
  yield()
}
"""


@pytest.mark.parametrize("space", ["ndarray", "field exported"])
def test_one_array_under_two_names(space: str) -> None:
    text = TEXT.replace("SPACE", space)
    module = parse(text)
    simplify(module)
    shared, y = np.ones(1), np.zeros(1)
    run(module, {"a": shared, "b": shared, "y": y})
    assert y[0] == 2 + 3 + 4
