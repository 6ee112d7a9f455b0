"""The window of two and three dimensions: ``window = ui.Window("name", (640, 480))``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from octants.internal_members import internal
from octants.ui.frame_output import WindowWithoutScreen
from octants.ui.gui import colour_map
from octants.ui.picture import Picture, from_floats, to_array
from octants.ui.scene import Scene
from octants.ui.vertex_arrays import GREY, colours, each, groups, rows


class Window(WindowWithoutScreen):
    """A window in which canvases and scenes are drawn; none opens, frames become files.

    Example::

        window = qd.ui.Window("cloth", (640, 480))
        canvas = window.get_canvas()
        canvas.set_image(pixels)
        window.save_image("frame.png")
        window.show()

    Args:
        name: the title; it is not shown.
        res: the size in pixels, (width, height).
        vsync: accepted for programs with windows; nothing waits here.
        show_window: accepted and ignored, likewise.
        fps_limit: accepted and ignored, likewise.
        pos: accepted and ignored, likewise.
    """

    def __init__(
        self,
        name: str,
        res: tuple[int, int],
        vsync: bool = False,
        show_window: bool = True,
        fps_limit: int = 1000,
        pos: tuple[int, int] = (100, 100),
    ) -> None:
        super().__init__()
        self.name, self.res = name, (int(res[0]), int(res[1]))
        self._canvas = Canvas(self.res)
        self._scene = Scene()
        self._gui = Gui()
        self.GUI = self._gui

    def destroy(self) -> None:
        """Close the window: `running` is false from now on."""
        self._is_open = False

    def get_window_shape(self) -> tuple[int, int]:
        """The size in pixels."""
        return self.res

    def get_canvas(self) -> Canvas:
        """The canvas of the window."""
        return self._canvas

    def get_scene(self) -> Scene:
        """A scene of three dimensions, for `Canvas.scene`."""
        return self._scene

    def get_gui(self) -> Gui:
        """Sliders and buttons without a user."""
        return self._gui

    def save_image(self, filename: str) -> None:
        """Store the frame so far; the ending of the name says in which format."""
        self._canvas.picture().save(Path(filename))

    def get_image_buffer_as_numpy(self) -> npt.NDArray[np.float32]:
        """The frame so far, of shape (width, height, 4), f32 from 0 to 1."""
        colours = self._canvas.picture().pixels().astype(np.float32) / 255.0
        return np.concatenate([colours, np.ones_like(colours[..., :1])], axis=2)

    def show(self) -> None:
        """End the frame."""
        self._frames.show(self._canvas.picture() if self._frames.is_wanted else None)
        self._canvas.begin()


class Canvas:
    """The picture of a window, to draw on.

    Points are in the unit square, with y upwards. Arguments that several methods have:

    Args:
        res: the size in pixels.
        color: the colour of all, of three floats from 0 to 1.
        per_vertex_color: the colours of the points, of shape (n, 3), instead of `color`.
        radius: of discs, as a fraction of the height.
        per_vertex_radius: the radii of the discs, of shape (n,), instead of `radius`.
        width: of lines, as a fraction of the height.
        centers, vertices: points of shape (n, 2).
        indices: the numbers of the vertices of each line or triangle; without it they are taken in
            order.
    """

    def __init__(self, res: tuple[int, int]) -> None:
        self.res = res
        self._background: Any = (0, 0, 0)
        self._picture: Picture | None = None

    @internal
    def begin(self) -> None:
        """Forget what was drawn."""
        self._picture = None

    @internal
    def picture(self) -> Picture:
        """The picture so far."""
        if self._picture is None:
            self._picture = Picture(*self.res, self._background)
        return self._picture

    def set_background_color(self, color: Any) -> None:
        """Set the colour of a frame before anything is drawn."""
        self._background = from_floats(color)
        if self._picture is None:
            return
        self.begin()

    def set_image(self, img: Any) -> None:
        """Fill the frame with an image of shape (width, height), with 1, 3 or 4 channels."""
        self.picture().put(img)

    def contour(
        self, scalar_field: Any, cmap_name: str = "plasma", normalize: bool = False
    ) -> None:
        """Fill the frame with `scalar_field`, of two dimensions, in colours.

        `normalize` maps its range to the colours; without it, they stand for 0 to 1. `cmap_name` is
        ignored: the colours are those of "plasma".
        """
        self.picture().put(colour_map(to_array(scalar_field), normalize))

    def circles(
        self,
        centers: Any,
        radius: float = 0.01,
        color: Any = GREY,
        per_vertex_color: Any = None,
        per_vertex_radius: Any = None,
    ) -> None:
        """Discs at points of shape (n, 2)."""
        positions = rows(centers)
        shades = colours(color, per_vertex_color, len(positions))
        radii = each(radius if per_vertex_radius is None else per_vertex_radius, len(positions))
        self.picture().circles(positions, radii * self.res[1], from_floats(shades))

    def lines(
        self,
        vertices: Any,
        width: float,
        indices: Any = None,
        color: Any = GREY,
        per_vertex_color: Any = None,
    ) -> None:
        """Lines between pairs of vertices."""
        positions = rows(vertices)
        shades = colours(color, per_vertex_color, len(positions))
        pairs = groups(indices, len(positions), 2)
        widths = np.full(len(pairs), width * self.res[1])
        self.picture().lines(positions[pairs], widths, from_floats(shades[pairs[:, 0]]))

    def triangles(
        self, vertices: Any, color: Any = GREY, indices: Any = None, per_vertex_color: Any = None
    ) -> None:
        """Filled triangles of three vertices each."""
        positions = rows(vertices)
        shades = colours(color, per_vertex_color, len(positions))
        corners = groups(indices, len(positions), 3)
        self.picture().polygons(positions[corners], from_floats(shades[corners[:, 0]]))

    def vector_field(
        self,
        vector_field: Any,
        arrow_spacing: int = 5,
        scale: float = 0.1,
        width: float = 0.002,
        color: Any = (0, 0, 0),
    ) -> None:
        """Lines along a field of vectors.

        Args:
            vector_field: of shape (columns, rows, 2).
            arrow_spacing: how many elements there are for each line, in each direction.
            scale: the length of the line of a vector of length 1, as a part of the square.
            width: as a fraction of the height.
            color: of three floats from 0 to 1.
        """
        directions = to_array(vector_field)
        cells = np.indices(directions.shape[:2])[:, ::arrow_spacing, ::arrow_spacing]
        cells = cells.reshape(2, -1).T
        begins = (cells + 0.5) / directions.shape[:2]
        ends = begins + scale * directions[cells[:, 0], cells[:, 1], :2]
        self.picture().lines(
            np.stack([begins, ends], 1),
            np.full(len(cells), width * self.res[1]),
            np.tile(from_floats(color), (len(cells), 1)),
        )

    def scene(self, scene: Scene) -> None:
        """Draw a scene of three dimensions, and empty it for the next frame."""
        scene.draw(self.picture())


class Gui:
    """Sliders and buttons without a user: each returns its old value.

    In the arguments, `name` and `text` are what a window would show, `x`, `y`, `width` and
    `height` the part of the window in the unit square, `old_value` the present value, `minimum` and
    `maximum` its range, and `color` that of the text.
    """

    @contextlib.contextmanager
    def sub_window(
        self, name: str, x: float, y: float, width: float, height: float
    ) -> Iterator[Gui]:
        """A part of the window."""
        yield self

    def begin(self, name: str, x: float, y: float, width: float, height: float) -> None:
        """Begin a part of the window."""

    def end(self) -> None:
        """End a part of the window."""

    def text(self, text: str, color: Any = None) -> None:
        """Text; it is not drawn."""

    def checkbox(self, text: str, old_value: bool) -> bool:
        """The old value."""
        return old_value

    def slider_int(self, text: str, old_value: int, minimum: int, maximum: int) -> int:
        """The old value."""
        return old_value

    def slider_float(self, text: str, old_value: float, minimum: float, maximum: float) -> float:
        """The old value."""
        return old_value

    def color_edit_3(self, text: str, old_value: Any) -> Any:
        """The old value."""
        return old_value

    def button(self, text: str) -> bool:
        """False: it is never pressed."""
        return False
