"""Streams and events of a GPU, and the order between them.

A stream of Octants and the default stream wait for each other by CUDA's own rules for "blocking"
streams. A stream of another library does not: it waits for the default stream before each use by
Octants, and the default stream waits for an event after it. So Octants calls the driver with such a
stream only during a use, and its owner may destroy it afterwards.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator
from ctypes import byref, c_float, c_void_p
from typing import Any, TypeVar, final

from octants.diagnostics.launch_errors import DestroyedQueue
from octants.locks_at_fork import released_in_children
from octants.runtime.cuda import library as cuda
from octants.runtime.cuda.context import Context
from octants.runtime.cuda.errors import OtherStream
from octants.runtime.cuda.memory import DEFAULT_STREAM, DeviceAllocation, DeviceMemory
from octants.runtime.cuda.transfers import PinnedStaging, Transfers
from octants.runtime.gpu.record_buffers import DeviceRecordBuffers

LEGACY_STREAM = 1  # another name of the default stream
THREAD_STREAM = 2  # each thread's own default stream, of whichever GPU it works on
_BOUNDS_BYTES = 64

Item = TypeVar("Item")


@final
class Stream:
    """A queue of GPU work; work in different streams may run concurrently.

    Without a ``handle`` it is a new stream, otherwise a stream of another library, which must live
    as long as this object is used.
    """

    def __init__(self, streams: Streams, handle: int | None = None) -> None:
        self.streams = streams
        self.is_foreign = handle not in (None, DEFAULT_STREAM)
        self._handle = 0
        self._is_destroyed = False
        self._bounds: DeviceAllocation | None = None
        self._transfers: Transfers | None = None
        self._group_streams: dict[int, Stream] = {}
        self.done: Event | None = None
        """For a stream of another library: the event after all work that Octants has put into it.
        """
        self.blocks: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()
        """The parameter blocks of each kernel whose storage belongs to launches in this stream."""
        self.record_buffers: DeviceRecordBuffers | None = None
        """The record buffer of the kernels in this stream."""
        if handle is None:
            made = c_void_p()
            with streams.context.active():
                streams.context.call("cuStreamCreate", byref(made), 0)
            self._handle = made.value or 0
        else:
            self._handle = handle

    @property
    def handle(self) -> int:
        """CUDA's handle; 0 is the default stream."""
        if self._is_destroyed:
            raise DestroyedQueue("stream").at()
        return self._handle

    @property
    def transfers(self) -> Transfers:
        """The stream as a queue of copies."""
        if self._transfers is None or self._is_destroyed:
            self._transfers = Transfers(self.streams.context, self.streams.staging, self.handle)
        return self._transfers

    @property
    def is_destroyed(self) -> bool:
        """Whether it was destroyed; then the default stream waits for its work."""
        return self._is_destroyed

    def synchronize(self) -> None:
        """Wait for all work in the stream."""
        with self.streams.context.active():
            self.streams.context.wait_for_stream(self.handle)

    def destroy(self) -> None:
        """Give it back; what is in it runs to its end. Does nothing the second time."""
        if not self._is_destroyed:
            if not self.is_foreign:
                self.streams.destroy(self)
            self._is_destroyed = True

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def __del__(self) -> None:
        if self._handle and not self.is_foreign and not self._is_destroyed:
            self.streams.dropped.append(self._handle)

    # -- for kernels ----------------------------------------------------------------------------

    def group_stream(self, number: int) -> Stream:
        """An auxiliary stream, for concurrent tasks of a kernel."""
        if number not in self._group_streams:
            self._group_streams[number] = self.streams.create()
        return self._group_streams[number]

    def bounds(self) -> int:
        """The address of the words for bounds that a kernel computes on the device."""
        if self._bounds is None:
            self._bounds = self.streams.memory.allocate(
                _BOUNDS_BYTES, "bounds of loops", zeroed=True
            )
        return self._bounds.address


@final
class Event:
    """A point in a stream, for which others can wait."""

    def __init__(self, streams: Streams, *, is_timed: bool = False) -> None:
        self._streams = streams
        self._is_destroyed = False
        with streams.context.active():
            self._handle = _make_event(streams.context, is_timed)

    @property
    def handle(self) -> int:
        """CUDA's handle."""
        if self._is_destroyed:
            raise DestroyedQueue("event").at()
        return self._handle

    def record(self, stream: Stream | None = None) -> None:
        """Record it after the present work of a stream; None: the thread's own stream."""
        own = stream or self._streams.current.stream
        self._streams.call("cuEventRecord", self.handle, own.handle)

    def wait(self, stream: Stream | None = None) -> None:
        """Make later work of a stream, perhaps of another GPU, wait for it; None: the thread's own
        stream.
        """
        own = stream or self._streams.current.stream
        own.streams.call("cuStreamWaitEvent", own.handle, self.handle, 0)

    def synchronize(self) -> None:
        """Wait until it has happened."""
        with self._streams.context.active():
            self._streams.context.wait_for_event(self.handle)

    def has_happened(self) -> bool:
        """Whether the work before it has ended."""
        with self._streams.context.active():
            return self._streams.context.has_happened(self.handle)

    def milliseconds_since(self, earlier: Event) -> float:
        """The time between two timed events, once both have happened."""
        found = c_float()
        self._streams.call("cuEventElapsedTime", byref(found), earlier.handle, self.handle)
        return found.value

    def destroy(self) -> None:
        """Give it back. Does nothing the second time."""
        if not self._is_destroyed:
            self._streams.call("cuEventDestroy", self._handle)
            self._is_destroyed = True

    def __enter__(self) -> Event:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def __del__(self) -> None:
        if not self._is_destroyed:
            self._streams.dropped_events.append(self._handle)


class RetainedMemory:
    """Keeps memory of another library alive until the launches have ended that are queued when this
    is dropped.
    """

    def __init__(self, owner: Any, streams: Streams) -> None:
        self._owner, self._streams = owner, streams

    def __del__(self) -> None:
        self._streams.unused.append(self._owner)


class EventTimer:
    """The time that a launch takes on the GPU, by an event before it and one after it."""

    def __init__(self, streams: Streams) -> None:
        self._before, self._after = Event(streams, is_timed=True), Event(streams, is_timed=True)

    def start(self) -> None:
        """Record the first event."""
        self._before.record()

    def stop(self) -> None:
        """Record the second one."""
        self._after.record()

    def nanoseconds(self) -> int:
        """Wait for the launch; the time between the events."""
        self._after.synchronize()
        return round(self._after.milliseconds_since(self._before) * 1e6)


def _make_event(context: Context, is_timed: bool) -> int:
    event = c_void_p()
    context.call("cuEventCreate", byref(event), 0 if is_timed else cuda.EVENT_NO_TIMING)
    return event.value or 0


def _taken(queue: deque[Item]) -> Iterator[Item]:
    """Take all items out of a queue, as other threads may do, too."""
    while queue:
        try:
            item = queue.popleft()
        except IndexError:  # taken by another thread meanwhile
            return
        yield item


class Current(threading.local):
    """A thread's current stream.

    The streams of other libraries in `expecting` must wait for what the thread launches next.
    `retained` keeps alive what that launch uses and no such stream waits for. `event` is the
    thread's own event for ordering two streams.
    """

    def __init__(self, default: Stream) -> None:
        self.stream = default
        self.expecting: list[Stream] = []
        self.retained: list[Any] = []
        self.event: Event | None = None


class Streams:
    """The streams of a device, and the order between them.

    The default stream does not wait yet for the `unordered` streams of other libraries. Launches
    read one number, `is_busy`: while it is 0, all threads launch in the default stream, and no
    stream of another library has to be ordered.
    """

    def __init__(self, context: Context, memory: DeviceMemory, staging: PinnedStaging) -> None:
        self.context = context
        self.memory, self.staging = memory, staging
        self.dropped: deque[int] = deque()
        self.dropped_events: deque[int] = deque()
        self.default = Stream(self, DEFAULT_STREAM)
        self._default_queue = self.default.transfers
        self.current = Current(self.default)
        self.unordered: deque[Stream] = deque()
        self.is_busy = 0
        self.is_one_of_several = False
        """Whether the process uses other GPUs: then the default stream is this GPU's only for calls
        in its context.
        """
        self.unused: deque[Any] = deque()
        """Owners of memory that no later launch uses; those before may still run."""
        self._freed_after: deque[tuple[Event, list[Any]]] = deque()
        self._lock = released_in_children(threading.Lock())
        self._others: set[weakref.ref[Stream]] = set()

    def create(self, handle: int | None = None) -> Stream:
        """A new stream, or one for launches in a stream of another library.

        Raises:
            OctantsRuntimeError: the stream is one of another GPU.
        """
        if handle in (DEFAULT_STREAM, LEGACY_STREAM):
            return self.default
        if handle not in (None, THREAD_STREAM):
            ordinal = self.context.ordinal_of_stream(handle)
            if ordinal != self.context.ordinal:
                raise OtherStream(f"GPU {ordinal}", repr(self.context)).at()
        stream = Stream(self, handle)
        self._others.add(weakref.ref(stream, self._others.discard))
        return stream

    def foreign(self, handle: int) -> Stream:
        """A stream of another library, for ordering only."""
        if handle in (DEFAULT_STREAM, LEGACY_STREAM):
            return self.default
        return Stream(self, handle)

    def all(self) -> list[Stream]:
        """The default stream, and all others that kernels may run in."""
        return [self.default, *self._live_others()] if self._others else [self.default]

    def _live_others(self) -> list[Stream]:
        """The streams besides the default one."""
        found = [reference() for reference in tuple(self._others)]
        return [stream for stream in found if stream is not None]

    # -- several GPUs ---------------------------------------------------------------------------

    def become_one_of_several(self) -> None:
        """Make the context current before each launch from now on, and refuse launches in a thread
        that is `Using` a stream of another GPU.
        """
        if not self.is_one_of_several:
            self.is_one_of_several = True
            _using_blocks.add(self)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver for a stream or an event."""
        call = self.context.call_here if self.is_one_of_several else self.context.call_quickly
        call(name, *arguments)

    def wait_for_gpu(self, other: Streams) -> None:
        """Make the thread's stream wait for the present work of its stream on another GPU."""
        event = other.thread_event()
        event.record(other.current.stream)
        event.wait(self.current.stream)

    # -- order ----------------------------------------------------------------------------------

    def order(self, first: Stream, then: Stream) -> None:
        """Make later work of ``then`` wait for the present work of ``first``."""
        is_own = not (first.is_foreign or then.is_foreign)
        if first.handle == then.handle or (is_own and self.default in (first, then)):
            return
        self._wait_in(then, first)

    def enter(self, stream: Stream) -> None:
        """Make a stream of another library wait for the default stream."""
        if stream.is_foreign:
            self.order(self.default, stream)

    def leave(self, stream: Stream) -> None:
        """Record what was launched in a stream of another library, for the default stream to wait
        for.
        """
        if stream.is_foreign:
            if stream.done is None:
                stream.done = Event(self)
            stream.done.record(stream)
            if stream not in self.unordered:
                self.unordered.append(stream)
                self.become_busy(1)

    def order_foreign_streams(self) -> None:
        """Make the default stream wait for the unordered streams of other libraries."""
        for stream in _taken(self.unordered):
            self.become_busy(-1)
            assert stream.done is not None
            stream.done.wait(self.default)

    def release(self) -> None:
        """Make the streams that expect the last launch wait for it; release what it retained."""
        current = self.current
        while current.expecting:
            self.become_busy(-1)
            self.order(current.stream, current.expecting.pop())
        if current.retained:
            self.become_busy(-1)
            self.leave(current.stream)  # so that whichever thread frees it can wait for it
            self.unused.extend(current.retained)
            current.retained.clear()

    def expect(self, stream: Stream) -> None:
        """Make a stream wait for the next launch."""
        expecting = self.current.expecting
        if all(stream.handle != other.handle for other in expecting):
            expecting.append(stream)
            self.become_busy(1)

    def retain(self, owner: Any) -> None:
        """Keep memory of another library alive until the next launch has ended."""
        self.free_unused()
        if not self.current.retained:
            self.become_busy(1)
        self.current.retained.append(owner)

    def free_unused(self) -> None:
        """Drop the unused owners whose last launches have ended."""
        owners = list(_taken(self.unused))
        if owners:
            self.leave(self.current.stream)
            self.order_foreign_streams()
            event = Event(self)
            event.record(self.default)
            self._freed_after.append((event, owners))
        for event, owners in _taken(self._freed_after):
            if not event.has_happened():
                self._freed_after.appendleft((event, owners))
                break
            event.destroy()

    def become_busy(self, count: int) -> None:
        """Count a state that launches must check."""
        with self._lock:
            self.is_busy += count

    def join_others(self) -> None:
        """Make the default stream wait for all others."""
        if self.dropped:
            self.wait()
        self.leave(self.current.stream)
        self.order_foreign_streams()
        for stream in self._live_others():
            if not stream.is_foreign:
                self._wait_in(self.default, stream)

    def follow_default(self) -> None:
        """Make the thread's stream wait for the default stream."""
        self.order(self.default, self.current.stream)

    def current_handle(self) -> int:
        """The handle of the thread's stream, for queueing work now."""
        if self.is_one_of_several and _thread.streams not in (None, self):
            raise OtherStream(repr(_thread.streams.context), repr(self.context)).at()
        stream = self.current.stream
        if self.unordered and stream is self.default:
            self.order_foreign_streams()
        return stream.handle

    def queue(self) -> Transfers:
        """The thread's stream as a queue of copies."""
        if not self.is_busy:
            return self._default_queue
        self.current_handle()
        return self.current.stream.transfers

    def thread_event(self) -> Event:
        """The thread's own event for ordering two streams."""
        event = self.current.event
        if event is None:
            event = self.current.event = Event(self)
        return event

    def _wait_in(self, stream: Stream, other: Stream) -> None:
        event = self.thread_event()
        event.record(other)
        event.wait(stream)

    # -- synchronisation ------------------------------------------------------------------------

    def wait(self) -> None:
        """Wait for all work in all streams."""
        if self.is_busy:
            self.leave(self.current.stream)
            self.order_foreign_streams()
        if self.unused:
            self.free_unused()  # after the wait below
        context = self.context
        if self._others or self.dropped or self.dropped_events or not context.is_current():
            with context.active():
                self._wait_for_each()
        else:
            context.wait_for_stream(DEFAULT_STREAM)
        if self._freed_after:
            self.free_unused()

    def _wait_for_each(self) -> None:
        for stream in self.all():
            if not stream.is_foreign:
                self.context.wait_for_stream(stream.handle)
        if self.dropped or self.dropped_events:
            self._destroy_dropped()

    def close(self) -> None:
        """Destroy all streams of Octants."""
        for stream in self._live_others():
            stream.destroy()
        self.unused.clear()
        self._freed_after.clear()
        with self.context.active():
            self._destroy_dropped()

    def destroy(self, stream: Stream) -> None:
        """Destroy a stream; the default stream waits for its work."""
        self._others.discard(weakref.ref(stream))
        with self.context.active():
            self._wait_in(self.default, stream)
            self.context.call("cuStreamDestroy", stream.handle)

    def _destroy_dropped(self) -> None:
        while self.dropped:
            handle = self.dropped.popleft()
            self.context.wait_for_stream(handle)
            self.context.call("cuStreamDestroy", handle)
        while self.dropped_events:
            self.context.call("cuEventDestroy", self.dropped_events.popleft())


class _Thread(threading.local):
    """The streams of the GPU whose stream a thread is `Using`; None outside of such a block."""

    streams: Streams | None = None


_thread = _Thread()


class _UsingBlocks:
    """The `Using` blocks in progress: all GPUs are busy meanwhile, since launches on other GPUs
    than that of the stream are errors.
    """

    def __init__(self) -> None:
        self._lock = released_in_children(threading.Lock())
        self._several: weakref.WeakSet[Streams] = weakref.WeakSet()
        self._count = 0

    def add(self, streams: Streams) -> None:
        """Have a GPU be busy during each block, from now on."""
        with self._lock:
            self._several.add(streams)
            streams.become_busy(self._count)

    def change(self, count: int) -> None:
        """Count the begin of a block, or its end."""
        with self._lock:
            self._count += count
            for streams in self._several:
                streams.become_busy(count)


_using_blocks = _UsingBlocks()


class Using:
    """Makes a stream the thread's current one for a ``with`` block."""

    __slots__ = ("_before", "_outer", "_stream", "_streams")

    def __init__(self, streams: Streams, stream: Stream) -> None:
        self._streams = streams
        self._stream = stream
        self._before = streams.default
        self._outer: Streams | None = None

    def __enter__(self) -> None:
        streams, current = self._streams, self._streams.current
        self._outer, _thread.streams = _thread.streams, streams
        streams.enter(self._stream)
        self._before, current.stream = current.stream, self._stream
        streams.become_busy(1)
        _using_blocks.change(1)

    def __exit__(self, *_: object) -> None:
        streams = self._streams
        streams.become_busy(-1)
        _using_blocks.change(-1)
        _thread.streams = self._outer
        streams.current.stream = self._before
        streams.leave(self._stream)
