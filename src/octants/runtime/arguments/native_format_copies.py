"""Copies numpy arrays that kernels cannot access before a launch, and back after it.

These are arrays with swapped bytes or unaligned addresses. Arrays that the kernel may write are
copied back also when the launch fails, so that they are as the kernel left them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from octants.runtime.arguments.parameters import Leaf, is_torch
from octants.runtime.capture import refuse
from octants.runtime.memory.host import address_of, shares_memory, view_memory
from octants.types.companions import Companion
from octants.types.specialisation_signature import NdarrayHandle

NumpyArray = np.ndarray[Any, Any]
Launch = Callable[..., tuple[Any, ...]]


def launch_on_native_copies(
    launch: Launch,
    copied: Sequence[tuple[Leaf, bool]],
    others: Sequence[tuple[Leaf, bool]],
    replace: Callable[[Sequence[Any], Leaf, Any], Sequence[Any]],
) -> Launch:
    """Wrap a launch function, so that it gets copies of some arguments.

    Args:
        launch: The launch function.
        copied: The array arguments to copy, each with whether the kernel writes it.
        others: The other array arguments, likewise.
        replace: Returns the arguments with another value for one leaf.
    """

    def launch_on_copies(
        seed: int, number: int, persistent: int, *arguments: Any
    ) -> tuple[Any, ...]:
        refuse(
            "an array cannot be copied for a launch, as its bytes or addresses require",
            "pass a field or an ndarray",
        )
        _check_overlaps(copied, others, arguments)
        pairs: dict[Any, tuple[NumpyArray, NumpyArray]] = {}
        replaced: Sequence[Any] = arguments
        for leaf, _ in copied:
            array = leaf.value(arguments)
            _, copy = pairs.setdefault(identity(array), (array, _native_copy(array)))
            replaced = replace(replaced, leaf, copy)
        try:
            return launch(seed, number, persistent, *replaced)
        finally:
            for key in {identity(leaf.value(arguments)) for leaf, written in copied if written}:
                array, copy = pairs[key]
                array[...] = copy

    return launch_on_copies


def _native_copy(array: NumpyArray) -> NumpyArray:
    copy: NumpyArray = array.astype(array.dtype.newbyteorder("="), order="C", copy=True)
    return copy


def identity(array: NumpyArray) -> Any:
    """A key that is equal for arrays with the same elements in the same order."""
    return address_of(array), array.shape, array.strides, array.dtype


def _check_overlaps(
    copied: Sequence[tuple[Leaf, bool]],
    others: Sequence[tuple[Leaf, bool]],
    arguments: Sequence[Any],
) -> None:
    """Refuse arguments that share memory, if one is copied and one is written."""
    for position, (leaf, written) in enumerate(copied):
        array = leaf.value(arguments)
        for other, other_written in [*copied[position + 1 :], *others]:
            if not (written or other_written):
                continue
            value = _elements(other.value(arguments))
            if identity(value) != identity(array) and shares_memory(array, value):
                raise leaf.error(
                    f"it shares memory with `{other.name}`, but has swapped bytes or odd addresses,"
                    " and one of them is written",
                    "pass arrays that do not overlap",
                )


def _elements(value: Any) -> NumpyArray:
    """The memory of an array argument as a numpy array."""
    if isinstance(value, np.ndarray):
        return value
    if is_torch(type(value)):
        elements: NumpyArray = value.detach().numpy()
        return elements
    assert isinstance(value, NdarrayHandle)
    kind = value.argument_type
    shape = (*value.shape, *kind.element_shape)
    return view_memory(value.address(Companion.PRIMAL), kind.dtype.numpy, shape)
