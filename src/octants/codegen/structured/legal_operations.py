"""The operations that all machines with structured control flow have instructions for."""

from __future__ import annotations

import functools

from octants.ir.ops.arithmetic import BITWISE, COMPARE, ESTIMATES
from octants.lowering.legal_operations import (
    EXACT,
    FLOATS,
    INTEGERS,
    SIGNED_INTEGERS,
    UNSIGNED_INTEGERS,
    Legal,
    casts,
    table,
)
from octants.mathlib.function_registry import ALL
from octants.types.scalars import f16, f32, f64, i32, i64, u1, u32, u64

_BASIC = ("add", "sub", "mul", "neg")
_ON_INTEGERS = (*_BASIC, *BITWISE, "not", "quotient", "lsl", "lsr")


@functools.cache
def legal(
    has_f64: bool,
    fast_math: bool,
    estimates: bool = False,
    extremes: bool = False,
    roots: bool = False,
    rounds: bool = True,
) -> Legal:
    """Return the operations that every device supports, given its types and ``estimates``.

    Only ``fast_math`` lets a machine round a product before adding to it. With ``extremes`` it has
    the minimum and maximum of f32, which choose any of two zeros; with ``roots``, 1 / sqrt(x) of
    f32 to two ulp; without ``rounds``, none for f64 that rounds to the nearest whole number, or
    towards zero.
    """
    functions = table(
        (INTEGERS, _ON_INTEGERS),
        (SIGNED_INTEGERS, ("asr",)),
        (UNSIGNED_INTEGERS, ("remainder",)),
        ((u32,), ("popcount",)),
        (FLOATS, (*_BASIC, "div", "sqrt", *EXACT, *ALL)),
        ((f16,), EXACT),
        ((f32,) * estimates, ESTIMATES),
        ((f32,) * extremes, ("min", "max")),
        ((f32,) * roots, ("rsqrt",)),
        ((u1,), (*BITWISE, "not", "eq", "ne")),
        ((*INTEGERS, *FLOATS, f16), COMPARE),
    )
    if not rounds:
        functions -= table(((f64,), ("round", "trunc")))
    wide = (i32, i64, u32, u64)
    allowed = casts((*INTEGERS, u1), INTEGERS) | casts((*wide, u1, *FLOATS), FLOATS)
    fma = frozenset(FLOATS if fast_math else ())
    return Legal(functions, allowed, fma, has_f64=has_f64)
