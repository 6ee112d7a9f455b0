"""Quantised fields in kernels: numbers that share words; see `mathlib.packed_numbers`.

A `PackedArray` stands in references for the field, and never reaches the module: a load becomes a
load of the word and arithmetic, a store or an atomic a compare-exchange loop on the word::

    %0: u32 = load<@words, primal>(%i)
    %1: u32 = while(%0 ...) { compare_exchange<@words, primal>(%old, %new, %i) }

Serial code, where no other work item can change the word meanwhile, stores it without a loop.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from octants.frontend.context import Context
from octants.frontend.values.expression_values import ArrayReference, ElementReference, MatrixValue
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


Choices = Sequence[tuple["Value | None", BitPosition]]
"""The slots that a component may have: one without a condition, or each with its own."""


def reference(words: ArrayReference, handle: QuantHandle) -> ArrayReference:
    """The reference that a quantised field stands for."""
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
    return _numbers(context, reference, held, _slots(context, reference))


def store(context: Context, reference: ElementReference, values: Sequence[Value]) -> None:
    """Store a number for each component of a reference."""
    slots = _slots(context, reference)
    _update(context, reference, lambda word: _stored(context, reference, slots, word, values))


def atomic(context: Context, fn: str, reference: ElementReference, values: Sequence[Value]) -> Any:
    """An atomic operation, component by component; gives the value before."""
    slots, build = _slots(context, reference), context.builder
    if fn == "sub":
        fn, values = "add", [build.unary("neg", value) for value in values]

    def change(word: Value) -> Value:
        if fn == "add":
            add = functools.partial(packed_numbers.add, build, _packing(reference))
            for choices, value in zip(slots, values, strict=True):
                word = _changed(context, choices, word, functools.partial(add, number=value))
            return word
        after = values
        if fn != "exchange":
            old = [_number(context, choices, word) for choices in slots]
            after = [build.binary(fn, x, value) for x, value in zip(old, values, strict=True)]
        return _stored(context, reference, slots, word, after)

    return _numbers(context, reference, _update(context, reference, change), slots)


def _numbers(
    context: Context, reference: ElementReference, word: Value, slots: Sequence[Choices]
) -> Any:
    numbers = [_number(context, choices, word) for choices in slots]
    return MatrixValue(reference.shape, numbers) if reference.shape else numbers[0]


def _number(context: Context, choices: Choices, word: Value) -> Value:
    """The number of a component; at an index that no component has, that of the last one."""
    (_, last), *others = reversed(choices)
    number: Value = packed_numbers.load(context.builder, last, word)
    for is_chosen, slot in others:
        assert is_chosen is not None  # there are several
        other = packed_numbers.load(context.builder, slot, word)
        number = context.builder.select(is_chosen, other, number)
    return number


def _changed(
    context: Context, choices: Choices, word: Value, change: Callable[[BitPosition, Value], Value]
) -> Value:
    """The word with the slot of a component changed; as it was, if no component is chosen."""
    new = word
    for is_chosen, slot in choices:
        other = change(slot, word)
        new = other if is_chosen is None else context.builder.select(is_chosen, other, new)
    return new


def _stored(
    context: Context,
    reference: ElementReference,
    slots: Sequence[Choices],
    word: Value,
    values: Sequence[Value],
) -> Value:
    """The word with numbers stored: together, unless an index of a component is a run-time one."""
    build, packing = context.builder, _packing(reference)
    if all(len(choices) == 1 for choices in slots):
        fixed = [slot for ((_, slot),) in slots]
        together: Value = packed_numbers.store(build, packing, fixed, word, values)
        return together
    for choices, value in zip(slots, values, strict=True):

        def change(slot: BitPosition, held: Value, value: Value = value) -> Value:
            new: Value = packed_numbers.store(build, packing, [slot], held, [value])
            return new

        word = _changed(context, choices, word, change)
    return word


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


def _slots(context: Context, reference: ElementReference) -> list[Choices]:
    """The slots that each component of a reference may have."""
    array = _packed(reference)
    if context.debug:
        _check_components(context, reference)
    return [_choices(context, array, component) for component in reference.components]


def _choices(context: Context, array: PackedArray, component: tuple[int | Value, ...]) -> Choices:
    """The slots of a component, each with the condition that it is the one of run-time indices."""
    build, packing = context.builder, array.handle.packing
    choices: list[tuple[Value | None, BitPosition]] = []
    positions = itertools.product(*map(range, array.element_shape))
    for slot, position in zip(array.handle.slots, positions, strict=True):
        conditions = []
        for index, k in zip(component, position, strict=True):
            if isinstance(index, Value):
                conditions.append(build.compare("eq", index, build.constant(k, index.type)))
            elif index != k:
                break
        else:
            both = functools.partial(build.binary, "and")
            chosen = functools.reduce(both, conditions) if conditions else None
            choices.append((chosen, packing.slots[slot]))
    return choices


def _check_components(context: Context, reference: ElementReference) -> None:
    """The bounds of components that are indexed at run time."""
    array = _packed(reference)
    for component in reference.components:
        for axis, (index, extent) in enumerate(zip(component, array.element_shape, strict=True)):
            if isinstance(index, Value):
                _require_in_range(context, index, extent, f"axis {axis} of an element of", array)


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
            _require_in_range(context, index, handle.shape[axis], f"axis {axis} of", array)
        if count > 1:
            inner = build.cast(inner, array.words.dtype)
            factor = build.constant(count, inner.type)
            outer = None if position is None else build.binary("mul", position, factor)
            position = inner if outer is None else build.binary("add", outer, inner)
    if position is None:
        return _Word(array.words, indices, None)
    width = build.constant(handle.packing.slots[0].width, position.type)
    return _Word(array.words, indices, build.binary("mul", position, width))


def _require_in_range(
    context: Context, index: Value, extent: int, axis: str, array: PackedArray
) -> None:
    """Check an index that the words do not have."""
    build = context.builder
    not_below = build.compare("ge", index, build.constant(0, index.type))
    below = build.compare("lt", index, build.constant(extent, index.type))
    name = array.handle.name or array.name
    message = f"index {{}} is out of bounds for {axis} `{name}`, whose extent is {extent}"
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
