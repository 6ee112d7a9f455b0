"""The window of two dimensions: ``gui = GUI("name", (512, 512))``, `circles`, `lines`, `show`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from octants.ui import events
from octants.ui.frames import Frames
from octants.ui.picture import Picture, from_hex, to_array
from octants.ui.vertices import each


class GUI:
    """A canvas of shapes, as programs with a window draw on it; no window opens.

    Places are in the unit square, with y upwards; colours are 0xRRGGBB; radii are in pixels.

    Args:
        name: The title; nobody sees it.
        res: The size in pixels, one number or two.
        background_color: What a frame begins with.
        show_gui: As in programs with windows; none opens in any case.
        fullscreen: Likewise.
        fast_gui: Likewise.

    Example:
        >>> gui = qd.GUI("balls", (200, 100), background_color=0x112F41)
        >>> gui.circles(positions, radius=3, color=0xED553B)
        >>> gui.show("frame.png")
    """

    SHIFT, ALT, CTRL = events.SHIFT, events.ALT, events.CTRL
    ESCAPE, RETURN, TAB = events.ESCAPE, events.RETURN, events.TAB
    BACKSPACE, SPACE, CAPSLOCK = events.BACKSPACE, events.SPACE, events.CAPSLOCK
    UP, DOWN, LEFT, RIGHT = events.UP, events.DOWN, events.LEFT, events.RIGHT
    LMB, MMB, RMB = events.LMB, events.MMB, events.RMB
    EXIT, WHEEL, MOVE = events.EXIT, events.WHEEL, events.MOVE
    MOTION, PRESS, RELEASE = events.MOTION, events.PRESS, events.RELEASE

    def __init__(
        self,
        name: str = "Octants",
        res: Any = 512,
        background_color: int = 0x0,
        show_gui: bool = True,
        fullscreen: bool = False,
        fast_gui: bool = False,
    ) -> None:
        width, height = (res, res) if np.ndim(res) == 0 else tuple(res)
        self.name, self.res = name, (int(width), int(height))
        self.background_color = background_color
        self.fps_limit: int | None = 60
        self.key_pressed: set[str] = set()
        self.event: Any = None
        self.frame = 0
        self._frames = Frames()
        self._is_open = True
        self._picture: Picture | None = None

    def __enter__(self) -> GUI:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    @property
    def running(self) -> bool:
        """Whether the program should go on; see ``OCTANTS_FRAME_COUNT``."""
        return self._is_open and not self._frames.is_last

    @running.setter
    def running(self, value: bool) -> None:
        self._is_open = value

    def close(self) -> None:
        """End: `running` is false from now on."""
        self._is_open = False

    def clear(self, color: int | None = None) -> None:
        """Begin the frame anew, in a colour."""
        background = self.background_color if color is None else color
        self._picture = Picture(*self.res, from_hex(background))

    def set_image(self, img: Any) -> None:
        """Fill the frame with an image of shape (width, height), with 1, 3 or 4 channels."""
        self._canvas().put(img)

    def contour(self, scalar_field: Any, normalize: bool = False) -> None:
        """Fill the frame with a scalar field of two dimensions, in colours."""
        self._canvas().put(colour_map(to_array(scalar_field), normalize))

    def circle(self, pos: Any, color: int = 0xFFFFFF, radius: float = 1) -> None:
        """A disc."""
        self._canvas().circle(pos, radius, from_hex(color))

    def circles(
        self,
        pos: Any,
        radius: Any = 1,
        color: Any = 0xFFFFFF,
        palette: Any = None,
        palette_indices: Any = None,
    ) -> None:
        """Discs at places of shape (n, 2); radii and colours are one, or one for each.

        With a palette, a list of colours, `palette_indices` of shape (n,) chooses from it.
        """
        places = to_array(pos)
        colours = each(color, len(places))
        if palette is not None:
            colours = to_array(palette)[to_array(palette_indices).astype(int)]
        canvas = self._canvas()
        for place, size, colour in zip(places, each(radius, len(places)), colours, strict=True):
            canvas.circle(place, float(size), from_hex(colour))

    def line(self, begin: Any, end: Any, radius: float = 1, color: int = 0xFFFFFF) -> None:
        """A straight line, as wide as two radii."""
        self._canvas().line(begin, end, 2 * radius, from_hex(color))

    def lines(self, begin: Any, end: Any, radius: Any = 1, color: Any = 0xFFFFFF) -> None:
        """Lines between places of shape (n, 2)."""
        starts, ends = to_array(begin), to_array(end)
        rows = zip(starts, ends, each(radius, len(starts)), each(color, len(starts)), strict=True)
        for start, stop, width, colour in rows:
            self.line(start, stop, float(width), colour)

    def triangle(self, a: Any, b: Any, c: Any, color: int = 0xFFFFFF) -> None:
        """A filled triangle."""
        self._canvas().polygon((a, b, c), from_hex(color))

    def triangles(self, a: Any, b: Any, c: Any, color: Any = 0xFFFFFF) -> None:
        """Filled triangles, whose corners have the shape (n, 2)."""
        first, second, third = to_array(a), to_array(b), to_array(c)
        rows = zip(first, second, third, each(color, len(first)), strict=True)
        for corner, other, last, colour in rows:
            self.triangle(corner, other, last, colour)

    def rect(
        self, topleft: Any, bottomright: Any, radius: float = 1, color: int = 0xFFFFFF
    ) -> None:
        """The outline of a rectangle."""
        self._canvas().rectangle(topleft, bottomright, radius, from_hex(color))

    def text(self, content: str, pos: Any, font_size: int = 15, color: int = 0xFFFFFF) -> None:
        """Text whose upper left corner is at a place."""
        self._canvas().text(content, pos, font_size, from_hex(color))

    def arrow(
        self, orig: Any, direction: Any, radius: float = 1, color: int = 0xFFFFFF, **tip: Any
    ) -> None:
        """A line with a tip."""
        begin, way = to_array(orig).astype(float), to_array(direction).astype(float)
        end = begin + way
        self.line(begin, end, radius, color)
        for sign in (1.0, -1.0):
            c, s = np.cos(2.6), sign * np.sin(2.6)
            back = 0.2 * np.array([c * way[0] - s * way[1], s * way[0] + c * way[1]])
            self.line(end, end + back, radius, color)

    def arrows(
        self, orig: Any, direction: Any, radius: float = 1, color: Any = 0xFFFFFF, **tip: Any
    ) -> None:
        """Arrows from places along directions, both of shape (n, 2)."""
        begins, ways = to_array(orig), to_array(direction)
        for begin, way, colour in zip(begins, ways, each(color, len(begins)), strict=True):
            self.arrow(begin, way, radius, colour)

    def arrow_field(
        self,
        direction: Any,
        radius: float = 1,
        color: int = 0xFFFFFF,
        bound: float = 0.5,
        **tip: Any,
    ) -> None:
        """Arrows on a grid, along a field of vectors of shape (columns, rows, 2)."""
        ways = to_array(direction)
        for index in np.ndindex(ways.shape[:2]):
            place = (np.array(index) + bound) / (np.array(ways.shape[:2]) + 2 * bound - 1)
            self.arrow(place, ways[index], radius, color)

    def point_field(self, radius: Any, color: int = 0xFFFFFF, bound: float = 0.5) -> None:
        """Discs on a grid, with radii of shape (columns, rows)."""
        sizes = to_array(radius)
        for index in np.ndindex(sizes.shape):
            place = (np.array(index) + bound) / (np.array(sizes.shape) + 2 * bound - 1)
            self.circle(place, color, float(sizes[index]))

    def vector_field(
        self, vector_field: Any, arrow_spacing: int = 5, color: int = 0xFFFFFF
    ) -> None:
        """Arrows along a field of vectors, one for `arrow_spacing` places in each direction."""
        ways = to_array(vector_field)[::arrow_spacing, ::arrow_spacing]
        longest = float(np.abs(ways).max()) or 1.0
        self.arrow_field(ways * (arrow_spacing / max(self.res) / longest), color=color)

    def get_image(self) -> Any:
        """The frame so far, of shape (width, height, 3), f32 from 0 to 1."""
        return self._canvas().pixels().astype(np.float32) / 255.0

    def show(self, file: str | None = None) -> None:
        """End the frame.

        Args:
            file: Store the frame under this name, ``"frame.png"`` for instance.
        """
        if file is not None or self._frames.is_wanted:
            self._canvas()
        self._frames.show(self._picture, file)
        self.frame += 1
        self._picture = None

    def get_events(self, *e_filter: Any) -> Iterator[Any]:
        """Nothing: there are no keys."""
        return iter(())

    def get_event(self, *e_filter: Any) -> bool:
        """False: there are no keys."""
        return False

    def get_key_event(self) -> None:
        """None: there are no keys."""
        return

    def has_key_event(self) -> bool:
        """False: there are no keys."""
        return False

    def is_pressed(self, *keys: str) -> bool:
        """False: there are no keys."""
        return False

    def get_cursor_pos(self) -> tuple[float, float]:
        """The middle: there is no mouse."""
        return 0.5, 0.5

    def slider(self, text: str, minimum: float, maximum: float, step: float = 1) -> Widget:
        """A slider that nobody moves; its `value` is the least one."""
        return Widget(minimum)

    def label(self, text: str) -> Widget:
        """A number that is shown; nobody sees it."""
        return Widget(0)

    def button(self, text: str, event_name: str | None = None) -> str:
        """A button that nobody presses; the name of its event."""
        return event_name or f"WidgetButton_{text}"

    def _canvas(self) -> Picture:
        if self._picture is None:
            self.clear()
        assert self._picture is not None
        return self._picture


class Widget:
    """The value of a slider or a label.

    Args:
        value: At the start.
    """

    def __init__(self, value: float) -> None:
        self.value = value


def colour_map(values: Any, normalize: bool) -> Any:
    """Numbers from 0 to 1 as colours between violet and yellow; of shape (.., 3)."""
    values = np.nan_to_num(values.astype(float))
    if normalize:
        span = float(np.ptp(values)) or 1.0
        values = (values - values.min()) / span
    stops = np.array([[0.05, 0.03, 0.53], [0.80, 0.28, 0.47], [0.94, 0.98, 0.13]])
    place = np.clip(values, 0.0, 1.0) * (len(stops) - 1)
    low = np.minimum(place.astype(int), len(stops) - 2)
    part = (place - low)[..., None]
    return (1.0 - part) * stops[low] + part * stops[low + 1]
