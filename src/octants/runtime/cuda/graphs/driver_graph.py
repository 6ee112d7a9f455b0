"""Driver graphs, the one mechanism of replay on CUDA.

It has four users: captured commands (`captured_commands`), a launch that repeats with the same
arguments (`fast_launcher`, `recording_launcher`, and with copies `staging_buffer`), the dispatches
of a kernel with many, with new arguments each time (`UpdatedGraph`), and fills of the same memory
with zeros (`repeated_clears`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from ctypes import byref, c_void_p
from typing import TYPE_CHECKING

from octants.diagnostics.exceptions import OctantsError
from octants.runtime.cuda.graphs.builder import DriverGraphBuilder
from octants.runtime.cuda.launch_state import PreparedDispatch

if TYPE_CHECKING:
    from octants.runtime.cuda.launch_context import LaunchContext

MOST_GRAPHS = 256
"""The most graphs for launches that repeat."""
_MANY = 8
"""With fewer dispatches, launching them is faster than updating and launching a graph."""
_OTHERS = 16
"""Launches before there is a graph that is updated: making one costs what they would have saved."""


class DriverGraph:
    """An instantiated driver graph, destroyed some time after the last reference to it is dropped.

    One that `is_counted` is among `LaunchContext.replayed_graphs`.
    """

    def __init__(
        self, machine: LaunchContext, nodes: DriverGraphBuilder, *, is_counted: bool = False
    ) -> None:
        self._machine, self._is_counted = machine, is_counted
        self._context, self._library = machine.context, machine.library
        self._owner = machine.context.handle
        self._kernels = nodes.kernels
        self._handles = nodes.finish()
        self.handle = c_void_p(self._handles[1])
        machine.replayed_graphs += is_counted

    def __del__(self) -> None:
        if hasattr(self, "_handles"):
            self._machine.dropped_graphs.append(self._handles)
            self._machine.replayed_graphs -= self._is_counted

    def change(self, steps: Iterable[PreparedDispatch]) -> None:
        """Update the nodes of some dispatches to their present configuration and words."""
        context = self._machine.context
        change = context.library.cuGraphExecKernelNodeSetParams
        for step in steps:
            node, made = self._kernels[step]
            made.grid, made.block = step.configuration.grid, step.configuration.block
            status = change(self.handle, node, byref(made))
            if status:
                raise context.error("cuGraphExecKernelNodeSetParams", status)

    def launch(self, stream: int) -> None:
        """Queue the graph in the stream with a handle."""
        self._machine.context.call("cuGraphLaunch", self.handle, c_void_p(stream))

    def launch_here(self, stream: c_void_p | None = None) -> None:
        """Queue the graph whichever context is current, by default in the default stream.

        It takes as few steps of Python as possible: a tape launches three graphs.
        """
        library, context = self._library, self._context
        current = context.current
        library.cuCtxGetCurrent(current.reference)
        if current.handle.value != self._owner:
            context.call_here("cuGraphLaunch", self.handle, stream)
            return
        status = library.cuGraphLaunch(self.handle, stream)
        if status:
            raise context.error("cuGraphLaunch", status)


def repeated_graph(
    machine: LaunchContext, add: Callable[[DriverGraphBuilder], None]
) -> DriverGraph | None:
    """Instantiate a graph for launches that repeat, whose nodes ``add`` adds.

    None if there are too many such graphs, or the driver refuses one: they are launched as before.
    """
    if machine.replayed_graphs >= MOST_GRAPHS:
        return None
    with contextlib.suppress(OctantsError), machine.context.active():
        nodes = DriverGraphBuilder(machine.context)
        add(nodes)
        return DriverGraph(machine, nodes, is_counted=True)
    return None


def graph_of(machine: LaunchContext, steps: Iterable[PreparedDispatch]) -> DriverGraph | None:
    """Instantiate such a graph of the launches of some dispatches, in order, if that can be."""

    def add(nodes: DriverGraphBuilder) -> None:
        for step in steps:
            nodes.launch_step(step)

    return repeated_graph(machine, add)


class UpdatedGraph:
    """Launches the dispatches of a kernel as one graph, which each launch updates.

    On an H200, 16 dispatches take 31 us so, and 62 one by one.
    """

    def __init__(self, machine: LaunchContext, steps: Sequence[PreparedDispatch]) -> None:
        self._machine, self._steps = machine, steps
        self._launches = 0
        self._graph: DriverGraph | None = None

    @staticmethod
    def of(machine: LaunchContext, steps: Sequence[PreparedDispatch]) -> UpdatedGraph | None:
        """The graph for a kernel without concurrent tasks, if it has enough dispatches."""
        is_grouped = any(step.action.dispatch.group for step in steps)
        return None if is_grouped or len(steps) < _MANY else UpdatedGraph(machine, steps)

    def launch(self, stream: int | None = None) -> bool:
        """Queue the dispatches, which are set up; False if they must be launched one by one."""
        if any(step.is_empty for step in self._steps):  # a graph has no empty nodes
            return False
        with self._machine.context.active():
            if self._graph is None:
                self._launches += 1
                if self._launches > _OTHERS:
                    self._graph = graph_of(self._machine, self._steps)
            else:
                self._graph.change(self._steps)
            if self._graph is None:
                return False
            self._graph.launch(stream or 0)
        return True
