"""Which values edges lead to."""

from __future__ import annotations

import pytest

from octants.analysis.reachability import reachable
from octants.ir.core import Value
from octants.types.scalars import f32

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
