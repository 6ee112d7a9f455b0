"""Keeps Python from looking for garbage while a kernel is compiled, or Octants imported.

Compiling makes many objects that live as long as it takes, which Python would look through again
and again: a tenth of the time. Importing makes objects that stay, and Python would look through
those of other large packages, too. What is left behind is found afterwards.
"""

from __future__ import annotations

import gc
from types import TracebackType


class Uncollected:
    """A while without collections; what is inside another one changes nothing."""

    __slots__ = ("_was_enabled",)

    def __enter__(self) -> None:
        self._was_enabled = gc.isenabled()
        gc.disable()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._was_enabled:
            gc.enable()
