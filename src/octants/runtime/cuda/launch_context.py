"""The state of a GPU that launches share: loaded code, streams, messages, record buffers."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections import deque
from collections.abc import Iterator

from octants.artifact import Artifact
from octants.runtime.cuda import copy_each_kernel
from octants.runtime.cuda.context import Context, context_of
from octants.runtime.cuda.graphs import clear_kernel
from octants.runtime.cuda.library import Library, open_library
from octants.runtime.cuda.memory import DeviceAllocation, DeviceMemory
from octants.runtime.cuda.modules import DeviceFunction, Module
from octants.runtime.cuda.streams import Stream, Streams
from octants.runtime.cuda.transfers import PinnedStaging
from octants.runtime.gpu.device import GpuDevice
from octants.runtime.gpu.messages import MessageQueue
from octants.runtime.gpu.record_buffers import DeviceRecordBuffers
from octants.runtime.memory.versions import Versions
from octants.runtime.reports.pending_errors import Pending


class LaunchContext(GpuDevice):
    """The GPU with an ordinal.

    Args:
        ordinal: CUDA's number of the GPU.
        record_budget: Bytes that the records of a launch should take, as far as shorter blocks of
            long loops make that possible; 0: 1/64 of the memory.
        record_buffer_limit: The most bytes of a stream's record buffers; 0: 9/10 of the memory.
        library: The driver; by default that of this machine.

    Raises:
        OctantsRuntimeError: there is no driver, no such GPU, or the GPU is too old.
    """

    def __init__(
        self,
        ordinal: int = 0,
        record_budget: int = 0,
        record_buffer_limit: int = 0,
        library: Library | None = None,
    ) -> None:
        super().__init__()
        self.library = library or driver_library()
        self.context: Context = context_of(self.library, ordinal)
        context, shared = self.context, self.library.shared_object
        context.begin()
        self.memory: DeviceMemory = shared("memory", ordinal, lambda: DeviceMemory(context))
        self.pending = Pending()
        staging: PinnedStaging = shared("staging", ordinal, lambda: PinnedStaging(context))
        self.staging = staging
        self.streams = Streams(context, self.memory, staging)
        self.messages = MessageQueue(
            self.memory, self.streams.default.transfers, self.pending, self.wait_for_launches
        )
        self.record_budget = record_budget or context.total_memory // 64
        self.record_buffer_limit = record_buffer_limit or context.total_memory // 10 * 9
        self._modules: weakref.WeakValueDictionary[bytes, Module] = weakref.WeakValueDictionary()
        self._dropped_modules: deque[int] = deque()
        self.dropped_graphs: deque[tuple[int, int]] = deque()
        self.replayed_graphs = 0
        self._graph_record_buffers: DeviceAllocation | None = None
        self._graph_stream: Stream | None = None
        self.versions = Versions(self.memory.live.find)
        self.memory.freed = self.versions.freed
        self.memory.before_free = self.streams.join_others
        self.memory.after_allocation = self.streams.follow_default
        self.memory.relieve = self.free_record_buffers
        self.queue_here = self.streams.queue

    def __repr__(self) -> str:
        return repr(self.context)

    def become_one_of_several(self) -> None:
        """Take notice that the process uses another GPU, too."""
        self.streams.become_one_of_several()

    def clear_kernel(self) -> DeviceFunction | None:
        """The loaded kernel of `graphs.clear_kernel`; None if there is none for the GPU."""
        return self._load(clear_kernel.CODE, clear_kernel.NAME)

    def copy_kernel(self) -> DeviceFunction | None:
        """The loaded kernel of `copy_each_kernel`; None if there is none for the GPU."""
        return self._load(copy_each_kernel.CODE, copy_each_kernel.NAME)

    def _load(self, code: str, name: str) -> DeviceFunction:
        """Load a kernel of the runtime."""
        return Module(self.context, code.encode(), b"", self._dropped_modules).function(name)

    def module(self, artifact: Artifact) -> Module:
        """Load code; kernels that were compiled together share a module."""
        code = artifact.code
        module = self._modules.get(code)
        if module is None:
            made = Module(self.context, code, artifact.binary, self._dropped_modules)
            module = self._modules[code] = made
        return module

    def record_buffers_of(self, stream: Stream) -> DeviceRecordBuffers:
        """The record buffer of the kernels in a stream."""
        if stream.record_buffers is None:
            stream.record_buffers = DeviceRecordBuffers(
                self.memory, stream.transfers, self.record_buffer_limit
            )
        return stream.record_buffers

    def graph_record_buffers(self, nbytes: int) -> DeviceAllocation:
        """Memory for record buffers of graphs, which run one by one; each graph keeps it alive."""
        if self._graph_record_buffers is None or self._graph_record_buffers.nbytes < nbytes:
            self._graph_record_buffers = None
            self._graph_record_buffers = self.memory.allocate(nbytes, "record buffers of graphs")
        return self._graph_record_buffers

    @property
    def has_graphs_in_default_stream(self) -> bool:
        """Whether graphs, the last one included, are launched in the default stream alone."""
        return not self.streams.is_busy and self._graph_stream is self.streams.default

    def begin_graph(self) -> None:
        """Make the thread's stream wait for the last graph, which uses the same record buffers."""
        last, self._graph_stream = self._graph_stream, self.streams.current.stream
        if last is not None and last is not self._graph_stream and not last.is_destroyed:
            self.streams.order(last, self._graph_stream)

    def all_record_buffers(self) -> list[DeviceRecordBuffers]:
        """The record buffers of all streams."""
        return [
            stream.record_buffers
            for stream in self.streams.all()
            if stream.record_buffers is not None
        ]

    def free_record_buffers(self) -> None:
        """Free the record buffers that no launch is using."""
        self._graph_record_buffers = None
        super().free_record_buffers()

    @contextlib.contextmanager
    def in_order(self) -> Iterator[None]:
        """Order work in the default stream between the thread's earlier and later work."""
        stream = self.streams.current.stream
        self.streams.order(stream, self.streams.default)
        yield
        self.streams.follow_default()

    def wait_for_launches(self) -> None:
        """Synchronise: wait for all launches, write what kernels printed, raise the first error."""
        self.streams.wait()
        self.context.launched.clear()
        self.confirm_record_buffers()
        self.messages.deliver()
        if self._dropped_modules or self.dropped_graphs:
            self._unload()

    def _unload(self) -> None:
        with self.context.active():
            while self.dropped_graphs:
                graph, launched = self.dropped_graphs.popleft()
                self.context.call("cuGraphExecDestroy", launched)
                self.context.call("cuGraphDestroy", graph)
            while self._dropped_modules:
                self.context.call("cuModuleUnload", self._dropped_modules.popleft())


@functools.cache
def driver_library() -> Library:
    """The driver of this machine.

    Raises:
        OctantsRuntimeError: there is no driver, or it is too old.
    """
    return open_library()
