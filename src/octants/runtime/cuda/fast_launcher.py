"""Launches kernels without messages, record buffers, concurrent tasks, and computed bounds.

Most kernels are like that, and their launch takes as few steps of Python as possible. A launch that
repeats with the same arguments is replayed as a driver graph, in half the driver's time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from octants.artifact import SYSTEM_BYTES
from octants.runtime.cuda.graphs.driver_graph import DriverGraph, graph_of
from octants.runtime.cuda.launch_state import LaunchState
from octants.runtime.gpu.kernel import GpuKernel, resize
from octants.runtime.parameter_blocks.slots import bounds_reader
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

    def __init__(self, machine: LaunchContext, kernel: GpuKernel, frame: LaunchState) -> None:
        self.repetitions = Repetitions[DriverGraph](SAME, most=_OWN_GRAPHS, counted=_COUNTED)
        self._machine, self._slots, self._steps = machine, kernel.slots, frame.steps
        # Random numbers depend on the number of the launch, which is not among the arguments.
        self._may_repeat = not kernel.artifact.draws
        bounds = [each.dispatch.bounds for each in kernel.actions if each.bounds is not None]
        self.has_changing_bounds = bool(bounds)
        self._read_bounds = bounds_reader(bounds, kernel.slots) or _no_bounds
        self._bounds: tuple[int, ...] | None = None

    def resize(self, view: memoryview[int]) -> None:
        """Set up the launch for the present arguments."""
        bounds = self._read_bounds(view)
        if bounds != self._bounds:
            resize(self._steps, self._slots.unpack(view))
            self._bounds = bounds

    def forget_bounds(self) -> None:
        """Forget which bounds the state is set up for: another launch has used it."""
        self._bounds = None

    def make_graph(self, arguments: bytes) -> None:
        """Make the graph of a launch that has repeated enough, and is set up."""
        if self._may_repeat:
            graph = graph_of(self._machine, [step for step in self._steps if not step.is_empty])
            if graph is not None:
                self.repetitions.made[arguments] = graph


def _no_bounds(_: Any) -> None:
    """The slots that constant bounds depend on: none."""


def make_launcher(
    machine: LaunchContext,
    kernel: GpuKernel,
    frame: LaunchState,
    block: int,
    queue: Callable[[LaunchState, int], None],
) -> Callable[[], None]:
    """Make the function that launches a kernel with one parameter block.

    Args:
        machine: The GPU.
        kernel: The kernel, without messages, record buffers, and concurrent tasks.
        frame: The state of the launches with this block, of which there is one at a time.
        block: The address of the block.
        queue: Queues a launch in any stream and context.
    """
    own, view = _Launches(machine, kernel, frame), kernel.slots.view(block)
    arguments: Any = view[SYSTEM_BYTES:]
    streams, default, steps = machine.streams, machine.streams.default, frame.steps
    graphs, is_due = own.repetitions.made, own.repetitions.is_due
    has_changing_bounds, updated = own.has_changing_bounds, frame.updated
    name, versions = kernel.name, machine.versions
    watches, report = versions.watches, versions.reporter(kernel.artifact.writes, kernel.slots)
    context, current, handle = machine.context, machine.context.current, machine.context.handle
    note, get_current = context.launched.append, machine.library.cuCtxGetCurrent
    run: Callable[..., int] = machine.library.cuLaunchKernelEx
    replay: Callable[..., int] = machine.library.cuGraphLaunch

    def launch_anywhere() -> None:
        own.forget_bounds()
        queue(frame, block)

    def launch() -> None:
        if streams.is_busy or frame.stream is not default:
            launch_anywhere()
            return
        given = arguments.tobytes()
        graph = graphs.get(given)
        if graph is not None or streams.is_one_of_several:
            get_current(current.reference)  # the default stream is that of the current context
            if current.handle.value != handle:
                with context.active():
                    launch()
                return
        note(name)
        if watches:
            report(view)
        if graph is not None:
            if replay(graph.handle, None):
                launch_anywhere()
            return
        if has_changing_bounds:
            own.resize(view)
        if is_due(given):
            own.make_graph(given)
        if updated is not None and updated.launch():
            return
        for step in steps:
            if not step.is_empty:
                status = run(step.configured, step.handle, step.arguments, None)
                if status:
                    step.launch_again(status)

    return launch
