"""Writes the frames of a program without a screen to files, and ends it."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from octants import options
from octants.diagnostics.exceptions import OctantsWarning

_windows = itertools.count()
_warned: set[str] = set()


class Frames:
    """The frames of one window.

    With ``OCTANTS_FRAMES`` in the environment, frame n of the first window goes to
    ``<that folder>/00000n.png``; those of other windows go to folders ``1``, ``2``, ... inside.
    After ``OCTANTS_FRAME_COUNT`` frames the window counts as closed.
    """

    def __init__(self) -> None:
        folder, most = options.frames()
        number = next(_windows)
        self._folder = None if folder is None else Path(folder, *([str(number)] if number else []))
        self._most = most
        self.shown = 0
        if self._folder is None:
            _warn_once()

    @property
    def is_wanted(self) -> bool:
        """Whether the next frame is stored without the program naming a file."""
        return self._folder is not None

    @property
    def is_last(self) -> bool:
        """Whether as many frames as were asked for have been shown."""
        return self._most is not None and self.shown >= self._most

    def show(self, picture: Any, path: str | None = None) -> None:
        """End a frame: `picture` is stored under its number, and under `path` if there is one."""
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            picture.save(self._folder / f"{self.shown:06}.png")
        if path is not None:
            picture.save(Path(path))
        self.shown += 1


class WindowWithoutScreen:
    """A window of a program that has neither a screen nor keys, nor a mouse."""

    def __init__(self) -> None:
        self.event: Any = None
        self._frames = Frames()
        self._is_open = True

    @property
    def running(self) -> bool:
        """Whether the program should go on; see ``OCTANTS_FRAME_COUNT``."""
        return self._is_open and not self._frames.is_last

    @running.setter
    def running(self, value: bool) -> None:
        self._is_open = value

    def get_events(self, *e_filter: Any, tag: Any = None) -> Iterator[Any]:
        """Nothing: there are no keys."""
        return iter(())

    def get_event(self, *e_filter: Any, tag: Any = None) -> bool:
        """False: there are no keys."""
        return False

    def is_pressed(self, *keys: str) -> bool:
        """False: there are no keys."""
        return False

    def get_cursor_pos(self) -> tuple[float, float]:
        """The middle: there is no mouse."""
        return 0.5, 0.5


def _warn_once() -> None:
    if "no window" in _warned:
        return
    _warned.add("no window")
    warnings.warn(
        "Octants opens no windows: what the program draws is not shown. Set OCTANTS_FRAMES=folder"
        " to have each frame as a PNG file, and OCTANTS_FRAME_COUNT=n to close the window after"
        " n frames",
        OctantsWarning,
        stacklevel=5,
    )
