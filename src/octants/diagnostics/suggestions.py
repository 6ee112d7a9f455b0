"""Suggest a known name for one that is misspelt."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggest(wrong: str, known: Iterable[str]) -> str:
    """A "did you mean" for a name, or nothing."""
    close = difflib.get_close_matches(wrong, dict.fromkeys(known), 1)
    return f"did you mean `{close[0]}`?" if close else ""
