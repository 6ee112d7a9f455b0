"""Launches of kernels that say nothing, record nothing, and are told all bounds by the host.

Most kernels are like that, and their launch is as few steps of Python as can be. A launch with the
same arguments as some before it is replayed as a graph of the driver, which takes it half the time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from ctypes import c_void_p
from typing import TYPE_CHECKING, Any

from octants.artifact import SYSTEM, Artifact
from octants.diagnostics.exceptions import OctantsError
from octants.runtime.cuda.driver_graph import DriverGraph, graph_of
from octants.runtime.cuda.launch_state import LaunchState
from octants.runtime.cuda.streams import Stream
from octants.runtime.parameter_blocks.slots import SlotViews, bounds_reader

if TYPE_CHECKING:
    from octants.runtime.cuda.launch_context import LaunchContext

_SYSTEM_BYTES = 8 * len(SYSTEM)
_SAME = 64
"""Launches with the same arguments, after which there is a graph: it takes as long to be made as
some fifty replays of it save. Where graphs were of no use any more, the next ones wait longer.
"""
_MOST_SAME = 1024
_COUNTED = 16  # lists of arguments whose launches are counted at a time
_OWN_GRAPHS = 4  # of one launcher: programs swap two arrays, or take three in turns
_MOST_GRAPHS = 256


class _Plain:
    """What one launch at a time uses, for a parameter block.

    `replayed` has the graphs of the driver for launches with the same arguments, by their bytes.
    """

    def __init__(
        self,
        machine: LaunchContext,
        artifact: Artifact,
        frame: LaunchState,
        view: memoryview[int],
        slots: SlotViews,
    ) -> None:
        self.frame = frame
        self.replayed: dict[bytes, c_void_p] = {}
        self.has_sides = any(step.action.dispatch.side for step in frame.steps)
        self._machine, self._view, self._slots = machine, view, slots
        actions = [step.action for step in frame.steps]
        told = [action.dispatch.bounds for action in actions if action.bounds is not None]
        self._read_bounds = bounds_reader(told, slots) or _no_bounds
        self._told: tuple[int, ...] | None = None
        self._counts: dict[bytes, int] = {}
        self._awaited = _SAME
        self._graphs: list[DriverGraph] = []
        # What draws depends on the number of the launch, which is none of the arguments.
        self._may_repeat = not ("draws" in dict(artifact.metadata) or self.has_sides)

    def resize(self) -> None:
        """Be ready to launch with the arguments as they are."""
        told = self._read_bounds(self._view)
        if told != self._told:
            self.frame.resize(self._slots.unpack(self._view))
            self._told = told

    def prepare(self, arguments: bytes) -> None:
        """The same for arguments of which there is no graph, in the default stream."""
        self.resize()
        counts = self._counts
        count = counts[arguments] = counts.get(arguments, 0) + 1
        if count == self._awaited and self._may_repeat:
            self._make_graph(arguments)
        elif len(counts) > _COUNTED:
            counts.clear()

    def _make_graph(self, arguments: bytes) -> None:
        if len(self._graphs) == _OWN_GRAPHS:
            self.replayed.clear()
            self._graphs.clear()
            self._awaited = min(2 * self._awaited, _MOST_SAME)
        elif self._machine.replayed_graphs < _MOST_GRAPHS:
            with contextlib.suppress(OctantsError):  # then it is launched as before
                steps = [step for step in self.frame.steps if not step.is_empty]
                graph = graph_of(self._machine, steps, is_counted=True)
                self._graphs.append(graph)
                self.replayed[arguments] = graph.handle

    def replay_again(self, graph: c_void_p) -> None:
        """Replay what has failed, perhaps because the context is not the thread's own; or raise."""
        context = self._machine.context
        with context.active():
            context.call("cuGraphLaunch", graph, None)

    def launch_in_streams(self) -> None:
        """Launch where others wait or are waited for, and tasks of several sides side by side."""
        self.resize()
        streams = self._machine.streams
        streams.here()
        stream, beside = streams.current.stream, dict[int, Stream]()
        if self.frame.stream is not stream:
            self.frame.move(stream)
        for step in self.frame.steps:
            side = step.action.dispatch.side
            if side and side not in beside:
                beside[side] = stream.side(side)
                streams.order(stream, beside[side])
            while beside and not side:
                streams.order(beside.popitem()[1], stream)
            if not step.is_empty:
                step.launch()
        for other in beside.values():
            streams.order(other, stream)
        streams.release()


def _no_bounds(_: Any) -> None:
    """What bounds depend on that are the same in all launches."""


def make_launcher(
    machine: LaunchContext,
    artifact: Artifact,
    frame: LaunchState,
    view: memoryview[int],
    slots: SlotViews,
) -> Callable[[], None]:
    """What launches the steps of a frame with the parameters of a block.

    ``view`` are the bytes of that. No two launches use a block at once.
    """
    own = _Plain(machine, artifact, frame, view, slots)
    arguments: Any = view[_SYSTEM_BYTES:]
    streams, default, steps = machine.streams, machine.streams.default, frame.steps
    replayed, prepare, has_sides = own.replayed, own.prepare, own.has_sides
    name, versions = artifact.kernel or artifact.name, machine.versions
    watches, tell = versions.watches, versions.teller(artifact.writes, slots)
    note = machine.context.launched.append
    run: Callable[..., int] = machine.library.cuLaunchKernelEx
    replay: Callable[..., int] = machine.library.cuGraphLaunch

    def launch() -> None:
        note(name)
        if watches:
            tell(view)
        if streams.is_busy or has_sides or frame.stream is not default:
            own.launch_in_streams()
            return
        given = bytes(arguments)
        graph = replayed.get(given)
        if graph is not None:
            if replay(graph, None):
                own.replay_again(graph)
            return
        prepare(given)
        for step in steps:
            if not step.is_empty:
                status = run(step.configured, step.handle, step.arguments, None)
                if status:
                    step.launch_again(status)

    return launch
