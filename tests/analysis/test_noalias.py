"""Which array references never overlap, and which values edges lead to."""

from __future__ import annotations

import pytest

from octants.analysis.noalias import never_alias
from octants.analysis.reachability import reachable
from octants.ir.core import Array, ArrayRef, Companion, Space, Value
from octants.types.scalars import DType, f32, f64, i32


def reference(
    space: Space, dtype: DType = f32, companion: Companion = Companion.PRIMAL
) -> ArrayRef:
    return Array("x", dtype, 1, space), companion


FIELD, NDARRAY = reference(Space.FIELD), reference(Space.NDARRAY)
SUMS = reference(Space.TEMPORARY)

ALIASES = {
    "a field and itself": (FIELD, FIELD, False),
    "a field and its gradient": (FIELD, (FIELD[0], Companion.ADJOINT), True),
    "fields of one type": (FIELD, reference(Space.FIELD), False),
    "fields of two types": (FIELD, reference(Space.FIELD, f64), True),
    "a field and the gradient of another": (
        FIELD,
        reference(Space.FIELD, f32, Companion.ADJOINT),
        False,
    ),
    "ndarrays of two types": (NDARRAY, reference(Space.NDARRAY, i32), False),
    "an ndarray and a field": (NDARRAY, reference(Space.FIELD, f64), False),
    "an ndarray and launch-temporary memory": (NDARRAY, SUMS, True),
    "two pieces of launch-temporary memory": (SUMS, reference(Space.TEMPORARY), True),
    "a field and the tape": (FIELD, None, True),
    "the tape and itself": (None, None, False),
}


@pytest.mark.parametrize("case", ALIASES)
def test_arrays_that_never_overlap(case: str) -> None:
    first, second, expected = ALIASES[case]
    assert never_alias(first, second) is expected
    assert never_alias(second, first) is expected


@pytest.mark.parametrize("case", ALIASES)
def test_in_launches_without_aliases_only_equal_references_overlap(case: str) -> None:
    first, second, _ = ALIASES[case]
    assert never_alias(first, second, noalias=True) is (first != second)


EDGES = {
    "a": "bc",
    "b": "d",
    "d": "b",  # a cycle
    "e": "a",
}


@pytest.mark.parametrize(
    ("start", "reached"), [("", ""), ("a", "abcd"), ("d", "bd"), ("c", "c"), ("be", "abcde")]
)
def test_values_that_edges_lead_to(start: str, reached: str) -> None:
    values = {name: Value(f32, name) for name in "abcdef"}
    edges = {values[a]: [values[b] for b in targets] for a, targets in EDGES.items()}
    found = reachable([values[name] for name in start], edges)
    assert found == {values[name] for name in reached}
