"""The command line, and what programs call to store pictures, videos and meshes.

`imread`, `imwrite`, `imresize`, `imshow`, `VideoManager`, `PLYWriter` and `write_vtk` are imported
when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octants.deferred_import import names_of as _names_of

if TYPE_CHECKING:
    from octants.tools.images import imread as imread
    from octants.tools.images import imresize as imresize
    from octants.tools.images import imshow as imshow
    from octants.tools.images import imwrite as imwrite
    from octants.tools.ply_writer import PLYWriter as PLYWriter
    from octants.tools.video import VideoManager as VideoManager
    from octants.tools.vtk_writer import write_vtk as write_vtk
else:
    _MODULES_OF_NAMES = {
        **dict.fromkeys(("imread", "imresize", "imshow", "imwrite"), "tools.images"),
        "PLYWriter": "tools.ply_writer",
        "VideoManager": "tools.video",
        "write_vtk": "tools.vtk_writer",
    }
    __getattr__ = _names_of(__name__, sources=_MODULES_OF_NAMES)
