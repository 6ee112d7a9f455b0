"""Matrices that are known by their products with vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from octants.lazy_dataclass import dataclass

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Product:
    """The product of a matrix of shape (`found`, `given`) with a vector."""

    times: Callable[[Array], Array]
    given: int
    found: int

    def matrix(self) -> Array:
        """The transposed matrix: a row for each unit vector."""
        rows = [self.times(unit) for unit in np.eye(self.given)]
        return np.stack(rows) if rows else np.zeros((0, self.found))
