"""Streams and events as users have them: what runs at the same time, and what waits for what."""

from __future__ import annotations

import contextlib
from typing import Any, final

from octants import driver, options
from octants.data import current
from octants.diagnostics.launch_errors import EndedQueue, WrongStream


class _Queued:
    """What belongs to the device of an `init`, until the next one."""

    _what = ""

    def __init__(self) -> None:
        options.current()
        self._generation = current.generation()

    def require_alive(self) -> None:
        """An error if it was made before the last `init`."""
        if self._generation != current.generation():
            raise EndedQueue(self._what).at(None)


@final
class Stream(_Queued):
    """A queue of launches: those in different streams may run at the same time on a GPU.

    A kernel, or its gradient, is launched in one by ``kernel(..., qd_stream=stream)``. Without a
    `handle` the stream is a new one, as `create_stream` makes it. With one it is that of another
    library, such as ``torch.cuda.Stream().cuda_stream``, which must live as long as this is used.

    Launches in no stream, and host reads and writes, wait for all streams, and streams
    for that. Between two streams only events tell what waits for what. On archs other than `cuda` a
    stream does nothing, and launches run one after the other.
    """

    _what = "stream"

    def __init__(self, handle: int | None = None) -> None:
        super().__init__()
        if handle is not None and not hasattr(handle, "__index__"):
            raise WrongStream("a handle", type(handle).__name__).at(None)
        self._queue = driver.device().create_stream(None if handle is None else handle.__index__())

    @property
    def handle(self) -> int:
        """What CUDA calls it, for other libraries: ``torch.cuda.ExternalStream(stream.handle)``."""
        self.require_alive()
        return self._queue.handle

    def synchronize(self) -> None:
        """Wait until its work is done. `sync` raises what failed in it."""
        self.require_alive()
        self._queue.synchronize()

    def destroy(self) -> None:
        """Give it back; what is in it runs to its end. One of another library stays as it is."""
        if self._generation == current.generation():
            self._queue.destroy()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()


@final
class Event(_Queued):
    """A point in a stream, for which other streams can wait; `create_event` makes one.

    Until it is recorded there is nothing to wait for. None stands for what is in no stream.
    """

    _what = "event"

    def __init__(self) -> None:
        super().__init__()
        self._point = driver.device().create_event()

    @property
    def handle(self) -> int:
        """What CUDA calls it."""
        self.require_alive()
        return self._point.handle

    def record(self, qd_stream: Stream | None = None) -> None:
        """Let it happen when the present work of a stream is done."""
        self.require_alive()
        self._point.record(queue_of(qd_stream))

    def wait(self, qd_stream: Stream | None = None) -> None:
        """Let what comes into a stream from now on wait for it."""
        self.require_alive()
        self._point.wait(queue_of(qd_stream))

    def synchronize(self) -> None:
        """Wait until it has happened."""
        self.require_alive()
        self._point.synchronize()

    def destroy(self) -> None:
        """Give it back."""
        if self._generation == current.generation():
            self._point.destroy()

    def __enter__(self) -> Event:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()


def create_stream() -> Stream:
    """A new stream; see `Stream`."""
    return Stream()


def create_event() -> Event:
    """A new event; see `Event`."""
    return Event()


def queue_of(stream: Any) -> Any:
    """What the device has for a stream, None for None; an error for anything else."""
    if stream is None:
        return None
    if not isinstance(stream, Stream):
        raise WrongStream("`qd_stream`", type(stream).__name__).at(None)
    stream.require_alive()
    return stream._queue


def launching_in(stream: Any) -> contextlib.AbstractContextManager[None]:
    """Launch in a stream, as long as this lasts; None changes nothing."""
    queue = queue_of(stream)
    return contextlib.nullcontext() if queue is None else driver.device().using(queue)
