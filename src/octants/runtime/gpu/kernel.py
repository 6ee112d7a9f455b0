"""Loads kernels on a GPU, and runs their dispatches, with record buffers and computed bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from octants.artifact import SYSTEM, Artifact, Dispatch, Slot
from octants.diagnostics.exceptions import InternalError
from octants.functions_from_text import define
from octants.runtime.gpu.driver import PreparedDispatch
from octants.runtime.gpu.record_buffer_growth import Bounds, Recording
from octants.runtime.gpu.record_buffers import DeviceRecordBuffers
from octants.runtime.parameter_blocks.slots import SlotViews

_COMPUTED = "device"  # the bounds of a dispatch whose domain a kernel computes on the device


class Action:
    """A loaded dispatch: what is the same for all launches.

    `fill` blocks of `block` threads occupy the whole GPU. The bounds of its work items are `fixed`,
    or `bounds` computes them from the slots of the parameter block. Neither is set if it
    `is_single`, with one work item, or `is_computed`, with bounds that the device computes.
    """

    def __init__(self, dispatch: Dispatch) -> None:
        self.dispatch = dispatch
        self.block, self.fill = 1, 1
        self.is_single = not dispatch.bounds
        self.is_computed = dispatch.bounds == _COMPUTED
        self.bounds: Callable[[Sequence[int]], Bounds] | None = None
        self.fixed: Bounds | None = None
        self.recording: Recording | None = None
        """Sizes its record buffer; None if it does not record."""
        if not self.is_single and not self.is_computed:
            text = f"def bounds(slots):\n    return {dispatch.bounds}\n"
            bounds: Callable[[Sequence[int]], Bounds] = define("bounds", text, {})
            if "slots" in dispatch.bounds:
                self.bounds = bounds
            else:
                self.fixed = bounds(())


def resize(steps: Iterable[PreparedDispatch], slots: Sequence[int]) -> None:
    """Set up launches for the bounds that follow from the slots of a parameter block."""
    for step in steps:
        if step.action.bounds is not None:
            step.resize(step.action.bounds(slots))


class GpuKernel:
    """A kernel on a GPU, whose `actions` run in order.

    ``record`` creates the `Recording` of an action that has a record buffer.
    """

    actions: Sequence[Action]

    def __init__(
        self, artifact: Artifact, actions: Sequence[Action], record: Callable[[Action], Recording]
    ) -> None:
        if artifact.parameters.slots[0] != Slot("system", SYSTEM[0]):
            raise InternalError("the message buffer is not the first parameter")
        self.artifact = artifact
        self.actions = actions
        self.name = artifact.kernel or artifact.name
        self.slots = SlotViews(len(artifact.parameters.slots))
        for action in actions:
            if action.dispatch.records:
                action.recording = record(action)
        self.allows_fast_launch = not (artifact.messages or any(each.recording for each in actions))
        """Whether it has neither messages nor record buffers, so that a fast launcher will do."""

    def record_buffers(self) -> tuple[DeviceRecordBuffers, int]:
        """The record buffers of the next launch, and the address of bounds that it computes."""
        raise NotImplementedError

    def slots_at(self, block: int) -> tuple[int, ...]:
        """The values of the slots of the parameter block at an address."""
        return self.slots.unpack(self.slots.view(block))

    def run(self, step: PreparedDispatch, slots: Sequence[int]) -> None:
        """Queue the launch of a dispatch, given the slots of the parameter block."""
        action: Action = step.action
        recording = action.recording
        if action.bounds is not None:
            step.resize(action.bounds(slots))
        if step.is_empty:
            return
        if recording is None:
            step.launch()
            return
        buffers, bounds = self.record_buffers()
        if action.is_computed:
            recording.run_computed(step, buffers, bounds, slots)
        else:
            recording.run(step, *(step.known or (0, 1)), buffers, slots)
