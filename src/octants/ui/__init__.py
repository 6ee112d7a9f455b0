"""Windows of programs that draw: `GUI`, `Window`, `Canvas`, `Scene`, without a screen.

A program that was written for a window runs on a machine that has none. What it draws becomes a
picture; `show` writes it as a PNG file where a name or ``OCTANTS_FRAMES`` asks for files, and else
does nothing. There are no keys and no mouse: events are empty, and sliders keep their values.
"""

from __future__ import annotations

from octants.ui.events import *  # noqa: F403
from octants.ui.gui import GUI as GUI
from octants.ui.gui import hex_to_rgb as hex_to_rgb
from octants.ui.gui import rgb_to_hex as rgb_to_hex
from octants.ui.scene import Camera as Camera
from octants.ui.scene import ProjectionMode as ProjectionMode
from octants.ui.scene import Scene as Scene
from octants.ui.scene import make_camera as make_camera
from octants.ui.window import Canvas as Canvas
from octants.ui.window import Gui as Gui
from octants.ui.window import Window as Window
