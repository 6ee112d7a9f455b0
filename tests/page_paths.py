"""Paths on the pages of the compiler: which functions are called, in which order."""

from __future__ import annotations

import gc
import importlib
import linecache
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

DOCS = Path(__file__).parent.parent / "docs"
PAGES = [DOCS / "architecture.md", *sorted(DOCS.glob("inside_*.md"))]
TEXT = "\n".join(page.read_text() for page in PAGES)


def section_of(title: str) -> str:
    """A section of the pages."""
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def paths_of(section: str) -> list[list[str]]:
    """The functions of each table of a section."""
    tables = section.split("| function | what it does |\n")[1:]
    return [re.findall(r"^\| `([\w.]+)` \| ", t.split("\n\n")[0], re.MULTILINE) for t in tables]


def program_of(section: str) -> str:
    """The first program of a section."""
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]


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


def calls_of(run: Callable[[], None]) -> list[str]:
    """The functions of Octants that are called, in the order of their first calls."""
    return list(dict.fromkeys(all_calls_of(run)))


def all_calls_of(run: Callable[[], None]) -> list[str]:
    """The calls of functions of Octants, in order.

    Generated functions have their names alone. Comprehensions are left out, since some versions of
    Python call functions for them. No garbage is collected meanwhile: that would call what ends the
    objects of other tests.
    """
    found: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or frame.f_code.co_name.startswith("<"):
            return
        module = frame.f_globals.get("__name__", "")
        name = getattr(frame.f_code, "co_qualname", "")
        if module.startswith("octants."):
            found.append(f"{module.removeprefix('octants.')}.{name}")
        elif frame.f_code.co_filename.endswith("<generated>"):
            found.append(name)

    gc.collect()
    gc.disable()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
        gc.enable()
    return found


def check_path(path: list[str], called: list[str]) -> None:
    """Assert that the functions of a path are called, first in this order."""
    missing = [name for name in path if name not in called]
    assert not missing, missing
    assert sorted(path, key=called.index) == path, called


def compile_as_file(text: str) -> Any:
    """Code whose source kernels can read."""
    name = "<the page on the architecture>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    return compile(text, name, "exec")
