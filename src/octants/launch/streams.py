"""Streams and events of the public interface: what runs concurrently, and what waits for what."""

from __future__ import annotations

import contextlib
from typing import Any, final

from octants import driver, options
from octants.data import current_runtime
from octants.data.element_types import check_device
from octants.diagnostics.launch_errors import (
    DestroyedQueue,
    EndedQueue,
    EventOfOtherDevice,
    WrongStream,
)
from octants.internal_members import internal


class _Queued:
    """An object of a device, valid until it is destroyed, or until the next `init`."""

    _what = ""
    _is_destroyed = False

    def __init__(self, device: int | None) -> None:
        options.current()
        self._generation = current_runtime.generation()
        check_device(self._what, device)
        self._device = driver.device() if device is None else driver.device_at(device)

    @property
    def device(self) -> int:
        """The number of its GPU."""
        return self._device.number

    @internal
    def require_alive(self) -> None:
        """Check that it was created after the last `init`, and not destroyed."""
        if self._generation != current_runtime.generation():
            raise EndedQueue(self._what).at()
        if self._is_destroyed:
            raise DestroyedQueue(self._what).at()


@final
class Stream(_Queued):
    """A queue of launches; launches in different streams may run concurrently on a GPU.

    A kernel, or its gradient, is launched in one by ``kernel(..., qd_stream=stream)``. Without a
    `handle` the stream is a new one, as `create_stream` makes it. With one it is that of another
    library, such as ``torch.cuda.Stream().cuda_stream``, which must live as long as this is used.

    Launches in no stream, and host reads and writes, wait for all streams, and streams wait for
    them. Two streams are ordered by events only. On archs other than `cuda` a stream does nothing,
    and launches run one after the other. Example::

        @qd.kernel
        def increase(x: qd.types.ndarray(qd.f32, 1)):
            for i in x:
                x[i] += 1.0

        a, b = qd.ndarray(qd.f32, 1000), qd.ndarray(qd.f32, 1000)
        one, two = qd.create_stream(), qd.create_stream()
        increase(a, qd_stream=one)
        increase(b, qd_stream=two)  # at the same time, on CUDA
        qd.sync()

    Args:
        handle: CUDA's handle of a stream of another library; None for a new stream.
        device: The number of the GPU, where there are several; by default that of `init`. Only
            kernels whose arrays are on it can be launched in the stream.

    Raises:
        OctantsRuntimeError: the stream belongs to another GPU.
    """

    _what = "stream"

    def __init__(self, handle: int | None = None, device: int | None = None) -> None:
        super().__init__(device)
        if handle is not None and not hasattr(handle, "__index__"):
            raise WrongStream("a handle", type(handle).__name__).at()
        self._queue = self._device.create_stream(None if handle is None else handle.__index__())

    @property
    def handle(self) -> int:
        """CUDA's handle, for other libraries: ``torch.cuda.ExternalStream(stream.handle)``."""
        self.require_alive()
        return self._queue.handle

    def synchronize(self) -> None:
        """Wait until its work is complete. `sync` raises the errors of its launches."""
        self.require_alive()
        self._queue.synchronize()

    def destroy(self) -> None:
        """Destroy it; its work runs to completion. A stream of another library is not destroyed."""
        if self._generation == current_runtime.generation():
            self._queue.destroy()
            self._is_destroyed = True

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()


@final
class Event(_Queued):
    """A point in a stream that other streams can wait for; `create_event` makes one.

    Until it is recorded there is nothing to wait for. None stands for work in no stream, on the
    GPU of the event. A stream of another GPU can wait for it, too.

    Args:
        device: The number of the GPU, where there are several; by default that of `init`. Only
            streams of that GPU can record it.
    """

    _what = "event"

    def __init__(self, device: int | None = None) -> None:
        super().__init__(device)
        self._point = self._device.create_event()

    @property
    def handle(self) -> int:
        """CUDA's handle."""
        self.require_alive()
        return self._point.handle

    def record(self, qd_stream: Stream | None = None) -> None:
        """Record it after the present work of a stream.

        Raises:
            OctantsRuntimeError: the stream belongs to another GPU than the event.
        """
        self.require_alive()
        queue = queue_of(qd_stream)
        if qd_stream is not None and qd_stream.device != self.device:
            raise EventOfOtherDevice(self.device, qd_stream.device).at()
        self._point.record(queue)

    def wait(self, qd_stream: Stream | None = None) -> None:
        """Make later work of a stream wait for it."""
        self.require_alive()
        self._point.wait(queue_of(qd_stream))

    def synchronize(self) -> None:
        """Wait for it on the host."""
        self.require_alive()
        self._point.synchronize()

    def destroy(self) -> None:
        """Destroy it."""
        if self._generation == current_runtime.generation():
            self._point.destroy()
            self._is_destroyed = True

    def __enter__(self) -> Event:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()


def create_stream(device: int | None = None) -> Stream:
    """A new stream; see `Stream`."""
    return Stream(device=device)


def create_event(device: int | None = None) -> Event:
    """A new event; see `Event`."""
    return Event(device)


def queue_of(stream: Any) -> Any:
    """The device's stream for a public one; None for None.

    Raises:
        OctantsRuntimeError: it is no stream, or one of an earlier `init`.
    """
    if stream is None:
        return None
    if not isinstance(stream, Stream):
        raise WrongStream("`qd_stream`", type(stream).__name__).at()
    stream.require_alive()
    return stream._queue


def launching_in(stream: Any) -> contextlib.AbstractContextManager[None]:
    """Launch in a stream for a ``with`` block; None changes nothing."""
    queue = queue_of(stream)
    return contextlib.nullcontext() if queue is None else stream._device.using(queue)
