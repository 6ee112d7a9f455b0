"""Words that several quantised fields share: `BitpackedFields`, and ``block.quant_array(...)``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from octants.data.axes import check_axes, check_dimensions
from octants.data.errors import CannotPlace, describe
from octants.data.field import ScalarField
from octants.data.quant_field import QuantField, WordSlots
from octants.data.tree import SNode
from octants.diagnostics.quant_errors import WrongPacking
from octants.internal_members import internal
from octants.types.quantised_types import BitPosition, Packing, QuantFloat, QuantType
from octants.types.scalars import DType, u32, u64


class BitpackedFields:
    """A word of memory that quantised fields share, which is placed in a block like a field.

    Example::

        x, y = qd.field(qd.types.quant.int(5)), qd.field(qd.types.quant.fixed(27))
        packed = qd.BitpackedFields(max_num_bits=32)
        packed.place(x, y)
        qd.root.dense(qd.i, 100).place(packed)
    """

    def __init__(self, max_num_bits: int) -> None:
        """Begin a word.

        Args:
            max_num_bits: 8, 16, 32 or 64; a word takes 4 bytes, or 8 for 64.

        Raises:
            OctantsValueError: for another number.
        """
        self._bits = _check_bits("BitpackedFields", max_num_bits)
        self._words: ScalarField = ScalarField(_word_type(self._bits))
        self._slots: list[BitPosition] = []
        self._fields: list[tuple[QuantField, tuple[int, ...]]] = []
        self._used = 0
        self._groups = 0

    def place(self, *fields: Any, shared_exponent: bool = False) -> None:
        """Add fields to the word, each behind the one before it.

        Args:
            fields: quantised fields that are placed nowhere yet.
            shared_exponent: whether these fields, of floats with exponents of the same size, have
                one exponent for all: that of the largest.

        Raises:
            OctantsValueError: the fields do not fit in the word, or cannot share an exponent.
            OctantsRuntimeError: a field is placed already, or the word is.
        """
        if self._words.place_nodes:
            problem = "it is placed already, and takes no more fields"
            raise WrongPacking("BitpackedFields", problem, "place its fields first").at()
        given = [field for each in fields for field in _quantised("BitpackedFields", each)]
        if shared_exponent:
            _check_shared([field.quant_type for field in given for _ in range(_count(field))])
        slots = list(self._laid_out(given, shared_exponent))
        used = max([self._used, *(_end(slot) for slot in slots)])
        if used > self._bits:
            problem = f"{used} bits are needed, and the word has {self._bits}"
            advice = "use `max_num_bits=64`, fewer bits, or another word for some of the fields"
            raise WrongPacking("BitpackedFields", problem, advice).at()
        for field in given:
            field.reserve()
            first = len(self._slots)
            self._slots += slots[: _count(field)]
            del slots[: _count(field)]
            self._fields.append((field, tuple(range(first, len(self._slots)))))
        self._used = used

    def _laid_out(self, fields: Sequence[QuantField], shared: bool) -> Iterator[BitPosition]:
        """The slots of the components of fields, in order."""
        kinds = [field.quant_type for field in fields for _ in range(_count(field))]
        position, exponent = self._used, -1
        self._groups += shared
        for kind in kinds:
            if isinstance(kind, QuantFloat) and not (shared and exponent >= 0):
                exponent, position = position, position + kind.exponent
            at = exponent if isinstance(kind, QuantFloat) else -1
            slot = BitPosition(kind, position, at, self._groups if shared else 0)
            position += slot.width
            yield slot

    @internal
    def parts_to_place(self) -> list[ScalarField]:
        """The parts that `tree.SNode.place` places: the words. The fields are complete then."""
        packing = Packing(self._words.dtype, tuple(self._slots))
        if not self._words.place_nodes:
            for field, slots in self._fields:
                field.note_word_slots(WordSlots(self._words, packing, slots))
        return [self._words]


class QuantArray:
    """The block that ``block.quant_array(axes, dimensions, max_num_bits)`` makes: one word.

    It takes one field, of integers or fixed-point numbers.
    """

    def __init__(self, block: SNode, axes: Any, dimensions: Any, max_num_bits: int) -> None:
        self._block = block
        self._axes = check_axes(axes)
        self._extents = check_dimensions("a quantised array", self._axes, dimensions)
        self._bits = _check_bits("quant_array", max_num_bits)
        self._is_used = False

    def place(self, *fields: Any) -> QuantArray:
        """Place a field in the word; gives the block.

        Raises:
            OctantsValueError: its numbers do not fit, or it is a field of floats or of vectors.
        """
        given = [field for each in fields for field in _quantised("quant_array", each)]
        if len(given) != 1 or self._is_used:
            advice = "give each field a `quant_array` of its own, or use `qd.BitpackedFields`"
            raise WrongPacking("quant_array", "it takes one field", advice).at()
        (field,) = given
        if field.element_shape or isinstance(field.quant_type, QuantFloat):
            what = "vectors" if field.element_shape else "floats"
            advice = "use `qd.BitpackedFields`"
            raise WrongPacking("quant_array", f"it takes no field of {what}", advice).at()
        self._check_size(field.quant_type)
        field.reserve()
        words = ScalarField(_word_type(self._bits))
        self._block.place(words)
        self._is_used = True
        packing = Packing(words.dtype, (BitPosition(field.quant_type, 0),))
        field.note_word_slots(self._word_slots(words, packing))
        return self

    def _check_size(self, kind: QuantType) -> None:
        needed = kind.bits * math.prod(self._extents)
        if needed > self._bits:
            count = math.prod(self._extents)
            problem = (
                f"{count} numbers of {kind.bits} bits need {needed} bits, and the word has"
                f" {self._bits}"
            )
            most = self._bits // kind.bits
            advice = f"a word holds {most}: put the rest into axes of `dense` blocks around it"
            raise WrongPacking("quant_array", problem, advice).at()

    def _word_slots(self, words: ScalarField, packing: Packing) -> WordSlots:
        outer = self._block.all_axes()
        axes = sorted({*outer, *self._axes}, key=lambda axis: axis.number)
        inner = dict(zip(self._axes, self._extents, strict=True))
        extents = dict(zip(outer, self._block.shape, strict=True))
        shape = tuple(extents.get(axis, 1) * inner.get(axis, 1) for axis in axes)
        counts = tuple(inner.get(axis, 1) for axis in axes)
        kept = tuple(number for number, axis in enumerate(axes) if axis in extents)
        return WordSlots(words, packing, (0,), shape, counts, kept)


def _check_bits(what: str, given: Any) -> int:
    if given not in (8, 16, 32, 64):
        problem = f"a word has 8, 16, 32 or 64 bits, not {describe(given)}"
        raise WrongPacking(what, problem, "choose one of these as `max_num_bits`").at()
    return int(given)


def _word_type(bits: int) -> DType:
    """The type of a word: atomic operations need 32 bits or 64."""
    return u64 if bits == 64 else u32


def _quantised(what: str, given: Any) -> Iterator[QuantField]:
    """The quantised fields that an argument stands for."""
    if isinstance(given, (list, tuple)):
        for each in given:
            yield from _quantised(what, each)
    elif isinstance(given, QuantField):
        yield given
    elif hasattr(given, "place_nodes"):
        problem = f"the {given.describe()} is not quantised"
        advice = "place it in the block itself; only types of `qd.types.quant` share words"
        raise WrongPacking(what, problem, advice).at()
    else:
        raise CannotPlace(describe(given)).at()


def _count(field: QuantField) -> int:
    return math.prod(field.element_shape)


def _end(slot: BitPosition) -> int:
    return slot.first + slot.width


def _check_shared(kinds: Sequence[QuantType]) -> None:
    floats = [kind for kind in kinds if isinstance(kind, QuantFloat)]
    advice = "give it two or more numbers of `qd.types.quant.float` with the same `exp`"
    if len(floats) < len(kinds):
        raise WrongPacking("shared_exponent", "only floats have exponents", advice).at()
    if len(floats) < 2:
        raise WrongPacking("shared_exponent", "one number shares with no other", advice).at()
    if len({kind.exponent for kind in floats}) > 1:
        problem = "the exponents have different numbers of bits"
        raise WrongPacking("shared_exponent", problem, advice).at()
