"""Matrices that are known by their products with vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from octants.lazy_dataclass import dataclass

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Product:
    """The products of a matrix of shape (`found`, `given`) with vectors.

    `times` takes vectors as the rows of a matrix, at least one, and returns such a matrix.
    """

    times: Callable[[Array], Array]
    given: int
    found: int

    def matrix(self) -> Array:
        """The transposed matrix: a row for each unit vector."""
        return self.times(np.eye(self.given)) if self.given else np.zeros((0, self.found))
