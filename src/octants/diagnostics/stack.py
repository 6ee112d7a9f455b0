"""Where in the user's code a warning belongs."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

_PACKAGE = str(Path(__file__).parent.parent)


def levels_to_the_user() -> int:
    """The ``stacklevel`` at which `warnings.warn` names the first frame outside of this package."""
    level = 0
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level
