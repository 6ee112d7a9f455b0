"""Graphs that the driver launches as one.

Three things are replayed: what a capture noted (`graph_capture`), a launch with the same arguments
again and again (`fast_launcher`), and the dispatches of one kernel with other arguments each time
(`kernel`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from ctypes import byref, c_void_p
from typing import TYPE_CHECKING

from octants.runtime.cuda.graph_nodes import Nodes
from octants.runtime.cuda.launch_state import PreparedDispatch

if TYPE_CHECKING:
    from octants.runtime.cuda.launch_context import LaunchContext


class DriverGraph:
    """A graph that the driver launches as one: the only way in which anything is replayed.

    It is destroyed some time after it is dropped. One that `is_counted` is among those of
    `LaunchContext.replayed_graphs`.
    """

    def __init__(self, machine: LaunchContext, nodes: Nodes, *, is_counted: bool = False) -> None:
        self._machine, self._is_counted = machine, is_counted
        self._kernels = nodes.kernels
        self._handles = nodes.finish()
        self.handle = c_void_p(self._handles[1])
        machine.replayed_graphs += is_counted

    def __del__(self) -> None:
        if hasattr(self, "_handles"):
            self._machine.dropped_graphs.append(self._handles)
            self._machine.replayed_graphs -= self._is_counted

    def change(self, steps: Collection[PreparedDispatch]) -> None:
        """Launch some of its steps as they are now: with their blocks, words and arguments."""
        context = self._machine.context
        change = context.library.cuGraphExecKernelNodeSetParams
        for step in steps:
            node, made = self._kernels[step]
            made.grid, made.block = step.configuration.grid, step.configuration.block
            status = change(self.handle, node, byref(made))
            if status:
                raise context.error("cuGraphExecKernelNodeSetParams", status)

    def launch(self, stream: int) -> None:
        """Queue all of it in a stream."""
        self._machine.context.call("cuGraphLaunch", self.handle, c_void_p(stream))


def graph_of(
    machine: LaunchContext, steps: Iterable[PreparedDispatch], *, is_counted: bool = False
) -> DriverGraph:
    """The launches of some steps, one after the other."""
    with machine.context.active():
        nodes = Nodes(machine.context)
        for step in steps:
            nodes.launch_step(step)
        return DriverGraph(machine, nodes, is_counted=is_counted)
