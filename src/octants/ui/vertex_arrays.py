"""Arguments that canvases and scenes share: points, colours and indices of vertices."""

from __future__ import annotations

from typing import Any

import numpy as np

from octants.ui.picture import Array, to_array

GREY = (0.5, 0.5, 0.5)


def rows(values: Any) -> Array:
    """Vectors as rows of a matrix, of shape (n, components)."""
    array = to_array(values).astype(float)
    return array.reshape(-1, array.shape[-1])


def each(value: Any, count: int) -> Any:
    """A number for each of `count` vertices: as it is if there is one for each, else repeated.

    Raises:
        ValueError: There are several, but not one for each.
    """
    array = to_array(value)
    if array.ndim == 0:
        return np.full(count, array)
    if array.size != count:
        raise ValueError(f"{array.size} values, but {count} vertices")
    return array.ravel()


def colours(color: Any, per_vertex: Any, count: int) -> Array:
    """A colour for each of `count` vertices, of shape (count, 3)."""
    if per_vertex is None:
        return np.tile(np.asarray(color, float)[:3], (count, 1))
    return rows(per_vertex)[:, :3]


def groups(indices: Any, count: int, size: int, first: int = 0, number: int | None = None) -> Array:
    """The vertices of each line (`size` 2) or triangle (`size` 3).

    Args:
        indices: Numbers of vertices, one after the other; None takes all vertices in order.
        count: How many vertices there are.
        size: How many a group has.
        first: Where to begin in the indices.
        number: How many indices to take; None takes the rest.

    Returns:
        Numbers of vertices, of shape (groups, size).
    """
    flat = np.arange(count) if indices is None else to_array(indices).ravel().astype(int)
    flat = flat[first : None if number is None else first + number]
    return flat[: len(flat) // size * size].reshape(-1, size)
