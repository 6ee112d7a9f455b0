"""Maps primal values, and facts of loops, to the values of the reverse kernel."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from octants.ir.core import Operation, Value


class PrimalValues(dict[Hashable, Value]):
    """The values of the reverse kernel that stand for primal values, and for facts of loops.

    Facts of loops have the key (operation, fact). All are i64; positions are in bytes::

        each recorded loop    count            its iterations
                              base, end        where its records begin and end in the record buffer
                              number           the number of the current iteration in its record
        nested loops          first            the number of the first iteration of this execution
        loops in blocks       length, blocks   iterations of a block, number of blocks
                              width            checkpoints on the first level
                              checkpoint_base  where the checkpoints begin
        late loops            done             blocks that need no run: 1 if it is stored, else 0
        loops with frames     top              where the last frame ends
                              stored_end       where the last complete frame ends
        stored loops          offset, size     of their records in their frame
        fixed-length blocks   remainder_base   where the iterations behind the blocks begin
                              remainder        how many these are
                              trips            u32 or i64: iterations, if these may differ later
        ifs around loops      taken            the condition (u1), if it may differ later

    `journal` holds the keys in the order in which they were bound.
    """

    __slots__ = ("journal",)

    def __init__(self) -> None:
        self.journal: list[Hashable] = []

    def bind(self, key: Hashable, value: Value) -> None:
        """Let a value stand for a primal value, or a fact, from here on."""
        self[key] = value
        self.journal.append(key)

    def bind_all(self, keys: Iterable[Hashable], values: Sequence[Value]) -> None:
        """Bind several keys, as many as there are values."""
        for key, value in zip(keys, values, strict=False):
            self.bind(key, value)

    def note(self, op: Operation, **facts: Value) -> None:
        """Bind facts of a loop."""
        for fact, value in facts.items():
            self.bind((op, fact), value)

    def mapped(self, primal: Iterable[Value]) -> list[Value]:
        """The values that stand for some primal values."""
        return [self[value] for value in primal]
