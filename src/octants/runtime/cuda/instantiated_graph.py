"""A graph of the driver that was made of captured commands, and the memory that it works on.

The addresses of that are in its nodes: message buffers, constants, and what is told of refused work
items are its own; the memory of tapes is that of all graphs, which therefore run one by one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from ctypes import c_void_p
from typing import TYPE_CHECKING

import numpy as np

from octants import abi
from octants.diagnostics.exceptions import InternalError, OctantsMemoryError
from octants.lazy_dataclass import dataclass
from octants.runtime.capture import NUMBER, Command, Launch, Told
from octants.runtime.cuda.abortable_nodes import StoppableNodes
from octants.runtime.cuda.driver_graph import DriverGraph
from octants.runtime.cuda.graph_nodes import Nodes
from octants.runtime.cuda.launch_state import CudaAction, PreparedDispatch, parameter_bytes
from octants.runtime.cuda.memory import DeviceAllocation
from octants.runtime.gpu.messages import DeviceBuffer
from octants.runtime.gpu.tape_growth import Planned
from octants.runtime.gpu.tapes import refused_bytes
from octants.runtime.memory.host import view_memory

if TYPE_CHECKING:
    from octants.runtime.cuda.launch_context import LaunchContext

_BOUNDS_BYTES = 64
_ALIGNMENT = 64


class Unplanned(Exception):
    """It is not known how much tape a launch needs: it must run by itself."""


@dataclass(eq=False, slots=True)
class Node:
    """A dispatch of a captured launch: its step, and its tapes if it records.

    It has a `number` in graphs that can be stopped.
    """

    step: PreparedDispatch
    plan: Planned | None = None
    refused: int = 0
    number: int = 0

    @property
    def is_unsure(self) -> bool:
        """Whether its tapes may be too small."""
        return self.plan is not None and not self.plan.is_sure


class CapturedLaunch:
    """A launch in a graph, with what it needs that was made before it."""

    def __init__(self, machine: LaunchContext, command: Launch, bounds: int, later: int) -> None:
        self.command = command
        self.artifact = artifact = command.kernel.artifact
        self.slots = command.kernel.slots_at(command.block)
        self.draws = "draws" in dict(artifact.metadata)
        self.buffer: DeviceBuffer | None = None
        if artifact.messages:
            self.buffer = machine.messages.make_kept(artifact)
            ctypes.c_uint64.from_address(command.block).value = self.buffer.memory.address
        self._machine, self._bounds = machine, bounds
        self._large = parameter_bytes(artifact)
        self._place = c_void_p()
        self._copy: DeviceAllocation | None = None
        if self._large:
            self._copy = machine.memory.allocate(self._large, "parameters")
            self._place.value = self._copy.address
        self.renumber(later)
        self.nodes = list(self._make_nodes())

    def _make_nodes(self) -> Iterator[Node]:
        kernel, command = self.command.kernel, self.command
        slots = self.slots
        for action, last in zip(kernel.actions, command.quotas, strict=True):
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
            plans = recording.plan(step, known, slots, last)
            if not plans:
                raise Unplanned
            for plan in plans:
                yield Node(self._step(action), plan)

    def _step(self, action: CudaAction) -> PreparedDispatch:
        step = PreparedDispatch(self._machine.context, action)
        if action.is_computed or action.is_single:
            step.words[abi.LAUNCH_BOUNDS // 8] = self._bounds
        is_small = self._copy is None
        step.arguments[0] = self.command.block if is_small else ctypes.addressof(self._place)
        return step

    def renumber(self, later: int) -> None:
        """Be a launch of a number that is so much larger than at the capture."""
        place = self.command.block + NUMBER
        ctypes.c_uint64.from_address(place).value = self.command.number + later
        if self._copy is not None:
            block = view_memory(self.command.block, np.uint8, (self._large,))
            self._machine.streams.ready_queue().write(self._copy.address, block)

    def go_on(self, first: int) -> None:
        """Run what is left of the launch in the thread's stream, from a node that was stopped on.

        Of that one only those work items that were refused are left.
        """
        kernel, machine = self.command.kernel, self._machine
        stream = machine.streams.current.stream
        quotas = [list(noted) for noted in self.command.quotas]
        for place, node in enumerate(self.nodes[first:]):
            step, plan = node.step, node.plan
            step.configuration.stream = stream.handle
            step.words[abi.LAUNCH_STOP // 8] = 0
            if plan is None or plan.is_sure:
                step.launch()
                continue
            recording = step.action.recording
            assert recording is not None
            recording.go_on(step, plan, machine.tape_of(stream), 0 if place else node.refused)
            quotas[kernel.actions.index(step.action)] += recording.last
        self.command.quotas = quotas


class BuiltGraph:
    """A graph that can be launched. Launches have numbers that are larger by `later`.

    One that is `unsure` has nodes whose tapes may be too small, and can be stopped.

    Raises `Unplanned`, or `OctantsMemoryError` where memory is refused.
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
        self.proved: list[tuple[int, ...]] | None = None
        """The versions of memory at which a replay has had enough tape."""
        self._writes = [place for command in commands for place in _written(command)]
        self._drawing = [launch for launch in self.launches.values() if launch.draws]
        nodes = [node for launch in self.launches.values() for node in launch.nodes]
        self._plans = [node.plan for node in nodes if node.plan is not None]
        self.unsure = any(node.is_unsure for node in nodes)
        if self.unsure:
            for node in nodes:
                node.number = next(machine.replays.numbers)
                node.step.words[abi.LAUNCH_STOP // 8] = machine.replays.kernels.word
                node.step.words[abi.LAUNCH_NODE // 8] = node.number
        self._constants: list[DeviceAllocation] = []
        self._heap: DeviceAllocation | None = None
        self._refused: DeviceAllocation | None = None
        if self._plans:
            self._heap = self._take_heap()
            self._tell_tapes([node for node in nodes if node.plan is not None])
        self.graph = self._build(commands)

    # -- building -------------------------------------------------------------------------------

    def _take_heap(self) -> DeviceAllocation:
        """Room for all tapes, one launch at a time; with fewer threads where it is refused."""
        while True:
            nbytes = max(plan.quota.nbytes for plan in self._plans)
            try:
                return self._machine.graph_tapes(nbytes)
            except OctantsMemoryError:
                shrunk = [plan.shrink() for plan in self._plans if plan.quota.nbytes == nbytes]
                if not any(shrunk):
                    raise

    def _tell_tapes(self, nodes: Sequence[Node]) -> None:
        """Tell nodes where tapes are, and where the one that is stopped notes refused items."""
        assert self._heap is not None
        nbytes = max(_refused_bytes(node) for node in nodes)
        self._refused = self._machine.memory.allocate(nbytes, "refused work items", zeroed=True)
        for node in nodes:
            node.refused = self._refused.address
            assert node.plan is not None
            node.plan.put(node.step.words, self._heap.address, node.refused)
            node.step.configuration.grid = node.plan.quota.blocks
            node.step.configuration.block = node.plan.quota.block

    def _build(self, commands: Sequence[Command]) -> DriverGraph:
        with self._machine.context.active():
            machine = self._machine
            stoppable = StoppableNodes(machine.replays.kernels) if self.unsure else None
            nodes = stoppable or Nodes(machine.context)
            for command in commands:
                if isinstance(command, Told):
                    self._tell(nodes, command)
                elif isinstance(command, Launch):
                    for node in self.launches[id(command)].nodes:
                        nodes.launch_step(node.step)
                else:
                    raise InternalError("an array of the host in a graph of a GPU")
            return DriverGraph(machine, nodes)

    def _tell(self, nodes: Nodes, told: Told) -> None:
        """Add a copy or a fill; what the host writes is copied from a constant."""
        if told.method != "write":
            getattr(nodes, told.method)(*told.arguments)
            return
        address, values = told.arguments
        constant = self._machine.memory.allocate(values.nbytes, "constants of graphs")
        queue = self._machine.streams.ready_queue()
        queue.write(constant.address, values.reshape(-1).view(np.uint8))
        self._constants.append(constant)
        nodes.copy(address, constant.address, values.nbytes)

    # -- versions of memory ---------------------------------------------------------------------

    def versions(self) -> list[tuple[int, ...]] | None:
        """Those of all memory that decides how large tapes must be; None if that is not known."""
        found = []
        for launch in self.launches.values():
            for node in launch.nodes:
                if node.is_unsure:
                    recording = node.step.action.recording
                    assert recording is not None
                    current = recording.versions(launch.slots)
                    if current is None:
                        return None
                    found.append(current)
        return found

    def will_write(self) -> None:
        """Tell that a replay is queued, which writes to memory."""
        versions = self._machine.versions
        if versions.watches:
            for address, nbytes in self._writes:
                versions.wrote(address, nbytes)

    # -- launching ------------------------------------------------------------------------------

    def renumber(self, later: int) -> None:
        """Let launches have other numbers; those that draw no random numbers do not care."""
        for launch in self._drawing:
            launch.renumber(later)
            self.graph.change([node.step for node in launch.nodes])
        self.later = later

    def find(self, number: int) -> tuple[CapturedLaunch, int]:
        """The launch that has a node of this number, and the place of that in it."""
        for launch in self.launches.values():
            for place, node in enumerate(launch.nodes):
                if node.number == number:
                    return launch, place
        raise InternalError(f"no node has number {number}")


def _written(command: Command) -> Iterator[tuple[int, int]]:
    """What a command writes to: addresses, and bytes from there on; 0: any in an allocation."""
    if isinstance(command, Launch):
        slots = command.kernel.slots_at(command.block)
        for place in command.kernel.artifact.writes:
            yield slots[place.slot], place.nbytes
    elif isinstance(command, Told):
        address, *rest = command.arguments
        if command.method == "copy_rows":
            step, _, _, nbytes, rows = rest
            yield address, (rows - 1) * step + nbytes
        elif command.method == "fill_words":
            size, _, count = rest
            yield address, size * count
        else:
            yield address, rest[0].nbytes if command.method == "write" else rest[-1]


def _refused_bytes(node: Node) -> int:
    """The bytes of what is told of refused work items of a node, in whole lines."""
    assert node.plan is not None
    return -(-refused_bytes(node.plan.items) // _ALIGNMENT) * _ALIGNMENT
