"""Generates the test whether arrays of a launch share memory that its code takes for disjoint.

Conditions that are cheap, and mostly hold, follow the packing of the arguments: ndarrays of Octants
are different ones, of which others have no memory; arrays of other libraries have disjoint ranges
of addresses. Where one does not hold, the slots of the parameter block decide.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from octants.artifact import ParameterLayout, Slot
from octants.ir.array_aliasing import may_alias
from octants.ir.core import ArrayRef, Companion, Space
from octants.runtime.arguments.array_bindings import COPIED, Binding
from octants.types.layouts import STRIDED, Layout
from octants.types.specialisation_signature import FieldHandle, FieldSource

Range = tuple[int, int]
"""The addresses of the first byte, and past the last one."""


def are_disjoint(ranges: Iterable[Range]) -> bool:
    """Whether no two ranges overlap."""
    return all(one[1] <= other[0] for one, other in itertools.pairwise(sorted(ranges)))


class OverlapTest:
    """The test for a binding with array references that must be `disjoint` from all others.

    Attributes:
        named: The names of slots in generated code.
        lines: Code that is run when these names have values. It sets ``shares``, which is false
            only if no memory is shared.
    """

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self.named: dict[Slot, str] = {}
        self._pairs = _pairs(binding)
        self._numbers = {array: number for number, array in enumerate(binding.arrays)}
        self._values: dict[str, str] = {}
        terms = dict.fromkeys(itertools.starmap(self._condition, self._pairs))
        terms.pop("True", None)
        self.lines = [f"{name} = {value}" for value, name in self._values.items()]
        self.lines.append(f"shares = not ({' and '.join(terms) or 'True'})")
        layout = binding.parameters
        self._unpack = struct.Struct(f"<{len(layout.slots)}q").unpack_from
        refs = dict.fromkeys(itertools.chain(*self._pairs))
        self._ranges = {ref: self._range_function(layout, ref) for ref in refs}

    def overlaps(self, view: Any) -> bool:
        """Whether memory is shared in the launch whose arguments are in a block."""
        slots = self._unpack(view)
        found = {ref: extent(slots) for ref, extent in self._ranges.items()}
        return not all(are_disjoint((found[one], found[other])) for one, other in self._pairs)

    # -- the condition -------------------------------------------------------------------------

    def _condition(self, one: ArrayRef, other: ArrayRef) -> str:
        """An expression that holds only if two references share no memory."""
        kinds = {self._kind(one), self._kind(other)}
        if "unknown" in kinds:
            return "False"
        if kinds == {"copy"}:
            one_copy, other_copy = (self._binding.leaf(ref[0]).expression for ref in (one, other))
            return f"{one_copy} is not {other_copy}"
        if "copy" in kinds:  # a launch refuses copies of memory that others have
            return "True"
        if "octants" in kinds:
            return self._identity_condition(one, other)
        if kinds == {"field"}:
            return str(are_disjoint((self._field(one), self._field(other))))
        (start, end), (other_start, other_end) = self._named_range(one), self._named_range(other)
        return f"({end} <= {other_start} or {other_end} <= {start})"

    def _kind(self, ref: ArrayRef) -> str:
        array, companion = ref
        if array.space is Space.FIELD:
            return "field"
        kind = self._binding.kind(array)
        if companion is not Companion.PRIMAL or array.layouts[companion] == STRIDED:
            return "unknown"
        return "copy" if kind in COPIED else "octants" if kind == "octants" else "foreign"

    def _identity_condition(self, one: ArrayRef, other: ArrayRef) -> str:
        """The same where one array is an ndarray of Octants, which was perhaps exported."""
        own = [ref for ref in (one, other) if self._kind(ref) == "octants"]
        names = [
            self._value(f"{self._binding.leaf(ref[0]).expression}.explicit_identity") for ref in own
        ]
        if len(names) == 2:  # None of what was exported: one that was not is disjoint from it
            return f"{names[0]} is not {names[1]}"
        rest = other if own[0] is one else one
        if self._kind(rest) != "field":
            return f"{names[0]} is not None"
        return f"{names[0]} not in (None, {self._source(rest).octants_number})"

    def _value(self, expression: str) -> str:
        """The name of a value that `lines` compute."""
        return self._values.setdefault(expression, f"v{len(self._values)}")

    def _source(self, ref: ArrayRef) -> Any:
        source = self._binding.source(ref[0])
        assert isinstance(source, FieldSource)
        return source.field

    def _named_range(self, ref: ArrayRef) -> tuple[str, str]:
        """The range of an array of another library, or of a field, in generated code."""
        if self._kind(ref) == "field":
            first, past = self._field(ref)
            return str(first), str(past)
        array, number = ref[0], self._numbers[ref[0]]
        start = self._name(Slot("pointer", array=number, companion=ref[1]))
        factors = [str(_element_bytes(ref))]
        for axis in range(array.rank):
            fixed = array.fixed_shape
            slot = Slot("shape", array=number, index=axis)
            factors.append(self._name(slot) if fixed is None else str(fixed[axis]))
        return start, self._value(f"{start} + {' * '.join(factors)}")

    def _name(self, slot: Slot) -> str:
        return self.named.setdefault(slot, f"s{len(self.named)}")

    # -- the slots -----------------------------------------------------------------------------

    def _field(self, ref: ArrayRef) -> Range:
        """The range of a field, or of an ndarray that was found as one is."""
        start, layout = self._source(ref).address(ref[1]), ref[0].layouts[ref[1]]
        assert isinstance(layout, Layout)
        return start, start + layout.spanned_bytes(ref[0].element_shape, ref[0].dtype.size)

    def _range_function(
        self, layout: ParameterLayout, ref: ArrayRef
    ) -> Callable[[Sequence[int]], Range]:
        """The function that finds the range of an array by the slots."""
        array, companion = ref
        if array.space is Space.FIELD:
            extent = self._field(ref)
            return lambda _: extent
        number = self._numbers[array]
        pointer = layout.position(Slot("pointer", array=number, companion=companion))
        axes = [
            layout.position(Slot("shape", array=number, index=axis)) for axis in range(array.rank)
        ]
        if array.layouts[companion] != STRIDED:
            size = _element_bytes(ref)

            def row_major(slots: Sequence[int]) -> Range:
                start = slots[pointer]
                return start, start + size * math.prod(slots[axis] for axis in axes)

            return row_major
        first = layout.position(Slot("stride", "", number, companion, 0))

        def strided(slots: Sequence[int]) -> Range:
            start = end = slots[pointer]
            extents = [*(slots[axis] for axis in axes), *array.element_shape]
            if 0 in extents:
                return start, start
            for step, extent in zip(slots[first:], extents, strict=False):
                start += min(0, step * (extent - 1))
                end += max(0, step * (extent - 1))
            return start, end + array.dtype.size

        return strided


def _pairs(binding: Binding) -> list[tuple[ArrayRef, ArrayRef]]:
    """The pairs of references that may share memory, and of which one must not."""
    found: dict[frozenset[ArrayRef], tuple[ArrayRef, ArrayRef]] = {}
    for ref in binding.disjoint:
        for other in binding.accessed:
            if other != ref and may_alias(ref, other) and not _are_fields(binding, ref, other):
                found[frozenset((ref, other))] = ref, other
    return list(found.values())


def _are_fields(binding: Binding, *refs: ArrayRef) -> bool:
    """Whether these are fields, whose elements may be interleaved, but share no memory."""
    sources = [binding.source(ref[0]) for ref in refs]
    return all(isinstance(s, FieldSource) and isinstance(s.field, FieldHandle) for s in sources)


def _element_bytes(ref: ArrayRef) -> int:
    return ref[0].dtype.size * math.prod(ref[0].element_shape)
