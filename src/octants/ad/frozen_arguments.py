"""Arguments as they were at a launch, for the reverse run: later changes do not reach them."""

from __future__ import annotations

from typing import Any

from octants.launch.specialisation import Specialisation
from octants.runtime.arguments.conversions import to_array
from octants.runtime.arguments.parameters import Annotation, StructAnnotation
from octants.types.signature import ScalarType


class Frozen:
    """The members of a struct argument."""

    def __init__(self, members: dict[str, Any]) -> None:
        self.__dict__.update(members)


def freeze(specialisation: Specialisation, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with copies of vectors and structs; arrays and templates stay what they are."""
    annotations = specialisation.signature.annotations
    hidden = arguments[len(annotations) :]
    return *map(_freeze, annotations, arguments), *hidden


def _freeze(annotation: Annotation, value: Any) -> Any:
    if isinstance(annotation, StructAnnotation):
        return Frozen(
            {name: _freeze(member, getattr(value, name)) for name, member in annotation.members}
        )
    if isinstance(annotation, ScalarType) and annotation.element_shape:
        return to_array(value)
    return value
