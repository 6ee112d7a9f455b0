"""Texts that are kept in files: ``OCTANTS_UPDATE_GOLDEN=1`` writes them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def codes_of(folder: str, names: Iterable[str]) -> set[str]:
    """The codes of the errors that have the golden files ``<folder>/<code>_<name>.txt``."""
    wanted = set(names)
    parts = [path.stem.partition("_") for path in (FOLDER / folder).glob("*.txt")]
    return {code for code, _, name in parts if name in wanted}


def check_golden(name: str, text: str) -> None:
    """Compare a text with the file ``golden/<name>.txt``."""
    path = FOLDER / f"{name}.txt"
    if os.environ.get("OCTANTS_UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert path.exists(), f"{path} is missing: run with OCTANTS_UPDATE_GOLDEN=1"
    assert text + "\n" == path.read_text()


def without_lines(text: str) -> str:
    """A message with its places moved to line 1 of ``kernels.py``, so that tests may be added."""
    text = re.sub(r"--> .*:\d+", "--> kernels.py:1", text)
    text = re.sub(r"^\d+ \|", "1 |", text, flags=re.MULTILINE)
    return re.sub(r"^ +(?=\||-->|note:|help:)", "  ", text, flags=re.MULTILINE)
