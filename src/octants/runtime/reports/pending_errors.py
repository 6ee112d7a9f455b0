"""Errors of launches that the next synchronisation raises, such as overflows of record buffers."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable

from octants.diagnostics.exceptions import OctantsError


def _nothing() -> None:
    pass


class Pending:
    """Errors that wait for the next synchronisation; launches of any thread add to them.

    `watch` is called when an error is added, `unwatch` after all were removed, so that readers need
    to call `raise_first` only in between.
    """

    def __init__(self) -> None:
        self._errors: deque[OctantsError] = deque()
        self.watch: Callable[[], None] = _nothing
        self.unwatch: Callable[[], None] = _nothing

    def __bool__(self) -> bool:
        return bool(self._errors)

    def add(self, error: OctantsError) -> None:
        """Add an error."""
        self._errors.append(error)
        self.watch()

    def take(self) -> OctantsError | None:
        """Remove all errors; return the first, with a note about how many there were."""
        if not self._errors:
            return None
        errors = []
        while self._errors:
            errors.append(self._errors.popleft())
        self.unwatch()
        return _with_count(errors)

    def raise_first(self) -> None:
        """Raise the first error, if there is one, and remove all."""
        if self._errors and (error := self.take()) is not None:
            raise error


def _with_count(errors: list[OctantsError]) -> OctantsError | None:
    if len(errors) < 2 or errors[0].diagnostic is None:
        return errors[0] if errors else None
    diagnostic = errors[0].diagnostic
    more = f"{len(errors) - 1} more launches have overflowed since"
    notes = (*diagnostic.notes, more)
    return type(errors[0])(dataclasses.replace(diagnostic, notes=notes))
