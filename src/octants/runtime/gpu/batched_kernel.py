"""Loaded kernels on GPUs whose commands go in batches, and their launches.

A launch pushes the address of the parameter block, and the words of `abi`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from ctypes import c_int64, c_uint64
from typing import Any

from octants import abi
from octants.artifact import SYSTEM, SYSTEM_BYTES, Artifact, Dispatch
from octants.runtime.gpu import batches
from octants.runtime.gpu.batches import padded
from octants.runtime.gpu.kernel import Action, GpuKernel, resize
from octants.runtime.gpu.record_buffer_growth import MOST_ITEMS, Bounds, Recording
from octants.runtime.gpu.record_buffers import DeviceRecordBuffers
from octants.runtime.parameter_blocks.slots import bounds_reader

_MOST_GROUPS = 65535  # workgroups along an axis that every device supports
WORDS = abi.LAUNCH_SIZE // 8
_numbers = itertools.count()  # of kernels


class PreparedDispatch:
    """A loaded dispatch: its pipeline, and its push constants.

    It is a `gpu.driver.PreparedDispatch`, which each launch gives its parameters by `take`.
    `groups` is the number of workgroups of the last launch; `launches` counts those with a number
    that record buffers decide.
    """

    def __init__(self, kernel: BatchedKernel, action: Action, pipeline: c_uint64) -> None:
        self.action = action
        self.pipeline = pipeline
        self.groups = action.fill if action.is_computed else 1
        self.launches = 0
        self.known: Bounds | None = None
        self.is_empty = False
        self.repeat: Any = None
        self._kernel = kernel
        self._data = b""
        made = kernel.machine.new_push_constants(kernel.slots.count - len(SYSTEM))
        self.all_words, self.slots, self.pushed = made
        self.words: Any = (c_int64 * WORDS).from_buffer(self.all_words, 8)
        self.words[abi.LAUNCH_UPPER // 8] = 1
        self.block = self.least_block = action.block
        self.fill = action.fill
        if action.fixed is not None:
            self.resize(action.fixed)

    def take(self, data: bytes, bounds: int) -> None:
        """Use a launch's parameters, and an address for bounds that the device computes."""
        self._data = data
        self.words[abi.LAUNCH_BOUNDS // 8] = bounds

    def resize(self, bounds: Bounds) -> None:
        """Set up a thread for each work item, or as many as the device allows."""
        lower, upper = self.known = bounds
        self.is_empty = upper <= lower
        self.words[abi.LAUNCH_LOWER // 8] = lower
        self.words[abi.LAUNCH_UPPER // 8] = upper
        most = self.fill if self.action.dispatch.threads else _MOST_GROUPS
        self.groups = max(0, min(-(-(upper - lower) // self.block), most))

    def block_for(self, items: int) -> int:  # noqa: ARG002
        """The threads of a workgroup: the code fixes their number."""
        return self.block

    def launch_as(self, blocks: int, block: int) -> None:
        """Queue a launch of ``blocks`` workgroups; the code fixes the number of their threads."""
        assert block == self.block
        self.groups = blocks
        self.launches += 1
        self.launch()

    def launch(self) -> None:
        """Queue a launch of `groups` workgroups."""
        queue, layout = self._kernel.machine.queue, self._kernel.machine.layout
        batch = queue.open(len(self._data))
        self.all_words[0] = batch.address + batch.put(self._data)
        self.slots[:] = self._data[SYSTEM_BYTES : SYSTEM_BYTES + len(self.slots)]
        queue.dispatch(batch, self.pipeline, layout, self.groups, self.pushed)


class BatchedKernel(GpuKernel):
    """A kernel on a device with a `batches.BatchQueue`; any thread can launch it.

    ``machine`` is the device: it has the `queue`, memory, record buffers and programs of launches.
    """

    launch: Callable[[int], None]
    """Queue a launch with the parameter block at an address; see `runtime.device.LoadedKernel`."""

    def __init__(self, machine: Any, artifact: Artifact) -> None:
        self.machine = machine
        actions = [_action(dispatch, machine.threads) for dispatch in artifact.dispatches]
        super().__init__(artifact, actions, self._record)
        self.report = machine.versions.reporter(artifact.writes, self.slots)
        self._program = machine.program(artifact)
        pipelines = self._program.pipelines
        self.steps = [
            PreparedDispatch(self, each, pipelines[each.dispatch.entry]) for each in actions
        ]
        self.may_repeat = self.allows_fast_launch and not artifact.draws
        """Whether launches with the same arguments can be recorded, whatever is in memory."""
        self.parameter_bytes = padded(self.slots.size)
        """The bytes of an arena that a launch takes."""
        self.launch = self._fast_launch() if self.allows_fast_launch else self._launch

    def _record(self, action: Action) -> Recording:
        """The `Recording` of an action."""
        machine, least = self.machine, max(1, action.fill // 16)
        budget, versions, most = machine.record_budget, machine.versions, self.most_items(action)
        return Recording(self.artifact, action.dispatch, budget, least, versions, most)

    def most_items(self, action: Action) -> int:  # noqa: ARG002
        """The most work items of one dispatch of an action that records."""
        return MOST_ITEMS

    def record_buffers(self) -> tuple[DeviceRecordBuffers, int]:
        """The record buffer of the device, and the address of bounds that it computes."""
        buffers: DeviceRecordBuffers = self.machine.record_buffers
        return buffers, self.machine.bounds.address

    def _fast_launch(self) -> Callable[[int], None]:
        """The launch of a kernel without messages and record buffers, in few steps."""
        machine, steps, slots = self.machine, self.steps, self.slots
        queue, layout, lock = machine.queue, machine.layout, machine.queue.lock
        dispatch, bounds = queue.dispatch, machine.bounds.address
        note, name = machine.context.launched.append, self.name
        size, views, view_of = slots.size, slots.views, slots.view
        taken, most = self.parameter_bytes, batches.ARENA - size
        read_bounds = bounds_reader(
            [each.dispatch.bounds for each in self.actions if each.bounds is not None], slots
        )
        for step in steps:
            step.take(b"", bounds)
        count = len(steps[0].slots) if steps else 0
        pushed = slice(SYSTEM_BYTES, SYSTEM_BYTES + count)
        bounds_slots: tuple[int, ...] | None = None
        versions = machine.versions
        watches, report = versions.watches, self.report
        number, may_wait = next(_numbers), self.may_repeat and queue.may_record

        def launch(block: int) -> None:
            view = views.get(block) or view_of(block)
            note(name)
            with lock:
                if watches:
                    report(view)
                if may_wait and queue.batch is None:
                    data = view.tobytes()
                    queue.add_launch((number, data[SYSTEM_BYTES:]), queue_commands, data, taken)
                elif queue_commands(view).is_urgent:
                    queue.flush()

        def queue_commands(view: Any) -> Any:
            nonlocal bounds_slots
            if read_bounds is not None:
                found = read_bounds(view)
                if found != bounds_slots:
                    resize(steps, slots.unpack(view))
                    bounds_slots = found
            batch = queue.batch  # what `open` and `put` do, in fewer steps
            if batch is None or batch.count >= batch.due or batch.used > most:
                batch = queue.open(size)
            start = batch.used
            batch.bytes[start : start + size] = view
            batch.used = start + taken
            start += batch.address
            for step in steps:
                if step.groups:
                    step.all_words[0] = start
                    step.slots[:] = view[pushed]
                    dispatch(batch, step.pipeline, layout, step.groups, step.pushed)
            return batch

        return launch

    def _launch(self, block: int) -> None:
        """Launch a kernel of any kind."""
        machine = self.machine
        machine.context.launched.append(self.name)
        data = self.slots.view(block).tobytes()
        with machine.queue.lock:
            if self.artifact.messages:
                buffer = machine.messages.take(self.artifact)
                machine.messages.put(self.artifact, buffer)
                data = buffer.memory.address.to_bytes(8, "little") + data[8:]
            slots = self.slots.unpack(data)
            if machine.versions.watches:
                self.report(self.slots.view(block))
            for step in self.steps:
                step.take(data, machine.bounds.address)
                self.run(step, slots)
            machine.queue.launched()


def _action(dispatch: Dispatch, threads: int) -> Action:
    """A dispatch with the block size that its code was compiled for, on a GPU that so many
    ``threads`` occupy.
    """
    action = Action(dispatch)
    action.block = block = dispatch.block or 1
    fill = max(1, threads // block)
    action.fill = min(fill, -(-dispatch.threads // block)) if dispatch.threads else fill
    return action
