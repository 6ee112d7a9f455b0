"""What primal values are in the reverse run, and what that knows of loops."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from octants.ir.core import Operation, Value


class PrimalValues(dict[Hashable, Value]):
    """Maps primal values to those of the reverse run.

    Facts of loops are there under (operation, fact). Of each loop that is recorded these are
    "count", its iterations, and "base" and "end", between which its records stand on the tape. Of
    one in blocks also "length", of a block, "blocks", how many there are, "width", that of the
    first level of checkpoints, and "middle", where the checkpoints begin. Of one with frames "top",
    where the last of them ends, and "kept", where the last one does that holds all. Of one that is
    stored "place" and "size", of its records in their frame. Of one in even blocks "rest", where
    the record of the iterations behind the blocks begins, and "left", how many there are.

    `journal` has the keys in the order in which they were bound.
    """

    __slots__ = ("journal",)

    def __init__(self) -> None:
        self.journal: list[Hashable] = []

    def bind(self, key: Hashable, value: Value) -> None:
        """Have a value stand for a primal one from here on."""
        self[key] = value
        self.journal.append(key)

    def bind_all(self, keys: Iterable[Hashable], values: Sequence[Value]) -> None:
        """The same for several, as many as there are of both."""
        for key, value in zip(keys, values, strict=False):
            self.bind(key, value)

    def know(self, op: Operation, **facts: Value) -> None:
        """Bind facts of a loop."""
        for fact, value in facts.items():
            self.bind((op, fact), value)

    def mapped(self, primal: Iterable[Value]) -> list[Value]:
        """The values that stand for primal ones."""
        return [self[value] for value in primal]
