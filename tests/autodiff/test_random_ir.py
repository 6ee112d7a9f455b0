"""Gradients of random modules against central differences, in the interpreter."""

from __future__ import annotations

from collections import Counter

import pytest

from octants.autodiff import deep_branches
from tests.autodiff.random_ir import check


def test_random_modules() -> None:
    found = Counter(check(seed) for seed in range(60))
    assert found["kink"] <= 6
    assert {"after", "before", "split"} <= set(found)


def test_random_modules_whose_ifs_compute_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deep_branches, "MAX_DEPTH", 0)
    found = Counter(check(seed) for seed in range(30))
    assert {"after", "before", "split"} <= set(found)
