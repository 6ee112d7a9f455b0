"""Functions that change memory or draw random numbers: for kernels only.

The first argument of an atomic is an element of a field or an array, ``x[i]``, a component of one,
``x[i].y``, or a local variable. It gives the value before. Vectors and matrices are changed one
component at a time.
"""

from __future__ import annotations

from typing import Any

from octants.lang.directives import grouped
from octants.lang.library_function_marks import kernel_only, library_function


@kernel_only
def atomic_add(x: Any, y: Any) -> Any:
    """Add `y` to the element `x` as one step, so that no update is lost; gives the value before.

    ``x[i] += y`` does the same in a parallel loop. Example::

        @qd.kernel
        def collect(x: qd.types.ndarray(qd.f32, 1), n: qd.types.ndarray(qd.i32, 0)):
            for i in range(8):
                slot = qd.atomic_add(n[None], 1)
                x[slot] = i * 0.5
    """


@library_function
def _add_entry(rows: Any, columns: Any, values: Any, count: Any, i: Any, j: Any, x: Any) -> None:
    """``A[i, j] += x`` of a builder of sparse matrices; beyond its capacity it only counts."""
    element = atomic_add(count[0], 1)
    if element < rows.shape[0]:
        rows[element] = i
        columns[element] = j
        values[element] = x


@kernel_only
def atomic_sub(x: Any, y: Any) -> Any:
    """Subtract `y` from the element `x` as one step; gives the value before."""


@kernel_only
def atomic_mul(x: Any, y: Any) -> Any:
    """Multiply the element `x` by `y` as one step; gives the value before."""


@kernel_only
def atomic_min(x: Any, y: Any) -> Any:
    """Lower the element `x` to `y` if that is less; gives the value before.

    At a tie the value before has the derivative.
    """


@kernel_only
def atomic_max(x: Any, y: Any) -> Any:
    """Raise the element `x` to `y` if that is more; gives the value before.

    At a tie the value before has the derivative.
    """


@kernel_only
def atomic_and(x: Any, y: Any) -> Any:
    """Store the bitwise and of the integer element `x` and `y`; gives the value before."""


@kernel_only
def atomic_or(x: Any, y: Any) -> Any:
    """Store the bitwise or of the integer element `x` and `y`; gives the value before."""


@kernel_only
def atomic_xor(x: Any, y: Any) -> Any:
    """Store the bitwise exclusive or of the integer element `x` and `y`; gives the value before."""


@kernel_only
def atomic_exchange(x: Any, y: Any) -> Any:
    """Store `y` into the element `x`; gives the value before."""


@kernel_only
def atomic_cas(x: Any, expected: Any, desired: Any) -> Any:
    """Store `desired` into the scalar element `x` if that is `expected`; gives the value before."""


@kernel_only
def volatile_load(target: Any) -> Any:
    """The value that an element holds now."""


@kernel_only
def random(dtype: Any = float) -> Any:
    """A uniform random number: of a float type in [0, 1), of an integer type over its range.

    It depends on the seed of `init`, the launch, the loop, the work item and the number of draws
    that this item has made, and so not on the number of threads.

    Example::

        @qd.kernel
        def count_inside(n: qd.i32) -> qd.i32:
            inside = 0
            for i in range(n):
                x, y = qd.random(), qd.random()
                inside += x * x + y * y < 1.0
            return inside
    """


@kernel_only
def rescale_index(a: Any, b: Any, I: Any) -> Any:  # noqa: N803, E741 - Quadrants' name
    """The index into field ``b`` that corresponds to ``I`` into ``a``, of another shape."""


@kernel_only
def assume_in_range(val: Any, base: Any, low: int, high: int) -> Any:
    """`val`; a hint that it is in [`base` + `low`, `base` + `high`), which is ignored.

    Args:
        val: an integer.
        base: an integer.
        low: the least difference.
        high: what the difference is less than.
    """


@library_function
def _fill_elements(array: Any, value: Any) -> None:
    """Set all elements of an array: what ``array.fill(value)`` is in a kernel."""
    for I in grouped(array):  # noqa: N806, E741 - an index of any rank
        array[I] = value
