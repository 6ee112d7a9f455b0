"""The house style, as far as tools can hold it."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check"),
        ("ruff", "format", "--check", "--diff"),
    ],
    ids=" ".join,
)
def test_tool_has_nothing_to_say(command: tuple[str, ...]) -> None:
    """The same holds for mypy: see `type_checkers`."""
    result = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
def test_names_attributes_and_arguments_of_tests_exist() -> None:
    """Takes a minute and a half without mypy's cache; `make lint` does the same."""
    script = REPOSITORY / "scripts" / "types_of_tests.py"
    result = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, timeout=280
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_types_of_tests_know_what_classes_of_structs_have(tmp_path: Path) -> None:
    """Of a dataclass of Python, and of attributes that struct types lack, mypy is right."""
    check = runpy.run_path(str(REPOSITORY / "scripts" / "types_of_tests.py"))
    classes = (
        "@qd.dataclass\nclass Box:\n    size: qd.f32\n\n\n@dataclass\nclass Plain:\n    n: int\n"
    )
    (tmp_path / "a.py").write_text(classes)
    missing = 'a.py:9: error: Missing positional argument "n" in call to "{}"  [call-arg]'
    absent = 'a.py:9: error: "type[{}]" has no attribute "{}"  [attr-defined]'
    wrong = [
        missing.format("Plain"),
        absent.format("Plain", "field"),
        absent.format("Box", "sizes"),
    ]
    right = [missing.format("Box"), absent.format("Box", "field"), absent.format("Box", "members")]
    assert check["wrong"]("\n".join([*right, *wrong]), tmp_path) == wrong


SOURCE = REPOSITORY / "src" / "octants"

REPLACED = {
    r"\b([Nn]o|[Ss]ome|[Aa]ny)body\b": "name the actor, or use the passive voice",
    r"\b[Ww]hoever\b": "name the actor",
    r"\bguess(ed|es)\b": "speculate, estimate",
    r"\btapes of (a |the )?(loops?|threads?|workers?|lanes?|work items?)\b": "record buffers",
    r"\b(out of|how much|enough) tape\b": "space for records, size of a record buffer",
    r"\bkeeps? apart\b|\bkept apart\b": "disjoint, separate",
    r"\b[Aa]ll that\b": "what, everything that",
    r"\btold\b": "passed, reported, notified",
    r"\bunseen\b": "untracked",
    r"\blest\b": "so that ... not",
    r"\banew\b": "again",
    r"\b(lend|lends|lending|lent|borrow|borrows|borrowed)\b": "export, import",
    r"\bstand-ins?\b": "staging copy; fake",
    r"\bshel(f|ves)\b": "cache entry",
    r"\bwitness": "read fingerprint",
    r"\brecipes?\b": "rematerialisation slice",
    r"\btwins?\b": "clone, counterpart",
    r"\brooms?\b": "capacity, space",
    r"\bmeetings?\b": "convergent operation",
    r"\bhangs? on\b": "depends on",
    r"\bspeaks? of\b": "names",
    r"\bsorts? of value|\bof (another|any|one|different) sorts?\b": "of another type",
    r"\b(quick|usual|rare) ways?\b": "fast path, slow path",
    r"\bhears? (of|it)\b": "is notified of",
    r"\bturns of (a|the|its|their) loops?\b": "iterations",
}
"""Words that only this project used, with the field's; CONTRIBUTING.md has the rule."""

ANY_REPLACED = re.compile(r"\b(?:" + "|".join(REPLACED).replace(r"\b", "") + ")")
"""Finds candidates fast: `REPLACED` without the ends of words."""


REPLACED_IN_NAMES = {
    "apart": "noalias, discrete, disjoint",
    "ask": "query, request",
    "asked": "queried, requested",
    "borrow": "import",
    "box": "index ranges",
    "doubt": "guard",
    "form": "affine expression, kind, format",
    "guess": "speculation",
    "guessed": "speculated",
    "hear": "on_..., callback",
    "lent": "exported",
    "look": "synchronise, poll, check, visit",
    "meeting": "convergent operation",
    "place": "address, element, reference, position, offset, location",
    "reach": "dependence, high-water mark, bytes",
    "recipe": "rematerialisation slice",
    "room": "capacity",
    "said": "reported",
    "shelf": "cache entry",
    "told": "reported",
    "turn": "iteration",
    "twin": "clone",
    "unseen": "untracked",
    "witness": "read fingerprint",
}
"""Parts of names of modules, classes, functions and arguments, with the field's words."""


IS_STANDARD = {
    "place": re.compile(r"^(data/|fuzz/oracle/(sparse|quantised)_fields)"),  # in trees of fields
    "turn": re.compile(r"^(mathlib/|lang/linear_algebra)"),  # an angle
}
"""Files in which a word has its standard meaning."""


DEFINED = re.compile(r"\b(?:def|class) (\w+)|(?<!in )\b(\w+): ")
"""Names of functions and classes, and names with an annotation."""


def private_names(path: Path) -> list[str]:
    """Where a file, or what it defines, has a name with a word that has been replaced."""
    file = path.relative_to(SOURCE).as_posix()
    names = {path.stem, *(match[1] or match[2] for match in DEFINED.finditer(path.read_text()))}
    return [
        f"{file}: `{name}`: {REPLACED_IN_NAMES[word]}"
        for name in sorted(names)
        for word in sorted(parts_of(name) & REPLACED_IN_NAMES.keys())
        if not (word in IS_STANDARD and IS_STANDARD[word].search(file))
    ]


def parts_of(name: str) -> set[str]:
    """The words of a name, in lower case; `look_up` and `in_place` are one each."""
    parts = re.findall(r"look_up|in_place|[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return {part.lower().removesuffix("s") for part in parts}


def private_words(path: Path) -> list[str]:
    """Where a file uses a word that has been replaced."""
    name = path.relative_to(SOURCE if SOURCE in path.parents else REPOSITORY).as_posix()
    found: list[str] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if ANY_REPLACED.search(line):
            pairs = [(re.search(pattern, line), better) for pattern, better in REPLACED.items()]
            found += [
                f"{name}:{number}: `{match[0]}`: {better}" for match, better in pairs if match
            ]
    return found


def test_source_uses_the_words_of_the_field() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 200
    found = [line for path in files for line in private_words(path)]
    assert not found, "\n".join(found)


def test_definitions_begin_with_their_noun() -> None:
    """ "The returned value of a launch", not "What a launch returns"."""
    found = [
        f"{path.relative_to(SOURCE)}:{number}: {line.strip()}"
        for path in sorted(SOURCE.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.match(r' *"""(What|Who|Whose|Nobody|All that) ', line)
    ]
    assert not found, "\n".join(found)


def test_tests_use_the_words_of_the_field() -> None:
    files = [
        path for path in sorted((REPOSITORY / "tests").rglob("*.py")) if path != Path(__file__)
    ]
    found = [line for path in files for line in private_words(path)]
    assert not found, "\n".join(found)


def test_names_use_the_words_of_the_field() -> None:
    found = [line for path in sorted(SOURCE.rglob("*.py")) for line in private_names(path)]
    assert not found, "\n".join(found)


def test_pages_use_the_words_of_the_field() -> None:
    pages = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").glob("*.md")]
    pages += [REPOSITORY / "tests" / "README.md", *(REPOSITORY / "docs" / "tutorials").glob("*.py")]
    assert len(pages) > 20
    found = [line for page in pages for line in private_words(page)]
    assert not found, "\n".join(found)


def test_a_private_name_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    file = tmp_path / "made.py"
    file.write_text(
        "def look_up(rooms: int) -> None: ...\nclass UnseenWrite: ...\nnumber: int = 1\n"
    )
    assert [line.split("`")[1] for line in private_names(file)] == [
        "UnseenWrite",
        "rooms",
    ]


def test_a_private_word_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    file = tmp_path / "made.py"
    file.write_text("# the device is told\n# a told-off\n# a fold\nx = twin\n")
    assert [line.split(": ")[0] for line in private_words(file)] == [
        "made.py:1",
        "made.py:2",
        "made.py:4",
    ]
