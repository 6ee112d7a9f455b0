"""A picture that is drawn on: numpy for images, Pillow for shapes.

Places are in the unit square, with y upwards and the origin in the lower left corner, as in the
windows whose names `octants.ui` follows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from octants.diagnostics.extras import import_optional

Colour = tuple[int, int, int]
Array = npt.NDArray[Any]
SUPPORTED = "a field, an ndarray, a numpy array or a torch tensor"


def to_array(values: Any) -> Array:
    """The elements of a field, an ndarray, or what numpy makes an array of."""
    return np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)


def to_rgb(image: Any) -> npt.NDArray[np.uint8]:
    """An image as bytes.

    Args:
        image: Of shape (width, height), (width, height, 1), (.., 3) or (.., 4): integers of 8 bits,
            or floats from 0 to 1.

    Returns:
        An array of shape (width, height, 3), u8.

    Raises:
        ValueError: If the shape is another one.
    """
    array = to_array(image)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or array.shape[2] not in (1, 2, 3, 4):
        raise ValueError(
            f"an image has the shape (width, height) or (width, height, 3), not {array.shape}"
        )
    if array.dtype != np.uint8:
        if not np.issubdtype(array.dtype, np.floating):
            array = array / np.iinfo(array.dtype).max
        array = (np.clip(np.nan_to_num(array), 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8)
    pixels: npt.NDArray[np.uint8] = array[..., :3]
    if array.shape[2] == 1:
        pixels = np.repeat(array, 3, axis=2)
    elif array.shape[2] == 2:
        pixels = np.concatenate([array, np.zeros_like(array[..., :1])], axis=2)
    return pixels


def from_hex(colour: int) -> Colour:
    """0xRRGGBB as three bytes."""
    colour = int(colour)
    return (colour >> 16) & 255, (colour >> 8) & 255, colour & 255


def from_floats(colour: Any) -> Colour:
    """Three floats from 0 to 1 as three bytes."""
    red, green, blue = (int(min(max(float(part), 0.0), 1.0) * 255.0 + 0.5) for part in colour[:3])
    return red, green, blue


class Picture:
    """What is drawn in one frame.

    Args:
        width: In pixels.
        height: In pixels.
        background: The colour before anything is drawn.
    """

    def __init__(self, width: int, height: int, background: Colour = (0, 0, 0)) -> None:
        self.width, self.height = width, height
        self._drawing = import_optional("PIL.ImageDraw", "ui")
        image = import_optional("PIL.Image", "ui")
        self._make = image.fromarray
        self.image = image.new("RGB", (width, height), background)
        self._draw = self._drawing.Draw(self.image)

    def put(self, image: Any) -> None:
        """Fill the picture with an image, scaled to its size."""
        pixels = np.ascontiguousarray(to_rgb(image).transpose(1, 0, 2)[::-1])
        made = self._make(pixels)
        if made.size != self.image.size:
            made = made.resize(self.image.size)
        self.image.paste(made)

    def circle(self, place: Any, radius: float, colour: Colour) -> None:
        """A disc; `radius` in pixels."""
        x, y = self._pixel(place)
        self._draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)

    def line(self, begin: Any, end: Any, width: float, colour: Colour) -> None:
        """A straight line; `width` in pixels."""
        ends = (*self._pixel(begin), *self._pixel(end))
        self._draw.line(ends, fill=colour, width=max(1, round(width)))

    def polygon(self, corners: Any, colour: Colour) -> None:
        """A filled polygon."""
        self._draw.polygon([self._pixel(corner) for corner in corners], fill=colour)

    def rectangle(self, first: Any, second: Any, width: float, colour: Colour) -> None:
        """The outline of a rectangle between two opposite corners; `width` in pixels."""
        (x0, y0), (x1, y1) = self._pixel(first), self._pixel(second)
        box = (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))
        self._draw.rectangle(box, outline=colour, width=max(1, round(width)))

    def text(self, content: str, place: Any, size: float, colour: Colour) -> None:
        """Text whose upper left corner is at a place; `size` in pixels."""
        fonts = import_optional("PIL.ImageFont", "ui")
        self._draw.text(self._pixel(place), content, fill=colour, font=fonts.load_default(size))

    def pixels(self) -> npt.NDArray[np.uint8]:
        """The picture as an array of shape (width, height, 3), with y upwards."""
        rows: npt.NDArray[np.uint8] = np.asarray(self.image)
        return np.flip(rows.transpose(1, 0, 2), axis=1)

    def save(self, path: Path) -> None:
        """Store the picture; the ending of the name says in which format."""
        self.image.save(path)

    def _pixel(self, place: Any) -> tuple[float, float]:
        return float(place[0]) * self.width, (1.0 - float(place[1])) * self.height
