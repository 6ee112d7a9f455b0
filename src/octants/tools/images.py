"""Images in files: `imread`, `imwrite`, `imresize`, `imshow`; they need Pillow (``octants[ui]``).

An image is an array of shape (width, height) or (width, height, channels), whose second axis goes
upwards, as in `octants.ui`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from octants.diagnostics.optional_dependencies import import_optional
from octants.ui.frame_output import Frames
from octants.ui.picture import Picture, to_rgb

Image = npt.NDArray[np.uint8]


def imwrite(img: Any, filename: str) -> None:
    """Store an image; the ending of the name says in which format.

    Args:
        img: A field, ndarray, numpy array or tensor of shape (width, height), with 1, 3 or 4
            channels: floats from 0 to 1, or unsigned integers up to the largest of their type.
        filename: Where to.

    Raises:
        ValueError: `img` has another shape, or numbers of another type.
    """
    _pillow().fromarray(np.ascontiguousarray(to_rgb(img).transpose(1, 0, 2)[::-1])).save(filename)


def imread(filename: str, channels: int = 0) -> Image:
    """An image from a file.

    Args:
        filename: Where from.
        channels: 1, 3 or 4; 0 takes as many as the file has.

    Returns:
        An array of shape (width, height, channels), u8.

    Raises:
        ValueError: If `channels` is another number.
    """
    modes = {0: None, 1: "L", 3: "RGB", 4: "RGBA"}
    if channels not in modes:
        raise ValueError(f"channels are 0, 1, 3 or 4, not {channels}")
    image = _pillow().open(filename)
    mode = modes[channels] or (image.mode if image.mode in ("L", "RGB", "RGBA") else "RGB")
    pixels = np.asarray(image.convert(mode))
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    return np.ascontiguousarray(pixels[::-1].transpose(1, 0, 2))


def imresize(img: Any, w: int, h: int | None = None) -> Image:
    """An image in another size, of shape (w, h, 3), u8; without `h` it keeps its shape."""
    pixels = to_rgb(img)
    height = round(w * pixels.shape[1] / pixels.shape[0]) if h is None else h
    resized = _pillow().fromarray(np.ascontiguousarray(pixels.transpose(1, 0, 2)))
    scaled: Image = np.asarray(resized.resize((w, height)))
    return np.swapaxes(scaled, 0, 1)


def imshow(img: Any, title: str = "imshow") -> None:  # noqa: ARG001 - there is no screen
    """Show an image: it becomes a frame, which ``OCTANTS_FRAMES`` stores."""
    frames = Frames()
    if not frames.is_wanted:
        return
    pixels = to_rgb(img)
    picture = Picture(pixels.shape[0], pixels.shape[1])
    picture.put(pixels)
    frames.show(picture)


def _pillow() -> Any:
    return import_optional("PIL.Image", "ui")
