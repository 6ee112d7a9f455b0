"""The page on the architecture is true of gradients: its names exist, and its path is taken."""

from __future__ import annotations

import importlib
import linecache
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import octants as qd

PAGE = (Path(__file__).parent.parent / "docs" / "architecture.md").read_text()
SECTION = PAGE.partition("\n## A gradient\n")[2].partition("\n## ")[0]
PATH = re.findall(r"^\| `([\w.]+)` \| ", SECTION.partition("### ")[0], re.MULTILINE)
PACKAGES = "ad|analysis|autodiff|codegen|data|driver|launch|passes|pipeline|runtime"
NAMES = sorted(set(re.findall(rf"`((?:{PACKAGES})(?:\.\w+)+)`", SECTION)))


def resolve(name: str) -> Any:
    """The module, or the member of one, that a name on the page means."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(("octants", *parts[:count])))
        except ImportError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise AttributeError(name)


def test_the_page_has_the_section() -> None:
    assert len(PATH) > 20
    assert len(NAMES) > 60


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_the_section_exists(name: str) -> None:
    resolve(name)


def calls_of(run: Callable[[], None]) -> list[str]:
    """The functions of Octants that are called, in the order of their first calls."""
    found: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("octants."):
            found[f"{module.removeprefix('octants.')}.{frame.f_code.co_qualname}"] = None

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return list(found)


@pytest.fixture
def gradient() -> Callable[[], None]:
    """The program of the section."""
    qd.init(arch=qd.cpu, offline_cache=False)
    program = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)[0]
    definitions, tape, body = program.partition("with qd.ad.Tape")
    scope: dict[str, Any] = {"qd": qd}
    exec(compile_as_file(definitions.replace("qd.init(arch=qd.cpu)", "")), scope)
    return lambda: exec(tape + body, scope)


def compile_as_file(text: str) -> Any:
    """Code whose source kernels can read."""
    name = "<the page on the architecture>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    return compile(text, name, "exec")


def test_a_first_gradient_takes_the_path_of_the_page(gradient: Callable[[], None]) -> None:
    called = calls_of(gradient)
    missing = [name for name in PATH if name not in called]
    assert not missing
    assert sorted(PATH, key=called.index) == PATH


def test_a_second_gradient_makes_nothing(gradient: Callable[[], None]) -> None:
    gradient()
    called = calls_of(gradient)
    assert "ad.tape_entries.LaunchEntry.reverse" in called
    assert not [name for name in called if name.startswith(("autodiff.", "pipeline."))]
