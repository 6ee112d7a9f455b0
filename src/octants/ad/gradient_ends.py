"""Warns where a gradient silently ends: at an array without one, in a launch or between two."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from octants.deferred_import import Deferred
from octants.diagnostics.exceptions import OctantsWarning
from octants.diagnostics.user_frames import levels_to_the_user
from octants.ir.core import Array, Companion, Module, Space
from octants.launch.bound_code import written_arrays
from octants.launch.specialisation import Specialisation
from octants.launch.taped_memory import TapedMemory
from octants.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from octants.autodiff import gradient_ends
    from octants.ir import ops
else:
    gradient_ends, ops = Deferred("octants.autodiff.gradient_ends"), Deferred("octants.ir.ops")

PRIMAL, ADJOINT = Companion.PRIMAL, Companion.ADJOINT


@dataclass(frozen=True)
class GradientFlow:
    """The float arrays of a kernel, by position: read or written, with a gradient or without.

    `ends_within` are arrays without a gradient that the kernel writes and reads back.
    """

    reads_active: frozenset[int]
    reads_plain: frozenset[int]
    writes_active: frozenset[int]
    writes_plain: frozenset[int]
    ends_within: tuple[int, ...] = ()

    @property
    def may_end(self) -> bool:
        """Whether a launch ends a gradient, or lets later launches end one."""
        return bool(self.ends_within or (self.reads_active and self.writes_plain))


class GradientEnds:
    """The arrays without gradients whose values depend on arrays with gradients.

    `holds` maps their keys to their names.
    """

    def __init__(self) -> None:
        self.holds: dict[Any, str] = {}
        self._warned: set[Any] = set()

    def observe(self, specialisation: Specialisation, memories: Mapping[int, TapedMemory]) -> None:
        """Warn if a launch reads such an array and writes one with a gradient.

        Args:
            specialisation: the kernel that is launched.
            memories: its arrays, by position.
        """
        flow = flow_of(specialisation)
        reads = [memories[k] for k in sorted(flow.reads_plain) if memories[k].key in self.holds]
        if flow.writes_active:
            for memory in reads:
                self._warn(memory, specialisation)
        for position in flow.ends_within:
            if (specialisation.kernel, position) not in self._warned:
                self._warned.add((specialisation.kernel, position))
                self.holds.setdefault(memories[position].key, memories[position].name)
                self._warn(memories[position], specialisation)
        if flow.reads_active or reads:
            for position in flow.writes_plain:
                self.holds.setdefault(memories[position].key, memories[position].name)

    def forget(self, memory: TapedMemory) -> None:
        """Note that the host has written all of an array."""
        self.holds.pop(memory.key, None)

    def _warn(self, memory: TapedMemory, specialisation: Specialisation) -> None:
        warnings.warn(
            f"the gradient ends at `{self.holds[memory.key]}`, which has none: a launch on the"
            f" tape wrote it, and kernel `{specialisation.signature.kernel}` reads it; make it with"
            " `needs_grad=True`, or write it under `qd.ad.no_grad` if that is meant",
            OctantsWarning,
            stacklevel=levels_to_the_user(),
        )


def flow_of(specialisation: Specialisation) -> GradientFlow:
    """The float arrays of a kernel, by how gradients flow through them."""
    return specialisation.remember(("flow",), lambda: _make_flow(specialisation.module))


def _make_flow(module: Module) -> GradientFlow:
    read = {op.array: None for op in module.walk() if isinstance(op, ops.Load)}
    written = dict.fromkeys(written_arrays(module))

    def positions(arrays: Mapping[Array, None], is_active: bool) -> frozenset[int]:
        return frozenset(
            position
            for position, array in enumerate(module.arrays)
            if array in arrays
            and array.dtype.is_float
            and array.space in (Space.FIELD, Space.NDARRAY)
            and array.has(ADJOINT) == is_active
        )

    return GradientFlow(
        positions(read, True),
        positions(read, False),
        positions(written, True),
        positions(written, False),
        tuple(module.arrays.index(array) for array in gradient_ends.ends_within(module)),
    )
