"""The table of the examples says what a system did not do in time."""

from __future__ import annotations

import importlib.util
import os
import sys
from math import nan
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
    late = {"start": 0.5, "first": 2.0, "steady": 0.01, "error": "> 60 s"}
    failed = {"start": 0.5, "first": 2.0, "steady": 0.01, "error": "TypeError: no"}
    no_gradient = {"start": 0.5, "first": 2.0, "steady": 0.01}
    results = {"mpm": {"octants": late, "quadrants": failed, "taichi": no_gradient}}
    rows = examples.table(results, ["octants", "quadrants", "taichi"]).splitlines()[2:]
    assert rows == [
        "| mpm | octants | 500 ms | 2.00 s | 10 ms | > 60 s | - |",
        "|  | quadrants | 500 ms | 2.00 s | 10 ms | error | - |",
        "|  | taichi | 500 ms | 2.00 s | 10 ms | - | - |",
    ]


def test_a_gradient_that_differs_is_marked(examples: Any) -> None:
    for difference, mark in ((0.005, ""), (1.01, " (differs by 101%)"), (nan, " (not a number)")):
        found = {"gradient": 0.02, "difference": difference}
        assert examples.cell(found, "gradient") == "20 ms" + mark


def test_the_least_time_of_all_rounds_counts(examples: Any) -> None:
    first = examples.least({}, {"first": 2.0, "steady": 0.02, "found": [1.0]})
    both = examples.least(first, {"first": 3.0, "steady": 0.01, "error": "> 60 s"})
    assert both == {"first": 2.0, "steady": 0.01, "found": [1.0], "error": "> 60 s"}


WORKER = """\
import sys, time
from workers import report
print("RESULTS of a system")
report({"first": 1.0})
report({"first": 1.0, "gradient": 2.0})
sys.stdout.flush()
"""


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("", {}),
        ("raise TypeError('no')", {"error": "TypeError: no"}),
        ("sys.exit(3)", {"error": "ended with 3"}),
        ("time.sleep(60)", {"error": "> 3 s"}),
    ],
)
def test_the_last_report_of_a_worker_counts(
    examples: Any, more: str, problem: dict[str, str]
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(BENCH)}
    found = examples.outcome([sys.executable, "-c", WORKER + more], 3, environment)
    assert found == {"first": 1.0, "gradient": 2.0, **problem}


def test_tables_of_other_titles_stay(examples: Any) -> None:
    page = "a\n<!-- times -->\n### One\n\n| 1 |\n\n### Two\n\n| 2 |\n<!-- end -->\nb\n"
    page = examples.replace_tables(page, {"Two": "| 22 |", "Three": "| 3 |"}, "n.json")
    numbers = "([numbers](../bench/results/n.json))"
    tables = (
        f"### One\n\n| 1 |\n\n### Two\n\n| 22 |\n\n{numbers}\n\n### Three\n\n| 3 |\n\n{numbers}"
    )
    assert page == f"a\n<!-- times -->\n{tables}\n<!-- end -->\nb\n"
    assert examples.replace_tables(page, {}, "") == page
