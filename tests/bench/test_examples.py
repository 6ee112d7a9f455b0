"""The table of the examples says what a system did not do in time."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    spec = importlib.util.spec_from_file_location("bench_examples", BENCH / "examples.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_was_not_done_in_time_stands_in_its_column(examples: Any, tmp_path: Path) -> None:
    late = {"first": 2.0, "steady": 0.01, "error": "> 60 s"}
    failed = {"first": 2.0, "steady": 0.01, "error": "TypeError: no"}
    no_gradient = {"first": 2.0, "steady": 0.01}
    report = {"results": {"mpm": {"octants": late, "quadrants": failed, "taichi": no_gradient}}}
    rows = examples.table(report, ["octants", "quadrants", "taichi"]).splitlines()[2:]
    assert rows == [
        "| mpm | octants | 2.00 s | 10 ms | > 60 s | - |",
        "|  | quadrants | 2.00 s | 10 ms | error | - |",
        "|  | taichi | 2.00 s | 10 ms | - | - |",
    ]


def test_a_worker_stores_what_it_has_so_far(examples: Any, tmp_path: Path) -> None:
    path = tmp_path / "result.npz"
    examples.store(str(path), {"first": 1.0})
    examples.store(str(path), {"first": 1.0, "gradient": 2.0}, [3.0])
    stored = examples.np.load(path)
    assert examples.json.loads(str(stored["result"])) == {"first": 1.0, "gradient": 2.0}
    assert stored["gradient"].tolist() == [3.0]
