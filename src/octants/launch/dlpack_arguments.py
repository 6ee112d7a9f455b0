"""Imports arguments that offer only DLPack as numpy arrays, such as those of JAX on the CPU.

What stands for an ndarray of Octants, in its attribute `octants_ndarray`, becomes that.
Nothing is copied. An array that its library holds read-only, as JAX does, stays so: a kernel that
writes it is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from octants.runtime.arguments.argument_replacement import replace
from octants.runtime.arguments.conversions import describe
from octants.runtime.arguments.parameters import Leaf, is_torch
from octants.types.parameter_annotations import AnyTensor, NdarrayAnnotation
from octants.types.specialisation_signature import (
    FieldHandle,
    NdarrayHandle,
    QuantHandle,
    StructHandle,
)

_HANDLES = (FieldHandle, NdarrayHandle, QuantHandle, StructHandle)
_CPU = 1  # DLPack's kind of CPU memory
_known: dict[type, bool] = {}


def import_arguments(leaves: Sequence[Leaf], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace arrays of libraries other than numpy and torch by numpy views."""
    found: Sequence[Any] = arguments
    for leaf in leaves:
        if isinstance(leaf.annotation, (NdarrayAnnotation, AnyTensor)):
            value = leaf.value(arguments)
            if hasattr(type(value), "octants_ndarray"):
                found = replace(found, leaf, value.octants_ndarray)
            elif _is_imported(type(value)) and value.__dlpack_device__()[0] == _CPU:
                found = replace(found, leaf, _view(leaf, value))
    return tuple(found)


def _is_imported(kind: type) -> bool:
    if kind not in _known:
        ours = issubclass(kind, (*_HANDLES, np.ndarray))
        offers = hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__")
        _known[kind] = offers and not ours and not is_torch(kind)
    return _known[kind]


def _view(leaf: Leaf, value: Any) -> Any:
    try:
        return np.from_dlpack(value)
    except (BufferError, TypeError, RuntimeError) as error:
        problem = f"{describe(value)} cannot be shared: {error}"
        raise leaf.error(problem, "pass a copy, such as `np.array(x)`") from None
