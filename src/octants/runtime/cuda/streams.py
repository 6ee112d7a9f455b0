"""Streams and events: what runs at the same time, and what waits for what.

A stream of ours waits for the default stream, and the default stream for it, by CUDA's own rules
for streams that are "blocking". Those of other libraries do not: they wait for the default stream
before each use of ours, and the default stream waits for an event after it. So nothing is ever
asked of a stream of others but while it is used, and its owner may destroy it afterwards.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from ctypes import byref, c_void_p
from typing import Any, final

from octants.runtime.cuda import library as cuda
from octants.runtime.cuda.context import Context
from octants.runtime.cuda.errors import Closed, OtherStream
from octants.runtime.cuda.memory import DEFAULT_STREAM, DeviceAllocation, DeviceMemory
from octants.runtime.cuda.transfers import PinnedStaging, Transfers
from octants.runtime.gpu.tapes import DeviceTape

LEGACY_STREAM = 1  # another name of the default stream
THREAD_STREAM = 2  # each thread's own default stream, of whichever GPU it works on
_BOUNDS_BYTES = 64


@final
class Stream:
    """A queue of work of a GPU; work of different streams may run at the same time.

    Without a ``handle`` it is a new one; otherwise one that another library has made, which lives
    as long as this object is used.
    """

    def __init__(self, streams: Streams, handle: int | None = None) -> None:
        self._streams = streams
        self.is_foreign = handle not in (None, DEFAULT_STREAM)
        self._handle = 0
        self._is_destroyed = False
        self._bounds: DeviceAllocation | None = None
        self._transfers: Transfers | None = None
        self._sides: dict[int, Stream] = {}
        self.done: Event | None = None
        """Of a stream of others: what happens when all is done that was launched in it."""
        self.blocks: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()
        """The blocks of each kernel whose storage its launches here use."""
        self.tape: DeviceTape | None = None
        """The tapes of the kernels that run in it."""
        if handle is None:
            made = c_void_p()
            with streams.context.active():
                streams.context.call("cuStreamCreate", byref(made), 0)
            self._handle = made.value or 0
        else:
            self._handle = handle

    @property
    def handle(self) -> int:
        """What CUDA calls it; 0 is the default stream."""
        if self._is_destroyed:
            raise Closed("stream").at(None)
        return self._handle

    @property
    def transfers(self) -> Transfers:
        """Copies in the order of the stream."""
        if self._transfers is None or self._is_destroyed:
            self._transfers = Transfers(self._streams.context, self._streams.staging, self.handle)
        return self._transfers

    @property
    def is_destroyed(self) -> bool:
        """Whether it was given back; then the default stream waits for what was in it."""
        return self._is_destroyed

    def synchronize(self) -> None:
        """Wait until all that is in it is done."""
        with self._streams.context.active():
            self._streams.context.wait_for_stream(self.handle)

    def destroy(self) -> None:
        """Give it back; what is in it runs to its end. Does nothing the second time."""
        if not self._is_destroyed:
            if not self.is_foreign:
                self._streams.destroy(self)
            self._is_destroyed = True

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def __del__(self) -> None:
        if self._handle and not self.is_foreign and not self._is_destroyed:
            self._streams.dropped.append(self._handle)

    # -- for kernels ----------------------------------------------------------------------------

    def side(self, number: int) -> Stream:
        """A stream beside this one, for loops of a kernel that run at the same time."""
        if number not in self._sides:
            self._sides[number] = self._streams.create()
        return self._sides[number]

    def bounds(self) -> int:
        """The address of the words where a kernel keeps bounds that it computes itself."""
        if self._bounds is None:
            self._bounds = self._streams.memory.allocate(
                _BOUNDS_BYTES, "bounds of loops", zeroed=True
            )
        return self._bounds.address


@final
class Event:
    """A point in a stream, for which others can wait."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._is_destroyed = False
        with streams.context.active():
            self._handle = _make_event(streams.context)

    @property
    def handle(self) -> int:
        """What CUDA calls it."""
        if self._is_destroyed:
            raise Closed("event").at(None)
        return self._handle

    def record(self, stream: Stream | None = None) -> None:
        """Let it happen when what is in a stream now is done; None: the thread's own stream."""
        self._call("cuEventRecord", self.handle, (stream or self._streams.current.stream).handle)

    def wait(self, stream: Stream | None = None) -> None:
        """Let what comes into a stream from now on wait for it; None: the thread's own stream."""
        own = (stream or self._streams.current.stream).handle
        self._call("cuStreamWaitEvent", own, self.handle, 0)

    def synchronize(self) -> None:
        """Wait until it has happened."""
        with self._streams.context.active():
            self._streams.context.wait_for_event(self.handle)

    def destroy(self) -> None:
        """Give it back. Does nothing the second time."""
        if not self._is_destroyed:
            self._call("cuEventDestroy", self._handle)
            self._is_destroyed = True

    def __enter__(self) -> Event:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def __del__(self) -> None:
        if not self._is_destroyed:
            self._streams.dropped_events.append(self._handle)

    def _call(self, name: str, *arguments: Any) -> None:
        self._streams.context.call_quickly(name, *arguments)


def _make_event(context: Context) -> int:
    event = c_void_p()
    context.call("cuEventCreate", byref(event), cuda.EVENT_NO_TIMING)
    return event.value or 0


class Current(threading.local):
    """The stream in which a thread launches.

    Streams of others are `expecting` what it launches next, to wait for it. What waits is told by
    an `event` of the thread's own.
    """

    def __init__(self, default: Stream) -> None:
        self.stream = default
        self.expecting: list[Stream] = []
        self.event: Event | None = None


class Streams:
    """The streams of a device, and what waits for what between them.

    Of the streams of others that are `unordered` the default stream does not know yet when they are
    done with what was launched in them. Unless something `is_busy`, all threads launch in the
    default stream, and nobody has to be told.
    """

    def __init__(self, context: Context, memory: DeviceMemory, staging: PinnedStaging) -> None:
        self.context = context
        self.memory, self.staging = memory, staging
        self.dropped: deque[int] = deque()
        self.dropped_events: deque[int] = deque()
        self.default = Stream(self, DEFAULT_STREAM)
        self.current = Current(self.default)
        self.unordered: deque[Stream] = deque()
        self.is_busy = 0
        self._settle: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._others: weakref.WeakSet[Stream] = weakref.WeakSet()

    def create(self, handle: int | None = None) -> Stream:
        """A new stream, or what kernels are launched by in one of others.

        Raises `OctantsRuntimeError` if that is one of another GPU.
        """
        if handle in (DEFAULT_STREAM, LEGACY_STREAM):
            return self.default
        if handle not in (None, THREAD_STREAM):
            ordinal = self.context.ordinal_of_stream(handle)
            if ordinal != self.context.ordinal:
                raise OtherStream(f"GPU {ordinal}", repr(self.context)).at(None)
        stream = Stream(self, handle)
        self._others.add(stream)
        return stream

    def foreign(self, handle: int) -> Stream:
        """The stream that another library calls by this handle, in which nothing is launched."""
        if handle in (DEFAULT_STREAM, LEGACY_STREAM):
            return self.default
        return Stream(self, handle)

    def all(self) -> list[Stream]:
        """The default stream, and all others that kernels may run in."""
        return [self.default, *self._others]

    # -- order ----------------------------------------------------------------------------------

    def order(self, first: Stream, then: Stream) -> None:
        """Let what comes into ``then`` from now on wait for what is in ``first``."""
        is_own = not (first.is_foreign or then.is_foreign)
        if first.handle == then.handle or (is_own and self.default in (first, then)):
            return
        self._wait_in(then, first)

    def enter(self, stream: Stream) -> None:
        """Let a stream wait for the default stream, if it is one of others."""
        if stream.is_foreign:
            self.order(self.default, stream)

    def leave(self, stream: Stream) -> None:
        """Remember to wait for what was launched in a stream, if it is one of others."""
        if stream.is_foreign:
            if stream.done is None:
                stream.done = Event(self)
            stream.done.record(stream)
            if stream not in self.unordered:
                self.unordered.append(stream)
                self.become_busy(1)

    def settle(self) -> None:
        """Let the default stream wait for the streams of others that it does not know of."""
        while self.unordered:
            try:
                stream = self.unordered.popleft()
            except IndexError:  # taken by another thread meanwhile
                break
            self.become_busy(-1)
            assert stream.done is not None
            stream.done.wait(self.default)

    def release(self) -> None:
        """Let streams that expect what was launched wait for it."""
        current = self.current
        while current.expecting:
            self.become_busy(-1)
            self.order(current.stream, current.expecting.pop())

    def expect(self, stream: Stream) -> None:
        """Let a stream wait for what is launched next."""
        expecting = self.current.expecting
        if all(stream.handle != other.handle for other in expecting):
            expecting.append(stream)
            self.become_busy(1)

    def become_busy(self, count: int) -> None:
        """Count what is out of the ordinary."""
        with self._lock:
            self.is_busy += count

    def be_settled(self, settle: Callable[[], None] | None) -> None:
        """Call something before anything else is done in any stream; None: nothing any more."""
        if (settle is None) != (self._settle is None):
            self.become_busy(-1 if settle is None else 1)
        self._settle = settle

    def gather(self) -> None:
        """Let the default stream wait for all others."""
        if self.dropped:
            self.wait()
        self.leave(self.current.stream)
        self.settle()
        for stream in self._others:
            if not stream.is_foreign:
                self._wait_in(self.default, stream)

    def catch_up(self) -> None:
        """Let the thread's own stream wait for the default stream."""
        self.order(self.default, self.current.stream)

    def here(self) -> int:
        """The handle of the thread's own stream, for something to be done in it now."""
        if self._settle is not None:
            self._settle()
        return self.ready()

    def queue(self) -> Transfers:
        """The thread's own stream, for copies that are queued now."""
        self.here()
        return self.current.stream.transfers

    def ready_queue(self) -> Transfers:
        """The same, whatever is to be settled."""
        self.ready()
        return self.current.stream.transfers

    def ready(self) -> int:
        """The same, for what may be done whatever is to be settled."""
        stream = self.current.stream
        if self.unordered and stream is self.default:
            self.settle()
        return stream.handle

    def _wait_in(self, stream: Stream, other: Stream) -> None:
        event = self.current.event
        if event is None:
            event = self.current.event = Event(self)
        event.record(other)
        event.wait(stream)

    # -- the end of waiting ---------------------------------------------------------------------

    def wait(self) -> None:
        """Wait until all streams are done."""
        self.leave(self.current.stream)
        self.settle()
        with self.context.active():
            for stream in self.all():
                if not stream.is_foreign:
                    self.context.wait_for_stream(stream.handle)
            self._destroy_dropped()

    def close(self) -> None:
        """Give all streams of ours back."""
        for stream in list(self._others):
            stream.destroy()
        with self.context.active():
            self._destroy_dropped()

    def destroy(self, stream: Stream) -> None:
        """Give a stream back, in order: the default stream waits for what is in it."""
        self._others.discard(stream)
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


class Using:
    """Lets a thread launch in a stream, as long as it lasts."""

    __slots__ = ("_before", "_stream", "_streams")

    def __init__(self, streams: Streams, stream: Stream) -> None:
        self._streams = streams
        self._stream = stream
        self._before = streams.default

    def __enter__(self) -> None:
        streams, current = self._streams, self._streams.current
        streams.enter(self._stream)
        self._before, current.stream = current.stream, self._stream
        streams.become_busy(1)

    def __exit__(self, *_: object) -> None:
        streams = self._streams
        streams.become_busy(-1)
        streams.current.stream = self._before
        streams.leave(self._stream)
