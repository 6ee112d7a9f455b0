"""The command line, and what programs call to store pictures, videos and meshes.

`imread`, `imwrite`, `imresize`, `imshow`, `VideoManager` and `PLYWriter` are imported when they are
first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from octants.diagnostics.absent_names import attribute_error

if TYPE_CHECKING:
    from octants.tools.images import imread as imread
    from octants.tools.images import imresize as imresize
    from octants.tools.images import imshow as imshow
    from octants.tools.images import imwrite as imwrite
    from octants.tools.ply_writer import PLYWriter as PLYWriter
    from octants.tools.video import VideoManager as VideoManager

_MODULES = {
    **dict.fromkeys(("imread", "imresize", "imshow", "imwrite"), "images"),
    "PLYWriter": "ply_writer",
    "VideoManager": "video",
}

if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in _MODULES:
            raise attribute_error(__name__, name)
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
