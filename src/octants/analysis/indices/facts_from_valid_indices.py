"""Infers facts about indices from the rule that they are within the bounds of their arrays.

An access is *steady* if each work item makes it, in each iteration of loops whose bounds are
uniform. If one of the numbers that make up its index (the work item's, or a counter) increases by
one, the index changes by a step that is the same everywhere, modulo 2^32. Both indices are at least
0 and below 2^31, so the step is its representative of least magnitude: differences of steady
indices are exact, and never wrap. That also bounds the number of work items: if they all access
`x[3 * i]`, there are at most a third of 2^31.

Accesses under an `if`, or in a loop whose bounds vary, are not steady.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Literal

from octants.analysis.indices.affine_analysis import (
    INDEX_TYPES,
    LARGEST_EXTENT,
    AffineExpressions,
    Interval,
)
from octants.ir import ops
from octants.ir.capped_products import uncapped_product
from octants.ir.core import Operation, Space, Task, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import integer_range, u1

_Product = tuple[int, Counter[Hashable]]


@dataclass(frozen=True, slots=True)
class _Digit:
    """A digit of the work item's number, which has been divided by the sizes `before`.

    It is the remainder by `size`, or the whole quotient if `size` is None. It is at most `last`,
    and less than the size `extent`, if that is not None.
    """

    before: tuple[Hashable, ...]
    size: Hashable
    last: int
    extent: Hashable


class InBounds(AffineExpressions):
    """The values of one task, with the facts that steady accesses imply."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._spans: dict[Value, int] = {}
        self._steady: set[Value] | None = None
        self._digits: dict[Value, _Digit | None] = {}
        self._product: _Product | Literal[False] | None = False  # not computed yet
        self._structures: dict[Value, Hashable] = {}

    def is_steady(self, index: Value) -> bool:
        """Whether a value is an index of a steady access, so that its differences are exact."""
        return index in self._steady_indices()

    def span_of(self, atom: Value) -> int:
        self._steady_indices()
        return min(super().span_of(atom), self._spans.get(atom, 1 << 64))

    def _steady_indices(self) -> set[Value]:
        if self._steady is None:
            self._steady = set()
            for op in self.constant_control:
                if isinstance(op, ops.Access) and op.array.space in (Space.FIELD, Space.NDARRAY):
                    self._note(op, self._steady)
        return self._steady

    def _note(self, op: Operation, steady: set[Value]) -> None:
        """Add the steady indices of an access."""
        assert isinstance(op, ops.Access)
        loops = [loop for loop in self.loops[op] if isinstance(loop, ops.For)]
        if not all(self.is_uniform(bound) for loop in loops for bound in (loop.lower, loop.upper)):
            return
        counters = {loop.body.args[0] for loop in loops}
        shape = op.array.fixed_shape or (LARGEST_EXTENT,) * op.array.rank
        for index, extent in zip(op.indices[: op.array.rank], shape, strict=True):
            atoms = list(self._atoms(index, counters))
            if index.type in INDEX_TYPES and None not in atoms and self._are_free(atoms):
                steady.add(index)
                self._note_spans(index, extent, Counter(atoms))

    def _note_spans(self, index: Value, extent: int, atoms: Counter[Value | None]) -> None:
        for atom, coefficient in self.expression(index).terms.items():
            if atoms.get(atom) == 1:
                span = (extent - 1) // abs(coefficient)
                self._spans[atom] = min(self._spans.get(atom, span), span)

    def _atoms(self, value: Value, counters: set[Value]) -> Iterator[Value | None]:
        """The numbers that make up an index, besides uniform ones; None for anything else."""
        for atom in self.expression(value).terms:
            if self.is_uniform(atom):
                continue
            if atom is self.item or atom in counters or self._digit(atom) is not None:
                yield atom
                continue
            op = self.definitions.get(atom)
            if isinstance(op, ops.Binary) and op.fn == "mul":
                for one, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
                    if self.is_uniform(other):
                        yield from self._atoms(one, counters)
                        break
                else:
                    yield None
            else:
                yield None

    # -- digits of the work item's number --------------------------------------------------------

    def _are_free(self, atoms: list[Value | None]) -> bool:
        """Whether each of some numbers can increase by one while the others stay the same."""
        digits = {self._digit(atom) for atom in atoms if atom is not None} - {None}
        if digits and self.item in atoms:
            return False
        ordered = sorted(
            (digit for digit in digits if digit is not None), key=lambda d: len(d.before)
        )
        return all(
            other.before[: len(one.before) + 1] == (*one.before, one.size)
            for one, other in itertools.pairwise(ordered)
        )

    def _digit(self, value: Value) -> _Digit | None:
        if value not in self._digits:
            self._digits[value] = self._find_digit(value)
        return self._digits[value]

    def _find_digit(self, value: Value) -> _Digit | None:
        """The digit of the work item's number that a value is, if all digits are possible."""
        op = self.definitions.get(value)
        if not isinstance(op, ops.Binary) or op.fn not in ("mod", "floordiv"):
            return None
        before: list[Hashable] = []
        divisors = [op.rhs]
        while self.source(op.lhs) is not self.item:
            inner = self.definitions.get(self.source(op.lhs))
            if not isinstance(inner, ops.Binary) or inner.fn != "floordiv":
                return None
            op = inner
            divisors.append(op.rhs)
        left = self._whole
        if left is None:
            return None
        for divisor in reversed(divisors):
            left = self._divided(left, divisor)
            if left is None:
                return None
            before.append(self.size_of(divisor))
        last = self.definitions[value]
        assert isinstance(last, ops.Binary)
        if last.fn == "mod":
            last_digit = self.value_range(last.rhs)[1] - 1
            return _Digit(tuple(before[:-1]), before[-1], last_digit, before[-1])
        return _Digit(tuple(before), None, _most(left) - 1, _only_factor(left))

    def extent_of(self, atom: Value) -> Hashable:
        """The size that a digit of the work item's number is less than; None for other values."""
        digit = self._digit(atom)
        return None if digit is None else digit.extent

    def upper_bound(self, atom: Value) -> Value | None:
        """The value that a loop's counter, or the work item's number, is less than."""
        return self._counters[atom][1] if atom in self._counters else None

    @property
    def _whole(self) -> _Product | None:
        """The number of work items as a product, if they are counted from zero."""
        if self._product is False:
            self._product = None  # while it is looked for
            self._product = self._find_whole()
        return self._product

    def _find_whole(self) -> _Product | None:
        if self.item is None:
            return None
        lower, upper = self._counters[self.item]
        first = self.integer(lower)
        if first.terms or first.constant != 0:
            return None
        number, sizes, waiting = 1, Counter[Hashable](), [upper]
        signed = 0  # factors that may be negative: two of them would have a positive product
        while waiting:
            value = self.source(waiting.pop())
            op, key = self.definitions.get(value), self.size_of(value)
            if isinstance(op, ops.Binary) and op.fn == "mul" and op.lhs.type.bits == 64:
                waiting += [op.lhs, op.rhs]
            elif isinstance(key, int) and key > 0:
                number *= key
            elif key is not None and not isinstance(key, int):
                sizes[key] += 1
                signed += isinstance(op, ops.Load) and op.result.type.is_signed
            else:
                return None
        return None if signed > 1 else (number, sizes)

    def _divided(self, product: _Product, divisor: Value) -> _Product | None:
        """A product without one of its factors."""
        number, sizes = product
        key = self.size_of(divisor)
        if isinstance(key, int):
            return (number // key, sizes) if key > 0 and number % key == 0 else None
        if key is None or sizes[key] < 1:
            return None
        return number, sizes - Counter([key])

    # -- sizes -----------------------------------------------------------------------------------

    def source(self, value: Value) -> Value:
        """A value before conversions that have not changed it, and the cap of a product."""
        op = self.definitions.get(value)
        while isinstance(op, ops.Cast) and op.x.type in INDEX_TYPES:
            if op.result.type.bits < op.x.type.bits and not self._preserves(op):
                return value
            value = op.x
            op = self.definitions.get(value)
        product = uncapped_product(op, self.definitions)
        return value if product is None else product

    def _preserves(self, op: ops.Cast) -> bool:
        """Whether the range of a value shows that a narrowing conversion preserves it."""
        if op.result.type not in INDEX_TYPES:
            return False
        least, most = integer_range(op.result.type)
        low, high = self.value_range(op.x)
        return least <= low and high <= most

    def size_of(self, value: Value) -> Hashable:
        """A key that equal uniform sizes share: a number, or a name for an extent or an argument.

        The maximum of a size and 0 counts as the size, because both count the same. A number that
        is computed from such, and is surely not negative, is named by its operations.
        """
        value = self.source(value)
        op = self.definitions.get(value)
        expression = self.integer(value)
        if not expression.terms:
            return expression.constant
        if isinstance(op, ops.Binary) and op.fn == "max":
            for one, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
                zero = self.integer(one)
                size = None if zero.terms or zero.constant != 0 else self.size_of(other)
                if size is not None:
                    return size
        if isinstance(op, ops.Shape):
            return "shape", op.array, op.axis
        if isinstance(op, ops.Load) and op.array.space is Space.ARGUMENT and not op.indices:
            return "argument", op.array
        low, high = self.value_range(value) if self.is_uniform(value) else (-1, 0)
        structure = self._structure(value) if low >= 0 else None
        return None if structure is None else ("expression", high, structure)

    def _structure(self, value: Value) -> Hashable:
        """A key that uniform integers share if the same operations compute them."""
        if value not in self._structures:
            op, known = self.definitions.get(value), None
            if op is not None and value.type in (*INDEX_TYPES, u1) and self.is_uniform(value):
                parts = tuple(map(self._structure, op.operands))
                known = None if None in parts else (type(op), value.type, *op.attributes, *parts)
            self._structures[value] = known
        return self._structures[value]

    def range_of(self, atom: Value) -> Interval:
        low, high = super().range_of(atom)
        op = self.definitions.get(atom)
        if isinstance(op, ops.Binary) and op.fn in ("mod", "floordiv"):
            digit = self._digit(atom)
            if digit is not None:
                return max(low, 0), min(high, digit.last)
        if isinstance(op, (ops.Load, ops.Shape)) and self._counts_items(op):
            low = max(low, 1)
        return low, high

    def _counts_items(self, op: ops.Load | ops.Shape) -> bool:
        """Whether an extent or an argument is a factor of the number of work items, so not zero."""
        key = ("shape", op.array, op.axis) if isinstance(op, ops.Shape) else ("argument", op.array)
        return self._whole is not None and self._whole[1][key] > 0


def _only_factor(product: _Product) -> Hashable:
    """The size that a product consists of; None if it has other factors."""
    number, sizes = product
    return next(iter(sizes)) if number == 1 and sizes.total() == 1 else None


def _most(product: _Product) -> int:
    """The greatest value of a product of sizes."""
    number, sizes = product
    for key, count in sizes.items():
        assert isinstance(key, tuple)
        if key[0] == "expression":
            largest = key[1]
        else:
            largest = LARGEST_EXTENT if key[0] == "shape" else integer_range(key[1].dtype)[1]
        number *= largest**count
    return number
