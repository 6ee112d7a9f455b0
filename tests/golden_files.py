"""Texts that are kept in files: ``OCTANTS_UPDATE_GOLDEN=1`` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def check_golden(name: str, text: str) -> None:
    """Compare a text with the file ``golden/<name>.txt``."""
    path = FOLDER / f"{name}.txt"
    if os.environ.get("OCTANTS_UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert path.exists(), f"{path} is missing: run with OCTANTS_UPDATE_GOLDEN=1"
    assert text + "\n" == path.read_text()
