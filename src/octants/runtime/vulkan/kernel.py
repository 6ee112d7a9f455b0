"""A loaded kernel, and its launch."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from ctypes import c_int64
from typing import Any

from octants import abi
from octants.artifact import SYSTEM, Artifact, Dispatch, Slot
from octants.diagnostics.exceptions import InternalError
from octants.diagnostics.generated import define
from octants.runtime.recording import Recording
from octants.runtime.vulkan.machine import Machine
from octants.runtime.vulkan.queue import WORDS

COMPUTED = "device"
"""The bounds of a dispatch whose work items the device computes itself."""

_MOST_GROUPS = 65535  # that any device takes in a row


class Step:
    """A dispatch that is loaded: its pipeline, and what is pushed at a launch.

    It is a `runtime.recording.Step` of which each launch takes the parameters by `take`.
    """

    def __init__(self, kernel: VulkanKernel, dispatch: Dispatch, pipeline: int, fill: int) -> None:
        self.dispatch = dispatch
        self._kernel, self._pipeline = kernel, pipeline
        self._data = b""
        self._pushed = (c_int64 * (WORDS + 2))(*[0] * (WORDS + 1), kernel.machine.cut.address)
        self.words: Any = (c_int64 * WORDS).from_buffer(self._pushed, 8)
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

    def launch_for(self, lower: int, upper: int) -> None:
        """Launch as many threads as there are work items, if the device takes so many."""
        self.words[abi.LAUNCH_LOWER // 8] = lower
        self.words[abi.LAUNCH_UPPER // 8] = upper
        most = self.fill if self.dispatch.threads else _MOST_GROUPS
        self.launch_as(min(-(-(upper - lower) // self.block), most), self.block)

    def launch_as(self, blocks: int, block: int) -> None:
        """Launch so many blocks; the number of their threads is in the code."""
        assert block == self.block
        machine, kernel = self._kernel.machine, self._kernel
        self._pushed[0] = machine.queue.put(self._data)
        machine.queue.dispatch(self._pipeline, machine.layout, blocks, self._pushed)
        kernel.launches += 1


class VulkanKernel:
    """A kernel on a Vulkan device, ready to be launched from any thread."""

    def __init__(self, machine: Machine, artifact: Artifact) -> None:
        if artifact.parameters.slots[0] != Slot("system", SYSTEM[0]):
            raise InternalError("the message buffer is not the first parameter")
        self.artifact = artifact
        self.machine = machine
        self._program = machine.program(artifact)
        pipelines, fill = self._program.pipelines, machine.fill
        self._steps = [
            Step(self, each, pipelines[each.entry], fill) for each in artifact.dispatches
        ]
        self._recordings = {
            step: Recording(artifact, step.dispatch, machine.tape_budget, max(1, fill // 16))
            for step in self._steps
            if step.dispatch.records
        }
        self._count = len(artifact.parameters.slots)
        self._unpack = struct.Struct(f"<{self._count}q").unpack
        self.launches = 0  # of its dispatches

    def launch(self, block: int) -> None:
        """Queue it with the parameter block at an address; see `runtime.device.LoadedKernel`."""
        machine = self.machine
        data = ctypes.string_at(block, 8 * self._count)
        with machine.queue.lock:
            if self.artifact.messages:
                if machine.messages.is_full:
                    machine.look()
                address = machine.messages.take(self.artifact)
                data = address.to_bytes(8, "little") + data[8:]
            slots = self._unpack(data)
            for step in self._steps:
                step.take(data, machine.bounds.address)
                self._run(step, slots)

    def _run(self, step: Step, slots: Sequence[int]) -> None:
        recording, tape = self._recordings.get(step), self.machine.tape
        if step.is_computed:
            if recording is None:
                step.launch_as(step.fill, step.block)
            else:
                recording.run_computed(step, tape, self.machine.bounds.address)
            return
        lower, upper = step.bounds(slots) if step.bounds is not None else (0, 1)
        if upper <= lower:
            return
        if recording is None:
            step.launch_for(lower, upper)
        else:
            recording.run(step, lower, upper, tape)
