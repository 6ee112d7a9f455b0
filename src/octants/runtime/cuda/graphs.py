"""Captured commands as a graph of the driver, which is launched as one.

Where the host knows what work items need of the tapes, they have just that. Where memory has a say,
they have twice of what they needed last; the next synchronisation looks whether it was enough, and
raises an error if not. Then, and where nothing is known of what they need, a replay runs launch by
launch, as far as that takes; after it the graph is built anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from octants.diagnostics.exceptions import OctantsError, OctantsMemoryError
from octants.diagnostics.graph_errors import GraphRanOut
from octants.runtime.capture import Command, Launch
from octants.runtime.cuda.built import BuiltGraph, Unplanned

if TYPE_CHECKING:
    from octants.runtime.cuda.machine import Machine


class CudaGraph:
    """What does captured commands again."""

    def __init__(self, machine: Machine, commands: Sequence[Command]) -> None:
        self._machine = machine
        self._commands = commands
        self._built: BuiltGraph | None = None
        self._build(0)

    def __del__(self) -> None:
        self._drop()

    @property
    def is_one_launch(self) -> bool:
        """Whether the next replay is a single launch."""
        return self._built is not None

    def _build(self, later: int) -> None:
        try:
            self._built = BuiltGraph(self._machine, self._commands, later)
        except (Unplanned, OctantsMemoryError):
            self._built = None

    def _drop(self) -> None:
        built = self.__dict__.get("_built")
        if built is not None:
            self._machine.dropped_graphs.append(built.handles)
            self._built = None

    def __call__(self, later: int) -> None:
        built = self._built
        if built is None:
            self._run_apart(later)
            self._build(later)
            return
        machine = self._machine
        if built.prints and machine.messages.awaits(built):
            machine.look()  # lest what two replays print be mixed
        with machine.context.active():
            machine.begin_graph()
            if later != built.later:
                built.renumber(later)
            machine.context.launched.extend(built.names)
            machine.context.call("cuGraphLaunch", built.handles[1], machine.streams.here())
            machine.streams.release()
        if built.buffers:
            machine.messages.put_kept(built, built.buffers)
        if built.unsure:
            machine.unsure_graphs[id(self)] = self

    def _run_apart(self, later: int) -> None:
        """Run launch by launch, and learn what they need."""
        for command in self._commands:
            command(later)
            if isinstance(command, Launch):
                command.rooms = command.kernel.rooms()

    def look(self) -> OctantsError | None:
        """The error for tapes that were too small in what has run."""
        shortage = None if self._built is None else self._built.shortage()
        if shortage is None:
            return None
        self._drop()
        need, artifact = shortage
        return GraphRanOut(artifact.kernel or artifact.name, need).at(None)
