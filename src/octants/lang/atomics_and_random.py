"""Functions that change memory or draw random numbers: for kernels only.

An atomic takes an element of a field or an array, ``x[i]``, a component of one, ``x[i].y``, or a
local variable. It gives the value before. Vectors and matrices are changed one component at a time.
"""

from __future__ import annotations

from typing import Any

from octants.lang.function_marks import kernel_only, library_function
from octants.lang.syntax import grouped


@kernel_only
def atomic_add(x: Any, y: Any) -> Any:
    """Add ``y`` to an element that others may change too; gives the value before."""


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
    """Subtract ``y`` from an element; gives the value before."""


@kernel_only
def atomic_mul(x: Any, y: Any) -> Any:
    """Multiply an element by ``y``; gives the value before."""


@kernel_only
def atomic_min(x: Any, y: Any) -> Any:
    """Lower an element to ``y`` if that is less; gives the value before. It wins at a tie."""


@kernel_only
def atomic_max(x: Any, y: Any) -> Any:
    """Raise an element to ``y`` if that is more; gives the value before. It wins at a tie."""


@kernel_only
def atomic_and(x: Any, y: Any) -> Any:
    """Bitwise and, of integers; gives the value before."""


@kernel_only
def atomic_or(x: Any, y: Any) -> Any:
    """Bitwise or, of integers; gives the value before."""


@kernel_only
def atomic_xor(x: Any, y: Any) -> Any:
    """Bitwise exclusive or, of integers; gives the value before."""


@kernel_only
def atomic_exchange(x: Any, y: Any) -> Any:
    """Store ``y`` into an element; gives the value before."""


@kernel_only
def atomic_cas(x: Any, expected: Any, desired: Any) -> Any:
    """Store ``desired`` into a scalar element if it holds ``expected``; gives the value before."""


@kernel_only
def volatile_load(target: Any) -> Any:
    """The value that an element holds now."""


@kernel_only
def random(dtype: Any = float) -> Any:
    """A uniform random number: of a float type in [0, 1), of an integer type over its range.

    It depends on the seed of `init`, the launch, the loop, the work item and the number of draws
    that this item has made, and so not on the number of threads.
    """


@kernel_only
def rescale_index(a: Any, b: Any, I: Any) -> Any:  # noqa: N803, E741 - Quadrants' name
    """The index into field ``b`` that corresponds to ``I`` into ``a``, of another shape."""


@kernel_only
def assume_in_range(val: Any, base: Any, low: int, high: int) -> Any:
    """``val``; accepted as a hint that it is in [base + low, base + high)."""


@library_function
def _fill_elements(array: Any, value: Any) -> None:
    """Set all elements of an array: what ``array.fill(value)`` is in a kernel."""
    for I in grouped(array):  # noqa: N806, E741 - an index of any rank
        array[I] = value
