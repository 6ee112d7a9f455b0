"""Copies between the host and a GPU, through pinned memory: only from there is a copy a fast one.

Two buffers take turns: while one is being copied by the GPU, the host copies the other one.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from ctypes import byref, c_void_p

from octants.runtime.cuda import library as cuda
from octants.runtime.cuda.context import Context
from octants.runtime.cuda.memory import DEFAULT_STREAM, PinnedMemory
from octants.runtime.device import Bytes
from octants.runtime.memory import address_of

CHUNK = 4 << 20
SMALL = 1 << 16


class _Turn:
    """A buffer, and the event after which it may be used again."""

    def __init__(self, context: Context) -> None:
        self.memory = PinnedMemory(context, CHUNK)
        event = c_void_p()
        context.call("cuEventCreate", byref(event), cuda.EVENT_NO_TIMING)
        self.event = event.value or 0
        self.is_busy = False

    def wait(self, context: Context) -> None:
        if self.is_busy:
            context.wait_for_event(self.event)
            self.is_busy = False

    def note(self, context: Context, stream: int) -> None:
        context.call("cuEventRecord", self.event, stream)
        self.is_busy = True


class Staging:
    """The buffers of a context. Copies are made by one thread at a time."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock, self._small_lock = threading.Lock(), threading.Lock()
        self._small: PinnedMemory | None = None
        self._made_turns: list[_Turn] = []

    @property
    def _turns(self) -> list[_Turn]:
        """The buffers, made when they are first needed, in the order of their use."""
        if not self._made_turns:
            self._made_turns = [_Turn(self._context), _Turn(self._context)]
        return self._made_turns

    def write(self, address: int, values: Bytes, stream: int = DEFAULT_STREAM) -> None:
        """Copy to the GPU, in a stream; ``values`` may be changed when this returns."""
        source, count = address_of(values), values.nbytes
        with self._lock, self._context.active():
            for number, start in enumerate(range(0, count, CHUNK)):
                turn, size = self._turns[number % 2], min(CHUNK, count - start)
                turn.wait(self._context)
                pinned = turn.memory.address
                ctypes.memmove(pinned, source + start, size)
                self._call("cuMemcpyHtoDAsync", address + start, pinned, size, stream)
                turn.note(self._context, stream)
            self._turns.reverse()

    def read(self, address: int, into: Bytes) -> None:
        """Copy from the GPU, and wait for it."""
        target, count = address_of(into), into.nbytes
        with self._lock, self._context.active():
            starts = range(0, count, CHUNK)
            for number in range(len(starts) + 1):
                if number < len(starts):
                    self._begin_read(self._turns[number % 2], address, starts[number], count)
                if number > 0:
                    turn, start = self._turns[(number - 1) % 2], starts[number - 1]
                    turn.wait(self._context)
                    size = min(CHUNK, count - start)
                    ctypes.memmove(target + start, turn.memory.address, size)

    def read_small(self, address: int, into: Bytes, wait: Callable[[], None]) -> None:
        """Copy at most `SMALL` bytes from the GPU; ``wait`` is what the caller waits with."""
        with self._small_lock:
            if self._small is None:
                self._small = PinnedMemory(self._context, SMALL)
            with self._context.active():
                self._call("cuMemcpyDtoHAsync", self._small.address, address, into.nbytes)
            wait()
            ctypes.memmove(address_of(into), self._small.address, into.nbytes)

    def _begin_read(self, turn: _Turn, address: int, start: int, count: int) -> None:
        turn.wait(self._context)
        size = min(CHUNK, count - start)
        self._call("cuMemcpyDtoHAsync", turn.memory.address, address + start, size)
        turn.note(self._context, DEFAULT_STREAM)

    def _call(
        self, name: str, target: int, source: int, size: int, stream: int = DEFAULT_STREAM
    ) -> None:
        self._context.call(name, target, source, size, stream)
