"""Captured commands as a graph of the driver, which is launched as one.

Where the host knows what work items need of the tapes, they have just that. Where memory has a say,
they have twice of what they needed last; if that is not enough, the replay stops, and goes on when
the host looks (`graph_replay`). Then the graph is built anew. Where nothing is known of what they
need, a replay runs launch by launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from octants.diagnostics.exceptions import OctantsMemoryError
from octants.runtime.capture import Command, Launch
from octants.runtime.cuda.graph_replay import GraphReplay
from octants.runtime.cuda.instantiated_graph import BuiltGraph, Unplanned

if TYPE_CHECKING:
    from octants.runtime.cuda.launch_context import LaunchContext


class CudaGraph:
    """What does captured commands again; what they need is ``kept``, also by replays that wait."""

    def __init__(
        self, machine: LaunchContext, commands: Sequence[Command], kept: Any = None
    ) -> None:
        self._machine = machine
        self._kept = kept
        self._commands = commands
        self._built: BuiltGraph | None = None
        self._build(0)

    @property
    def is_one_launch(self) -> bool:
        """Whether the next replay is a single launch."""
        return self._built is not None

    def _build(self, later: int) -> None:
        try:
            self._built = BuiltGraph(self._machine, self._commands, later)
        except (Unplanned, OctantsMemoryError):
            self._built = None

    def __call__(self, later: int) -> None:
        machine, built = self._machine, self._built
        if built is not None and built.prints and machine.messages.awaits(built):
            machine.look()  # lest what two replays print be mixed
            built = self._built
        if built is None:
            self._run_apart(later)
            self._build(later)
            return
        with machine.context.active():
            stream = machine.streams.ready() if built.unsure else machine.streams.here()
            machine.begin_graph()
            if later != built.later:
                built.renumber(later)
            versions = built.versions() if built.unsure else None
            built.will_write()
            machine.context.launched.extend(built.names)
            built.graph.launch(stream)
            machine.streams.release()
        if built.buffers:
            machine.messages.put_kept(built, built.buffers)
        if built.unsure:
            machine.replays.queued(GraphReplay(self, built, later, versions))

    def _run_apart(self, later: int, first: int = 0) -> None:
        """Run launch by launch, from a command on, and learn what they need."""
        for command in self._commands[first:]:
            command(later)
            if isinstance(command, Launch):
                command.quotas = command.kernel.quotas()

    def go_on(self, replay: GraphReplay, number: int) -> None:
        """Do what a replay has left undone since the node of a number, whose tapes were too small.

        `OctantsMemoryError` where there is no memory for them.
        """
        built = self._built
        assert built is not None and built is replay.built
        launch, place = built.find(number)
        self._built = None
        with self._machine.context.active():
            launch.renumber(replay.later)
            launch.go_on(place)
        following = next(k for k, each in enumerate(self._commands) if each is launch.command) + 1
        self._run_apart(replay.later, following)
        self._build(replay.later)
