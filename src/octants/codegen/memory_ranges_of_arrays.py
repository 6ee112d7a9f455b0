"""Memory ranges of a kernel's arrays, as positions in its parameter block."""

from __future__ import annotations

import math

from octants.artifact import MemoryRange, ParameterLayout, Slot
from octants.ir import ops
from octants.ir.core import Array, ArrayRef, Companion, Module, Space
from octants.types.layouts import Layout


def written_arrays(module: Module) -> set[Array]:
    """Return the arrays whose primal values the module may write."""
    written = _written(module)
    return {array.whole for array, companion in written if companion is Companion.PRIMAL}


def written_ranges(module: Module, parameters: ParameterLayout) -> tuple[MemoryRange, ...]:
    """Return the memory ranges that a module may write: arrays and their companions."""
    found = {
        range_of(array, companion, module.arrays, parameters): None
        for array, companion in _written(module)
        if array.space in (Space.FIELD, Space.NDARRAY)
    }
    return tuple(found)


def _written(module: Module) -> dict[ArrayRef, None]:
    written = (op for op in module.walk() if isinstance(op, ops.Write))
    return {op.ref.whole: None for op in written}


def range_of(
    array: Array, companion: Companion, arrays: list[Array], parameters: ParameterLayout
) -> MemoryRange:
    """Return the memory range of an array, or of one of its companions."""
    slot = Slot("pointer", array=arrays.index(array.whole), companion=companion)
    layout = array.layouts[companion]
    nbytes = 0
    if isinstance(layout, Layout):
        spanned = layout.spanned_bytes(array.element_shape, array.dtype.size)
        nbytes = max(0, spanned) if math.prod(layout.shape) else 1
    return MemoryRange(parameters.position(slot), nbytes)
