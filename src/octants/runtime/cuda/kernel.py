"""Loaded kernels on CUDA, and their launches.

Most kernels need neither messages, nor record buffers, nor bounds computed on the device;
`fast_launcher` launches those. `recording_launcher` launches those that need record buffers only.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from octants.artifact import Artifact
from octants.runtime.cuda.fast_launcher import make_launcher
from octants.runtime.cuda.graphs.driver_graph import UpdatedGraph
from octants.runtime.cuda.launch_context import LaunchContext
from octants.runtime.cuda.launch_state import (
    CudaAction,
    LaunchState,
    PreparedDispatch,
    parameter_bytes,
)
from octants.runtime.cuda.recording_launcher import make_recording_launcher
from octants.runtime.cuda.streams import Stream
from octants.runtime.gpu.kernel import Action, GpuKernel, resize
from octants.runtime.gpu.record_buffer_growth import Recording
from octants.runtime.gpu.record_buffers import DeviceRecordBuffers
from octants.runtime.parameter_blocks.slots import MOST_VIEWS

MakeLauncher = Callable[
    [LaunchContext, GpuKernel, LaunchState, int, Callable[[LaunchState, int], None]],
    Callable[[], None],
]
"""Makes the function that launches a kernel with one parameter block; see `fast_launcher`."""


class CudaKernel(GpuKernel):
    """A kernel on a GPU; any thread can launch it, in its own stream."""

    actions: Sequence[CudaAction]
    launch: Callable[[int], None]
    """Queue a launch with the parameter block at an address; see `runtime.device.LoadedKernel`."""

    def __init__(self, machine: LaunchContext, artifact: Artifact) -> None:
        self._machine = machine
        actions: list[CudaAction] = []
        if artifact.dispatches:
            module = machine.module(artifact)
            actions = [CudaAction(dispatch, module) for dispatch in artifact.dispatches]
        super().__init__(artifact, actions, self._record)
        self.report = machine.versions.reporter(artifact.writes, self.slots)
        self._frames: list[LaunchState] = []
        computed = any(action.is_computed for action in actions)
        by_pointer = bool(parameter_bytes(artifact))
        grouped = any(action.dispatch.group for action in actions)
        self._is_simple = self.allows_fast_launch and not computed
        self.launch = self._launch
        self.may_repeat = self._is_simple and not (by_pointer or grouped or artifact.draws)
        """Whether launches with the same arguments can be replayed, with whatever is in memory."""
        if not (artifact.messages or computed or by_pointer or grouped):
            make = make_launcher if self.allows_fast_launch else make_recording_launcher
            self.launch = self._launch_by(make)

    def _record(self, action: Action) -> Recording:
        machine = self._machine
        context = machine.context
        return Recording(
            self.artifact,
            action.dispatch,
            machine.record_budget,
            context.multiprocessors,
            machine.versions,
            cache_bytes=context.cache_bytes,
        )

    def record_buffers(self) -> tuple[DeviceRecordBuffers, int]:
        """The record buffers of the thread's stream, and the address of bounds computed in it."""
        stream = self._machine.streams.current.stream
        return self._machine.record_buffers_of(stream), stream.bounds()

    def _make_frame(self) -> LaunchState:
        machine, large = self._machine, parameter_bytes(self.artifact)
        frame = LaunchState(machine.context, machine.memory, self.actions, large)
        if self._is_simple:
            frame.updated = UpdatedGraph.of(machine, frame.steps)
        return frame

    # -- launches -------------------------------------------------------------------------------

    def _launch_by(self, make: MakeLauncher) -> Callable[[int], None]:
        """The launch of a kernel with a launcher for each parameter block."""
        launchers: dict[int, Callable[[], None]] = {}

        def launch(block: int) -> None:
            launcher = launchers.get(block)
            if launcher is None:
                if len(launchers) >= MOST_VIEWS:
                    launchers.clear()
                launcher = launchers[block] = self._launcher(make, block)
            launcher()

        return launch

    def _launcher(self, make: MakeLauncher, block: int) -> Callable[[], None]:
        """Make the launcher for a parameter block, which one launch at a time uses."""
        frame = self._make_frame()
        frame.move(self._machine.streams.default)
        frame.take(block)
        return make(self._machine, self, frame, block, self._queue)

    def steps_at(self, block: int) -> list[PreparedDispatch]:
        """Prepare the dispatches with work items of a launch, for a graph."""
        frame = self._make_frame()
        frame.move(self._machine.streams.default)
        frame.take(block)
        resize(frame.steps, self.slots_at(block))
        return [step for step in frame.steps if not step.is_empty]

    def _launch(self, block: int) -> None:
        """Launch a kernel of any kind."""
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = self._make_frame()
        if self.artifact.messages:
            self._queue_with_messages(frame, block)
        else:
            self._queue(frame, block)
        self._frames.append(frame)

    def _queue_with_messages(self, frame: LaunchState, block: int) -> None:
        with self._machine.in_order():
            buffer = self._machine.messages.take(self.artifact)
        ctypes.c_uint64.from_address(block).value = buffer.memory.address
        try:
            self._queue(frame, block)
        finally:
            self._machine.messages.put(self.artifact, buffer)

    def _queue(self, frame: LaunchState, block: int) -> None:
        """Queue a launch with the state of launches that it may use."""
        with self._machine.context.active():
            streams = self._machine.streams
            stream = streams.default
            if streams.is_busy:
                streams.current_handle()
                stream = streams.current.stream
            if frame.stream is not stream:
                frame.move(stream)
            frame.take(block)
            self._machine.context.launched.append(self.name)
            view = self.slots.view(block)
            if self._machine.versions.watches:
                self.report(view)
            slots = self.slots.unpack(view)
            if frame.updated is not None:
                resize(frame.steps, slots)
            if frame.updated is None or not frame.updated.launch(stream.handle):
                beside: dict[int, Stream] = {}
                for step in frame.steps:
                    self._enter_group(step.action.dispatch.group, stream, beside)
                    self.run(step, slots)
                self._enter_group(0, stream, beside)
            if streams.is_busy:
                streams.release()

    def _enter_group(self, group: int, stream: Stream, beside: dict[int, Stream]) -> None:
        """Let the next dispatch run beside those of other groups, if it is in a group; 0: in none.

        Args:
            group: The group of the dispatch.
            stream: The stream of the launch.
            beside: The streams of the groups that have begun.
        """
        order = self._machine.streams.order
        if group and group not in beside:
            beside[group] = stream.group_stream(group)
            order(stream, beside[group])
        while beside and not group:
            order(beside.popitem()[1], stream)
