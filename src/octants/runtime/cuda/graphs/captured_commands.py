"""Replays captured commands as one driver graph.

Each node of the graph has a record buffer of fixed size. Where the arguments alone decide how much
work items need, that is what an earlier launch needed. Where the contents of memory matter too, it
is twice that, and a replay that runs out is aborted and resumed (`replays`); then the graph is
built again. Where the need is unknown, and while the profiler is on, the commands run one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from octants import timeline
from octants.diagnostics.exceptions import OctantsMemoryError
from octants.lazy_dataclass import dataclass
from octants.runtime.capture import Command, Launch
from octants.runtime.cuda.graphs.instantiated_graph import InstantiatedGraph, Unplanned

if TYPE_CHECKING:
    from octants.runtime.cuda.launch_context import LaunchContext


class CudaGraph:
    """Replays the commands of a capture; see `runtime.device.Device.make_graph`.

    ``kept`` is what the commands use; it is kept alive, also by replays that are not complete.
    """

    def __init__(
        self, machine: LaunchContext, commands: Sequence[Command], kept: Any = None
    ) -> None:
        self._machine = machine
        self._kept = kept
        self._commands = commands
        self._graph: InstantiatedGraph | None = None
        self._build(0)

    @property
    def is_one_launch(self) -> bool:
        """Whether the next replay is one launch of a driver graph."""
        return self._graph is not None

    @property
    def may_be_resumed(self) -> bool:
        """Whether the next replay may run out of space for records, or consists of launches."""
        return self._graph is None or self._graph.unsure

    def _build(self, later: int) -> None:
        if timeline.active() is not None:  # the profiler times launch by launch
            self._graph = None
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
            graph = self._graph
        if graph is None:
            self._run_commands(later)
            self._build(later)
            return
        is_plain = not (graph.unsure or graph.buffers) and later == graph.later
        if is_plain and machine.has_graphs_in_default_stream:  # in fewer steps
            graph.will_write()
            machine.context.launched.extend(graph.names)
            graph.graph.launch_here()
            return
        with machine.context.active():
            stream = (
                machine.streams.handle_without_settling()
                if graph.unsure
                else machine.streams.current_handle()
            )
            machine.begin_graph()
            if later != graph.later:
                graph.renumber(later)
            versions = graph.versions() if graph.unsure else None
            graph.will_write()
            machine.context.launched.extend(graph.names)
            graph.graph.launch(stream)
            machine.streams.release()
        if graph.buffers:
            machine.messages.put_shared_buffers(graph, graph.buffers)
        if graph.unsure:
            machine.replays.add(_QueuedReplay(self, graph, later, versions))

    def _run_commands(self, later: int, first: int = 0) -> None:
        """Run the commands from a position on one by one, and measure their record buffers."""
        for command in self._commands[first:]:
            command(later)
            if isinstance(command, Launch):
                command.quotas = command.kernel.quotas()

    def resume(self, graph: InstantiatedGraph, later: int, number: int) -> None:
        """Run the rest of an aborted replay, from the node with a number on; build the graph again.

        Raises:
            OctantsMemoryError: there is no memory for larger record buffers.
        """
        assert graph is self._graph
        launch, first = graph.find(number)
        self._graph = None
        with self._machine.context.active():
            launch.renumber(later)
            launch.resume(first)
        following = next(k for k, each in enumerate(self._commands) if each is launch.command) + 1
        self._run_commands(later, following)
        self._build(later)


@dataclass(frozen=True, slots=True)
class _QueuedReplay:
    """A `replays.Replay` of a graph as it was instantiated then.

    `versions` are those of the memory that decides how large a record buffer it needs; None if
    unknown.
    """

    owner: CudaGraph
    graph: InstantiatedGraph
    later: int
    versions: list[tuple[int, ...]] | None

    @property
    def is_proved(self) -> bool:
        return self.versions is not None and self.versions == self.graph.proved

    def prove(self) -> None:
        self.graph.proved = self.versions

    def resume(self, number: int) -> None:
        self.owner.resume(self.graph, self.later, number)

    def repeat(self) -> None:
        self.owner(self.later)
