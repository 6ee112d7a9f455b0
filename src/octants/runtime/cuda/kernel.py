"""A loaded kernel, and its launch.

Most kernels say nothing, record nothing, and are told all bounds by the host; see `plain`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from octants.artifact import SYSTEM, Artifact, Slot
from octants.diagnostics.exceptions import InternalError
from octants.runtime.cuda.driver_graph import DriverGraph, graph_of
from octants.runtime.cuda.frame import Action, Frame, Step, parameter_bytes
from octants.runtime.cuda.machine import Machine
from octants.runtime.cuda.plain import make_launcher
from octants.runtime.gpu.recording import Quota, Recording
from octants.runtime.slots import MOST_VIEWS, SlotViews

_LEAST_NODES = 8
"""Fewer launches than these take less than a graph whose parameters are changed."""


class CudaKernel:
    """A kernel on a GPU, ready to be launched from any thread, in the thread's stream."""

    launch: Callable[[int], None]
    """Queue it with the parameter block at an address; see `runtime.device.LoadedKernel`."""

    def __init__(self, machine: Machine, artifact: Artifact) -> None:
        if artifact.parameters.slots[0] != Slot("system", SYSTEM[0]):
            raise InternalError("the message buffer is not the first parameter")
        self.artifact = artifact
        self._machine = machine
        self._name = artifact.kernel or artifact.name
        self._actions: list[Action] = []
        if artifact.dispatches:
            module = machine.module(artifact)
            self._actions = [Action(dispatch, module) for dispatch in artifact.dispatches]
        self._recordings = {
            action: Recording(
                artifact,
                action.dispatch,
                machine.tape_budget,
                machine.context.multiprocessors,
                machine.versions,
            )
            for action in self._actions
            if action.dispatch.records
        }
        self._frames: list[Frame] = []
        self._slots = SlotViews(len(artifact.parameters.slots))
        computed = any(action.is_computed for action in self._actions)
        by_pointer = bool(parameter_bytes(artifact))
        self._is_simple = not (artifact.messages or self._recordings or computed)
        self.launch = self._plain() if self._is_simple and not by_pointer else self._launch

    def _make_frame(self) -> Frame:
        machine, large = self._machine, parameter_bytes(self.artifact)
        return Frame(machine.context, machine.memory, self._actions, large)

    # -- for graphs -----------------------------------------------------------------------------

    @property
    def actions(self) -> Sequence[Action]:
        """What a launch does, one after the other."""
        return self._actions

    def recording_of(self, action: Action) -> Recording | None:
        """How an action records; None if it does not."""
        return self._recordings.get(action)

    def slots_at(self, block: int) -> tuple[int, ...]:
        """The slots of a parameter block."""
        return self._slots.unpack(self._slots.view(block))

    def rooms(self) -> list[Sequence[Quota]]:
        """What tapes the last launch took, action by action."""
        recordings = [self._recordings.get(action) for action in self._actions]
        return [() if each is None else each.last for each in recordings]

    # -- launches -------------------------------------------------------------------------------

    def _plain(self) -> Callable[[int], None]:
        """The launch of a kernel without anything special: each block has a launcher of its own."""
        launchers: dict[int, Callable[[], None]] = {}
        make = self._launcher

        def launch(block: int) -> None:
            launcher = launchers.get(block)
            if launcher is None:
                if len(launchers) >= MOST_VIEWS:
                    launchers.clear()
                launcher = launchers[block] = make(block)
            launcher()

        return launch

    def _launcher(self, block: int) -> Callable[[], None]:
        """What launches with the parameters of a block, which no two launches use at once."""
        frame, view = self._make_frame(), self._slots.view(block)
        frame.move(self._machine.streams.default)
        frame.take(block)
        return make_launcher(self._machine, self.artifact, frame, view, self._slots)

    def as_graph(self) -> Callable[[int], None]:
        """The launch as one graph; where that takes longer, or cannot be, `launch`."""
        if not self._is_simple or len(self._actions) < _LEAST_NODES:
            return self.launch
        machine, spare = self._machine, list[tuple[Frame, DriverGraph]]()

        def take() -> tuple[Frame, DriverGraph | None]:
            try:
                return spare.pop()
            except IndexError:
                return self._make_frame(), None

        def launch(block: int) -> None:
            streams, slots = machine.streams, self.slots_at(block)
            frame, graph = take()
            frame.resize(slots)
            if any(step.is_empty for step in frame.steps):  # there is no node that does nothing
                self.launch(block)
            else:
                machine.context.launched.append(self._name)
                machine.versions.launched(self.artifact.writes, slots)
                with machine.context.active():
                    streams.here()
                    if frame.stream is not streams.current.stream:
                        frame.move(streams.current.stream)
                    frame.take(block)
                    if graph is None:
                        graph = graph_of(machine, frame.steps)
                    else:
                        graph.change(frame.steps)
                    graph.launch(streams.current.stream.handle)
                    streams.release()
            if graph is not None:
                spare.append((frame, graph))

        return launch

    def _launch(self, block: int) -> None:
        """The launch of any kernel."""
        if not self.artifact.messages:
            self._queue(block)
            return
        with self._machine.in_order():
            buffer = self._machine.messages.take(self.artifact)
        ctypes.c_uint64.from_address(block).value = buffer.memory.address
        try:
            self._queue(block)
        finally:
            self._machine.messages.put(self.artifact, buffer)

    def _queue(self, block: int) -> None:
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = self._make_frame()
        with self._machine.context.active():
            streams = self._machine.streams
            streams.here()
            stream = streams.current.stream
            if frame.stream is not stream:
                frame.move(stream)
            frame.take(block)
            self._machine.context.launched.append(self._name)
            slots = self._slots.unpack(self._slots.view(block))
            self._machine.versions.launched(self.artifact.writes, slots)
            for step in frame.steps:
                self._run(step, slots)
            streams.release()
        self._frames.append(frame)

    def _run(self, step: Step, slots: tuple[int, ...]) -> None:
        action, recording = step.action, self._recordings.get(step.action)
        if action.bounds is not None:
            step.resize(action.bounds(slots))
        if recording is not None:
            recording.last = []
        if step.is_empty:
            return
        if recording is None:
            step.launch()
            return
        stream = self._machine.streams.current.stream
        tape = self._machine.tape_of(stream)
        if action.is_computed:
            recording.run_computed(step, tape, stream.bounds(), slots)
        else:
            recording.run(step, *(step.known or (0, 1)), tape, slots)
