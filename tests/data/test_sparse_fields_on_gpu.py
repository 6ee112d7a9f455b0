"""Sparse blocks on a fake GPU, whose threads are run by the CPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import octants as qd
from tests.codegen.on_emulated_gpu import emulated_gpu
from tests.data import test_sparse_fields as programs


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(qd, "cpu", qd.cuda)
    with emulated_gpu() as fake:
        qd.init(arch=qd.cuda)
        yield
        assert not fake.problems


def test_a_random_tree() -> None:
    programs.run(1, 6)


def test_lists() -> None:
    programs.test_lists()


def test_gradients() -> None:
    programs.test_gradients()
