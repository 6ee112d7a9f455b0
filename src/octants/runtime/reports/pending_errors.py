"""What launches leave to be said at the next synchronisation: that a tape has overflowed."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable

from octants.diagnostics.exceptions import OctantsError


def _nothing() -> None:
    pass


class Pending:
    """Errors that wait for the host to look. Launches of any thread add to them.

    `watch` is called when there is something to be raised: who calls `raise_first` before each read
    of the host may begin to. `unwatch` is called when there is nothing any more.
    """

    def __init__(self) -> None:
        self._errors: deque[OctantsError] = deque()
        self.watch: Callable[[], None] = _nothing
        self.unwatch: Callable[[], None] = _nothing

    def __bool__(self) -> bool:
        return bool(self._errors)

    def add(self, error: OctantsError) -> None:
        """Let an error wait."""
        self._errors.append(error)
        self.watch()

    def take(self) -> OctantsError | None:
        """The first error, which says how many there are, and an end to all of them."""
        if not self._errors:
            return None
        self.unwatch()
        errors = []
        while self._errors:
            errors.append(self._errors.popleft())
        return _with_count(errors)

    def raise_first(self) -> None:
        """Raise what waits, if anything does; afterwards nothing waits any more."""
        error = self.take()
        if error is not None:
            raise error


def _with_count(errors: list[OctantsError]) -> OctantsError | None:
    if len(errors) < 2 or errors[0].diagnostic is None:
        return errors[0] if errors else None
    diagnostic = errors[0].diagnostic
    more = f"{len(errors) - 1} more launches have overflowed since"
    notes = (*diagnostic.notes, more)
    return type(errors[0])(dataclasses.replace(diagnostic, notes=notes))
