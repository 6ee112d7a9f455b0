"""A picture that is drawn on: numpy for images, Pillow for shapes.

Positions are in the unit square, with y upwards and the origin in the lower left corner, as in the
windows whose names `octants.ui` follows. A picture is a display list: it copies what it is given,
and draws when its pixels are read. A program whose frames no file takes pays for no drawing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from octants.diagnostics.optional_dependencies import import_optional

Array = npt.NDArray[Any]
SUPPORTED = "a field, an ndarray, a numpy array or a torch tensor"


def to_array(values: Any) -> Array:
    """The elements of a field, an ndarray, or what numpy makes an array of."""
    return np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)


def to_channels(image: Any) -> Array:
    """An image as an array of shape (width, height, channels).

    Raises:
        ValueError: The shape is not that of an image.
    """
    array = to_array(image)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or array.shape[2] not in (1, 2, 3, 4):
        raise ValueError(
            f"an image has the shape (width, height) or (width, height, 3), not {array.shape}"
        )
    return array


def to_rgb(image: Any) -> npt.NDArray[np.uint8]:
    """An image as bytes.

    Args:
        image: Of shape (width, height), (width, height, 1), (.., 3) or (.., 4): floats from 0 to
            1, truth values, or unsigned integers up to the largest of their type.

    Returns:
        An array of shape (width, height, 3), u8.

    Raises:
        ValueError: The shape is another one, or the numbers are of another type.
    """
    array = to_channels(image)
    if array.dtype != np.uint8:
        if array.dtype.kind not in "bfu":
            raise ValueError(
                f"an image holds floats from 0 to 1, or unsigned integers, not {array.dtype};"
                " convert numbers from 0 to 255 with `astype(numpy.uint8)`"
            )
        if array.dtype.kind == "u":
            array = array / np.iinfo(array.dtype).max
        array = (np.clip(np.nan_to_num(array), 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8)
    pixels: npt.NDArray[np.uint8] = array[..., :3]
    if array.shape[2] == 1:
        pixels = np.repeat(array, 3, axis=2)
    elif array.shape[2] == 2:
        pixels = np.concatenate([array, np.zeros_like(array[..., :1])], axis=2)
    return pixels


def from_hex(colour: Any) -> Array:
    """Colours 0xRRGGBB of shape (..) as bytes of shape (.., 3)."""
    bytes_: Array = (to_array(colour).astype(np.int64)[..., None] >> np.array([16, 8, 0])) & 255
    return bytes_


def from_floats(colour: Any) -> Array:
    """Colours of shape (.., 3) or (.., 4), floats from 0 to 1, as bytes of shape (.., 3)."""
    values = np.nan_to_num(np.asarray(colour, float)[..., :3])
    bytes_: Array = (np.clip(values, 0.0, 1.0) * 255.0 + 0.5).astype(np.int64)
    return bytes_


class Picture:
    """The display list of one frame.

    Args:
        width: In pixels.
        height: In pixels.
        background: The colour before anything is drawn: three bytes.
    """

    def __init__(self, width: int, height: int, background: Any = (0, 0, 0)) -> None:
        self.width, self.height = width, height
        self._background = _ink(background)
        self._pending: list[Callable[[], None]] = []
        self._image: Any = None
        self._draw: Any = None

    def later(self, draw: Callable[[], None]) -> None:
        """Add a function to the list, which draws into this picture."""
        self._pending.append(draw)

    def put(self, image: Any) -> None:
        """Fill the picture with an image, scaled to its size; see `to_rgb`."""
        channels = to_channels(image).copy()
        self._pending.clear()
        self.later(lambda: self._paste(channels))

    def circles(self, centres: Any, radii: Any, colours: Any) -> None:
        """Discs.

        Args:
            centres: Of shape (n, 2).
            radii: In pixels, of shape (n,).
            colours: Bytes of shape (n, 3).
        """
        middles, reach = self._pixels(centres), np.asarray(radii, float)[:, None]
        boxes = np.concatenate([middles - reach, middles + reach], 1)
        self._each(lambda box, colour: self._draw.ellipse(box, fill=tuple(colour)), boxes, colours)

    def lines(self, ends: Any, widths: Any, colours: Any) -> None:
        """Straight lines.

        Args:
            ends: Of shape (n, 2, 2).
            widths: In pixels, of shape (n,).
            colours: Bytes of shape (n, 3).
        """
        self._each(
            lambda line, width, colour: self._draw.line(line, fill=tuple(colour), width=width),
            self._pixels(ends).reshape(-1, 4),
            np.maximum(1, np.round(widths)).astype(int),
            colours,
        )

    def polygons(self, corners: Any, colours: Any) -> None:
        """Filled polygons.

        Args:
            corners: Of shape (n, corners, 2).
            colours: Bytes of shape (n, 3).
        """
        pixels = self._pixels(corners)
        self._each(
            lambda outline, colour: self._draw.polygon(outline, fill=tuple(colour)),
            pixels.reshape(len(pixels), -1),
            colours,
        )

    def rectangle(self, first: Any, second: Any, width: float, colour: Any) -> None:
        """The outline of a rectangle between two opposite corners; `width` in pixels."""
        corners = self._pixels([to_array(first), to_array(second)])
        box = (*corners.min(axis=0).tolist(), *corners.max(axis=0).tolist())
        ink, pen = _ink(colour), max(1, round(width))
        self.later(lambda: self._draw.rectangle(box, outline=ink, width=pen))

    def text(self, content: str, position: Any, size: float, colour: Any) -> None:
        """Text whose upper left corner is at a position; `size` in pixels."""
        corner, ink = tuple(self._pixels(position).tolist()), _ink(colour)
        self.later(lambda: self._draw.text(corner, content, fill=ink, font=_font(size)))

    def pixels(self) -> npt.NDArray[np.uint8]:
        """The picture as an array of shape (width, height, 3), with y upwards."""
        rows: npt.NDArray[np.uint8] = np.asarray(self._drawn())
        return np.flip(rows.transpose(1, 0, 2), axis=1)

    def save(self, path: Path) -> None:
        """Store the picture; the ending of the name says in which format."""
        self._drawn().save(path)

    def _drawn(self) -> Any:
        """Pillow's image, with all of the list drawn."""
        if self._image is None:
            size = (self.width, self.height)
            self._image = import_optional("PIL.Image", "ui").new("RGB", size, self._background)
            self._draw = import_optional("PIL.ImageDraw", "ui").Draw(self._image)
        pending, self._pending = self._pending, []
        while pending:
            for draw in pending:
                draw()
            pending, self._pending = self._pending, []  # what was drawn may have added to the list
        return self._image

    def _paste(self, channels: Array) -> None:
        pixels = np.ascontiguousarray(to_rgb(channels).transpose(1, 0, 2)[::-1])
        made = import_optional("PIL.Image", "ui").fromarray(pixels)
        if made.size != self._image.size:
            made = made.resize(self._image.size)
        self._image.paste(made)

    def _each(self, draw: Callable[..., None], *columns: Any) -> None:
        """Add to the list: call `draw` with each row of some arrays of the same length."""
        rows = [np.array(column) for column in columns]
        if len({len(row) for row in rows}) > 1:
            raise ValueError(f"{len(rows[0])} shapes, but {len(rows[-1])} colours")

        def draw_all() -> None:
            for row in zip(*(column.tolist() for column in rows), strict=True):
                draw(*row)

        self.later(draw_all)

    def _pixels(self, positions: Any) -> Array:
        """Positions of shape (.., 2) or more in the unit square as pixels of shape (.., 2)."""
        points = np.asarray(to_array(positions), float)[..., :2]
        pixels: Array = np.array([0, self.height]) + points * np.array([self.width, -self.height])
        return pixels


def _ink(colour: Any) -> tuple[int, ...]:
    return tuple(int(part) for part in colour)


def _font(size: float) -> Any:
    return import_optional("PIL.ImageFont", "ui").load_default(size)
