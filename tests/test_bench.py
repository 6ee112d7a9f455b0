"""The benchmark runs, and has every row, with or without the other system."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
MEASURES = {"forward", "backward", "compile forward", "compile backward"}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    folder = tmp_path_factory.mktemp("bench")
    command = [sys.executable, "bench/run.py", "recurrence", "ragged", "pairwise", "--rounds", "1"]
    subprocess.run([*command, "--output", str(folder)], cwd=REPOSITORY, check=True)
    (path,) = folder.glob("*.json")
    assert path.with_suffix(".md").read_text().count("|") > 50
    result: list[dict[str, object]] = json.loads(path.read_text())["rows"]
    return result


@pytest.mark.parametrize("name", ["recurrence", "ragged", "pairwise"])
def test_workload_has_its_rows(rows: list[dict[str, object]], name: str) -> None:
    own = {row["measure"]: row for row in rows if str(row["group"]).startswith(name)}
    assert MEASURES <= own.keys()
    for measure in MEASURES:
        assert isinstance(own[measure]["octants"], float), own[measure]
    assert ("tape" in own) == (name == "recurrence")


def test_overheads_have_their_rows(rows: list[dict[str, object]]) -> None:
    own = [row for row in rows if row["group"] in ("start", "launch")]
    assert len(own) == 4
    for row in own:
        assert isinstance(row["octants"], float), row
        assert row["octants"] > 0
