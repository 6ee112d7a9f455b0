"""Proves that accesses in different iterations of a loop are to different elements."""

from __future__ import annotations

from collections.abc import Container

from octants.analysis.indices.affine_analysis import AffineExpressions
from octants.ir import ops
from octants.ir.core import Value


def varying(loop: ops.For) -> set[Value]:
    """The values in a loop that may differ from iteration to iteration: all but its constants."""
    return loop.body.defined() - ops.constants_in(loop.body).keys()


def differ(
    affine: AffineExpressions,
    counter: Value,
    varying: Container[Value],
    one: ops.Access,
    other: ops.Access,
) -> bool:
    """Whether two accesses touch one element only in the same iteration of a loop.

    On some axis, both have one index, which steps by one with the counter.

    Args:
        affine: The expressions of the task.
        counter: The counter of the loop.
        varying: What else may change from iteration to iteration.
        one: An access in the loop.
        other: Another one, or the same.
    """
    low, high = affine.value_range(counter)

    def steps(a: Value, b: Value) -> bool:
        if a.type is not b.type or high - low >= 1 << a.type.bits:
            return False
        first, second = affine.expression(a), affine.expression(b)
        if first.constant != second.constant or first.terms != second.terms:
            return False
        others = (atom for atom in first.terms if atom is not counter)
        return abs(first.terms.get(counter, 0)) == 1 and not any(x in varying for x in others)

    return one.ref == other.ref and any(map(steps, one.indices, other.indices))
