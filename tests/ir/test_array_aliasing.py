"""Which array references may be the same memory."""

from __future__ import annotations

import pytest

from octants.ir.array_aliasing import may_alias
from octants.ir.core import Array, ArrayRef, Companion, Space
from octants.types.scalars import DType, f32, f64, i32


def reference(
    space: Space,
    dtype: DType = f32,
    companion: Companion = Companion.PRIMAL,
    exported: bool = False,
) -> ArrayRef:
    return ArrayRef(Array("x", dtype, 1, space, exported=exported), companion)


FIELD, NDARRAY = reference(Space.FIELD), reference(Space.NDARRAY)
SUMS = reference(Space.TEMPORARY)
EXPORTED = reference(Space.FIELD, exported=True)

MAY_ALIAS = {
    "a field and itself": (FIELD, FIELD, True),
    "a field and its gradient": (FIELD, ArrayRef(FIELD[0], Companion.ADJOINT), False),
    "fields of one type": (FIELD, reference(Space.FIELD), False),
    "fields of two types": (FIELD, reference(Space.FIELD, f64), False),
    "ndarrays of two types": (NDARRAY, reference(Space.NDARRAY, i32), True),
    "an ndarray and a field of its own": (NDARRAY, reference(Space.FIELD, f64), False),
    "an ndarray and an exported field": (NDARRAY, EXPORTED, True),
    "an exported field and another one": (EXPORTED, reference(Space.FIELD, f64), False),
    "two exported fields": (EXPORTED, reference(Space.FIELD, exported=True), True),
    "an ndarray and launch-temporary memory": (NDARRAY, SUMS, False),
    "an exported field and launch-temporary memory": (EXPORTED, SUMS, False),
    "two pieces of launch-temporary memory": (SUMS, reference(Space.TEMPORARY), False),
    "a field and the record buffer": (FIELD, None, False),
    "the record buffer and itself": (None, None, True),
}


@pytest.mark.parametrize("case", MAY_ALIAS)
def test_arrays_that_may_overlap(case: str) -> None:
    first, second, expected = MAY_ALIAS[case]
    assert may_alias(first, second) is expected
    assert may_alias(second, first) is expected


@pytest.mark.parametrize("case", MAY_ALIAS)
def test_in_launches_without_aliases_only_equal_references_overlap(case: str) -> None:
    first, second, _ = MAY_ALIAS[case]
    assert may_alias(first, second, noalias=True) is (first == second)
