"""Warns where a gradient silently ends: at an array without one, in a launch or between two.

A tape warns when a launch reads such an array; ``kernel.grad``, which reverses one launch, warns if
nothing that the launch writes has a gradient. Forward mode warns likewise of tangents, which end at
arrays without a dual.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from octants.deferred_import import Deferred
from octants.diagnostics.exceptions import OctantsWarning
from octants.diagnostics.kernel_as_function_errors import GradientEndsWithin
from octants.diagnostics.user_frames import levels_to_the_user
from octants.ir.core import Array, Companion, Module
from octants.launch.bound_code import written_arrays
from octants.launch.gradients.taped_memory import CALLERS_SPACES, TapedMemory
from octants.launch.specialisation import Specialisation
from octants.lazy_dataclass import dataclass
from octants.runtime.arguments.parameters import is_torch

if TYPE_CHECKING:
    from octants.autodiff.facts import lost_gradients
    from octants.ir import ops
else:
    lost_gradients, ops = (
        Deferred("octants.autodiff.facts.lost_gradients"),
        Deferred("octants.ir.ops"),
    )

ADJOINT, TANGENT = Companion.ADJOINT, Companion.TANGENT

_NAMES = {ADJOINT: ("gradient", "grad"), TANGENT: ("tangent", "dual")}


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

    def with_active(self, positions: Collection[int]) -> GradientFlow:
        """The flow of a launch in which other arrays are active: those at some positions."""
        active = frozenset(positions)
        reads, writes = self.reads_active | self.reads_plain, self.writes_active | self.writes_plain
        within = tuple(k for k in self.ends_within if k not in active) if active else ()
        return GradientFlow(
            reads & active, reads - active, writes & active, writes - active, within
        )


class GradientEnds:
    """The arrays without gradients whose values depend on arrays with gradients.

    `holds` maps their keys to their names.

    Args:
        companion: what holds derivatives: adjoints on a tape, tangents in forward mode.

    Attributes:
        are_errors: Whether they are errors, as in functions of arrays, instead of warnings.
    """

    are_errors = False

    def __init__(self, companion: Companion = ADJOINT) -> None:
        self._companion = companion
        self.holds: dict[Any, str] = {}
        self._shared: list[TapedMemory] = []
        self._warned: set[Any] = set()

    @property
    def has_shared(self) -> bool:
        """Whether any of them, or an array with a gradient, may share memory with others."""
        return bool(self._shared)

    def observe(self, specialisation: Specialisation, memories: Mapping[int, TapedMemory]) -> None:
        """Warn if a launch reads such an array and writes one with a gradient.

        Args:
            specialisation: the kernel that is launched.
            memories: its arrays, by position.
        """
        flow = flow_of(specialisation, self._companion)
        self.observe_flow(flow, specialisation, memories)

    def observe_flow(
        self,
        flow: GradientFlow,
        specialisation: Specialisation,
        memories: Mapping[int, TapedMemory],
    ) -> None:
        """Do the same for a launch whose active arrays are those of a flow."""
        reads = [memories[k] for k in sorted(flow.reads_plain) if self._holds(memories[k])]
        if flow.writes_active:
            for memory in reads:
                self._warn(memory, specialisation)
        for position in flow.ends_within:
            if (specialisation.kernel, position) not in self._warned:
                self._warned.add((specialisation.kernel, position))
                self._hold(memories[position])
                self._warn(memories[position], specialisation)
        if flow.reads_active or reads:
            for position in flow.writes_plain:
                self._hold(memories[position])
            active = (memories[position] for position in flow.writes_active)
            self._shared += [memory for memory in active if memory.may_share]

    def _hold(self, memory: TapedMemory) -> None:
        if memory.key not in self.holds:
            self.holds[memory.key] = memory.name
            if memory.may_share:
                self._shared.append(memory)

    def _holds(self, memory: TapedMemory) -> bool:
        """Whether an array is one of them, or shares memory with what a launch has written.

        A tensor of torch that was detached from one with a gradient says that the gradient ends.
        """
        if memory.key in self.holds or not memory.may_share or _is_detached(memory):
            return memory.key in self.holds
        return any(other.overlaps(memory) for other in self._shared)

    def forget(self, memory: TapedMemory) -> None:
        """Note that the host has written all of an array."""
        self.holds.pop(memory.key, None)
        self._shared = [other for other in self._shared if other.key != memory.key]

    def _warn(self, memory: TapedMemory, specialisation: Specialisation) -> None:
        name = self.holds.get(memory.key, memory.name)
        if self.are_errors:
            kernel, derivative = specialisation.signature.kernel, _NAMES[self._companion][0]
            raise GradientEndsWithin(name, kernel, derivative).at()
        _warn_of_read(name, specialisation, self._companion)


def warn_of_reverse(specialisation: Specialisation) -> None:
    """Warn if the gradient of a single launch ends at an array without one."""
    flow, arrays = flow_of(specialisation), specialisation.arrays
    for position in flow.ends_within:
        _warn_of_read(arrays[position].name, specialisation)
    goes_back = flow.writes_active or any(arrays[k].dtype.is_float for k in specialisation.returned)
    if flow.reads_active and flow.writes_plain and not goes_back:
        reason = f"kernel `{specialisation.signature.kernel}` writes nothing that has a gradient"
        _warn_of_end(arrays[min(flow.writes_plain)].name, reason)


def _warn_of_read(
    name: str, specialisation: Specialisation, companion: Companion = ADJOINT
) -> None:
    kernel = specialisation.signature.kernel
    reason = f"a launch wrote it, and kernel `{kernel}` reads it"
    _warn_of_end(name, reason, ", or write it under `qd.ad.no_grad` if that is meant", companion)


def _warn_of_end(name: str, reason: str, advice: str = "", companion: Companion = ADJOINT) -> None:
    derivative, member = _NAMES[companion]
    warnings.warn(
        f"the {derivative} ends at `{name}`, which has none: {reason}; make it with"
        f" `needs_{member}=True`{advice}",
        OctantsWarning,
        stacklevel=levels_to_the_user(),
    )


def warn_if_replaced_last(loss: TapedMemory, entries: Sequence[Any]) -> None:
    """Warn if a tape's last write to its loss is one of the host, such as ``loss[None] *= 2.0``.

    Args:
        loss: what the host has written.
        entries: the events of the tape.
    """
    for entry in reversed(entries):
        write = getattr(entry, "write", None)
        if write is not None and write.array is loss.array:
            if write.source is not None:  # a copy of another array, to which the gradient goes
                return
            break
        if getattr(entry, "writer_of", lambda _: None)(loss) is not None:
            return
    warnings.warn(
        f"the host has written the loss ({loss.name}) after the kernels of the tape: no gradient"
        " goes through a write of the host; write the loss in a kernel, or after the tape",
        OctantsWarning,
        stacklevel=levels_to_the_user(),
    )


def warn_if_unreached(losses: Sequence[Any], is_touched: Callable[[Any], bool]) -> None:
    """Warn if no launch of a tape names any of its losses, so that all gradients are zero.

    Losses that are not arrays, or whose memory other arrays may share, are not judged.

    Args:
        losses: those of the tape, an array or None for each.
        is_touched: whether the tape's launches read or write the array with a key.
    """
    keys = [getattr(loss, "explicit_identity", None) for loss in losses]
    if not keys or any(key is None or is_touched(key) for key in keys):
        return
    names = ", ".join(loss.describe() for loss in losses)
    warnings.warn(
        f"no kernel that the tape has recorded reads or writes the loss ({names}), so all gradients"
        " are zero; write the loss in a kernel, or pass the kernel that returns it:"
        " `Tape(loss=kernel)`",
        OctantsWarning,
        stacklevel=levels_to_the_user(),
    )


def _is_detached(memory: TapedMemory) -> bool:
    return memory.is_foreign and is_torch(type(getattr(memory.array, "owner", None)))


def flow_of(specialisation: Specialisation, companion: Companion = ADJOINT) -> GradientFlow:
    """The float arrays of a kernel, by how gradients flow through them, or tangents."""
    key = ("flow",) if companion is ADJOINT else ("flow", companion)
    return specialisation.derive(key, lambda: _make_flow(specialisation.module, companion))


def _make_flow(module: Module, companion: Companion) -> GradientFlow:
    read = {op.array: None for op in module.walk() if isinstance(op, ops.Load)}
    written = dict.fromkeys(written_arrays(module))

    def positions(arrays: Mapping[Array, None], is_active: bool) -> frozenset[int]:
        return frozenset(
            position
            for position, array in enumerate(module.arrays)
            if array in arrays
            and array.dtype.is_float
            and array.space in CALLERS_SPACES
            and array.has(companion) == is_active
        )

    return GradientFlow(
        positions(read, True),
        positions(read, False),
        positions(written, True),
        positions(written, False),
        tuple(
            module.arrays.index(array) for array in lost_gradients.ends_within(module, companion)
        ),
    )
