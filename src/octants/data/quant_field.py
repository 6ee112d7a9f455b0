"""Quantised fields: numbers of a few bits, which share the words of a field of words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from octants.data import current_runtime
from octants.data.array_base import Array, Tensor
from octants.data.component_views import check_component
from octants.data.errors import (
    CannotShare,
    NotDifferentiable,
    PlacedTwice,
    UnsupportedNode,
    WrongArrayOption,
)
from octants.data.field import Field
from octants.data.host_element_access import ElementRange, HostWindow
from octants.data.tree import SNode
from octants.deferred_import import Deferred
from octants.diagnostics.quant_errors import NotPacked
from octants.lazy_dataclass import dataclass
from octants.types.companions import Companion
from octants.types.quantised_types import Packing, QuantType
from octants.types.scalars import convert_values
from octants.types.specialisation_signature import QuantHandle

if TYPE_CHECKING:
    from octants.mathlib import packed_arrays
else:
    packed_arrays = Deferred("octants.mathlib.packed_arrays")


_USE_NARROW = "place fields of `qd.f16`, `qd.i8` or `qd.i16` in sparse blocks"


@dataclass(frozen=True, slots=True)
class WordSlots:
    """The location of a quantised field: its words, and its slots in each of them.

    Along the axes of the field, `inner` elements share a word; the words have those of `axes`.
    """

    words: Field
    packing: Packing
    slots: tuple[int, ...]
    shape: tuple[int, ...] | None = None
    inner: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()


class QuantField(Tensor, QuantHandle):
    """A field of a quantised type: made by ``field(qd.types.quant.int(5))``.

    It is placed by `BitpackedFields` or ``quant_array``, and has no gradient. `dtype` is the type
    of the numbers that it gives, `quant_type` that of its elements.
    """

    _kind = "quantised field"
    explicit_identity: int | None

    def __init__(
        self, kind: QuantType, element_shape: tuple[int, ...] = (), name: str = ""
    ) -> None:
        super().__init__()
        self.quant_type = kind
        self.dtype = kind.dtype
        self.element_shape = element_shape
        self.name = name
        self.explicit_identity = None
        self.word_slots: WordSlots | None = None
        self._is_reserved = False
        self._runtime = current_runtime.runtime()

    # -- place ----------------------------------------------------------------------------------

    def reserve(self) -> None:
        """Take notice of being packed; the words may be placed later.

        Raises:
            OctantsRuntimeError: the field is packed already.
        """
        if self._is_reserved:
            raise PlacedTwice(self.describe()).at()
        self._is_reserved = True

    def note_word_slots(self, word_slots: WordSlots) -> None:
        """Take notice of the words that hold the field."""
        self.word_slots = word_slots
        self.slots = word_slots.slots

    def parts_to_place(self) -> Any:
        """Raise an error: only words are placed in blocks."""
        raise NotPacked(self.describe(), "cannot be placed in a block by itself").at()

    @property
    def is_placed(self) -> bool:
        """Whether the field has words that are in a block."""
        return self.word_slots is not None and bool(self.word_slots.words.place_nodes)

    def _require_word_slots(self) -> WordSlots:
        if self.word_slots is None or not self.is_placed:
            raise NotPacked(self.describe(), "is used, but not placed").at()
        if self.word_slots.words.sparsity is not None:
            raise UnsupportedNode("sparse, of quantised fields,", _USE_NARROW).at()
        return self.word_slots

    @property
    def words(self) -> Field:
        """The field of the words; an error if the field is not placed."""
        return self._require_word_slots().words

    @property
    def packing(self) -> Packing:
        """The packing of a word."""
        return self._require_word_slots().packing

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The extent of each axis; an error if the field is not placed."""
        word_slots = self._require_word_slots()
        return word_slots.words.shape if word_slots.shape is None else word_slots.shape

    @property
    def offset(self) -> tuple[int, ...]:  # type: ignore[override]
        """The index of the first element; () stands for zeros."""
        word_slots = self._require_word_slots()
        return word_slots.words.offset if word_slots.shape is None else ()

    @property
    def inner(self) -> tuple[int, ...]:
        """How many elements share a word, for each axis."""
        return self._require_word_slots().inner or (1,) * len(self.shape)

    @property
    def word_axes(self) -> tuple[int, ...]:
        """The axes of the field that its words have, too."""
        word_slots = self._require_word_slots()
        return tuple(range(len(self.shape))) if word_slots.shape is None else word_slots.axes

    @property
    def snode(self) -> SNode | None:
        """The place node of the words in their tree; None if there are none."""
        return None if self.word_slots is None else self.word_slots.words.snode

    def parent(self, n: int = 1) -> SNode | None:
        """The block that the words are placed in; for larger n, the blocks around that."""
        return None if self.word_slots is None else self.word_slots.words.parent(n)

    @property
    def ndim(self) -> int:
        """The number of axes of a field of numbers; of vectors 1, of matrices 2."""
        return len(self.element_shape) or len(self.shape)

    # -- companions -----------------------------------------------------------------------------

    def companion_array(self, companion: Companion) -> Any:
        """The field itself for PRIMAL: there are no others."""
        return self if companion is Companion.PRIMAL else None

    def has_grad(self) -> bool:
        """False: a quantised field has no gradient."""
        return False

    def has_dual(self) -> bool:
        """False: a quantised field has no dual."""
        return False

    # -- memory ---------------------------------------------------------------------------------

    def _open(self) -> HostWindow:
        window: Any = _PackedWindow(self)
        return cast(HostWindow, window)

    def window(self) -> HostWindow:
        """The elements, decoded from the words; an error if those are gone."""
        self.require_alive()
        self.words.window()
        return self._opened or self._reopen()

    def require_alive(self) -> None:
        """An error if the field was made before the last `init`, or destroyed."""
        self._require_word_slots().words.require_alive()

    def require_shareable(self) -> None:
        """Raise an error: no memory holds the numbers as such."""
        what = f"sharing the {self.describe()}"
        raise CannotShare(what, "its numbers are packed in words").at()

    def write(self, values: Any, region: ElementRange = (), source: Any = None) -> None:
        """Store converted values: the words are written."""
        del source
        window: Any = self.window()
        words, changed = window.changed(np.asarray(values), region)
        self.words.write(words, changed)

    def mark_written(self, region: Any = ()) -> None:
        """Say that the memory of the words was written by others."""
        del region
        self.words.mark_written()

    def get_scalar_field(self, *indices: int) -> QuantField:
        """A field of one component of a field of vectors or matrices that is placed.

        It shares the words: what is written to it is a component of this field.
        """
        if self.word_slots is None:
            advice = "place the field itself: its components follow each other in the word"
            raise WrongArrayOption(
                self.describe(), "component", "cannot be placed alone", advice
            ).at()
        component = check_component(self, indices)
        number = int(np.ravel_multi_index(component, self.element_shape))
        name = f"{self.name}[{', '.join(map(str, component))}]"
        alone = QuantField(self.quant_type, (), name)
        alone._is_reserved = True
        own = self.word_slots
        slots = (own.slots[number],)
        alone.note_word_slots(
            WordSlots(own.words, own.packing, slots, own.shape, own.inner, own.axes)
        )
        return alone

    def __repr__(self) -> str:
        if not self.is_placed:
            return f"<qd.{self.describe()}, not placed>"
        return f"<qd.{self.describe()}, {self.shape}, {self.quant_type}>"


class _PackedWindow:
    """The elements of a quantised field as the host sees them; see `memory.HostWindow`.

    A region is that of all elements, or one element, or a component of one.
    """

    def __init__(self, field: QuantField) -> None:
        self._field = field
        self.rank = len(field.shape)
        self.shape = (*field.shape, *field.element_shape)

    def read(self, region: ElementRange = ()) -> Array:
        """The numbers at a region."""
        window = self._field.words.window()
        if not region:
            return self._all_of(window.read())
        where, shift = self._word_of(region)
        numbers = self._element_of(window.read(where) >> shift)
        return np.ascontiguousarray(numbers[region[self.rank :]])

    def item(self, index: ElementRange) -> Any:
        """One number as a number of Python."""
        return self.read(index).item()

    def changed(self, values: Array, region: ElementRange) -> tuple[Array, ElementRange]:
        """The words with other numbers at a region, and where to write them."""
        field, window = self._field, self._field.words.window()
        values = convert_values(values, field.dtype)
        if not region:
            return self._with_all(window.read(), np.broadcast_to(values, self.shape)), ()
        where, shift = self._word_of(region)
        word = window.read(where)
        numbers = self._element_of(word >> shift)
        numbers[region[self.rank :]] = values
        return self._with_element(word, shift, numbers), where

    # -- one element in each of some words ------------------------------------------------------

    def _slots(self) -> list[Any]:
        return [self._field.packing.slots[number] for number in self._field.slots]

    def _element_of(self, words: Array) -> Array:
        """The elements of the shape of the words, the components of each last."""
        words = np.asarray(words)
        packing = self._field.packing
        numbers = [packed_arrays.load(packing, slot, words) for slot in self._slots()]
        return np.stack(numbers, -1).reshape((*words.shape, *self._field.element_shape))

    def _with_element(self, words: Array, shift: Any, elements: Array) -> Array:
        packing, slots = self._field.packing, self._slots()
        flat = elements.reshape((*words.shape, -1))
        numbers = [np.ascontiguousarray(flat[..., number]) for number in range(len(slots))]
        held = packed_arrays.store(packing, slots, np.asarray(words >> shift), numbers)
        if not self._is_array():
            return held
        mask = words.dtype.type((1 << packing.slots[0].width) - 1)
        return np.asarray((words & ~(mask << shift)) | ((held & mask) << shift))

    # -- several elements in a word -------------------------------------------------------------

    def _is_array(self) -> bool:
        return math.prod(self._field.inner) > 1

    def _word_of(self, index: ElementRange) -> tuple[ElementRange, Any]:
        """The index of the word of an element, and how far on in it that is."""
        field = self._field
        pairs = list(zip(index, field.inner, strict=False))
        where = tuple(pairs[axis][0] // pairs[axis][1] for axis in field.word_axes)
        return where, self._shift(tuple(k % count for k, count in pairs))

    def _shift(self, position: Sequence[int]) -> Any:
        """How far on in its word an element is, from its position along each axis."""
        packing, number = self._field.packing, 0
        for k, count in zip(position, self._field.inner, strict=True):
            number = number * count + k
        return packing.word.numpy.type(number * packing.slots[0].width)

    def _positions(self) -> Any:
        """Which elements are at each position in their words, as an index, and the shift."""
        inner = self._field.inner
        for position in np.ndindex(*inner):
            steps = zip(position, inner, strict=True)
            yield tuple(slice(k, None, count) for k, count in steps), self._shift(position)

    def _all_of(self, words: Array) -> Array:
        if not self._is_array():
            return self._element_of(words)
        numbers = np.empty(self.shape, self._field.dtype.numpy)
        for index, shift in self._positions():
            numbers[index] = self._element_of(words >> shift).reshape(numbers[index].shape)
        return numbers

    def _with_all(self, words: Array, numbers: Array) -> Array:
        if not self._is_array():
            return self._with_element(words, words.dtype.type(0), numbers)
        for index, shift in self._positions():
            words = self._with_element(words, shift, numbers[index].reshape(words.shape))
        return words

    # -- what is not there ----------------------------------------------------------------------

    def view(self, _: ElementRange = ()) -> None:
        """None: no memory holds the numbers as such."""

    part = view

    def interface(self) -> None:
        """None: other libraries cannot read the words."""

    def find(self, _: Any) -> None:
        """None, likewise."""

    def stands_like(self, _: Any) -> bool:
        """False: the elements are converted when they are copied."""
        return False


def make_quant_field(
    kind: QuantType,
    shape: Any,
    element_shape: tuple[int, ...],
    name: str,
    options: dict[str, Any],
) -> QuantField:
    """A quantised field, to be packed; see `field`.

    Raises:
        OctantsRuntimeError: a gradient is wanted.
        OctantsValueError: another option is given, which only `BitpackedFields` decides.
    """
    for option, companion in (("needs_grad", "gradient"), ("needs_dual", "dual")):
        if options.pop(option):
            raise NotDifferentiable("field", str(kind), companion).at()
    for option, value in {"shape": shape, **options}.items():
        if value is not None:
            advice = "`BitpackedFields` or `quant_array` places it: leave the option out"
            raise WrongArrayOption("quantised field", option, "cannot be given", advice).at()
    return QuantField(kind, element_shape, name)
