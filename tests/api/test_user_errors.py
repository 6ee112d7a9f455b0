"""Classes of user errors: frozen, with the fields that they annotate, and cheap to define."""

from __future__ import annotations

import dataclasses
import re
import string
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import octants as qd
from octants.diagnostics import kernel_as_function_errors, tape_errors
from octants.diagnostics.errors import UserError
from tests.golden_files import FOLDER, check_golden


class Small(UserError):
    """One for these tests."""

    name: str
    advice: str = "none"
    code = "OCT999"
    exception = qd.OctantsRuntimeError
    title = "`{name}` is wrong"
    remedy = "{advice}"


def subclasses(cls: type[Any] = UserError) -> Iterator[type[Any]]:
    for kind in cls.__subclasses__():
        yield kind
        yield from subclasses(kind)


def test_fields_are_given_by_position_or_by_name() -> None:
    assert Small("a") == Small(name="a") == Small("a", "none")
    assert Small("a") != Small("b")
    assert hash(Small("a")) == hash(Small("a"))
    assert repr(Small("a", advice="x")) == "Small(name='a', advice='x')"
    assert str(Small("a", "do it").at()) == "OCT999: `a` is wrong\n  help: do it"
    assert isinstance(Small("a").at(), qd.OctantsRuntimeError)


def test_they_are_frozen() -> None:
    error = Small("a")
    with pytest.raises(AttributeError, match="Small is frozen"):
        error.name = "b"  # type: ignore[misc]
    assert error.name == "a"


@pytest.mark.parametrize(
    ("given", "named"), [((), {}), (("a", "b", "c"), {}), (("a",), {"other": 1})]
)
def test_wrong_fields(given: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"Small takes \('name', 'advice'\)"):
        Small(*given, **named)


@pytest.mark.parametrize("kind", list(subclasses()), ids=lambda kind: kind.__name__)
def test_every_class_names_only_its_fields(kind: type[Any]) -> None:
    texts = [kind.title, kind.label, kind.remedy, *kind.notes]
    named = {name for text in texts for _, name, _, _ in string.Formatter().parse(text) if name}
    assert named <= set(kind.FIELDS)
    assert not dataclasses.is_dataclass(kind), "the decorator costs import time; see `UserError`"
    assert kind.__doc__


def test_texts_of_functions_of_arrays() -> None:
    kinds = [kind for kind in subclasses() if kind.__module__ == kernel_as_function_errors.__name__]
    kinds += [tape_errors.WrongGradientCheck, tape_errors.OutOfSnapshotMemory]
    texts = {
        kind.code: str(kind(**{name: f"<{name}>" for name in kind.FIELDS}).at()) for kind in kinds
    }
    check_golden("errors/array_functions", "\n\n".join(texts[code] for code in sorted(texts)))


def test_every_code_is_of_one_class_and_has_a_golden_file() -> None:
    sources = Path(qd.__file__).parent.rglob("*.py")
    declared = Counter(
        code
        for source in sources
        for code in re.findall(r'^    code = "(OCT\d+)"', source.read_text(), re.MULTILINE)
    )
    assert len(declared) > 200
    assert [code for code, count in declared.items() if count > 1] == []
    golden = "".join(path.read_text() for path in FOLDER.rglob("*.txt"))
    assert [code for code in sorted(declared) if f"{code}: " not in golden] == []
