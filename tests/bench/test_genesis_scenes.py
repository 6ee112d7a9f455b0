"""Rows of Genesis' scenes: what differs is found, and what was measured apart stays apart."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def scenes(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("genesis_scenes")


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("genesis_table")


def run(**numbers: Any) -> dict[str, Any]:
    return {"numbers": numbers}


def test_numbers_that_are_apart_do_not_agree(scenes: Any) -> None:
    theirs = run(pos=[0.0, 2.0], contacts=[4.0])
    found = scenes.compare("boxes", [run(pos=[1e-9, 2.0 + 1e-8], contacts=[4.0])], [theirs])
    assert found["agrees"]
    assert found["differences"] == {"pos": pytest.approx(5e-9), "contacts": 0.0}
    assert not scenes.compare("boxes", [run(pos=[0.0, 2.0], contacts=[3.0])], [theirs])["agrees"]
    assert not scenes.compare("boxes", [run(pos=[0.0], contacts=[4.0])], [theirs])["agrees"]
    nothing = run(pos=[0.0, float("nan")], contacts=[4.0])
    assert not scenes.compare("boxes", [nothing], [theirs])["agrees"]


def test_gradients_are_compared_with_their_largest_element(scenes: Any) -> None:
    theirs = run(gradient=[1e-3, 1e-9])
    assert not scenes.compare("grad_arm", [run(gradient=[1.01e-3, 1e-9])], [theirs])["agrees"]
    assert scenes.compare("grad_arm", [run(gradient=[1e-3, 0.0])], [theirs])["agrees"]


def row(scenes: Any, scene: str, part: str, **entries: Any) -> dict[str, Any]:
    return {"scene": scene, "error": "", part: {"measured": scenes.stamp("now", 0.0), **entries}}


def times(seconds: float) -> dict[str, Any]:
    clocks = {"wall": 2 * seconds, "cpu": seconds}
    runs = {"build": clocks, "first": clocks}
    return {"cold": runs, "warm": runs, "again": clocks}


def test_parts_of_a_row_say_themselves_when_they_were_measured(
    scenes: Any, table: Any, tmp_path: Path
) -> None:
    path = tmp_path / "genesis.json"
    timed = row(scenes, "mpm", "times", octants=times(0.5), quadrants=times(2.0))
    timed["times"]["measured"] |= {"started": "2026-01-01 10:00", "commit": "abc"}
    compared = row(scenes, "mpm", "numbers", differences={"pos": 0.0}, tolerance=1e-6, agrees=True)
    compared["numbers"]["measured"] |= {"started": "2026-01-02 10:00", "commit": "def+"}
    scenes.store(path, timed)
    rows = scenes.store(path, compared)
    assert json.loads(path.read_text())["rows"] == rows == [{**timed, **compared}]
    assert table.times_table(rows).splitlines()[2:] == [
        "| mpm | octants | 500 ms | 500 ms | 500 ms | 500 ms | 500 ms |",
        "|  | quadrants | 2 s | 2 s | 2 s | 2 s | 2 s |",
    ]
    assert table.measured(rows, "times").startswith("2026-01-01, commit abc, ")
    assert table.measured(rows, "numbers").startswith("2026-01-02, commit def+, ")


def test_a_row_of_another_commit_or_with_an_error_is_measured_again(
    scenes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = row(scenes, "mpm", "times")
    measured["times"]["measured"]["started"] = scenes.time.strftime("%Y-%m-%d %H:%M")
    assert scenes.is_measured(measured, "times")
    assert not scenes.is_measured(measured, "numbers")
    assert not scenes.is_measured({**measured, "error": "no answer"}, "times")
    assert not scenes.is_measured(None, "times")
    monkeypatch.setattr(scenes, "source_commit", lambda: "another")
    assert not scenes.is_measured(measured, "times")


def test_a_slower_row_is_marked(scenes: Any) -> None:
    numbers = {"differences": {"pos": 0.0}, "tolerance": 1e-6, "agrees": True}
    compared = {"scene": "mpm", "numbers": numbers}
    timed = {**compared, "times": {"octants": times(3.0), "quadrants": times(2.0)}}
    assert scenes.line(timed).count("SLOWER") == 5
    assert "SLOWER" not in scenes.line(compared)
