"""Keys, mouse buttons and kinds of events, by their names in programs with windows."""

from __future__ import annotations

SHIFT, ALT, CTRL = "Shift", "Alt", "Control"
ESCAPE, RETURN, TAB, BACKSPACE, SPACE = "Escape", "Return", "Tab", "BackSpace", " "
UP, DOWN, LEFT, RIGHT, CAPSLOCK = "Up", "Down", "Left", "Right", "Caps_Lock"
LMB, MMB, RMB = "LMB", "MMB", "RMB"
PRESS, RELEASE, MOTION = "press", "release", "motion"
EXIT, WHEEL, MOVE = "WMClose", "Wheel", "Motion"
