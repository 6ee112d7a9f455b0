"""Launches kernels without messages, record buffers, and bounds computed on the device.

Most kernels are like that, and their launch takes as few steps of Python as possible. A launch that
repeats with the same arguments is replayed as a driver graph, in half the driver's time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from ctypes import c_void_p
from typing import TYPE_CHECKING, Any

from octants.artifact import SYSTEM, Artifact
from octants.diagnostics.exceptions import OctantsError
from octants.runtime.cuda.graphs.driver_graph import DriverGraph, graph_of
from octants.runtime.cuda.launch_state import LaunchState
from octants.runtime.cuda.streams import Stream
from octants.runtime.gpu.kernel import resize
from octants.runtime.parameter_blocks.slots import SlotViews, bounds_reader

if TYPE_CHECKING:
    from octants.runtime.cuda.launch_context import LaunchContext

SYSTEM_BYTES = 8 * len(SYSTEM)
SAME = 64
"""Launches with the same arguments before a graph is made: making one costs what fifty replays
save. After `_OWN_GRAPHS` graphs that are no longer used, the next one is made later.
"""
_MOST_SAME = 1024
_COUNTED = 16  # argument lists whose launches are counted at a time
_OWN_GRAPHS = 4  # graphs of one launcher: programs swap two arrays, or rotate three
MOST_GRAPHS = 256


class _Launches:
    """The state of the launches with one parameter block, of which there is one at a time.

    `replayed` has the driver graphs of launches that repeat, by the bytes of their arguments.
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
        self.has_concurrent_groups = any(step.action.dispatch.group for step in frame.steps)
        self._machine, self._view, self._slots = machine, view, slots
        actions = [step.action for step in frame.steps]
        bounds = [action.dispatch.bounds for action in actions if action.bounds is not None]
        self.has_changing_bounds = bool(bounds)
        self._read_bounds = bounds_reader(bounds, slots) or _no_bounds
        self._bounds: tuple[int, ...] | None = None
        self._counts: dict[bytes, int] = {}
        self._awaited = SAME
        self._graphs: list[DriverGraph] = []
        # Random numbers depend on the number of the launch, which is not among the arguments.
        self._may_repeat = not (artifact.draws or self.has_concurrent_groups)

    def resize(self) -> None:
        """Set up the launch for the present arguments."""
        bounds = self._read_bounds(self._view)
        if bounds != self._bounds:
            resize(self.frame.steps, self._slots.unpack(self._view))
            self._bounds = bounds

    def prepare(self, arguments: bytes) -> None:
        """Set up a launch in the default stream that has no graph; make one if it has repeated
        enough.
        """
        if self.has_changing_bounds:
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
        elif self._machine.replayed_graphs < MOST_GRAPHS:
            with contextlib.suppress(OctantsError):  # then it is launched as before
                steps = [step for step in self.frame.steps if not step.is_empty]
                graph = graph_of(self._machine, steps, is_counted=True)
                self._graphs.append(graph)
                self.replayed[arguments] = graph.handle

    def replay_in_context(self, graph: c_void_p) -> None:
        """Replay a graph in the kernel's context, where another one is current or that failed.

        Raises:
            OctantsRuntimeError: the replay fails here, too.
        """
        context = self._machine.context
        with context.active():
            context.call("cuGraphLaunch", graph, None)

    def launch_in_streams(self) -> None:
        """Launch while streams wait for each other, with tasks that run concurrently, or while
        another GPU is in use.
        """
        if not self._machine.streams.is_one_of_several:
            self._launch_in_streams()
            return
        with self._machine.context.active():
            self._launch_in_streams()

    def _launch_in_streams(self) -> None:
        self.resize()
        streams = self._machine.streams
        streams.here()
        stream, beside = streams.current.stream, dict[int, Stream]()
        if self.frame.stream is not stream:
            self.frame.move(stream)
        for step in self.frame.steps:
            group = step.action.dispatch.group
            if group and group not in beside:
                beside[group] = stream.group_stream(group)
                streams.order(stream, beside[group])
            while beside and not group:
                streams.order(beside.popitem()[1], stream)
            if not step.is_empty:
                step.launch()
        for other in beside.values():
            streams.order(other, stream)
        streams.release()


def _no_bounds(_: Any) -> None:
    """The slots that constant bounds depend on: none."""


def make_launcher(
    machine: LaunchContext,
    artifact: Artifact,
    frame: LaunchState,
    view: memoryview[int],
    slots: SlotViews,
) -> Callable[[], None]:
    """Make the function that launches the dispatches of ``frame`` with one parameter block.

    Args:
        view: The bytes of the block, which one launch at a time uses.
    """
    own = _Launches(machine, artifact, frame, view, slots)
    arguments: Any = view[SYSTEM_BYTES:]
    streams, default, steps = machine.streams, machine.streams.default, frame.steps
    replayed, prepare, has_concurrent_groups = own.replayed, own.prepare, own.has_concurrent_groups
    name, versions = artifact.kernel or artifact.name, machine.versions
    watches, report = versions.watches, versions.reporter(artifact.writes, slots)
    context, current, handle = machine.context, machine.context.current, machine.context.handle
    note, get_current = context.launched.append, machine.library.cuCtxGetCurrent
    run: Callable[..., int] = machine.library.cuLaunchKernelEx
    replay: Callable[..., int] = machine.library.cuGraphLaunch

    def launch() -> None:
        note(name)
        if watches:
            report(view)
        if streams.is_busy or has_concurrent_groups or frame.stream is not default:
            own.launch_in_streams()
            return
        given = bytes(arguments)
        graph = replayed.get(given)
        if graph is not None:
            get_current(current.reference)  # the default stream is that of the current context
            if current.handle.value != handle or replay(graph, None):
                own.replay_in_context(graph)
            return
        prepare(given)
        for step in steps:
            if not step.is_empty:
                status = run(step.configured, step.handle, step.arguments, None)
                if status:
                    step.launch_again(status)

    return launch
