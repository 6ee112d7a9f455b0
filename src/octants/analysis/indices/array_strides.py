"""The distances in memory between elements, and between what iterations or lanes access."""

from __future__ import annotations

from collections.abc import Callable, Collection

from octants.analysis.indices.affine_analysis import AffineExpressions
from octants.ir import ops
from octants.ir.core import Array, Companion, Space, Value
from octants.types.layouts import Layout


def strides(array: Array, companion: Companion, count: int) -> list[int | None]:
    """The bytes between neighbours along each of ``count`` indices; None if a launch decides."""
    if array.space is Space.ARGUMENT:
        return [8] * count
    layout = array.layouts[companion]
    if isinstance(layout, Layout):
        return [*_of_terms(layout, array.rank), *layout.element_strides]
    if layout is not None:
        return [None] * count
    found: list[int | None] = [array.dtype.size]
    for extent in reversed(array.element_shape):
        found.insert(0, (found[0] or 0) * extent)
    inner = found[0] if array.rank else None
    elements = found[1:]
    return [*[None] * (array.rank - 1), *([inner] if array.rank else []), *elements]


def _of_terms(layout: Layout, rank: int) -> list[int | None]:
    found: list[int | None] = [0] * rank
    for term in layout.terms:
        is_whole = term.divisor == 1 and term.modulus == 0
        found[term.axis] = term.stride if is_whole and found[term.axis] == 0 else None
    return found


def address_step(
    affine: AffineExpressions,
    op: ops.Load | ops.Store | ops.Atomic,
    counters: Collection[Value],
    varies: Callable[[Value], bool],
) -> int | None:
    """The bytes by which an address moves with counters.

    Args:
        affine: The expressions of the task.
        op: What accesses the address.
        counters: The counters.
        varies: Whether a value changes with them.

    Returns:
        The bytes; None if they are unknown, or not always the same.
    """
    total = 0
    distances = strides(op.array, op.companion, len(op.indices))
    for index, stride in zip(op.indices, distances, strict=True):
        if not varies(index):
            continue
        expression = affine.expression(index)
        if stride is None or any(varies(v) for v in expression.terms if v not in counters):
            return None
        total += stride * sum(expression.terms.get(counter, 0) for counter in counters)
    return total
