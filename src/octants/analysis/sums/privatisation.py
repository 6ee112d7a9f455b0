"""Finds sums at varying indices to which the workers of a parallel loop can add without atomics.

There are two ways. In *alternating chunks*, workers first run every other chunk of work items, then
the rest: if a work item touches only elements near its own index, as stencils do, chunks that are
not neighbours have no element in common. Otherwise each worker gets a *private copy* of the target,
and the copies are added to the target at the end.

Neighbouring work items share an element along the first axis if their rows are close. A row is the
index of the work item, or its quotient by the number of work items in a row; the index of an access
is a multiple of the row, plus a number within two bounds.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import field, replace

from octants.analysis.indices.affine_arithmetic import Affine
from octants.analysis.indices.facts_from_valid_indices import InBounds
from octants.ir import ops
from octants.ir.array_aliasing import may_alias_another
from octants.ir.core import ArrayRef, Block, Operation, Task, Value
from octants.ir.slices import backward_slice
from octants.lazy_dataclass import dataclass
from octants.types.layouts import Layout
from octants.types.scalars import f32, f64, i32, i64, u32, u64

_DTYPES = (f32, f64, i32, i64, u32, u64)
_WIDEST = 64  # the most rows that a chunk must have
_CHUNKS = 4  # the fewest that are worth alternating


@dataclass(frozen=True, slots=True)
class AlternatingChunks:
    """A chunk has at least `rows` times the product of `divisors` work items.

    The last chunk is a neighbour of the first one if it `wraps`. `rematerialised` are the
    operations that compute the divisors.
    """

    divisors: tuple[Value, ...]
    rows: int
    wraps: bool
    rematerialised: tuple[Operation, ...] = ()


@dataclass(frozen=True, slots=True)
class PrivatisedSums:
    """The targets to which workers add without atomics, by either way."""

    private_copies: tuple[ArrayRef, ...] = ()
    alternating: dict[ArrayRef, AlternatingChunks] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.private_copies or self.alternating)

    def __contains__(self, target: ArrayRef) -> bool:
        return target in self.alternating or target in self.private_copies


def find_sums(task: Task, noalias: bool, collected: Collection[Operation] = ()) -> PrivatisedSums:
    """Find the sums of a task that need no atomics.

    Args:
        task: the task.
        noalias: no two arrays of its kernel share memory.
        collected: updates that are collected in registers anyway.

    Returns:
        The targets.
    """
    groups = _groups(task) if task.is_parallel else {}
    used = task.body.used() if groups else set()
    found = [
        target
        for target, accesses in groups.items()
        if any(op not in collected for op in accesses)
        and _is_sum(target, accesses, used)
        and not may_alias_another(target, groups, noalias)
    ]
    if not found:
        return PrivatisedSums()
    rows = RowPartition(task)
    alternating = {
        target: chunks
        for target in found
        if (chunks := rows.alternating(groups[target])) is not None
    }
    copies = tuple(target for target in found if target not in alternating and is_dense(target))
    return PrivatisedSums(copies, alternating)


def _groups(task: Task) -> dict[ArrayRef, list[ops.Access]]:
    groups: dict[ArrayRef, list[ops.Access]] = {}
    for op in task.body.walk():
        if isinstance(op, ops.Access):
            groups.setdefault(op.ref, []).append(op)
    return groups


def _is_sum(target: ArrayRef, accesses: list[ops.Access], used: set[Value]) -> bool:
    """Whether a task only adds to a target; ``used`` are the operands of all operations."""
    if target[0].dtype not in _DTYPES:
        return False
    if not all(isinstance(op, ops.Atomic) and op.fn in ("add", "sub") for op in accesses):
        return False
    return not any(value in used for op in accesses for value in op.results)


def is_dense(target: ArrayRef) -> bool:
    """Whether the elements of a target fill its memory, so that it can be added to as a whole."""
    array, companion = target
    layout = array.layouts[companion]
    if layout is None:
        return True
    if not isinstance(layout, Layout):
        return False
    size, count = array.dtype.size, math.prod((*layout.shape, *array.element_shape))
    return layout.spanned_bytes(array.element_shape, size) == count * size


@dataclass(frozen=True, slots=True)
class Row:
    """``scale * row + c``, with c from `low` to `high`; it may wrap around the number of rows.

    The row is the index of the work item, divided by each of `divisors`.
    """

    divisors: tuple[Value, ...] = ()
    scale: int = 1
    low: int = 0
    high: int = 0
    wraps: bool = False

    def moved(self, low: int, high: int, scale: int = 1) -> Row:
        return replace(
            self,
            scale=scale * self.scale,
            low=scale * self.low + low,
            high=scale * self.high + high,
        )

    @property
    def is_exact(self) -> bool:
        """Whether it is the row itself."""
        return (self.scale, self.low, self.high, self.wraps) == (1, 0, 0, False)


class RowPartition(InBounds):
    """The indices of a task as rows."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._conditions: dict[Operation, dict[Value, bool]] = {}
        self._find_conditions(task.body, {})
        assert task.domain is not None
        lower, self._upper = task.domain.yielded[:2]
        self._lower = self.integer(lower)

    def _find_conditions(self, block: Block, conditions: dict[Value, bool]) -> None:
        """Note the conditions around each operation, and whether they hold."""
        for op in block.ops:
            self._conditions[op] = conditions
            for region in op.regions:
                inner = conditions
                if isinstance(op, ops.If):
                    inner = {**conditions, op.condition: region is op.then}
                self._find_conditions(region, inner)

    def alternating(self, accesses: list[ops.Access]) -> AlternatingChunks | None:
        """The chunks by which workers alternate at accesses to one array; None if they cannot."""
        for axis in range(len(accesses[0].indices)):
            rows = [self.row(op.indices[axis], op) for op in accesses]
            chunks = _alternating([row for row in rows if row is not None])
            if chunks is not None and None not in rows and self._has_chunks(rows[0], chunks):
                operations = backward_slice(chunks.divisors, self.definitions)
                return replace(chunks, rematerialised=tuple(operations))
        return None

    def _has_chunks(self, row: Row | None, chunks: AlternatingChunks) -> bool:
        """Whether there are enough rows, as far as is known."""
        first, last = (None, None) if row is None else (self._first(row), self._last(row))
        if first is None or last is None or first.terms or last.terms:
            return True
        return last.constant - first.constant >= _CHUNKS * chunks.rows

    def row(self, value: Value, access: Operation) -> Row | None:
        """An index of an access as a row."""
        expression = self.expression(value)
        for atom, coefficient in expression.terms.items():
            found = self._atom(atom, access) if coefficient > 0 else None
            if found is None:
                continue
            rest = self.interval(expression.without(atom))
            if found.wraps and (coefficient != 1 or rest != (0, 0)):
                return None
            if self._wraps(atom, coefficient, rest[1] - rest[0], expression.bits):
                return None
            return found.moved(*rest, coefficient)
        return None

    def _wraps(self, atom: Value, coefficient: int, rest: int, bits: int) -> bool:
        """Whether rows that are far from each other may have one index, because indices wrap."""
        if atom is not self.item and coefficient == 1:  # as little as the row that it is made of
            return False
        return coefficient * (self.span_of(atom) + 2 * _WIDEST) + rest >= 1 << bits

    def _atom(self, atom: Value, access: Operation) -> Row | None:
        """The row that an atom stands for at an access; None if it does not follow rows."""
        if atom is self.item:
            return Row()
        op = self.definitions.get(atom)
        if isinstance(op, ops.If):
            holds = self._conditions[access].get(op.condition)
            if holds is None:
                return None
            side = op.then if holds else op.orelse
            return self.row(side.yielded[op.results.index(atom)], access)
        if not isinstance(op, ops.Binary):
            return None
        if op.fn == "floordiv":
            row = self._whole_row(op.lhs, access)
            if row is None or not row.is_exact or not self.is_uniform(op.rhs):
                return None
            return replace(row, divisors=(*row.divisors, op.rhs))
        if op.fn in ("min", "max"):
            orders = ((op.lhs, op.rhs), (op.rhs, op.lhs))
            clamped = (self._clamped(op.fn, self._whole_row(a, access), b) for a, b in orders)
            return next((row for row in clamped if row is not None), None)
        return self._wrapped(self._whole_row(op.lhs, access), op.rhs) if op.fn == "mod" else None

    def _whole_row(self, value: Value, access: Operation) -> Row | None:
        """The row of a number that does not wrap before it is divided or compared."""
        atom = self.expression(value).terms.get(value)
        is_integer = atom is not None or value not in self.integer(value).terms
        return self.row(value, access) if is_integer else None

    def _clamped(self, fn: str, row: Row | None, bound: Value) -> Row | None:
        """A row clamped to a bound, with how far that moves it at most."""
        if row is None or row.scale != 1 or row.wraps:
            return None
        if fn == "max":
            first = self._first(row)
            known = None if first is None else self.interval(self.integer(bound).plus(first, -1))
            return None if known is None else replace(row, high=max(row.high, known[1]))
        last = self._last(row)
        known = None if last is None else self._difference(self.integer(bound), last)
        return None if known is None else replace(row, low=min(row.low, known[0]))

    def _wrapped(self, row: Row | None, size: Value) -> Row | None:
        """A row modulo the number of rows."""
        if row is None or row.scale != 1 or row.wraps:
            return None
        first, last = self._first(row), self._last(row)
        if first is None or last is None or first.terms or first.constant != 0:
            return None
        if self._difference(self.integer(size), last) != (1, 1):
            return None
        number = self.integer(size)
        if not number.terms and number.constant > 0:  # i + n - 1 is i - 1
            rounds = (row.low + number.constant // 2) // number.constant
            row = row.moved(-rounds * number.constant, -rounds * number.constant)
        return replace(row, wraps=True)

    def _first(self, row: Row) -> Affine | None:
        """The first row, if it is known."""
        if not row.divisors:
            return self._lower
        return Affine() if not self._lower.terms and self._lower.constant == 0 else None

    def _last(self, row: Row) -> Affine | None:
        """The last row, if the number of work items is a multiple of the length of rows."""
        count: Value | None = self._upper
        last = self.integer(self._upper).plus(Affine(1), -1)
        for divisor in row.divisors:
            size = self.integer(divisor)
            count = None if count is None else self._quotient(count, divisor)
            if not last.terms and not size.terms and size.constant > 0:
                last = Affine(last.constant // size.constant)
            elif count is not None:
                last = self.integer(count).plus(Affine(1), -1)
            else:
                return None
        return last

    def _quotient(self, product: Value, divisor: Value) -> Value | None:
        """The other factor of a product."""
        op, size = self.definitions.get(self.source(product)), self.size_of(divisor)
        if size is not None and isinstance(op, ops.Binary) and op.fn == "mul":
            for one, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
                if self.size_of(other) == size:
                    return one
        return None

    def _difference(self, one: Affine, other: Affine) -> tuple[int, int] | None:
        """The range of a difference; equal extents and arguments cancel."""
        difference = one.plus(other, -1)
        sums: dict[object, int] = {}
        for atom, coefficient in difference.terms.items():
            key = self.size_of(atom)
            if key is None or isinstance(key, int):
                return None
            sums[key] = sums.get(key, 0) + coefficient
        return None if any(sums.values()) else (difference.constant, difference.constant)


def _alternating(rows: list[Row]) -> AlternatingChunks | None:
    """The chunks of which those that are not neighbours access different elements."""
    kinds = {(row.divisors, row.scale) for row in rows}
    if len(kinds) != 1:
        return None
    ((divisors, scale),) = kinds
    spread = max(row.high for row in rows) - min(row.low for row in rows)
    count = spread // scale + 1
    if count > _WIDEST:
        return None
    return AlternatingChunks(divisors, count, any(row.wraps for row in rows))
