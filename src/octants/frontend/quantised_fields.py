"""Quantised fields in kernels: numbers that share words; see `mathlib.packed_numbers`.

A `PackedArray` stands in references for the field, and never reaches the module: a load becomes a
load of the word and arithmetic, a store or an atomic a compare-exchange loop on the word::

    %0: u32 = load<@words, primal>(%i)
    %1: u32 = while(%0 ...) { compare_exchange<@words, primal>(%old, %new, %i) }

Serial code, where no other work item can change the word meanwhile, stores it without a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from octants.diagnostics.errors import NotCompileTime
from octants.frontend.context import Context
from octants.frontend.expression_values import ArrayReference, ElementReference, MatrixValue
from octants.ir.core import Array, Block, Companion, Space, Value
from octants.lazy_dataclass import dataclass
from octants.mathlib import packed_numbers
from octants.types.layouts import Layout
from octants.types.quantised_types import BitPosition
from octants.types.scalars import u1
from octants.types.specialisation_signature import QuantHandle


@dataclass(eq=False, slots=True)
class PackedArray(Array):
    """A quantised field: `words` has its words, `handle` says where in them its numbers are."""

    words: Array = None  # type: ignore[assignment]
    handle: QuantHandle = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class _Word:
    """The word of an element; with a `shift`, the number is so many bits further on."""

    array: Array
    indices: list[Value]
    shift: Value | None


def reference(words: ArrayReference, handle: QuantHandle) -> ArrayReference:
    """What a quantised field stands for."""
    layouts: dict[Companion, Any] = {Companion.PRIMAL: Layout(handle.shape, ())}
    array = PackedArray(
        words.array.name,
        handle.dtype,
        len(handle.shape),
        Space.FIELD,
        handle.element_shape,
        layouts,
        words=words.array,
        handle=handle,
    )
    return ArrayReference(array, handle=handle)


def load(context: Context, reference: ElementReference) -> Any:
    """The value of an element of a quantised field, or of components of it."""
    word = _word(context, reference)
    held = _moved(context, word, context.builder.load(word.array, word.indices))
    return _numbers(context, reference, held)


def store(context: Context, reference: ElementReference, values: Sequence[Value]) -> None:
    """Store a number for each component of a reference."""
    packing, slots = _packing(reference), _slots(context, reference)
    build = context.builder
    _update(
        context, reference, lambda word: packed_numbers.store(build, packing, slots, word, values)
    )


def atomic(context: Context, fn: str, reference: ElementReference, values: Sequence[Value]) -> Any:
    """An atomic operation, component by component; gives the value before."""
    packing, slots = _packing(reference), _slots(context, reference)
    build = context.builder
    if fn == "sub":
        fn, values = "add", [build.unary("neg", value) for value in values]

    def change(word: Value) -> Value:
        if fn == "add":
            for slot, value in zip(slots, values, strict=True):
                word = packed_numbers.add(build, packing, slot, word, value)
            return word
        after = values
        if fn != "exchange":
            old = [packed_numbers.load(build, slot, word) for slot in slots]
            after = [build.binary(fn, x, value) for x, value in zip(old, values, strict=True)]
        stored: Value = packed_numbers.store(build, packing, slots, word, after)
        return stored

    return _numbers(context, reference, _update(context, reference, change))


def _numbers(context: Context, reference: ElementReference, word: Value) -> Any:
    slots = _slots(context, reference)
    numbers = [packed_numbers.load(context.builder, slot, word) for slot in slots]
    return MatrixValue(reference.shape, numbers) if reference.shape else numbers[0]


def _update(
    context: Context, reference: ElementReference, change: Callable[[Value], Value]
) -> Value:
    """Change the word of an element, with the element's bits first; gives the word before."""
    word, build = _word(context, reference), context.builder

    def changed(whole: Value) -> Value:
        held = change(_moved(context, word, whole))
        if word.shift is None:
            return held
        return _moved_back(context, word, whole, held, _packing(reference).slots[0])

    before = build.load(word.array, word.indices)
    if context.item is None and not context.group:
        build.store(word.array, word.indices, changed(before))
    else:
        before = _exchange_loop(context, word, before, changed)
    return _moved(context, word, before)


def _exchange_loop(
    context: Context, word: _Word, first: Value, changed: Callable[[Value], Value]
) -> Value:
    """Change a word until nothing else has changed it meanwhile; gives the word before."""
    build = context.builder
    check = Block([Value(first.type), Value(u1)])
    with build.into(check):
        build.yield_([build.unary("not", check.args[1])])
    body = Block([Value(first.type), Value(u1)])
    with build.into(body):
        expected = body.args[0]
        found = build.compare_exchange(word.array, word.indices, expected, changed(expected))
        build.yield_([found, build.compare("eq", found, expected)])
    loop = build.while_([first, build.constant(False, u1)], check, body)
    return loop.results[0]


# -- where numbers are -----------------------------------------------------------------------------


def _packed(reference: ElementReference) -> PackedArray:
    assert isinstance(reference.array, PackedArray)
    return reference.array


def _packing(reference: ElementReference) -> Any:
    return _packed(reference).handle.packing


def _slots(context: Context, reference: ElementReference) -> list[BitPosition]:
    """The slot of each component of a reference."""
    array = _packed(reference)
    columns = array.element_shape[-1] if array.element_shape else 1
    slots = []
    for component in reference.components:
        position = 0
        for k in component:
            if not isinstance(k, int):
                context.fail(NotCompileTime("the index of a component of a quantised field"))
            position = position * columns + k
        slots.append(array.handle.packing.slots[array.handle.slots[position]])
    return slots


def _word(context: Context, reference: ElementReference) -> _Word:
    """The word of an element: in a `quant_array`, several elements along an axis share one."""
    array, build = _packed(reference), context.builder
    handle = array.handle
    indices: list[Value] = []
    position: Value | None = None
    for axis, (index, count) in enumerate(zip(reference.indices, handle.inner, strict=True)):
        inner = index
        if axis in handle.word_axes:
            divisor = build.constant(count, index.type)
            indices.append(build.binary("floordiv", index, divisor) if count > 1 else index)
            inner = build.binary("mod", index, divisor)
        elif context.debug:
            _check(context, array, axis, index)
        if count > 1:
            inner = build.cast(inner, array.words.dtype)
            factor = build.constant(count, inner.type)
            outer = None if position is None else build.binary("mul", position, factor)
            position = inner if outer is None else build.binary("add", outer, inner)
    if position is None:
        return _Word(array.words, indices, None)
    width = build.constant(handle.packing.slots[0].width, position.type)
    return _Word(array.words, indices, build.binary("mul", position, width))


def _check(context: Context, array: PackedArray, axis: int, index: Value) -> None:
    """The bounds of an axis that the words do not have."""
    build, extent = context.builder, array.handle.shape[axis]
    not_below = build.compare("ge", index, build.constant(0, index.type))
    below = build.compare("lt", index, build.constant(extent, index.type))
    name = array.handle.name or array.name
    message = f"index {{}} is out of bounds for axis {axis} of `{name}`, whose extent is {extent}"
    build.assert_("bounds", message, build.binary("and", not_below, below), [index])


def _moved(context: Context, word: _Word, whole: Value) -> Value:
    """A word with the bits of the element first."""
    return whole if word.shift is None else context.builder.binary("ushr", whole, word.shift)


def _moved_back(
    context: Context, word: _Word, whole: Value, held: Value, slot: BitPosition
) -> Value:
    """A word with the first bits of another in place of those of the element."""
    build, dtype = context.builder, whole.type
    assert word.shift is not None
    mask = build.constant((1 << slot.width) - 1, dtype)
    others = build.unary("not", build.binary("shl", mask, word.shift))
    new = build.binary("shl", build.binary("and", held, mask), word.shift)
    return build.binary("or", build.binary("and", whole, others), new)
