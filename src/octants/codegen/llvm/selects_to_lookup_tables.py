"""Read a long vector at a run-time index by a load from a table, not by a chain of selects.

The frontend reads ``v[i]`` by a chain that compares the index with successive numbers::

    %1 = select(%is_1, %b, %a)
    %2 = select(%is_2, %c, %1)
    %3 = select(%is_3, %d, %2)        ->        load table[%i], table = %b, %c, %d and %a elsewhere

The table is filled where the last of its values is defined: before the loop that reads it, if the
vector is invariant. Short chains stay as they are, and all chains do where work items are lanes of
vectors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from octants.ir import ops
from octants.ir.core import Block, Operation, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import i32, i64

LONG = 8  # selects
_SPARSE = 4  # numbers up to so many times the count of selects

InsertionPoint = Operation | Block


@dataclass(frozen=True, slots=True)
class Table:
    """Values by index; the last one is for all indices beyond, and for negative ones.

    `constants` has the values that are known; they may be defined after the table is filled.
    """

    values: tuple[Value, ...]
    constants: Mapping[Value, Any] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TableRead:
    """The result of a chain's last select: the value of a table at an index."""

    table: Table
    index: Value


@dataclass(frozen=True)
class Chains:
    """The long chains of a task.

    `reads` has an entry for each select, None for those inside a chain; `filled` has the tables to
    fill at the beginning of a block, or behind an operation.
    """

    reads: dict[Operation, TableRead | None] = field(default_factory=dict)
    filled: dict[InsertionPoint, list[Table]] = field(default_factory=dict)


def find_chains(block: Block) -> Chains:
    """Find the long chains in the body of a task."""
    chains, selects = Chains(), _Selects(block)
    tables: dict[tuple[Value, ...], Table] = {}
    for op in reversed(selects.by_result.values()):
        links = [] if op in chains.reads else selects.links(op)
        values = selects.values(links) if len(links) >= LONG else ()
        if not values:
            continue
        if values not in tables:
            tables[values] = Table(values, selects.constants)
            point = selects.last_definition(values)
            if point is not None:
                chains.filled.setdefault(point, []).append(tables[values])
        chains.reads.update(dict.fromkeys(links))
        chains.reads[op] = TableRead(tables[values], selects.tests[op.condition][0])
    return chains


class _Selects:
    """The selects of a block by a comparison with a number, and the definitions of values."""

    def __init__(self, block: Block) -> None:
        self.by_result: dict[Value, ops.Select] = {}
        self.tests: dict[Value, tuple[Value, Any]] = {}
        self.constants: dict[Value, Any] = {}
        self._uses: Counter[Value] = Counter()
        self._definition_points: dict[Value, tuple[int, InsertionPoint]] = {}
        for point, values in _definitions(block):
            for value in values:
                self._definition_points[value] = len(self._definition_points), point
            if isinstance(point, Operation):
                self._see(point)

    def _see(self, op: Operation) -> None:
        self._uses.update(op.operands)
        if isinstance(op, ops.Constant):
            self.constants[op.result] = op.value
        elif isinstance(op, ops.Compare) and op.fn == "eq" and op.lhs.type in (i32, i64):
            if op.rhs in self.constants:
                self.tests[op.result] = op.lhs, self.constants[op.rhs]
        elif isinstance(op, ops.Select) and op.condition in self.tests:
            self.by_result[op.result] = op

    def links(self, last: ops.Select) -> list[ops.Select]:
        """Return the selects of a chain from its last one back, each with a single use."""
        index, links = self.tests[last.condition][0], [last]
        while True:
            before = links[-1].on_false
            link = self.by_result.get(before)
            if link is None or self._uses[before] != 1:
                return links
            if self.tests[link.condition][0] is not index:
                return links
            links.append(link)

    def values(self, links: list[ops.Select]) -> tuple[Value, ...]:
        """Return the values by their numbers; empty if the numbers do not make a table."""
        cases: dict[Any, Value] = {}
        for link in links:
            cases.setdefault(self.tests[link.condition][1], link.on_true)
        if min(cases) < 0 or max(cases) >= _SPARSE * len(links):
            return ()
        otherwise = links[-1].on_false
        return (*(cases.get(number, otherwise) for number in range(max(cases) + 1)), otherwise)

    def last_definition(self, values: tuple[Value, ...]) -> InsertionPoint | None:
        """Return the definition of the last of some values; None if all are constants."""
        points = [self._definition_points[value] for value in values if value not in self.constants]
        return max(points, key=lambda point: point[0])[1] if points else None


def _definitions(block: Block) -> Iterator[tuple[InsertionPoint, list[Value]]]:
    """Yield the values that blocks and operations define, regions before their operation."""
    yield block, block.args
    for op in block.ops:
        for region in op.regions:
            yield from _definitions(region)
        yield op, op.results
