"""The active cells of sparse fields, as far as a kernel under construction knows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from octants.ir.core import Array, Value
from octants.lazy_dataclass import dataclass
from octants.types.sparsity import SparseLevel, Sparsity


@dataclass(frozen=True, slots=True)
class ActiveList:
    """The active cells of a sparse block in launch-temporary arrays: their numbers, how many."""

    level: SparseLevel
    cells: Any
    count: Any


@dataclass(eq=False)
class ActiveCells:
    """The sparse fields of a kernel, the lists of cells made so far, and the indices of loops.

    An element at the very index of a loop over its block is active, so a write need not activate
    it; unless the loop deactivates cells.
    """

    of_array: dict[Array, Sparsity] = field(default_factory=dict)
    lists: dict[int, ActiveList] = field(default_factory=dict)
    activates: bool = True
    deactivations: int = 0
    trusts_loops: bool = True
    _visited: list[tuple[tuple[Value, ...], Sparsity]] = field(default_factory=list)

    def note_change(self) -> None:
        """The activity of some block changes here: lists that were made are of no use."""
        self.lists.clear()

    @contextmanager
    def distrusting_loops(self) -> Iterator[None]:
        """Build a loop that deactivates cells."""
        outer, self.trusts_loops = self.trusts_loops, False
        try:
            yield
        finally:
            self.trusts_loops = outer

    @contextmanager
    def clearing(self) -> Iterator[None]:
        """Build writes that do not activate."""
        outer, self.activates = self.activates, False
        try:
            yield
        finally:
            self.activates = outer

    def visit(self, sparsity: Sparsity, indices: tuple[Value, ...]) -> None:
        """Note the indices of an iteration of a loop over active elements."""
        if self.trusts_loops:
            self._visited.append((indices, sparsity))

    def is_visited(
        self, sparsity: Sparsity, level: SparseLevel, indices: tuple[Value, ...]
    ) -> bool:
        """Whether an element surely lies in an active cell of a block: a loop is at its index."""
        return any(
            level in other.levels
            and other.shape == sparsity.shape
            and len(known) == len(indices)
            and all(a is b for a, b in zip(known, indices, strict=True))
            for known, other in self._visited
        )
