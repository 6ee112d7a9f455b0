"""Gradients of random modules against central differences, in the interpreter."""

from __future__ import annotations

from collections import Counter

import pytest

from octants.autodiff.facts import deeply_nested_ifs
from tests.autodiff.random_ir import VectorGenerator, check
from tests.seeds import counts


@pytest.mark.parametrize("count", counts(8, 60))
def test_random_modules(count: int) -> None:
    found = Counter(check(seed) for seed in range(count))
    assert found["kink"] <= max(1, count // 10)
    assert {"after", "before", "split"} <= set(found)


@pytest.mark.parametrize("count", counts(6, 30))
def test_random_modules_whose_ifs_compute_again(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deeply_nested_ifs, "MAX_DEPTH", 0)
    found = Counter(check(seed) for seed in range(count))
    assert {"after", "before", "split"} <= set(found)


@pytest.mark.parametrize("count", counts(4, 60))
def test_random_modules_with_vectors(count: int) -> None:
    found = Counter(check(seed, VectorGenerator) for seed in range(count))
    assert found["kink"] <= max(1, count // 5)
    assert {"after", "split"} <= set(found)
