"""Instantiates captured commands as a driver graph, with the memory that its nodes refer to.

The addresses in the nodes are fixed. The graph owns its message buffers, its constants, and the
failure report of its record buffers, which no work item writes to. All graphs share one heap for
record buffers, and therefore run one at a time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from octants import abi
from octants.diagnostics.exceptions import InternalError, OctantsMemoryError
from octants.lazy_dataclass import dataclass
from octants.runtime.capture import NUMBER, Command, DeviceCall, Launch
from octants.runtime.cuda.graphs.builder import DriverGraphBuilder
from octants.runtime.cuda.graphs.driver_graph import DriverGraph
from octants.runtime.cuda.launch_state import (
    CudaAction,
    ParameterCopy,
    PreparedDispatch,
    parameter_bytes,
)
from octants.runtime.cuda.memory import DeviceAllocation
from octants.runtime.gpu.captured_writes import written_by
from octants.runtime.gpu.messages import DeviceBuffer
from octants.runtime.gpu.record_buffer_growth import Planned
from octants.runtime.gpu.record_buffers import report_bytes
from octants.runtime.memory.versions import WrittenRanges

if TYPE_CHECKING:
    from octants.runtime.cuda.launch_context import LaunchContext

_BOUNDS_BYTES = 64


class Unplanned(Exception):
    """The record-buffer size of a launch is unknown, so the launch cannot be part of a graph."""


@dataclass(frozen=True, slots=True)
class Node:
    """A dispatch of a captured launch, with the quota of its record buffer if it records."""

    step: PreparedDispatch
    plan: Planned | None = None


class CapturedLaunch:
    """A launch in a graph, with its nodes and the memory that they refer to."""

    def __init__(self, machine: LaunchContext, command: Launch, bounds: int, later: int) -> None:
        self.command = command
        self.artifact = artifact = command.kernel.artifact
        self.slots = command.kernel.slots_at(command.block)
        self.draws = artifact.draws
        self.buffer: DeviceBuffer | None = None
        if artifact.messages:
            self.buffer = machine.messages.make_shared_buffer(artifact)
            ctypes.c_uint64.from_address(command.block).value = self.buffer.memory.address
        self._machine, self._bounds = machine, bounds
        large = parameter_bytes(artifact)
        self._copy = ParameterCopy(machine.memory, large) if large else None
        self.renumber(later)
        self.nodes = list(self._make_nodes())

    def _make_nodes(self) -> Iterator[Node]:
        kernel, slots = self.command.kernel, self.slots
        for action in kernel.actions:
            step = self._step(action)
            if action.bounds is not None:
                step.resize(action.bounds(slots))
            recording = action.recording
            if step.is_empty:
                continue
            if recording is None:
                yield Node(step)
                continue
            known = None if action.is_computed else step.known or (0, 1)
            plans = recording.plan(step, known, slots)
            if not plans:
                raise Unplanned
            for plan in plans:
                yield Node(self._step(action), plan)

    def _step(self, action: CudaAction) -> PreparedDispatch:
        step = PreparedDispatch(self._machine.context, action)
        if action.is_computed or action.is_single:
            step.words[abi.LAUNCH_BOUNDS // 8] = self._bounds
        step.arguments[0] = self.command.block if self._copy is None else self._copy.argument
        return step

    def renumber(self, later: int) -> None:
        """Give the launch a number that is larger by ``later`` than at the capture."""
        address = self.command.block + NUMBER
        ctypes.c_uint64.from_address(address).value = self.command.number + later
        if self._copy is not None:
            context, stream = self._machine.context, self._machine.streams.current_handle()
            with context.active():
                self._copy.upload(context, self.command.block, stream)


class InstantiatedGraph:
    """A driver graph of captured commands.

    Its launches have numbers that are larger by `later` than at the capture.

    Raises:
        Unplanned: the record-buffer size of a launch is unknown.
        OctantsMemoryError: the device is out of memory.
    """

    def __init__(self, machine: LaunchContext, commands: Sequence[Command], later: int) -> None:
        self._machine = machine
        self.later = later
        self._bounds = machine.memory.allocate(_BOUNDS_BYTES, "bounds of loops", zeroed=True)
        self.launches = {
            id(command): CapturedLaunch(machine, command, self._bounds.address, later)
            for command in commands
            if isinstance(command, Launch)
        }
        self.names = [launch.artifact.kernel for launch in self.launches.values()]
        self.buffers = [(a.artifact, a.buffer) for a in self.launches.values() if a.buffer]
        self.prints = any(buffer.capacity for _, buffer in self.buffers)
        self._writes = WrittenRanges(each for command in commands for each in written_by(command))
        self._drawing = [launch for launch in self.launches.values() if launch.draws]
        nodes = [node for launch in self.launches.values() for node in launch.nodes]
        plans = [(node.step, node.plan) for node in nodes if node.plan is not None]
        self._constants: list[DeviceAllocation] = []
        self._record_buffers: tuple[DeviceAllocation, ...] = ()
        if plans:
            self._record_buffers = self._set_record_buffers(plans)
        self.graph = self._build(commands)

    # -- building -------------------------------------------------------------------------------

    def _set_record_buffers(
        self, plans: Sequence[tuple[PreparedDispatch, Planned]]
    ) -> tuple[DeviceAllocation, DeviceAllocation]:
        """Set the record buffers of nodes; return the heap and the failure report."""
        heap = self._take_heap([plan for _, plan in plans])
        nbytes = max(report_bytes(plan.items) for _, plan in plans)
        report = self._machine.memory.allocate(nbytes, "failed work items", zeroed=True)
        for step, plan in plans:
            plan.put(step.words, heap.address, report.address)
            step.configuration.grid, step.configuration.block = plan.quota.blocks, plan.quota.block
        return heap, report

    def _take_heap(self, plans: Sequence[Planned]) -> DeviceAllocation:
        """Allocate one launch's record buffers; use fewer threads if they do not fit."""
        while True:
            nbytes = max(plan.quota.nbytes for plan in plans)
            try:
                return self._machine.graph_record_buffers(nbytes)
            except OctantsMemoryError:
                shrunk = [plan.shrink() for plan in plans if plan.quota.nbytes == nbytes]
                if not any(shrunk):
                    raise

    def _build(self, commands: Sequence[Command]) -> DriverGraph:
        with self._machine.context.active():
            machine = self._machine
            nodes = DriverGraphBuilder(machine.context)
            for command in commands:
                if isinstance(command, DeviceCall):
                    self._add_call(nodes, command)
                elif isinstance(command, Launch):
                    for node in self.launches[id(command)].nodes:
                        nodes.launch_step(node.step)
                else:
                    raise InternalError("an array of the host in a graph of a GPU")
            return DriverGraph(machine, nodes)

    def _add_call(self, nodes: DriverGraphBuilder, command: DeviceCall) -> None:
        """Add a copy or a fill; a write of the host becomes a copy of a constant."""
        if command.method != "write":
            getattr(nodes, command.method)(*command.arguments)
            return
        address, values = command.arguments
        constant = self._machine.memory.allocate(values.nbytes, "constants of graphs")
        queue = self._machine.streams.queue()
        queue.write(constant.address, values.reshape(-1).view(np.uint8))
        self._constants.append(constant)
        nodes.copy(address, constant.address, values.nbytes)

    def will_write(self) -> None:
        """Notify `machine.versions` of the memory that a replay writes."""
        versions = self._machine.versions
        if versions.watches:
            versions.wrote_again(self._writes)

    def renumber(self, later: int) -> None:
        """Set the numbers of the launches that draw random numbers; others do not use theirs."""
        for launch in self._drawing:
            launch.renumber(later)
            self.graph.change([node.step for node in launch.nodes])
        self.later = later
