"""Sums of what loads read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octants.autodiff.variants import read_fingerprint as picture
from octants.autodiff.variants.read_fingerprint import add_fingerprint
from octants.interpreter import run
from octants.ir.core import Module
from octants.ir.ops import Load
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from tests.ir.parser import parse
from tests.passes.test_pictures import pictures

TEXT = """\
kernel @k
array @x: f32, 1, ndarray, () [primal]
array @n: i32, 0, ndarray, () [primal]
array @y: f64, 1, ndarray, () [primal]
parallel @k_0 {
  %0: i32 = constant<0>()
  %1: i32 = load<@n, primal>()
  yield(%0, %1)
} { (%2: i32):
  %3: f32 = load<@x, primal>(%2)
  %4: f64 = load<@y, primal>(%2)
  %5: f64 = cast(%3)
  %6: f64 = binary<mul>(%5, %4)
  store<@y, primal>(%6, %2)
  yield()
}
"""


def watched(effects: bool) -> tuple[Module, Any]:
    module = parse(TEXT)
    loads = [op for op in module.walk() if isinstance(op, Load)]
    made, sums = add_fingerprint(module, loads, effects=effects)
    verify(made)
    return made, sums


def sums_of(module: Module, x: Any, n: int, y: Any) -> tuple[list[int], Any]:
    arrays = {
        "x": np.array(x, np.float32),
        "n": np.array(n, np.int32),
        "y": np.array(y, np.float64),
    }
    temporaries = {a.name: np.zeros((), np.uint64) for a in module.arrays[3:]}
    run(module, {**arrays, **temporaries})
    return [int(value) for value in temporaries.values()], arrays["y"].tolist()


def test_the_picture() -> None:
    ((before, after),) = pictures(picture)
    module = parse(before)
    loads = [op for op in module.walk() if isinstance(op, Load)]
    made, _ = add_fingerprint(module, loads, effects=False)
    assert to_text(made) == after


def test_a_run_with_and_without_effects() -> None:
    (launched, sums), (looking, _) = watched(True), watched(False)
    assert {array.name for array in sums} == {"x", "n", "y"}
    first, y = sums_of(launched, [1, 2, 3], 3, [4, 5, 6])
    assert y == [4, 10, 18]
    second, y = sums_of(looking, [1, 2, 3], 3, [4, 5, 6])
    assert y == [4, 5, 6]
    assert first == second
    assert all(first)


@pytest.mark.parametrize(
    ("x", "n", "y", "same"),
    [
        ([1, 2, 3, 9], 3, [4, 5, 6, 9], (True, True, True)),  # elements that are not read
        ([1, 3, 2], 3, [4, 5, 6], (False, True, True)),  # values that have changed places
        ([1, 2, 3], 3, [4, 5, 6.5], (True, True, False)),
        ([1, 2, 3], 2, [4, 5, 6], (False, False, False)),
        ([1, 2, 3], 3, [4, 5, -6], (True, True, False)),
    ],
)
def test_what_makes_a_difference(x: Any, n: int, y: Any, same: tuple[bool, ...]) -> None:
    looking, sums = watched(False)
    names = [array.name for array in sums]
    before, _ = sums_of(looking, [1, 2, 3], 3, [4, 5, 6])
    after, _ = sums_of(looking, x, n, y)
    wanted = dict(zip("xny", same, strict=True))
    found = {name: one == other for name, one, other in zip(names, before, after, strict=True)}
    assert found == wanted
