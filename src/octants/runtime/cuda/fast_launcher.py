"""Launches kernels without messages, record buffers, and bounds computed on the device.

Most kernels are like that, and their launch takes as few steps of Python as possible. A launch that
repeats with the same arguments is replayed as a driver graph, in half the driver's time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from octants.artifact import SYSTEM_BYTES, Artifact
from octants.diagnostics.exceptions import OctantsError
from octants.runtime.cuda.graphs.driver_graph import MOST_GRAPHS, DriverGraph, graph_of
from octants.runtime.cuda.launch_state import LaunchState
from octants.runtime.cuda.streams import Stream
from octants.runtime.gpu.kernel import resize
from octants.runtime.parameter_blocks.slots import SlotViews, bounds_reader
from octants.runtime.repetitions import Repetitions

if TYPE_CHECKING:
    from octants.runtime.cuda.launch_context import LaunchContext

SAME = 64
"""Launches with the same arguments before a graph is made: making one costs what fifty replays
save.
"""
_COUNTED = 16  # argument lists whose launches are counted at a time
_OWN_GRAPHS = 4  # graphs of one launcher: programs swap two arrays, or rotate three


class _Launches:
    """The state of the launches with one parameter block, of which there is one at a time.

    `repetitions` has the driver graphs of launches that repeat, by the bytes of their arguments.
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
        self.repetitions = Repetitions[DriverGraph](SAME, most=_OWN_GRAPHS, counted=_COUNTED)
        self.has_concurrent_groups = any(step.action.dispatch.group for step in frame.steps)
        self._machine, self._view, self._slots = machine, view, slots
        actions = [step.action for step in frame.steps]
        bounds = [action.dispatch.bounds for action in actions if action.bounds is not None]
        self.has_changing_bounds = bool(bounds)
        self._read_bounds = bounds_reader(bounds, slots) or _no_bounds
        self._bounds: tuple[int, ...] | None = None
        # Random numbers depend on the number of the launch, which is not among the arguments.
        self._may_repeat = not (artifact.draws or self.has_concurrent_groups)

    def resize(self) -> None:
        """Set up the launch for the present arguments."""
        bounds = self._read_bounds(self._view)
        if bounds != self._bounds:
            resize(self.frame.steps, self._slots.unpack(self._view))
            self._bounds = bounds

    def make_graph(self, arguments: bytes) -> None:
        """Make the graph of a launch that has repeated enough, and is set up."""
        if self._may_repeat and self._machine.replayed_graphs < MOST_GRAPHS:
            with contextlib.suppress(OctantsError):  # then it is launched as before
                steps = [step for step in self.frame.steps if not step.is_empty]
                graph = graph_of(self._machine, steps, is_counted=True)
                self.repetitions.made[arguments] = graph

    def replay_in_context(self, graph: DriverGraph) -> None:
        """Replay a graph in the kernel's context, where another one is current or that failed.

        Raises:
            OctantsRuntimeError: the replay fails here, too.
        """
        context = self._machine.context
        with context.active():
            context.call("cuGraphLaunch", graph.handle, None)

    def launch_in_context(self) -> None:
        """Launch in the default stream of the kernel's context, where another one is current."""
        with self._machine.context.active():
            for step in self.frame.steps:
                if not step.is_empty:
                    step.launch()

    def launch_in_streams(self) -> None:
        """Launch while streams wait for each other, or with tasks that run concurrently."""
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
        updated = self.frame.updated
        if updated is not None and updated.launch(stream.handle):
            streams.release()
            return
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
    graphs, is_due = own.repetitions.made, own.repetitions.is_due
    has_changing_bounds, updated = own.has_changing_bounds, frame.updated
    has_concurrent_groups = own.has_concurrent_groups
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
        given = arguments.tobytes()
        graph = graphs.get(given)
        if graph is not None:
            get_current(current.reference)  # the default stream is that of the current context
            if current.handle.value != handle or replay(graph.handle, None):
                own.replay_in_context(graph)
            return
        if has_changing_bounds:
            own.resize()
        if is_due(given):
            own.make_graph(given)
        if updated is not None and updated.launch():
            return
        if streams.is_one_of_several and not context.is_current():
            own.launch_in_context()
            return
        for step in steps:
            if not step.is_empty:
                status = run(step.configured, step.handle, step.arguments, None)
                if status:
                    step.launch_again(status)

    return launch
