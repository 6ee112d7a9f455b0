"""The window of two dimensions: ``gui = GUI("name", (512, 512))``, `circles`, `lines`, `show`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from octants.ui import events
from octants.ui.frame_output import WindowWithoutScreen
from octants.ui.picture import Picture, from_hex, to_array
from octants.ui.vertex_arrays import each, rows


class GUI(WindowWithoutScreen):
    """A canvas of shapes, as programs with a window draw on it; no window opens.

    Points (`pos`, `begin`, `end`, `orig`, `topleft`, `bottomright`, `a`, `b`, `c`) are in the unit
    square, with y upwards. `color` is 0xRRGGBB, `radius` is in pixels: of a disc, or half the width
    of a line. `direction` leads from the beginning of an arrow to its end; `bound` is the distance
    of a grid from the edges, in cells. Example::

        gui = qd.GUI("balls", (200, 100), background_color=0x112F41)
        gui.circles(positions, radius=3, color=0xED553B)
        gui.show("frame.png")

    Args:
        name: the title; it is not shown.
        res: the size in pixels, one number or two.
        background_color: the colour in which a frame begins, 0xRRGGBB.
        show_gui: accepted for programs with windows; none opens in any case.
        fullscreen: accepted and ignored, likewise.
        fast_gui: accepted and ignored, likewise.
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
        super().__init__()
        width, height = (res, res) if np.ndim(res) == 0 else tuple(res)
        self.name, self.res = name, (int(width), int(height))
        self.background_color = background_color
        self.fps_limit: int | None = 60
        self.key_pressed: set[str] = set()
        self.frame = 0
        self._picture: Picture | None = None

    def __enter__(self) -> GUI:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        """End: `running` is false from now on."""
        self._is_open = False

    def clear(self, color: int | None = None) -> None:
        """Begin the frame again, in a colour."""
        background = self.background_color if color is None else color
        self._picture = Picture(*self.res, from_hex(background))

    def set_image(self, img: Any) -> None:
        """Fill the frame with an image of shape (width, height), with 1, 3 or 4 channels."""
        self._canvas().put(img)

    def contour(self, scalar_field: Any, normalize: bool = False) -> None:
        """Fill the frame with `scalar_field`, of two dimensions, in colours.

        `normalize` maps its range to the colours; without it, they stand for 0 to 1.
        """
        self._canvas().put(colour_map(to_array(scalar_field), normalize))

    def circle(self, pos: Any, color: int = 0xFFFFFF, radius: float = 1) -> None:
        """A disc at the point `pos`."""
        self.circles([to_array(pos)], radius, color)

    def circles(
        self,
        pos: Any,
        radius: Any = 1,
        color: Any = 0xFFFFFF,
        palette: Any = None,
        palette_indices: Any = None,
    ) -> None:
        """Discs at points of shape (n, 2), with one radius and colour, or arrays of n.

        Args:
            pos: the points, of shape (n, 2).
            radius: in pixels, one or n.
            color: 0xRRGGBB, one or n.
            palette: a list of colours to choose from, instead of `color`.
            palette_indices: which colours of the palette, of shape (n,).
        """
        points = rows(pos)
        shades = each(color, len(points))
        if palette is not None:
            shades = to_array(palette)[to_array(palette_indices).astype(int).ravel()]
        self._canvas().circles(points, each(radius, len(points)), from_hex(shades))

    def line(self, begin: Any, end: Any, radius: float = 1, color: int = 0xFFFFFF) -> None:
        """A straight line between two points, as wide as two radii."""
        self.lines([to_array(begin)], [to_array(end)], radius, color)

    def lines(self, begin: Any, end: Any, radius: Any = 1, color: Any = 0xFFFFFF) -> None:
        """Lines between points of shape (n, 2), with one radius and colour, or arrays of n."""
        ends = np.stack([rows(begin), rows(end)], 1)
        shades = from_hex(each(color, len(ends)))
        self._canvas().lines(ends, 2 * each(radius, len(ends)), shades)

    def triangle(self, a: Any, b: Any, c: Any, color: int = 0xFFFFFF) -> None:
        """A filled triangle with three corners."""
        self.triangles([to_array(a)], [to_array(b)], [to_array(c)], color)

    def triangles(self, a: Any, b: Any, c: Any, color: Any = 0xFFFFFF) -> None:
        """Filled triangles, whose corners have the shape (n, 2)."""
        corners = np.stack([rows(a), rows(b), rows(c)], 1)
        self._canvas().polygons(corners, from_hex(each(color, len(corners))))

    def rect(
        self, topleft: Any, bottomright: Any, radius: float = 1, color: int = 0xFFFFFF
    ) -> None:
        """The outline of a rectangle."""
        self._canvas().rectangle(topleft, bottomright, radius, from_hex(color))

    def text(self, content: str, pos: Any, font_size: int = 15, color: int = 0xFFFFFF) -> None:
        """Text whose upper left corner is at the point `pos`.

        Args:
            content: the text.
            pos: a point.
            font_size: in pixels.
            color: 0xRRGGBB.
        """
        self._canvas().text(content, pos, font_size, from_hex(color))

    def arrow(
        self, orig: Any, direction: Any, radius: float = 1, color: int = 0xFFFFFF, **tip: Any
    ) -> None:
        """A line with a tip."""
        self.arrows([to_array(orig)], [to_array(direction)], radius, color, **tip)

    def arrows(
        self, orig: Any, direction: Any, radius: float = 1, color: Any = 0xFFFFFF, **tip: Any
    ) -> None:
        """Arrows from points along directions, both of shape (n, 2)."""
        begins, ways = rows(orig), rows(direction)[:, :2]
        self.lines(begins, begins + ways, radius, color)
        for sign in (1.0, -1.0):
            c, s = np.cos(2.6), sign * np.sin(2.6)
            back = 0.2 * ways @ np.array([[c, s], [-s, c]])
            self.lines(begins + ways, begins + ways + back, radius, color)

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
        self.arrows(_grid(ways.shape, bound), ways, radius, color, **tip)

    def point_field(self, radius: Any, color: int = 0xFFFFFF, bound: float = 0.5) -> None:
        """Discs on a grid, with radii of shape (columns, rows)."""
        sizes = to_array(radius)
        self.circles(_grid(sizes.shape, bound), sizes, color)

    def vector_field(
        self, vector_field: Any, arrow_spacing: int = 5, color: int = 0xFFFFFF
    ) -> None:
        """Arrows along a field of vectors, scaled so that the longest are seen.

        Args:
            vector_field: of shape (columns, rows, 2).
            arrow_spacing: how many elements there are for each arrow, in each direction.
            color: 0xRRGGBB.
        """
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

    def get_key_event(self) -> None:
        """None: there are no keys."""
        return

    def has_key_event(self) -> bool:
        """False: there are no keys."""
        return False

    def slider(self, text: str, minimum: float, maximum: float, step: float = 1) -> Widget:
        """A slider that never moves; its `value` is `minimum`.

        Args:
            text: ignored, as it is not shown.
            minimum: the value.
            maximum: ignored.
            step: ignored.
        """
        return Widget(minimum)

    def label(self, text: str) -> Widget:
        """A label for a number; it is not drawn."""
        return Widget(0)

    def button(self, text: str, event_name: str | None = None) -> str:
        """A button `text` that is never pressed; gives `event_name`, or a name made of `text`."""
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


def _grid(shape: Sequence[int], bound: float) -> Any:
    """The points of a grid, of shape (points, 2), in the order of the elements."""
    cells = np.indices(shape[:2]).reshape(2, -1).T
    return (cells + bound) / (np.array(shape[:2]) + 2 * bound - 1)


def rgb_to_hex(c: Any) -> Any:
    """Colours as 0xRRGGBB, as `GUI` takes them.

    Args:
        c: Red, green and blue from 0 to 1: three numbers, or three arrays of the same shape.
    """
    red, green, blue = (np.clip(np.asarray(c, float), 0.0, 1.0) * 255.0).astype(np.int64)
    return (red << 16) + (green << 8) + blue


def hex_to_rgb(color: int) -> tuple[float, float, float]:
    """0xRRGGBB as three floats from 0 to 1."""
    red, green, blue = (float(part) / 255.0 for part in from_hex(color))
    return red, green, blue


def colour_map(values: Any, normalize: bool) -> Any:
    """Numbers from 0 to 1 as colours between violet and yellow; of shape (.., 3)."""
    values = np.nan_to_num(values.astype(float))
    if normalize:
        span = float(np.ptp(values)) or 1.0
        values = (values - values.min()) / span
    stops = np.array([[0.05, 0.03, 0.53], [0.80, 0.28, 0.47], [0.94, 0.98, 0.13]])
    position = np.clip(values, 0.0, 1.0) * (len(stops) - 1)
    low = np.minimum(position.astype(int), len(stops) - 2)
    part = (position - low)[..., None]
    return (1.0 - part) * stops[low] + part * stops[low + 1]
