"""Finds the device that a kernel runs on: that of its arrays, and without arrays that of `init`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from octants import driver
from octants.diagnostics.launch_errors import ArraysOnTwoDevices
from octants.diagnostics.user_frames import user_span
from octants.lazy_dataclass import dataclass
from octants.runtime.arguments.parameters import Leaf, has_interface, is_torch
from octants.types.specialisation_signature import FieldHandle, FieldSource, NdarrayHandle


@dataclass(frozen=True)
class ArrayOnDevice:
    """The number of the device that an array is on, with its name for messages."""

    number: int
    name: str


def device_of_array(value: Any) -> int | None:
    """The number of the device that an array is on.

    None for anything else, and for arrays that a launch copies, or of which it finds out.
    """
    if isinstance(value, (NdarrayHandle, FieldHandle)):
        return value.device
    is_foreign = is_torch(type(value)) or has_interface(type(value))
    return driver.device().number_of(value) if is_foreign else None


def arrays_of_arguments(leaves: Sequence[Leaf], arguments: Sequence[Any]) -> list[ArrayOnDevice]:
    """The devices of the arrays among the arguments."""
    found = ((device_of_array(leaf.value(arguments)), leaf.name) for leaf in leaves)
    return [ArrayOnDevice(number, name) for number, name in found if number is not None]


def arrays_of_fields(names: Iterable[str], sources: Iterable[Any]) -> list[ArrayOnDevice]:
    """The devices of the fields, and captured ndarrays, that a kernel uses."""
    return [
        ArrayOnDevice(source.field.device, name)
        for name, source in zip(names, sources, strict=True)
        if isinstance(source, FieldSource)
    ]


def common_device(kernel: str, arrays: Sequence[ArrayOnDevice]) -> int:
    """The number of the device of all these arrays; that of `init` if there are none.

    Raises:
        OctantsRuntimeError: they are on two devices.
    """
    for other in arrays[1:]:
        if other.number != arrays[0].number:
            one = arrays[0]
            error = ArraysOnTwoDevices(kernel, one.name, one.number, other.name, other.number)
            raise error.at(user_span())
    return arrays[0].number if arrays else driver.device().number
