"""Kernels whose tangents are arrays of their own, as text."""

from __future__ import annotations

from octants.autodiff.forward import with_tangent_arrays
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from tests.ir.parser import parse

BEFORE = """\
kernel @k
array @x: f64, 1, ndarray, () [primal, adjoint]
array @x_tangent: f64, 1, field, () [primal]
array @p: f64, 0, argument, () [primal]
array @t: f64, 0, temporary, () [primal]
array @y: f64, 0, return, () [primal]
serial @k_0 {
  %0: i32 = constant<0>()
  %1: f64 = load<@x, primal>(%0)
  %2: f64 = load<@p, primal>()
  %3: f64 = binary<mul>(%1, %2)
  store<@t, primal>(%3)
  store<@x_tangent, primal>(%3, %0)
  yield()
}
serial @k_1 {
  %0: f64 = load<@t, primal>()
  store<@y, primal>(%0)
  yield()
}
"""

AFTER = """\
kernel @k_forward
array @x: f64, 1, ndarray, () [primal, adjoint]
array @x_tangent: f64, 1, field, () [primal]
array @p: f64, 0, argument, () [primal]
array @t: f64, 0, temporary, () [primal]
array @y: f64, 0, return, () [primal]
array @x_tangent_: f64, 1, ndarray, () [primal, adjoint]
array @p_tangent: f64, 0, ndarray, () [primal, adjoint]
array @t_tangent: f64, 0, temporary, () [primal]
array @y_tangent: f64, 0, ndarray, () [primal, adjoint]
"""


def test_tangents_are_arrays_behind_the_others() -> None:
    module = parse(BEFORE)
    before = to_text(module)
    active = [array for array in module.arrays if array.name in ("x", "p", "y")]
    made = with_tangent_arrays(module, active)
    verify(made)
    text = to_text(made)
    assert text.startswith(AFTER)
    for access in ("load<@x_tangent_, primal>", "load<@p_tangent, primal>()"):
        assert access in text
    for access in ("store<@t_tangent, primal>", "store<@y_tangent, primal>"):
        assert access in text
    assert text.count("store<@x_tangent, primal>") == 1  # an array without a tangent
    assert "tangent>" not in text
    assert to_text(module) == before


SEVERAL = """\
array @x_tangent_: f64, 2, ndarray, () [primal, adjoint]
array @p_tangent: f64, 1, ndarray, () [primal, adjoint]
array @t_tangent: f64, 0, temporary, () [primal]
array @y_tangent: f64, 1, ndarray, () [primal, adjoint]
array @t_tangent_: f64, 0, temporary, () [primal]
"""


def test_tangents_of_several_directions() -> None:
    module = parse(BEFORE)
    active = [array for array in module.arrays if array.name in ("x", "p", "y")]
    made = with_tangent_arrays(module, active, 2)
    verify(made)
    text = to_text(made)
    assert SEVERAL in text
    assert text.count("load<@x, primal>") == text.count("load<@p, primal>") == 1
    assert text.count("load<@x_tangent_, primal>") == text.count("load<@p_tangent, primal>") == 2
    for name in ("t_tangent", "t_tangent_"):
        assert text.count(f"store<@{name}, primal>") == text.count(f"load<@{name}, primal>") == 1
    assert "tangent>" not in text


def test_a_kernel_can_be_differentiated_again() -> None:
    module = parse(BEFORE)
    once = with_tangent_arrays(module, [module.arrays[0]])
    twice = with_tangent_arrays(once, [once.arrays[0], once.arrays[5]])
    verify(twice)
    names = [array.name for array in twice.arrays]
    assert len(names) == len(set(names))
