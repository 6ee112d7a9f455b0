"""Where in the user's code a warning belongs."""

from __future__ import annotations

import os.path
import sys
from types import FrameType

_PACKAGE = os.path.dirname(os.path.dirname(__file__))


def levels_to_the_user() -> int:
    """The ``stacklevel`` at which `warnings.warn` names the first frame outside of this package."""
    level = 0
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level
