"""Sums, minima and maxima over arrays, which the compiler's own reductions compute."""

from __future__ import annotations

from typing import Any

import numpy as np

from octants.lang.atomics_and_random import atomic_add, atomic_max, atomic_min
from octants.lang.directives import static_assert
from octants.lang.library_function_marks import library_function
from octants.types.parameter_annotations import CompileTime
from octants.types.scalars import DType, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64

NUMBERS = (i8, i16, i32, i64, u8, u16, u32, u64, f16, f32, f64)


def _extremes(dtype: DType) -> tuple[Any, Any]:
    if dtype.is_float:
        return float("-inf"), float("inf")
    limits = np.iinfo(dtype.numpy)
    return int(limits.min), int(limits.max)


LEAST, GREATEST = ({dtype: _extremes(dtype)[which] for dtype in NUMBERS} for which in (0, 1))
"""The least and the greatest number of each type."""


def reduce_scratch_slots(n: int, log256_max_n: int | None = None) -> int:  # noqa: ARG001
    """The length of the scratch of `reduce_add`, `reduce_min` and `reduce_max`: 1.

    They need none; Quadrants needs more for more elements.

    Args:
        n: the most elements that are reduced.
        log256_max_n: accepted for Quadrants' sake.
    """
    return 1


@library_function
def reduce_add(
    arr: Any,
    out: Any,
    scratch: Any,  # noqa: ARG001
    n: Any,
    dtype: CompileTime,
    log256_max_n: CompileTime = None,  # noqa: ARG001
) -> None:
    """Store the sum of the first ``n`` elements of ``arr`` in ``out[0]``; 0 if ``n`` is 0.

    Example::

        x = qd.field(qd.f32, 1000)
        total = qd.field(qd.f32, 1)

        @qd.kernel
        def add_up():
            qd.algorithms.reduce_add(x, total, total, 1000, qd.f32)

    Args:
        arr: a field or an array of ``dtype`` with one axis.
        out: another one, of one element.
        scratch: accepted for Quadrants' sake, and not needed.
        n: the number of elements, an integer.
        dtype: the type of the elements, an integer or a float.
        log256_max_n: accepted for Quadrants' sake, and not needed.
    """
    _reduce(arr, out, n, dtype, atomic_add, 0)


@library_function
def reduce_min(
    arr: Any,
    out: Any,
    scratch: Any,  # noqa: ARG001
    n: Any,
    dtype: CompileTime,
    log256_max_n: CompileTime = None,  # noqa: ARG001
) -> None:
    """Store the least of the first ``n`` elements of ``arr`` in ``out[0]``; see `reduce_add`.

    It ignores NaN. Without any other elements the result is the greatest number of the type.
    """
    _reduce(arr, out, n, dtype, atomic_min, GREATEST[dtype])


@library_function
def reduce_max(
    arr: Any,
    out: Any,
    scratch: Any,  # noqa: ARG001
    n: Any,
    dtype: CompileTime,
    log256_max_n: CompileTime = None,  # noqa: ARG001
) -> None:
    """Store the greatest of the first ``n`` elements of ``arr`` in ``out[0]``; see `reduce_add`.

    It ignores NaN. Without any other elements the result is the least number of the type.
    """
    _reduce(arr, out, n, dtype, atomic_max, LEAST[dtype])


@library_function
def _reduce(
    arr: Any, out: Any, n: Any, dtype: CompileTime, update: CompileTime, identity: CompileTime
) -> None:
    static_assert(dtype in NUMBERS, "`dtype` is a type of integers or floats")
    for _ in range(1):
        out[0] = dtype(identity)
    for i in range(n):
        update(out[0], arr[i])
