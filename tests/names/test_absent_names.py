"""The table of names that Quadrants has and Octants does not, in docs/migration.md, is complete.

`quadrants_public.txt` has the public names of Quadrants 1.3.3; `test_surface` says how it is made.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from pathlib import Path
from typing import Any

import pytest

import octants as qd
from octants.diagnostics.absent_names import ADVICE

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "migration.md"
LINES = (HERE / "quadrants_public.txt").read_text().splitlines()
CLASSES = {line.partition("(")[0] for line in LINES if "(" in line}
NAMES = [name for line in LINES if (name := line.partition("(")[0]).startswith("qd.")]
NAMES = [n for n in NAMES if n.rpartition(".")[0] not in CLASSES and "Error." not in n]


def patterns() -> list[list[str]]:
    """The names of each row of the table."""
    _, _, rest = PAGE.read_text().partition("### Names of Quadrants that are not here")
    section, _, _ = rest.partition("\n## ")
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return [re.findall(r"`(qd\.[^`]+)`", row.split(" | ")[0]) for row in rows]


def is_here(name: str) -> bool:
    try:
        functools.reduce(getattr, name.split(".")[1:], qd)
    except (AttributeError, qd.OctantsError):
        return False
    return True


def test_all_absent_names_are_in_the_table() -> None:
    rows = [one for row in patterns() for one in row]
    absent = [name for name in NAMES if not is_here(name)]
    assert [n for n in absent if not any(fnmatch.fnmatchcase(n, one) for one in rows)] == []
    for one in rows:
        if one != "qd.lang.*":
            assert fnmatch.filter(absent, one), one
    assert len(NAMES) > 600


@pytest.mark.parametrize("name", [one for row in patterns()[:7] for one in row if "*" not in one])
def test_absent_names_say_what_to_do(name: str) -> None:
    value: Any = qd
    *path, last = name.split(".")[1:]
    for part in path:
        value = getattr(value, part)
    with pytest.raises((AttributeError, qd.OctantsError), match=f"{last}[^\n]*\n.*help: "):
        getattr(value, last)


def test_other_names_of_what_is_here_are_right() -> None:
    advice = [text for text in ADVICE.values() if text.startswith("it is `qd.")]
    assert [text for text in advice if not is_here(text.split("`")[1])] == []
    assert len(advice) > 60


def test_public_names_have_no_modules_that_only_octants_imports() -> None:
    assert {"ad", "math", "types", "torch", "linalg"} < set(dir(qd))
    assert not {"launch", "driver", "compile_profile", "options", "sys"} & set(dir(qd))
