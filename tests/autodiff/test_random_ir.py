"""Gradients of random modules against central differences, in the interpreter."""

from __future__ import annotations

from collections import Counter

from tests.autodiff.random_ir import check


def test_random_modules() -> None:
    found = Counter(check(seed) for seed in range(60))
    assert found["kink"] <= 6
    assert {"after", "before", "split"} <= set(found)
