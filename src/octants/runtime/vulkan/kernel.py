"""A loaded kernel, and its launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import c_int64, c_uint64
from typing import Any

from octants import abi
from octants.artifact import SYSTEM, Artifact, Dispatch, Slot
from octants.diagnostics.exceptions import InternalError
from octants.diagnostics.generated import define
from octants.runtime.gpu.recording import MOST_ITEMS, Recording
from octants.runtime.slots import SlotViews, bounds_reader
from octants.runtime.vulkan.machine import Machine
from octants.runtime.vulkan.queue import WORDS

COMPUTED = "device"
"""The bounds of a dispatch whose work items the device computes itself."""

_MOST_GROUPS = 65535  # that any device takes in a row
_FEW_ITEMS = 4


class Step:
    """A dispatch that is loaded: its pipeline, and what is pushed at a launch.

    It is a `runtime.gpu.driver.Step` of which each launch takes the parameters by `take`. `groups`
    are the blocks of threads of the last launch, `launches` those that the host did not size.
    """

    def __init__(
        self, kernel: VulkanKernel, dispatch: Dispatch, pipeline: c_uint64, fill: int
    ) -> None:
        self.dispatch = dispatch
        self.pipeline = pipeline
        self.groups = 1
        self.launches = 0
        self._kernel = kernel
        self._data = b""
        self.pushed = (c_int64 * (WORDS + 2))(*[0] * (WORDS + 1), kernel.machine.cut.address)
        self.words: Any = (c_int64 * WORDS).from_buffer(self.pushed, 8)
        self.words[abi.LAUNCH_UPPER // 8] = 1
        self.block = self.least_block = dispatch.block or 1
        self.fill = min(fill, -(-dispatch.threads // self.block)) if dispatch.threads else fill
        self.is_computed = dispatch.bounds == COMPUTED
        self.bounds: Callable[[Sequence[int]], tuple[int, int]] | None = None
        if dispatch.bounds and not self.is_computed:
            text = f"def bounds(slots):\n    return {dispatch.bounds}\n"
            self.bounds = define("bounds", text, {})

    def take(self, data: bytes, bounds: int) -> None:
        """Take the parameters of a launch, and where bounds are that the device computes."""
        self._data = data
        self.words[abi.LAUNCH_BOUNDS // 8] = bounds

    def resize(self, lower: int, upper: int) -> None:
        """Have as many threads as there are work items, if the device takes so many."""
        self.words[abi.LAUNCH_LOWER // 8] = lower
        self.words[abi.LAUNCH_UPPER // 8] = upper
        most = self.fill if self.dispatch.threads else _MOST_GROUPS
        self.groups = max(0, min(-(-(upper - lower) // self.block), most))

    def launch_as(self, blocks: int, block: int) -> None:
        """Launch so many blocks; the number of their threads is in the code."""
        assert block == self.block
        self.groups = blocks
        self.launches += 1
        self.launch()

    def launch(self) -> None:
        """Launch as many blocks as were told last."""
        queue, layout = self._kernel.machine.queue, self._kernel.machine.layout
        batch = queue.open(len(self._data))
        self.pushed[0] = batch.arena.address + batch.put(self._data)
        queue.dispatch(batch, self.pipeline, layout, self.groups, self.pushed)


class VulkanKernel:
    """A kernel on a Vulkan device, ready to be launched from any thread."""

    launch: Callable[[int], None]
    """Queue it with the parameter block at an address; see `runtime.device.LoadedKernel`."""

    def __init__(self, machine: Machine, artifact: Artifact) -> None:
        if artifact.parameters.slots[0] != Slot("system", SYSTEM[0]):
            raise InternalError("the message buffer is not the first parameter")
        self.artifact = artifact
        self.machine = machine
        self._name = artifact.kernel or artifact.name
        self._program = machine.program(artifact)
        pipelines, fill = self._program.pipelines, machine.fill
        self.steps = [Step(self, each, pipelines[each.entry], fill) for each in artifact.dispatches]
        self._recordings = {
            step: self._recording(step) for step in self.steps if step.dispatch.records
        }
        self._slots = SlotViews(len(artifact.parameters.slots))
        is_plain = not (artifact.messages or self._recordings)
        self.launch = self._plain() if is_plain else self._launch

    def _recording(self, step: Step) -> Recording:
        """How a step records: few items for each thread where the turns of that are counted."""
        machine, least = self.machine, max(1, self.machine.fill // 16)
        counts = "cuts" in machine.hardware.features
        most = _FEW_ITEMS * step.fill * step.block if counts else MOST_ITEMS
        budget, versions = machine.tape_budget, machine.versions
        return Recording(self.artifact, step.dispatch, budget, least, versions, most)

    def _plain(self) -> Callable[[int], None]:
        """The launch of a kernel that says nothing and records nothing, in few steps."""
        machine, steps, slots = self.machine, self.steps, self._slots
        queue, layout, lock = machine.queue, machine.layout, machine.queue.lock
        dispatch, bounds = queue.dispatch, machine.bounds.address
        note, name = machine.context.launched.append, self._name
        size, views, view_of = slots.size, slots.views, slots.view
        read_bounds = bounds_reader([step.dispatch.bounds for step in steps if step.bounds], slots)
        for step in steps:
            step.take(b"", bounds)
            if step.is_computed:
                step.groups = step.fill
        told: tuple[int, ...] | None = None
        versions = machine.versions
        watches, tell = versions.watches, versions.teller(self.artifact.writes, slots)

        def launch(block: int) -> None:
            nonlocal told
            view = views.get(block) or view_of(block)
            note(name)
            with lock:
                if watches:
                    tell(view)
                if read_bounds is not None:
                    found = read_bounds(view)
                    if found != told:
                        self._resize(slots.unpack(view))
                        told = found
                batch = queue.open(size)
                place = batch.arena.address + batch.put(view)
                for step in steps:
                    if step.groups:
                        step.pushed[0] = place
                        dispatch(batch, step.pipeline, layout, step.groups, step.pushed)
                if batch.is_urgent:
                    queue.flush()

        return launch

    def _resize(self, slots: Sequence[int]) -> None:
        for step in self.steps:
            if step.bounds is not None:
                step.resize(*step.bounds(slots))

    def _launch(self, block: int) -> None:
        """The launch of any kernel."""
        machine = self.machine
        machine.context.launched.append(self._name)
        data = bytes(self._slots.view(block))
        with machine.queue.lock:
            if self.artifact.messages:
                buffer = machine.messages.take(self.artifact)
                machine.messages.put(self.artifact, buffer)
                data = buffer.memory.address.to_bytes(8, "little") + data[8:]
            slots = self._slots.unpack(data)
            machine.versions.launched(self.artifact.writes, slots)
            for step in self.steps:
                step.take(data, machine.bounds.address)
                self._run(step, slots)
            machine.queue.launched()

    def _run(self, step: Step, slots: Sequence[int]) -> None:
        recording, tape = self._recordings.get(step), self.machine.tape
        if step.is_computed:
            if recording is None:
                step.launch_as(step.fill, step.block)
            else:
                recording.run_computed(step, tape, self.machine.bounds.address, slots)
            return
        lower, upper = step.bounds(slots) if step.bounds is not None else (0, 1)
        if upper <= lower:
            return
        if recording is None:
            step.resize(lower, upper)
            step.launch()
        else:
            recording.run(step, lower, upper, tape, slots)
