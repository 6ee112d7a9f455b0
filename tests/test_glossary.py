"""The glossary is true: each term has one entry, and each term of ours is defined where it says."""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
SOURCE = REPOSITORY / "src" / "octants"
PAGE = (REPOSITORY / "docs" / "glossary.md").read_text()

ENTRY = re.compile(r"^\| ([^|*]+?) (?:\*\(ours: `([\w.]+)`\)\* )?\| ([^|]+) \|$", re.MULTILINE)
ENTRIES = [entry for entry in ENTRY.findall(PAGE) if entry[0] != "term"]
OURS = {term: place for term, place, _ in ENTRIES if place}

OTHERS = {"Graph": ("runtime/cuda/",), "Module": ("runtime/cuda/", "torch.py")}
"""Words that a driver or library uses in its own sense, by the files that talk to it."""


def test_every_row_is_an_entry() -> None:
    rows = [row for row in PAGE.splitlines() if row.startswith("| ") and "| meaning |" not in row]
    assert len(rows) == len(ENTRIES) >= 60
    assert PAGE.count("*(ours") == len(OURS) + 1  # the first paragraph shows the mark


def test_every_term_has_one_entry() -> None:
    terms = [term.lower() for entry in ENTRIES for term in entry[0].split(", ")]
    assert len(terms) == len(set(terms)), sorted(term for term in terms if terms.count(term) > 1)


@pytest.mark.parametrize("term", OURS)
def test_a_term_of_ours_is_defined_where_the_glossary_says(term: str) -> None:
    module, _, name = OURS[term].rpartition(".")
    if (SOURCE / (OURS[term].replace(".", "/") + ".py")).exists():
        module, name = OURS[term], ""
    defined = importlib.import_module(f"octants.{module}")
    assert not name or hasattr(defined, name)


def test_every_term_is_used() -> None:
    pages = [page for page in (REPOSITORY / "docs").glob("*.md") if page.name != "glossary.md"]
    pages += [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md"]
    files = [*pages, *SOURCE.rglob("*.py")]
    words = words_of(" ".join(file.read_text() for file in files))
    terms = [term for term, _, _ in ENTRIES if term != "term"]
    assert [term for term in terms if not is_used(term, words)] == []
    assert not is_used("strip-mining, coalescing", words)


def is_used(entry: str, words: str) -> bool:
    return any(words_of(term.split(" (")[0]) in words for term in entry.split(", "))


def words_of(text: str) -> str:
    """A text in lower case, with one blank between words and between parts of names."""
    return " ".join(re.sub(r"[_-]", " ", text.lower()).split())


def definitions() -> dict[str, list[str]]:
    """The modules that define each class at their top level, by the name of the class."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        for statement in ast.parse(path.read_text()).body:
            if isinstance(statement, ast.ClassDef):
                found[statement.name].append(str(path.relative_to(SOURCE)))
    return found


def test_a_class_that_defines_a_term_has_its_name_alone() -> None:
    found = definitions()
    names = {place.rpartition(".")[2] for place in OURS.values()}
    for name in names:
        ours = [path for path in found[name] if not path.startswith(OTHERS.get(name, ()))]
        assert len(ours) <= 1, f"{name} is defined in {ours}"
