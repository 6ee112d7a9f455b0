"""Sine and cosine of f32 for ``fast_math``, on machines with instructions that estimate them.

The instructions of NVIDIA's GPUs have an error of 2**-20.9 or less near zero, growing with the
angle: beyond `FAR` the functions of `fast_without_fma` take their place.
"""

from __future__ import annotations

from collections.abc import Callable

from octants.mathlib import fast_without_fma
from octants.mathlib.ir_number import Branch, Number

FAR = 64.0
"""The angle from which on the instructions are not used."""


def _estimated(x: Number, fn: str, otherwise: Callable[[Number], Number]) -> Number:
    branch = Branch(~(abs(x) < FAR))
    with x.build.into(branch.rare):
        rare = otherwise(x)
    with x.build.into(branch.usual):
        usual = x.apply(fn)
    return branch.merge([rare], [usual])[0]


def sin(x: Number) -> Number:
    """sin, to 5e-7 for small angles and to 9e-6 for those before `FAR`."""
    return _estimated(x, "sin_estimate", fast_without_fma.sin)


def cos(x: Number) -> Number:
    """cos, as `sin`."""
    return _estimated(x, "cos_estimate", fast_without_fma.cos)
