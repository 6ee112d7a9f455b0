"""Programs whose source is the same for Quadrants and Octants, but for the import, do the same.

`quadrants_outcomes.json` is what came of them with Quadrants 1.3.3 on a CPU, and
`octants_outcomes.json` what comes of those that differ here, each for a reason in DIFFERENCES. Both
are written by `python -m tests.compat.test_programs`, where Quadrants is installed.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import octants as qd
from tests.compat.outcomes import all_programs, outcome

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
THEIRS: dict[str, Any] = json.loads((HERE / "quadrants_outcomes.json").read_text())
OURS: dict[str, Any] = json.loads((HERE / "octants_outcomes.json").read_text())

DIFFERENCES = {
    # What docs/migration.md says of numbers.
    "results_of_comparisons": "truth values add up: there `(a < b) + (a <= b)` is 1",
    "special_floats": "NaN and infinity are found; `fast_math` there assumes that there are none",
    "integer_beyond_its_parameter": "an argument that its type cannot hold is an error",
    "vectors_compare": "truth values of vectors add up, too",
    # What it says of everything else.
    "globals_are_constants": "a changed global compiles the kernel again",
    "attributes_change_between_launches": "so does a changed attribute",
    "negative_indices_from_the_host": "an index outside of a field is an error",
    "index_outside_of_a_field_from_the_host": "an index outside of a field is an error",
    "negative_indices_of_an_array": "an index outside of an ndarray is an error",
    "gradient_of_a_field_without": "`grad` is None where there is none",
    "extensions": "gradients of loops need no option",
    "asserts_without_debug": "a condition that is false ends nothing",
    "structs_of_structs": "`to_dict` has numbers; there an object that reads the field",
    "assignment_to_a_literal_tuple": "there without effect",
    "static_prints": "there once more",
    "recursion_at_run_time": "functions are inlined",
    # How numbers are printed.
    "prints": "as in Python: 2.5, not 2.500000",
    "profilers": "a table, empty without a profiler, where a line there says how to switch it on",
}
"""Why an outcome is another one. Where Quadrants raises an error, or crashes, none is needed."""


def same(one: Any, other: Any) -> bool:
    """Whether values are the same, floats to the precision of f32; True is 1."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=2e-6, abs_tol=1e-7)
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and bool(one == other)


def fits(ours: Any, theirs: Any) -> bool:
    """Whether a program does what it does there; an error is of the same class or a subclass."""
    if "error" in ours and "error" in theirs:
        return theirs["error"][:1] == [] or theirs["error"][0] in ours["error"]
    return same(ours, theirs)


@pytest.fixture(autouse=True)
def reset() -> Any:
    yield
    qd.reset()


@pytest.mark.parametrize("name", sorted(all_programs()))
def test_program(name: str) -> None:
    found = json.loads(json.dumps(outcome(qd, all_programs()[name])))
    if name in OURS:
        assert not fits(found, THEIRS[name]), "it differs no longer"
        assert same(found, OURS[name])
    else:
        assert fits(found, THEIRS[name]), (found, THEIRS[name])


def test_each_difference_has_a_reason() -> None:
    """Programs that Quadrants refuses may run here; any other difference is explained."""
    refused = {name for name in OURS if "error" in THEIRS[name] or "crash" in THEIRS[name]}
    assert {name for name in OURS if name not in refused} == set(DIFFERENCES)
    assert set(THEIRS) == set(all_programs())
    assert len(THEIRS) > 300


def run(package: str, names: list[str]) -> dict[str, Any]:
    """Run programs with a package in a process; after one that ends it, in another one."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    outcomes: dict[str, Any] = {}
    while left := [name for name in names if name not in outcomes]:
        made = subprocess.run(
            [sys.executable, "-m", "tests.compat.outcomes", package, *left],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        for line in made.stdout.splitlines():
            if line.startswith('{"'):
                outcomes |= json.loads(line)
        if made.returncode != 0:
            crashed = next(name for name in left if name not in outcomes)
            outcomes[crashed] = {"crash": made.returncode}
    return outcomes


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.skipif(
    importlib.util.find_spec("quadrants") is None, reason="runs the installed Quadrants"
)
def test_the_outcomes_are_those_of_the_installed_quadrants() -> None:
    """One that uses what is gone may crash, or raise an error, as its memory happens to be."""
    found = run("quadrants", sorted(all_programs()))
    others = {name for name in found if not fits(found[name], THEIRS[name])}
    assert {name for name in others if not (fails(found[name]) and fails(THEIRS[name]))} == set()


def fails(outcome: Any) -> bool:
    return "error" in outcome or "crash" in outcome


def write() -> None:
    names = sorted(all_programs())
    theirs, ours = run("quadrants", names), run("octants", names)
    differing = {name: ours[name] for name in names if not fits(ours[name], theirs[name])}
    for path, outcomes in (("quadrants", theirs), ("octants", differing)):
        text = json.dumps(outcomes, indent=1, sort_keys=True) + "\n"
        (HERE / f"{path}_outcomes.json").write_text(text)


if __name__ == "__main__":
    write()
