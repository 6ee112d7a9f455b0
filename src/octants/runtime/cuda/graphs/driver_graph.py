"""Driver graphs, the one mechanism of replay on CUDA.

It has four users: captured commands (`captured_commands`), a launch that repeats with the same
arguments (`fast_launcher`, `recording_launcher`, and with copies `staging_buffer`), the dispatches
of one kernel with new arguments each time (`kernel`), and fills of the same memory with zeros
(`repeated_clears`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from ctypes import byref, c_void_p
from typing import TYPE_CHECKING

from octants.runtime.cuda.graphs.builder import DriverGraphBuilder
from octants.runtime.cuda.launch_state import PreparedDispatch

if TYPE_CHECKING:
    from octants.runtime.cuda.launch_context import LaunchContext


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

    def change(self, steps: Collection[PreparedDispatch]) -> None:
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


def graph_of(
    machine: LaunchContext, steps: Iterable[PreparedDispatch], *, is_counted: bool = False
) -> DriverGraph:
    """Instantiate a graph of the launches of some dispatches, in order."""
    with machine.context.active():
        nodes = DriverGraphBuilder(machine.context)
        for step in steps:
            nodes.launch_step(step)
        return DriverGraph(machine, nodes, is_counted=is_counted)
