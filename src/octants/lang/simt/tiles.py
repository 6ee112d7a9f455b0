"""Names of Quadrants that have no meaning here: using one is an error that names another way."""

from __future__ import annotations

from typing import Any

from octants.lang.marker import kernel_only


class Tile:
    """A square matrix of which each lane has a row; not supported."""

    def __init__(self, size: int) -> None:
        self.SIZE = size

    @staticmethod
    @kernel_only
    def zeros(dtype: Any = None) -> Any:
        """A tile of zeros; not supported."""

    @staticmethod
    @kernel_only
    def eye(dtype: Any = None) -> Any:
        """The identity; not supported."""


Tile16x16, Tile32x32 = Tile(16), Tile(32)
