"""Copies arguments at a launch, so that later changes do not reach the reverse kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from octants.launch.specialisation import Specialisation
from octants.runtime.arguments.conversions import to_array
from octants.runtime.arguments.parameters import Annotation, StructAnnotation
from octants.types.specialisation_signature import ScalarType


class StructCopy:
    """A copy of the members of a struct argument."""

    def __init__(self, members: dict[str, Any]) -> None:
        self.__dict__.update(members)


def freeze(specialisation: Specialisation, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copy the vectors and structs among the arguments of a launch.

    Arrays of numpy become views, whose type and shape nothing changes in place.

    Args:
        specialisation: the kernel that is launched.
        arguments: its arguments, then the values of hidden arguments.

    Returns:
        The arguments with copies; other arrays and templates are passed through.
    """
    annotations = specialisation.signature.annotations
    hidden = arguments[len(annotations) :]
    return *map(_freeze, annotations, arguments), *map(_view, hidden)


def _freeze(annotation: Annotation, value: Any) -> Any:
    if isinstance(annotation, StructAnnotation):
        return StructCopy(
            {name: _freeze(member, getattr(value, name)) for name, member in annotation.members}
        )
    if isinstance(annotation, ScalarType) and annotation.element_shape:
        return to_array(value)
    return _view(value)


def _view(value: Any) -> Any:
    return value.view() if isinstance(value, np.ndarray) else value
