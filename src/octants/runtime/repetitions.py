"""Counts what repeats, so that something is made for it that pays only if it repeats on.

A graph of launches, fills or copies takes what tens of replays save. Its users count repetitions in
this one way, and keep what they have made.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Made = TypeVar("Made")

_MOST_NEEDED = 1024


class Repetitions(Generic[Made]):
    """Counts repetitions by keys; `made` has what was made for some of them.

    Args:
        needed: the repetitions of a key before something is made for it. Each time that everything
            made is dropped, since there is too much of it, it takes twice as many.
        most: the most keys that something is kept for.
        counted: the most keys that are counted at a time; with 1, others between start the count
            again.
    """

    __slots__ = ("_counted", "_counts", "_most", "_needed", "made")

    def __init__(self, needed: int, *, most: int = 1, counted: int = 1) -> None:
        self.made: dict[Hashable, Made] = {}
        self._needed, self._most, self._counted = needed, most, counted
        self._counts: dict[Hashable, int] = {}

    def is_due(self, key: Hashable) -> bool:
        """Count a key for which nothing was made; whether to make it now."""
        counts = self._counts
        count = counts[key] = counts.get(key, 0) + 1
        if count == self._needed:
            if len(self.made) < self._most:
                return True
            self.made.clear()
            self._needed = min(2 * self._needed, _MOST_NEEDED)
        if len(counts) > self._counted:
            counts.clear()
        return False

    def drop(self, key: Hashable) -> None:
        """Drop what was made for a key, and count again."""
        self.made.pop(key, None)
        self._counts.clear()
