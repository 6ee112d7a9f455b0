"""Windows of programs that draw: `GUI`, `Window`, `Canvas`, `Scene`, without a screen.

A program that was written for a window runs on a machine that has none. What it draws becomes a
picture; `show` writes it as a PNG file where a name or ``OCTANTS_FRAMES`` asks for files, and else
does nothing. There are no keys and no mouse: events are empty, and sliders keep their values.
"""

from __future__ import annotations

from octants.ui.events import ALT as ALT
from octants.ui.events import BACKSPACE as BACKSPACE
from octants.ui.events import CAPSLOCK as CAPSLOCK
from octants.ui.events import CTRL as CTRL
from octants.ui.events import DOWN as DOWN
from octants.ui.events import ESCAPE as ESCAPE
from octants.ui.events import LEFT as LEFT
from octants.ui.events import LMB as LMB
from octants.ui.events import MMB as MMB
from octants.ui.events import PRESS as PRESS
from octants.ui.events import RELEASE as RELEASE
from octants.ui.events import RETURN as RETURN
from octants.ui.events import RIGHT as RIGHT
from octants.ui.events import RMB as RMB
from octants.ui.events import SHIFT as SHIFT
from octants.ui.events import SPACE as SPACE
from octants.ui.events import TAB as TAB
from octants.ui.events import UP as UP
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
