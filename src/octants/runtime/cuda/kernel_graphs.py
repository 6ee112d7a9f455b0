"""The dispatches of one kernel as a graph, whose parameters are others at each launch."""

from __future__ import annotations

from ctypes import byref, c_void_p
from typing import TYPE_CHECKING, Any

from octants.runtime.cuda.frame import Frame
from octants.runtime.cuda.nodes import Nodes, kernel_node

if TYPE_CHECKING:
    from octants.runtime.cuda.machine import Machine

LEAST_NODES = 8
"""Fewer launches than these take less than a graph whose parameters are changed."""


class KernelGraph:
    """A graph of all steps of a frame. Its threads do not change as long as the bounds do not."""

    def __init__(self, machine: Machine, frame: Frame) -> None:
        self._machine, self.frame = machine, frame
        self._handles = (0, 0)
        self._nodes: list[tuple[Any, Any, int, Any]] = []
        nodes = Nodes(machine.context)
        for step in frame.steps:
            made = kernel_node(step)
            self._nodes.append((step, made, nodes.launch(made), byref(made)))
        self._handles = nodes.finish()

    def __del__(self) -> None:
        if self._handles[1]:
            self._machine.dropped_graphs.append(self._handles)

    def launch(self, stream: int) -> None:
        """Launch it, as the frame is now."""
        context, launched = self._machine.context, self._handles[1]
        change = self._machine.library.cuGraphExecKernelNodeSetParams
        for step, made, node, reference in self._nodes:
            made.grid, made.block = step.configuration.grid, step.configuration.block
            status = change(launched, node, reference)
            if status:
                raise context.error("cuGraphExecKernelNodeSetParams", status)
        context.call("cuGraphLaunch", c_void_p(launched), c_void_p(stream))
