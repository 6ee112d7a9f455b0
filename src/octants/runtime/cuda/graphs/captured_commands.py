"""Replays captured commands as one driver graph.

Each node of the graph has a record buffer of fixed size: what an earlier launch needed, where the
arguments alone decide how much work items need. Where the contents of memory matter too, or the
need is unknown, and while the profiler is on, the commands run one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from octants import timeline
from octants.diagnostics.exceptions import OctantsMemoryError
from octants.runtime.capture import Command, Launch
from octants.runtime.cuda.graphs.instantiated_graph import InstantiatedGraph, Unplanned

if TYPE_CHECKING:
    from octants.runtime.cuda.launch_context import LaunchContext


class CudaGraph:
    """Replays the commands of a capture; see `runtime.device.Device.make_graph`.

    ``kept`` is what the commands use; it is kept alive.
    """

    def __init__(
        self, machine: LaunchContext, commands: Sequence[Command], kept: Any = None
    ) -> None:
        self._machine = machine
        self._kept = kept
        self._commands = commands
        self._may_be_built = all(map(_may_be_planned, commands))
        self._graph: InstantiatedGraph | None = None
        self._build(0)

    @property
    def is_one_launch(self) -> bool:
        """Whether the next replay is one launch of a driver graph."""
        return self._graph is not None

    def _build(self, later: int) -> None:
        if not self._may_be_built or timeline.active() is not None:
            self._graph = None  # the profiler times launch by launch
            return
        try:
            self._graph = InstantiatedGraph(self._machine, self._commands, later)
        except (Unplanned, OctantsMemoryError):
            self._graph = None

    def __call__(self, later: int) -> None:
        """Queue a replay, whose launches have numbers that are larger by ``later``."""
        machine, graph = self._machine, self._graph
        if graph is not None and graph.prints and machine.messages.awaits(graph):
            machine.wait_for_launches()  # so that the output of two replays is not mixed
        if graph is None:
            for command in self._commands:
                command(later)
            self._build(later)
            return
        if not graph.buffers and later == graph.later and machine.has_graphs_in_default_stream:
            graph.will_write()  # in fewer steps
            machine.context.launched.extend(graph.names)
            graph.graph.launch_here()
            return
        with machine.context.active():
            stream = machine.streams.current_handle()
            machine.begin_graph()
            if later != graph.later:
                graph.renumber(later)
            graph.will_write()
            machine.context.launched.extend(graph.names)
            graph.graph.launch(stream)
            machine.streams.release()
        if graph.buffers:
            machine.messages.put_shared_buffers(graph, graph.buffers)


def _may_be_planned(command: Command) -> bool:
    """Whether the arguments of a launch alone decide how large its record buffers have to be."""
    if not isinstance(command, Launch):
        return True
    recordings = (
        (action.recording, action.is_computed)
        for action in command.kernel.actions
        if action.recording is not None
    )
    return all(recording.may_be_planned(is_computed) for recording, is_computed in recordings)
