"""The numbers of quantised types in arrays of words, on the host: `packed_numbers` for numpy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from octants.ir.builder import Builder
from octants.ir.core import Block, Value
from octants.mathlib import packed_numbers
from octants.mathlib.evaluate_with_numpy import translate
from octants.types.quantised_types import BitPosition, Packing

Array = np.ndarray[Any, Any]


def load(packing: Packing, slot: BitPosition, words: Array) -> Array:
    """The numbers that words have in a slot."""
    found: Array = _loading(packing, slot)(words.reshape(-1))
    return np.asarray(found.reshape(words.shape))


def store(
    packing: Packing, slots: Sequence[BitPosition], words: Array, numbers: Sequence[Array]
) -> Array:
    """The words with other numbers in some slots."""
    flat = [array.reshape(-1) for array in (words, *numbers)]
    found: Array = _describe_storing(packing, tuple(slots))(*flat)
    return np.asarray(found.reshape(words.shape))


@functools.cache
def _loading(packing: Packing, slot: BitPosition) -> Callable[..., Any]:
    builder, block = Builder(), Block([Value(packing.word)])
    with builder.into(block):
        builder.yield_([packed_numbers.load(builder, slot, *block.args)])
    return translate(block)


@functools.cache
def _describe_storing(packing: Packing, slots: tuple[BitPosition, ...]) -> Callable[..., Any]:
    builder = Builder()
    block = Block([Value(packing.word), *(Value(slot.kind.dtype) for slot in slots)])
    with builder.into(block):
        word, *numbers = block.args
        builder.yield_([packed_numbers.store(builder, packing, slots, word, numbers)])
    return translate(block)
