"""The benchmark runs, its references are right, and the page of results is what was measured."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parent.parent
WORKLOADS = ("recurrence", "affine", "ragged", "pairwise", "ode", "rotation")
BY_HAND = ("c-simd", "c-scalar")
has_compiler = any(map(shutil.which, ("cc", "gcc", "clang")))


def measure(folder: Path, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "bench/run.py", *arguments, "--quick", "--rounds", "1"]
    command += ["--output", str(folder)]
    environment = {**os.environ, "TMPDIR": str(folder)}  # workers that are killed leave files
    subprocess.run(command, cwd=REPOSITORY, check=True, timeout=280, env=environment)
    (path,) = folder.glob("*.json")
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def test_no_module_of_the_benchmark_is_named_like_an_installed_package() -> None:
    own = {REPOSITORY, REPOSITORY / "bench", Path.cwd()}
    elsewhere = [path for path in sys.path if Path(path).resolve() not in own]
    names = [path.stem for path in (REPOSITORY / "bench").glob("*.py")]
    assert "rows" in names
    assert [name for name in names if PathFinder.find_spec(name, elsewhere)] == []


def numbers(results: dict[str, Any], section: str, system: str) -> dict[tuple[str, str], Any]:
    return {
        (row["subject"].partition(",")[0], row["measure"]): row["numbers"].get(system, "-")
        for row in results["rows"]
        if row["section"] == section
    }


def test_every_measure_is_there_and_agrees_with_double_precision(tmp_path: Path) -> None:
    """Octants, beside C if there is a compiler; one run, and so one test."""
    parts = (*WORKLOADS, "start", "launch", "chain")
    found = measure(tmp_path, *parts, "--systems", "octants", *BY_HAND)
    run = numbers(found, "run", "octants")
    assert set(run) == {(name, way) for name in WORKLOADS for way in ("forward", "backward")}
    measured = [*run.values(), *numbers(found, "launch", "octants").values()]
    measured += numbers(found, "chain", "octants").values()
    measured += numbers(found, "start", "octants").values()
    assert len(measured) == 12 + 3 + 4 + 3
    assert all(value["least"] > 0 for value in measured), measured
    rows = [row for row in found["rows"] if row["section"] == "run"]
    if not has_compiler:
        return
    for system in BY_HAND:
        assert all(row["ratios"][system]["least"] > 0 for row in rows), system
    for name in WORKLOADS:
        check = found["checks"][name]
        assert check["reference"] == "c-double"
        for system in ("octants", *BY_HAND):
            assert 0 < check[system]["value"] < 1e-5, (name, system)
            assert 0 < check[system]["gradient"] < 1e-5, (name, system)


def test_system_that_is_not_there_is_named(tmp_path: Path) -> None:
    nowhere = tmp_path / "python"
    nowhere.write_text("#!/bin/sh\nexit 1\n")
    nowhere.chmod(0o755)
    arguments = ("affine", "--systems", "jax", "--peer-python", str(nowhere))
    results = measure(tmp_path, *arguments)
    assert results["systems"]["jax"] == {"status": "not installed"}
    assert set(numbers(results, "run", "octants")) == {
        ("affine", "forward"),
        ("affine", "backward"),
    }


def test_page_is_made_of_stored_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "bench"))
    from page import page

    text = (REPOSITORY / "docs" / "benchmarks.md").read_text()
    link = re.search(r"\(\.\./bench/results/(.+?\.json)\)", text)
    assert link is not None
    path = REPOSITORY / "bench" / "results" / link[1]
    assert text == page(json.loads(path.read_text()), path.name)


def test_programs_whose_compilation_is_timed() -> None:
    """Those for Warp are a translation of some; all are Python, and say what they launch."""
    sys.path.insert(0, str(REPOSITORY / "bench"))
    try:
        cases = importlib.import_module("compile_cases")
    finally:
        sys.path.pop(0)
    for name, (source, sizes) in cases.CASES.items():
        texts = [source(sizes[0])]
        if name in cases.IN_WARP:
            texts.append(cases.for_warp(texts[0]))
            assert "None" not in texts[1].partition("qd.tid()")[2]
        for text in texts:
            names = {node.name for node in ast.parse(text).body if hasattr(node, "name")}
            assert {"forward", "backward"} <= names, name
