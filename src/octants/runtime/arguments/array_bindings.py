"""The sources of a kernel's arrays in a launch, and the kinds of array arguments."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from octants.artifact import ParameterLayout
from octants.cached_property import cached_property
from octants.ir.core import Array, ArrayRef
from octants.lazy_dataclass import dataclass
from octants.runtime.arguments.conversions import (
    needs_copy,
)
from octants.runtime.arguments.frozen_structs import FrozenStruct
from octants.runtime.arguments.parameters import Leaf, has_interface, is_torch
from octants.runtime.device import Device
from octants.runtime.parameter_blocks.segments import (
    LAUNCH,
)
from octants.types.specialisation_signature import (
    ArgumentSource,
    ArraySource,
    NdarrayHandle,
)


@dataclass(frozen=True)
class Binding:
    """The sources of a kernel's arrays in a launch, from which the launch function is generated.

    `sources` is parallel to `arrays`. `leaves` maps the (position, path) of an argument to its
    leaf, `kinds` to the kind of the array that is given there. `results` are read back after the
    launch, in order. `persistent` has the offsets of arrays in storage of the caller. `written` are
    the arrays whose primal contents the code may change. `accessed` is everything that it touches:
    a gradient that it does not access is not created. `structs` are frozen structs among the
    arguments. `disjoint` are array references that the code writes, and that must share memory with
    nothing else that it accesses.
    """

    parameters: ParameterLayout
    arrays: Sequence[Array]
    sources: Sequence[ArraySource]
    count: int
    leaves: Mapping[tuple[int, tuple[str, ...]], Leaf]
    kinds: Mapping[tuple[int, tuple[str, ...]], ArrayKind]
    results: Sequence[ArrayRef] = ()
    persistent: Mapping[ArrayRef, int] = field(default_factory=dict)
    written: Collection[Array] = ()
    accessed: Collection[ArrayRef] = ()
    structs: Sequence[FrozenStruct] = ()
    disjoint: Collection[ArrayRef] = ()

    def source(self, array: Array) -> ArraySource:
        return self._source_of[array]

    @cached_property
    def _source_of(self) -> dict[Array, ArraySource]:
        return dict(zip(self.arrays, self.sources, strict=True))

    def leaf(self, array: Array) -> Leaf:
        source = self.source(array)
        assert isinstance(source, ArgumentSource)
        return self.leaves[source.position, source.path]

    def kind(self, array: Array) -> ArrayKind:
        source = self.source(array)
        assert isinstance(source, ArgumentSource)
        return self.kinds[source.position, source.path]

    def change(self, array: Array) -> int:
        """When the address of an ndarray changes; see `runtime.parameter_blocks.segments`."""
        leaf = self.leaf(array)
        return self._struct_numbers.get((leaf.position, leaf.path), LAUNCH)

    @cached_property
    def _struct_numbers(self) -> dict[tuple[int, tuple[str, ...]], int]:
        return {
            (leaf.position, leaf.path): number
            for number, struct in enumerate(self.structs)
            for leaf in struct.leaves
        }


ArrayKind = str
"""The kinds of array arguments:

* "octants": an ndarray of Octants;
* "numpy" or "torch": an array of that library in memory that kernels can access;
* "copied": a numpy array with swapped bytes or an unaligned address, which kernels cannot access;
* "staged": an array of the host, where the device has its own memory;
* "interface": an array of another library in the device's memory.
"""

COPIED = frozenset(("copied", "staged"))
"""The kinds of which a launch gets staging copies (`runtime.arguments.staging_copies`)."""


def kind_of(value: Any, device: Device) -> ArrayKind:
    """The kind of an argument; "" for anything but an array."""
    if isinstance(value, NdarrayHandle):
        return "octants"
    if isinstance(value, np.ndarray):
        if not device.shares_memory:
            return "staged"
        return "copied" if needs_copy(value) else "numpy"
    if is_torch(type(value)):
        return "torch" if device.shares_memory or value.device.type != "cpu" else "staged"
    return "interface" if has_interface(type(value)) and not device.shares_memory else ""
