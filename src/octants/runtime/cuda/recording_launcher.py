"""Launches kernels with record buffers; one that repeats is replayed as a driver graph.

A graph has the arguments and the launch words of the launches that it is made from. So it is
replayed while the arguments, the versions of memory that sizes depend on, and the addresses of the
record buffers are the same (`gpu.record_buffer_growth.Repeat`). All other launches go to ``queue``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from octants.artifact import SYSTEM_BYTES
from octants.runtime.cuda.fast_launcher import SAME
from octants.runtime.cuda.graphs.driver_graph import DriverGraph, graph_of
from octants.runtime.cuda.launch_state import LaunchState
from octants.runtime.gpu.kernel import GpuKernel
from octants.runtime.gpu.record_buffer_growth import Recording, Repeat
from octants.runtime.repetitions import Repetitions

if TYPE_CHECKING:
    from octants.runtime.cuda.launch_context import LaunchContext


class _Replay:
    """The graph of the last launches with one parameter block, once they have repeated enough."""

    def __init__(self, machine: LaunchContext, kernel: GpuKernel, frame: LaunchState) -> None:
        self.arguments = b""
        self.graph: DriverGraph | None = None
        self.repeats: list[tuple[Recording, Repeat]] = []
        self.slots: tuple[int, ...] = ()
        self._machine, self._kernel, self._frame = machine, kernel, frame
        self._repetitions = Repetitions[None](SAME)
        self._may_repeat = not kernel.artifact.draws

    def note(self, arguments: bytes, block: int) -> None:
        """Count a launch that was queued; make its graph if it has repeated enough."""
        self.graph, self.arguments = None, arguments
        if self._may_repeat and self._repetitions.is_due(arguments):
            self._make_graph(block)
            self._repetitions.drop(arguments)

    def _make_graph(self, block: int) -> None:
        steps = [step for step in self._frame.steps if not step.is_empty]
        self.repeats = []
        for step in steps:
            if step.action.recording is not None:
                last: Repeat | None = step.repeat
                if last is None or last.bounds != (step.known or (0, 1)):
                    return
                self.repeats.append((step.action.recording, last))
        self.slots = self._kernel.slots_at(block)
        self.graph = graph_of(self._machine, steps)


def make_recording_launcher(
    machine: LaunchContext,
    kernel: GpuKernel,
    frame: LaunchState,
    block: int,
    queue: Callable[[LaunchState, int], None],
) -> Callable[[], None]:
    """Make the function that launches a kernel with one parameter block.

    Args:
        machine: The GPU.
        kernel: The kernel, which computes no bounds and has no messages.
        frame: The state of the launches with this block, of which there is one at a time.
        block: The address of the block.
        queue: Queues a launch in any stream, with any sizes of record buffers.
    """
    own = _Replay(machine, kernel, frame)
    view = kernel.slots.view(block)
    arguments: Any = view[SYSTEM_BYTES:]
    streams, context, versions = machine.streams, machine.context, machine.versions
    default, note, name = streams.default, context.launched.append, kernel.name
    watches, report = versions.watches, versions.reporter(kernel.artifact.writes, kernel.slots)
    buffers = machine.record_buffers_of(default)

    def launch() -> None:
        given = bytes(arguments)
        if streams.is_busy or frame.stream is not default:
            queue(frame, block)
            return
        graph = own.graph
        if graph is not None and given == own.arguments:
            if watches:
                report(view)
            with buffers.lock:
                for recording, last in own.repeats:
                    if not recording.repeats(last, buffers, own.slots):
                        break
                else:
                    note(name)
                    graph.launch_here()
                    for recording, last in own.repeats:
                        recording.repeated(last, buffers)
                    return
        queue(frame, block)
        own.note(given, block)

    return launch
