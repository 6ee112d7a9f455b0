"""Tangents in arrays of their own, computed beside the values: alone, or recorded by a tape.

`Tangents` passes each launch on with tangents (`launch.gradients.derivative_variants`). To a tape
these are launches like any others, of kernels with more arrays. So it can go back through them:
with the adjoint of a tangent, the gradient by the values is a product with second derivatives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from octants import driver
from octants.ad.tapes.tape import Tape
from octants.ad.tapes.untracked_writes import UntrackedWrites
from octants.data.host_access_events import HostWrite, before_share, forget, host_writes
from octants.data.host_element_access import ElementRange
from octants.data.ndarray import Ndarray, make_ndarray
from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.launch_errors import ArraysOnTwoDevices
from octants.diagnostics.tape_errors import PartialOverlap
from octants.ir.core import Array, Companion, Space
from octants.launch.checks.race_checks import check_before_tangents
from octants.launch.gradients.derivative_variants import merge_aliases, with_tangents
from octants.launch.gradients.lost_gradient_warnings import GradientEnds, flow_of
from octants.launch.gradients.taped_memory import (
    TapedMemory,
    equals_of,
    memories_of,
    memory_of,
    memory_of_write,
)
from octants.launch.specialisation import Specialisation
from octants.launch.warm.changing_numbers import with_constants
from octants.types.scalars import DType

if TYPE_CHECKING:
    from typing_extensions import Self

OUTER = Space.FIELD, Space.NDARRAY


class Tangents:
    """Computes tangents in its body, in ndarrays that belong to no array.

    Arrays get tangents by `add`. In a launch that uses one of these, the other arrays that have a
    gradient get zeros as tangents. Arrays without a gradient have none, unless they were added:
    they are constants. A host write sets the tangents of what it overwrites to zero; `copy_from`
    copies them.

    Args:
        tape: the tape that records the launches, if the body is in the body of one.
        kernel: a kernel that is launched once in the body.
        by_value: the tangents of arguments that the kernel is passed by value, by their names.
        returned: the tangent of what the kernel returns.
        directions: how many directions a launch propagates. If there are several, each tangent has
            a first axis for them.
    """

    def __init__(
        self,
        tape: Tape | None = None,
        kernel: Any = None,
        by_value: Mapping[str, Ndarray] | None = None,
        returned: Ndarray | None = None,
        directions: int = 1,
    ) -> None:
        self.tape = tape
        self._directions = directions
        self._kernel = kernel
        self._by_value = dict(by_value or {})
        self._returned = returned
        self._known: dict[Any, tuple[TapedMemory, Ndarray]] = {}
        self._untracked = UntrackedWrites()
        self._ends = GradientEnds()
        self.prepare: Callable[[int, Specialisation, tuple[Any, ...]], Specialisation] | None = None
        """Finds the kernel of a launch after what it does for it; see `array_function`."""
        self._paused = 0
        self.thread = threading.get_ident()
        self._around: Any = None
        self._launched: list[tuple[Specialisation, tuple[Any, ...]]] = []

    def refuse_gradient_ends(self) -> None:
        """Raise errors where tangents end at an array without a gradient, in place of warnings."""
        self._ends.are_errors = True

    def launched(self) -> Sequence[tuple[Specialisation, tuple[Any, ...]]]:
        """The kernels that were launched with tangents, with their arguments, in order."""
        return self._launched

    @property
    def paused(self) -> int:
        """How many functions without a gradient are running."""
        return self._paused if self.tape is None else self.tape.paused

    @paused.setter
    def paused(self, count: int) -> None:
        if self.tape is None:
            self._paused = count
        else:
            self.tape.paused = count

    def add(self, array: Any, tangent: Ndarray, name: str = "") -> bool:
        """Give an array a tangent: an ndarray of its shape, behind a batch's axis, and its dtype.

        Messages call it by the `name`.

        Returns:
            Whether the array shares no memory with one that has a tangent; else nothing is done.
        """
        memory = memory_of(array, name)
        if self._sharing(memory) is not None:
            return False
        self._remember(memory, tangent)
        return True

    def _remember(self, memory: TapedMemory, tangent: Ndarray) -> None:
        self._known[memory.key] = memory, tangent
        self._untracked.know(memory)
        if memory.is_exported:
            self._untracked.know_contents([memory])

    def _sharing(self, memory: TapedMemory) -> TapedMemory | None:
        """An array with a tangent that shares memory with another array."""
        if memory.key in self._known:
            return self._known[memory.key][0]
        known = (each for each, _ in self._known.values())
        return next((each for each in known if each.overlaps(memory)), None)

    def __enter__(self) -> Self:
        self._around = driver.state.recorder
        driver.state.recorder = self
        host_writes.observe(self._before_write)
        before_share.observe(self._before_share)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        driver.state.recorder = self._around
        forget(self._before_write, self._before_share)
        if kind is None:
            self._check_untracked()

    def _check_untracked(self) -> None:
        """Raise an error if an array with a tangent was written and nothing says where."""
        for memory, _ in self._known.values():
            self._untracked.check(memory)

    def launch(self, specialisation: Specialisation, arguments: tuple[Any, ...]) -> Any:
        """Run a launch with its tangents; launches of other threads run without."""
        if self.prepare is not None:
            specialisation = self.prepare(self.paused, specialisation, arguments)
        memories = memories_of(specialisation, arguments)
        chosen: dict[int, Ndarray] = {}
        if not self.paused and threading.get_ident() == self.thread:
            self._check_untracked()
            chosen = self._tangents(specialisation, memories)
            if self.tape is None:  # else it observes the launch
                self._launched.append((specialisation, arguments))
                flow = flow_of(specialisation).with_active(chosen)
                self._ends.observe_flow(flow, specialisation, memories)
        changed = self._untracked.see(specialisation, memories, differentiates=False)
        results = self._launch(specialisation, arguments, memories, chosen)
        self._untracked.know_contents(changed)
        return results

    def _launch(
        self,
        specialisation: Specialisation,
        arguments: tuple[Any, ...],
        memories: Mapping[int, TapedMemory],
        chosen: Mapping[int, Ndarray],
    ) -> Any:
        """Run a launch with some tangents, by the positions of the arrays."""
        if not chosen:
            return self._pass_on(specialisation, arguments)
        merged = merge_aliases(specialisation, equals_of(specialisation, memories))
        try:
            clone = with_tangents(merged, tuple(chosen), self._directions)
        except OctantsError as error:
            return self.launch(*with_constants(specialisation, arguments, error))
        given = (*arguments, *chosen.values())
        if self.tape is not None:
            return self.tape.launch(clone, given)
        number = specialisation.number = next(driver.state.numbers)
        check_before_tangents(merged, number, arguments, Companion.PRIMAL)
        results = clone.launch(driver.state.seed, number, 0, *given)
        return clone.wrap(results) if results else None

    def _pass_on(self, specialisation: Specialisation, arguments: tuple[Any, ...]) -> Any:
        if self.tape is not None:
            return self.tape.launch(specialisation, arguments)
        return specialisation.run(arguments)

    def _tangents(
        self, specialisation: Specialisation, memories: Mapping[int, TapedMemory]
    ) -> dict[int, Ndarray]:
        """The tangents of a launch by the positions of the arrays; none if nothing has one."""
        by_value = self._of_numbers(specialisation)
        used = [k for k, memory in memories.items() if memory.key in self._known]
        if not used and not by_value:
            return {}
        found = {}
        for position, array in enumerate(specialisation.arrays):
            if position in by_value:
                found[position] = by_value[position]
            elif array.space in OUTER and array.dtype.is_float:
                tangent = self._tangent(specialisation, array, memories[position])
                if tangent is not None:
                    found[position] = tangent
            elif position in specialisation.returned and self._returns(specialisation, array):
                assert self._returned is not None
                found[position] = self._returned
        _check_devices(specialisation, found)
        return found

    def _of_numbers(self, specialisation: Specialisation) -> dict[int, Ndarray]:
        """The tangents of what the kernel is passed by value."""
        if specialisation.kernel is not self._kernel:
            return {}
        found = {}
        for position, array in enumerate(specialisation.arrays):
            if array.space is Space.ARGUMENT:
                tangent = self._by_value.get(specialisation.leaf(position).name)
                if tangent is not None:
                    found[position] = tangent
        return found

    def _returns(self, specialisation: Specialisation, array: Array) -> bool:
        is_asked = specialisation.kernel is self._kernel and self._returned is not None
        return is_asked and array.dtype.is_float

    def _tangent(
        self, specialisation: Specialisation, array: Array, memory: TapedMemory
    ) -> Ndarray | None:
        """The tangent of an array of a launch; zeros if it has none yet, and has a gradient.

        Where torch also computes, what has no gradient is a constant, such as ``x.detach()``.
        """
        if self.prepare is not None and not array.has(Companion.ADJOINT):
            return None
        known = self._known.get(memory.key)
        if known is not None:
            return known[1]
        if not array.has(Companion.ADJOINT):
            return None
        other = self._sharing(memory)
        if other is not None:
            kernel = specialisation.signature.kernel
            raise PartialOverlap(kernel, memory.name, other.name or "an argument").at()
        device = specialisation.device.number
        return self._make(memory, array.dtype, array.element_shape, device)

    def _make(
        self, memory: TapedMemory, dtype: DType, element_shape: tuple[int, ...], device: int
    ) -> Ndarray:
        """A tangent of zeros for an array with a gradient on a device."""
        shape = memory.batched_shape(element_shape, self._directions)
        options: dict[str, Any] = {"needs_grad": self.tape is not None, "device": device}
        made = make_ndarray(dtype, shape, element_shape=element_shape, **options)
        self._remember(memory, made)
        return made

    def _before_share(self, array: Any, becomes_untracked: bool) -> None:
        """Note that others are to see an array, and may write it."""
        known = self._known.get(array.identity)
        if known is not None and becomes_untracked:
            self._untracked.know_contents([known[0]])

    def _before_write(self, write: HostWrite) -> None:
        """Set the tangent of what the host writes to that of its source, or to zero."""
        memory = memory_of_write(write)
        if memory is None:
            return
        known = self._known.get(memory.key)
        source = None if write.source is None else self._known.get(write.source.identity)
        if source is not None and known is None and write.array.has_grad():
            array = write.array
            tangent = self._make(memory, array.dtype, array.element_shape, array.device)
            known = memory, tangent
        self._untracked.see_host_write(memory, write)
        if not write.region:
            self._ends.forget(memory)
        if known is not None and source is not None:
            known[1].copy_from(source[1])
        elif known is not None:
            self._clear(known[1], write.region)

    def _clear(self, tangent: Ndarray, region: ElementRange) -> None:
        """Set the tangents of what a region holds to zero, in all directions."""
        if self._directions == 1 or not region:
            tangent.write(0.0, region)
            return
        for direction in range(self._directions):
            tangent.write(0.0, (direction, *region))


def _check_devices(specialisation: Specialisation, tangents: Mapping[int, Ndarray]) -> None:
    """Raise an error if a tangent is on another device than the one that the kernel runs on."""
    number = specialisation.device.number
    for position, tangent in tangents.items():
        if tangent.device != number:
            kernel, name = specialisation.signature.kernel, specialisation.arrays[position].name
            names = name, number, f"tangent of {name}", tangent.device
            raise ArraysOnTwoDevices(kernel, *names).at()
