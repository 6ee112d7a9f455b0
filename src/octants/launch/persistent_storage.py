"""Allocates storage that outlives a launch: values that cross its tasks, and their adjoints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from octants import driver
from octants.diagnostics.tape_errors import WrongAdjointSeed
from octants.ir.core import Array, ArrayRef, Companion, Module, Space
from octants.launch.returned_values import make_value
from octants.launch.specialisation import Specialisation
from octants.lazy_dataclass import dataclass
from octants.runtime.device import Device
from octants.runtime.memory.array_access import Part, parts_of
from octants.runtime.memory.host import describe_bytes
from octants.types.specialisation_signature import ArgumentSource, ScalarType

PRIMAL, ADJOINT = Companion.PRIMAL, Companion.ADJOINT


@dataclass
class PersistentLayout:
    """Offsets in persistent storage, by the position of an array in the module.

    With several `adjoints`, those of an array are one after the other.
    """

    arrays: list[Array]
    adjoints: int = 1
    offsets: dict[tuple[int, Companion], int] = field(default_factory=dict)
    size: int = 0

    def add(self, module: Module, spaces: Sequence[Space], companion: Companion) -> None:
        """Assign offsets to the arrays of some spaces, or to their adjoints."""
        for position, array in enumerate(module.arrays):
            if array.space in spaces and (companion is PRIMAL or array.dtype.is_float):
                self.put(position, companion)

    def put(self, position: int, companion: Companion) -> None:
        """Assign an offset to an array, or to its adjoint."""
        self.offsets[position, companion] = self.size
        count = self.adjoints if companion is ADJOINT else 1
        self.size += count * self._step(position)

    def _step(self, position: int) -> int:
        """The bytes from one adjoint of an array to the next."""
        return -(-_bytes(self.arrays[position]) // 16) * 16

    def offset(self, position: int, companion: Companion, number: int = 0) -> int:
        """The offset of an array, or of one of its adjoints."""
        return self.offsets[position, companion] + number * self._step(position)

    def array_offsets(
        self, module: Module, adjoints: Mapping[int, Sequence[Array]] | None = None
    ) -> dict[ArrayRef, int]:
        """The offsets by array, for a module that is parallel to the layout's.

        ``adjoints`` has the arrays of the adjoints of an array, if there are several.
        """
        found = {
            ArrayRef(module.arrays[position], companion): offset
            for (position, companion), offset in self.offsets.items()
            if module.arrays[position].has(companion)
        }
        for position, arrays in (adjoints or {}).items():
            if (position, ADJOINT) in self.offsets:
                found |= {
                    ArrayRef(array, ADJOINT): self.offset(position, ADJOINT, number)
                    for number, array in enumerate(arrays)
                }
        return found


class PersistentStorage:
    """Zeroed storage with a `PersistentLayout` for one launch, in the memory of its device."""

    def __init__(self, layout: PersistentLayout, device: Device) -> None:
        self.layout = layout
        self._device = device
        self._memory = device.allocate(layout.size)
        self.address = self._memory.address
        self.parts = parts_of(device)

    def part(self, position: int, companion: Companion = PRIMAL, number: int = 0) -> Part:
        """The memory of the array at a position, as a part of `runtime.memory.array_access`.

        ``number`` is that of the adjoint, if there are several.
        """
        start = self.layout.offset(position, companion, number)
        array = self.layout.arrays[position]
        memory = describe_bytes(self.address, self.layout.size, self._memory)
        return memory[start : start + _bytes(array)].view(array.dtype.numpy)

    def numbers(
        self, position: int, companion: Companion = PRIMAL, number: int = 0
    ) -> np.ndarray[Any, Any]:
        """The elements of the array at a position."""
        return self.parts.read(self.part(position, companion, number))

    def clear(self) -> None:
        """Zero all of it."""
        self._device.clear(self.address, self.layout.size)

    def seed(self, specialisation: Specialisation, seed: Any = None) -> None:
        """Set the adjoints of what the kernel returns: to one, or to a seed for each value.

        If there are several adjoints, a seed has a first axis for them.
        """
        arrays, positions = specialisation.arrays, specialisation.returned
        if seed is None:
            seeds = [1.0] * len(positions)
        else:
            seeds = list(seed) if specialisation.returns_tuple else [seed]
        kernel = specialisation.signature.kernel
        if len(seeds) != len(positions):
            problem = f"its length is {len(seeds)}, but the kernel returns {len(positions)} values"
            raise WrongAdjointSeed(f"kernel `{kernel}`", problem).at()
        for position, given in zip(positions, seeds, strict=True):
            if (position, ADJOINT) in self.layout.offsets:
                shape = arrays[position].element_shape
                count = self.layout.adjoints
                if count > 1:
                    shape = (count, *shape)
                values = adjoint_seed(f"what kernel `{kernel}` returns", given, shape)
                for number, each in enumerate(values.reshape(count, -1)):
                    self.parts.write(self.part(position, ADJOINT, number), each)

    def results(self, specialisation: Specialisation) -> tuple[Any, ...]:
        """The flat results of a kernel, which its steps have stored here."""
        flat: list[Any] = []
        for position in specialisation.returned:
            flat += self.numbers(position).tolist()
        return tuple(flat)


def _bytes(array: Array) -> int:
    return math.prod(array.element_shape) * array.dtype.size


def adjoint_seed(what: str, given: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Convert a seed to an array of f64; one number stands for all elements."""
    try:
        values = given.to_numpy() if hasattr(given, "to_numpy") else given
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise WrongAdjointSeed(what, f"a {type(given).__name__} is not a number").at() from None
    if numbers.shape not in ((), shape):
        raise WrongAdjointSeed(what, f"its shape is {numbers.shape}, not {shape}").at()
    return np.broadcast_to(numbers, shape)


def argument_gradients(
    specialisation: Specialisation, persistent: PersistentStorage | None, adjoints: int = 1
) -> dict[str, Any]:
    """The gradients of float arguments that are passed by value, by the names of the parameters.

    They are numbers, vectors or matrices of the arguments' types; a member of a struct has the name
    ``struct.member``. If there are several adjoints, they are arrays with a first axis for them.
    """
    driver.state.synchronize()
    sources = enumerate(specialisation.sources)
    array_offsets = {(s.position, s.path): k for k, s in sources if isinstance(s, ArgumentSource)}
    found = {}
    for path, leaf in specialisation.leaves.items():
        kind = leaf.annotation
        is_hidden = leaf.position >= len(specialisation.signature.names)
        if isinstance(kind, ScalarType) and kind.dtype.is_float and not is_hidden:
            found[leaf.name] = _argument_gradient(
                kind, array_offsets.get(path, -1), persistent, adjoints
            )
    return found


def _argument_gradient(
    kind: ScalarType, position: int, persistent: PersistentStorage | None, adjoints: int
) -> Any:
    """The gradient of an argument at a position of the module's arrays; zero if it has none."""
    found = []
    for number in range(adjoints):
        numbers = [0.0] * math.prod(kind.element_shape)
        if persistent is not None and (position, ADJOINT) in persistent.layout.offsets:
            numbers = persistent.numbers(position, ADJOINT, number).tolist()
        found.append(make_value(kind, numbers))
    return found[0] if adjoints == 1 else np.stack(found)
