"""Prefix sums, and prefix minima and maxima, over chunks of an array.

    each chunk: its prefixes, and its total at its first element    parallel
    the totals: what comes before each chunk                        in order
    each chunk: what comes before it, added to its prefixes         parallel

The results themselves hold what is passed on, so that there is no scratch, and derivatives go
through.
"""

from __future__ import annotations

from typing import Any

from octants.algorithms.chunks import count_of, last_of, size_of
from octants.algorithms.reductions import GREATEST, LEAST, NUMBERS
from octants.lang.directives import static_assert
from octants.lang.library_function_marks import library_function
from octants.lang.scalar_functions import max as larger
from octants.lang.scalar_functions import min as smaller
from octants.types.parameter_annotations import CompileTime


def exclusive_scan_scratch_slots(n: int, log256_max_n: int | None = None) -> int:  # noqa: ARG001
    """The length of the scratch of `exclusive_scan_add` and its like: 1.

    They need none; Quadrants needs more for more elements.

    Args:
        n: the most elements that are scanned.
        log256_max_n: accepted for Quadrants' sake.
    """
    return 1


@library_function
def exclusive_scan_add(
    arr: Any,
    out: Any,
    scratch: Any,  # noqa: ARG001
    n: Any,
    dtype: CompileTime,
    log256_max_n: CompileTime = None,  # noqa: ARG001
) -> None:
    """Store in ``out[i]`` the sum of the elements of ``arr`` before ``i``, for each ``i < n``.

    Floats are added in an order that depends on ``n`` alone, so that results are reproducible.

    Example::

        counts = qd.field(qd.i32, 1000)
        starts = qd.field(qd.i32, 1000)

        @qd.kernel
        def find_starts():
            qd.algorithms.exclusive_scan_add(counts, starts, starts, 1000, qd.i32)

    Args:
        arr: a field or an array of ``dtype`` with one axis.
        out: another one, of at least ``n`` elements; it may be ``arr`` itself.
        scratch: accepted for Quadrants' sake, and not needed.
        n: the number of elements, an integer.
        dtype: the type of the elements, an integer or a float.
        log256_max_n: accepted for Quadrants' sake, and not needed.
    """
    _scan(arr, out, n, dtype, _plus, 0)


@library_function
def exclusive_scan_min(
    arr: Any,
    out: Any,
    scratch: Any,  # noqa: ARG001
    n: Any,
    dtype: CompileTime,
    log256_max_n: CompileTime = None,  # noqa: ARG001
) -> None:
    """Store in ``out[i]`` the least element of ``arr`` before ``i``; see `exclusive_scan_add`.

    It ignores NaN. ``out[0]`` is the greatest number of the type.
    """
    _scan(arr, out, n, dtype, smaller, GREATEST[dtype])


@library_function
def exclusive_scan_max(
    arr: Any,
    out: Any,
    scratch: Any,  # noqa: ARG001
    n: Any,
    dtype: CompileTime,
    log256_max_n: CompileTime = None,  # noqa: ARG001
) -> None:
    """Store in ``out[i]`` the greatest element of ``arr`` before ``i``; see `exclusive_scan_add`.

    It ignores NaN. ``out[0]`` is the least number of the type.
    """
    _scan(arr, out, n, dtype, larger, LEAST[dtype])


@library_function
def _plus(a: Any, b: Any) -> Any:
    return a + b


@library_function
def _scan(
    arr: Any, out: Any, n: Any, dtype: CompileTime, join: CompileTime, identity: CompileTime
) -> None:
    static_assert(dtype in NUMBERS, "`dtype` is a type of integers or floats")
    for chunk in range(count_of(n)):
        first = chunk * size_of(n)
        total = dtype(identity)
        for i in range(first, last_of(chunk, n)):
            element = arr[i]
            if i > first:
                out[i] = total
            total = dtype(join(total, element))
        out[first] = total
    for _ in range(1):
        before = dtype(identity)
        for chunk in range(count_of(n)):
            first = chunk * size_of(n)
            total = out[first]
            out[first] = before
            before = dtype(join(before, total))
    for chunk in range(1, count_of(n)):
        first = chunk * size_of(n)
        for i in range(first + 1, last_of(chunk, n)):
            out[i] = dtype(join(out[first], out[i]))


@library_function
def inclusive_sum(arr: Any, n: Any, dtype: CompileTime) -> None:
    """Replace each of the first ``n`` elements by the sum of it and those before it."""
    for chunk in range(count_of(n)):
        total = dtype(0)
        for i in range(chunk * size_of(n), last_of(chunk, n)):
            total = dtype(total + arr[i])
            arr[i] = total
    for _ in range(1):
        before = dtype(0)
        for chunk in range(count_of(n)):
            last = last_of(chunk, n) - 1
            before = dtype(before + arr[last])
            arr[last] = before
    for chunk in range(1, count_of(n)):
        first = chunk * size_of(n)
        for i in range(first, last_of(chunk, n) - 1):
            arr[i] = dtype(arr[first - 1] + arr[i])
