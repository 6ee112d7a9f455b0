"""The benchmark of GPUs: what can be seen of it without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parent.parent.parent
PAGE = REPOSITORY / "docs" / "gpu_benchmarks.md"


@pytest.fixture(scope="module")
def pages() -> Any:
    """The module that makes the page."""
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(REPOSITORY / "bench"))
    import gpu_page

    yield gpu_page
    for name in ("gpu_page", "page", "problems", "systems"):
        sys.modules.pop(name, None)
    patch.undo()


def measure(folder: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    command = [sys.executable, "bench/gpu.py", *arguments, "--quick", "--arch", "cpu"]
    command += ["--seconds", "0.01", "--output", str(folder)]
    environment = {**os.environ, "TMPDIR": str(folder)}  # workers that are killed leave files
    said = subprocess.run(
        command,
        cwd=REPOSITORY,
        check=True,
        timeout=240,
        capture_output=True,
        text=True,
        env=environment,
    )
    (path,) = folder.glob("gpu-*.json")
    return json.loads(path.read_text()), said.stdout


def test_one_command_measures_and_names_who_is_missing(tmp_path: Path) -> None:
    """Octants runs, by hand there is nothing without a GPU, and a peer is not installed."""
    nowhere = tmp_path / "python"
    nowhere.write_text("#!/bin/sh\nexit 1\n")
    nowhere.chmod(0o755)
    parts = ("affine", "springs", "launch", "start")
    systems = ("--systems", "cuda", "warp", "--peer-python", str(nowhere))
    data, said = measure(tmp_path, *parts, *systems)
    numbers = {(row["subject"], row["measure"]): row["numbers"] for row in data["rows"]}
    for subject in ("affine, 1000 x 64", "springs, 256 x 4"):
        for run in ("forward", "backward"):
            assert numbers[subject, run]["octants"]["least"] > 0
            assert set(numbers[subject, run]) == {"octants"}
    assert numbers["warm call", "one array"]["octants"]["median"] > 0
    assert numbers["start", "first gradient, cold"]["octants"]["median"] > 0
    assert data["systems"]["warp"] == {"status": "not installed"}
    assert data["systems"]["cuda"] == {"status": "by hand there is CUDA only"}
    assert "| affine, 1000 x 64 | forward  |" in said


def row(measure: str, **numbers: float | str) -> dict[str, Any]:
    spreads = {
        name: value if isinstance(value, str) else dict.fromkeys(("least", "median"), value)
        for name, value in numbers.items()
    }
    named = {"section": "run", "subject": "ode, 8 x 8", "measure": measure, "unit": "ms"}
    return {**named, "numbers": spreads, "ratios": {}}


def test_table_has_ratios_to_cuda_and_to_the_best_that_is_right(pages: Any) -> None:
    wrong = {"value": 0.0, "gradient": 0.5}
    data = {
        "machine": dict.fromkeys(("date", "cpu", "python", "gpu"), "some"),
        "systems": {"octants": {"version": "1"}},
        "checks": {"ode": {"reference": "cuda-double", "quadrants": wrong}},
        "rows": [
            row("forward", octants=2.0, cuda=1.0, quadrants=3.0, jax=8.0),
            row("backward", octants=2.0, cuda=4.0, quadrants=3.0, jax=8.0, warp="out of memory"),
        ],
    }
    forward, backward = (
        [cell.strip() for cell in line.split("|")][3:-1]
        for line in pages.page(data, "some.json").splitlines()
        if line.startswith("| ode, 8 x 8")
    )
    assert forward == ["2.00", "3.00", "-", "8.00", "1.00", "2.00", "1.50"]
    assert backward == ["2.00", "3.00*", "out of memory", "8.00", "4.00", "0.500", "4.00"]


def test_page_is_made_of_stored_numbers(pages: Any) -> None:
    if not PAGE.exists():
        pytest.skip("there is no page yet")
    text = PAGE.read_text()
    name = text.partition("(../bench/results/")[2].partition(")")[0]
    data = json.loads((REPOSITORY / "bench" / "results" / name).read_text())
    assert text == pages.page(data, name)
