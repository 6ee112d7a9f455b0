"""Programs whose source is the same for Quadrants and Octants, but for the import, do the same.

`quadrants_outcomes.json` is what came of them with Quadrants 1.3.3 on a CPU, and
`octants_outcomes.json` what comes of those that differ here, each for a reason in DIFFERENCES. Both
are written by `python -m tests.compat.test_programs`, where Quadrants is installed.
"""

from __future__ import annotations

import importlib.util
import inspect
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
    "comparisons_with_nan": "NaN differs from itself",
    "signed_and_unsigned_together": "integers compare by value: -1 is below any u32",
    "floor_division_of_narrow_integers": "rounded down; there i8 gives 0 for -100 // 7",
    "integer_vectors": "as in Python; there constants are rounded towards zero, -7 // 2 to -3",
    "casts_by_dtypes_as_functions": "the nearest number, 255; undefined there, 300.0 gives 44",
    "range_of_floats": "bounds of loops are integers, as in Python",
    "range_over_an_argument_of_i64": "the counter has the type of its bound; there it is an i32",
    # Mistakes that are errors here, and what is wrong without a word there.
    "host_assignment_of_a_vector_of_the_wrong_length": "there the rest is cut off",
    "init_of_a_wrong_arch": "there the CPU is taken",
    "structs_of_wrong_keywords": "there ignored",
    "struct_atomics": "there a component of a member, `x[None].v.x -= 0.5`, does not change",
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
    # The types of Python that the host gets.
    "types_of_returned_numbers": "a u1 is a bool",
    "types_of_read_elements": "a u1 is a bool",
    "vectors_on_the_host_by_name": "components are numbers of Python, not of numpy",
    "slices_of_host_vectors": "components are numbers of Python, and slices vectors",
    "equal_host_vectors": "truth values are those of Python",
    # How numbers are printed.
    "prints": "as in Python: 2.5, not 2.500000",
    "profilers": "a table, empty without a profiler, where a line there says how to switch it on",
}
"""Why an outcome is another one. No reason is needed where only Quadrants fails."""

OTHER_CLASSES = {
    "loops_over_host_ndranges": "a RuntimeError: `grouped` is for kernels; there an assertion",
    "too_many_indices_from_the_host": "an IndexError; there an assertion of its own",
    "unknown_option_of_init": "a RuntimeError that names the nearest option; there a KeyError",
    "component_beyond_a_vector": "an unknown name, as `s.b` of a struct is; there a SyntaxError",
    "offset_of_the_wrong_length": "a ValueError on the host; there a SyntaxError",
    "vector_of_the_wrong_length_for_a_vector": "as other arguments; there an IndexError of numpy",
    "vector_type_of_too_few_numbers": "as other arguments; there an IndexError of numpy",
}
"""Why an error is of another class, where both raise one."""


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
    if "torch" in inspect.getsource(all_programs()[name]):
        pytest.importorskip("torch")
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
    both = {name for name in refused if "error" in OURS[name] and "error" in THEIRS[name]}
    assert both == set(OTHER_CLASSES)
    assert set(THEIRS) == set(all_programs())
    assert len(THEIRS) > 700


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
