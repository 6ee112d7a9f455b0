"""The benchmark of two GPUs runs, and its results are right, on two GPUs of a fake driver."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from tests.codegen.on_emulated_gpu import emulated_gpu

import octants as qd


def test_it_measures_and_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))
    two_gpus = importlib.import_module("two_gpus")
    with emulated_gpu(devices=2, total=1 << 27) as fake:
        qd.init(arch=qd.cuda, log_level="error")
        found = two_gpus.measured(1 << 12, 64, 3, 20)
        qd.sync()
        assert not fake.problems
    assert {unit for _, unit in found.values()} == {"GB/s", "us", "ms"}
    assert all(number > 0 for number, _ in found.values())
