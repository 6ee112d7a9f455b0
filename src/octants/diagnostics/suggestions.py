"""Suggest a known name for one that is misspelt."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggest(wrong: str, known: Iterable[str]) -> str:
    """A "did you mean" for a name, or nothing."""
    others = dict.fromkeys(name for name in known if name != wrong)
    close = difflib.get_close_matches(wrong, others, 1)
    return f"did you mean `{close[0]}`?" if close else ""
