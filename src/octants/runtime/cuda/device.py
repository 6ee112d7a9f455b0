"""A GPU of NVIDIA as a device."""

from __future__ import annotations

import atexit
import contextlib
import functools
import weakref
from collections import deque
from collections.abc import Iterator

from octants.artifact import Artifact
from octants.diagnostics.exceptions import OctantsError
from octants.runtime.cuda.context import Context, context_of
from octants.runtime.cuda.kernel import CudaKernel
from octants.runtime.cuda.library import Library, open_library
from octants.runtime.cuda.memory import DEFAULT_STREAM, DeviceAllocation, DeviceMemory
from octants.runtime.cuda.messages import MessageQueue
from octants.runtime.cuda.modules import Module
from octants.runtime.cuda.staging import Staging
from octants.runtime.cuda.streams import Event, Stream, Streams
from octants.runtime.cuda.tapes import Tape
from octants.runtime.device import Bytes
from octants.runtime.pending import Pending


class CudaDevice:
    """The GPU of a number. Launches are queued in the stream of the thread that makes them.

    ``tape_limit`` bounds the bytes of the tapes in a stream; 0: nine tenths of the memory.
    ``tape_budget`` is what the records of a launch should take, as far as shorter blocks of long
    loops make that possible; 0: a 64th of the memory. ``library`` is the driver of the machine
    unless given.

    Raises `OctantsRuntimeError` if there is no driver, no such GPU, or one that is too old.
    """

    shares_memory = False

    def __init__(
        self,
        ordinal: int = 0,
        tape_budget: int = 0,
        tape_limit: int = 0,
        library: Library | None = None,
    ) -> None:
        self.library = library or driver_library()
        self.context: Context = context_of(self.library, ordinal)
        context, kept = self.context, self.library.kept
        self.memory: DeviceMemory = kept("memory", ordinal, lambda: DeviceMemory(context))
        self._staging: Staging = kept("staging", ordinal, lambda: Staging(context))
        self.pending = Pending()
        self.streams = Streams(context, self.memory)
        self.messages = MessageQueue(context, self.memory, self._staging, self.pending)
        self.tape_budget = tape_budget or context.total_memory // 64
        self._tape_limit = tape_limit or context.total_memory // 10 * 9
        self._modules: weakref.WeakValueDictionary[bytes, Module] = weakref.WeakValueDictionary()
        self._dropped_modules: deque[int] = deque()
        self.memory.before_free = self.streams.gather
        self.memory.after_allocation = self.streams.catch_up
        self.memory.relieve = self.free_tapes
        _devices.add(self)

    def __repr__(self) -> str:
        return repr(self.context)

    # -- kernels --------------------------------------------------------------------------------

    def load(self, artifact: Artifact) -> CudaKernel:
        """Make a kernel ready to be launched."""
        return CudaKernel(self, artifact)

    def module(self, code: bytes) -> Module:
        """The loaded form of code; kernels that were compiled together share theirs."""
        module = self._modules.get(code)
        if module is None:
            module = self._modules[code] = Module(self.context, code, self._dropped_modules)
        return module

    def tape_of(self, stream: Stream) -> Tape:
        """The tapes of the kernels in a stream."""
        if stream.tape is None:
            limit = self._tape_limit
            stream.tape = Tape(self.context, self.memory, self._staging, stream.handle, limit)
        return stream.tape

    def free_tapes(self) -> None:
        """Free the tapes that no launch uses."""
        for stream in self.streams.all():
            if stream.tape is not None:
                stream.tape.free()

    @property
    def tape_bytes(self) -> int:
        """The bytes that tapes take now; they are kept for later launches."""
        tapes = [stream.tape for stream in self.streams.all()]
        return sum(tape.nbytes for tape in tapes if tape is not None)

    # -- memory ---------------------------------------------------------------------------------

    def allocate(self, nbytes: int, what: str = "") -> DeviceAllocation:
        """``nbytes`` of zeros at a multiple of 64; ``what`` names them where memory is refused.

        Raises `OctantsMemoryError` with the table of all that is allocated.
        """
        return self.memory.allocate(nbytes, what)

    def read(self, address: int, into: Bytes) -> None:
        """Copy memory to the host, after all that was launched; raises what went wrong in it."""
        self.synchronize()
        self._staging.read(address, into)

    def write(self, address: int, values: Bytes) -> None:
        """Copy from the host, after what was launched; ``values`` may be changed at once."""
        with self.in_order():
            self._staging.write(address, values)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy within the device, after what was launched; the pieces do not overlap."""
        with self.in_order(), self.context.active():
            self.context.call("cuMemcpyDtoDAsync", target, source, nbytes, DEFAULT_STREAM)

    def clear(self, address: int, nbytes: int) -> None:
        """Set memory to zero, after what was launched."""
        with self.in_order(), self.context.active():
            self.context.call("cuMemsetD8Async", address, 0, nbytes, DEFAULT_STREAM)

    @contextlib.contextmanager
    def in_order(self) -> Iterator[None]:
        """What is done in the default stream stands where the thread's own stream is now."""
        stream = self.streams.current.stream
        self.streams.order(stream, self.streams.default)
        yield
        self.streams.catch_up()

    # -- streams --------------------------------------------------------------------------------

    def create_stream(self) -> Stream:
        """A new stream."""
        return self.streams.create()

    def create_event(self) -> Event:
        """A new event."""
        return Event(self.streams)

    @contextlib.contextmanager
    def using(self, stream: Stream) -> Iterator[None]:
        """Launch in a stream, as long as this lasts; other threads go on in theirs."""
        current = self.streams.current
        before, current.stream = current.stream, stream
        try:
            yield
        finally:
            current.stream = before

    def wait_for_foreign(self, handle: int) -> None:
        """Let the thread's stream wait for what another library has put into one of its own."""
        self.streams.order(self.streams.foreign(handle), self.streams.current.stream)

    def let_foreign_wait(self, handle: int) -> None:
        """Let a stream of another library wait for what is in the thread's own."""
        self.streams.order(self.streams.current.stream, self.streams.foreign(handle))

    # -- waiting --------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Wait until all that was launched is done; raises what went wrong in it."""
        self.look()
        self.pending.raise_first()

    def look(self) -> None:
        """Wait, print what kernels have printed, and raise the first failure."""
        self.streams.wait()
        self.context.launched.clear()
        self.messages.deliver()
        self._unload()

    def _unload(self) -> None:
        with self.context.active():
            while self._dropped_modules:
                self.context.call("cuModuleUnload", self._dropped_modules.popleft())

    def close(self) -> None:
        """Give memory back; what is alive of allocations stays valid, and kernels can be run."""
        with contextlib.suppress(OctantsError):
            self.look()
        self.messages.forget()
        self.free_tapes()
        if self.context.lost is None:
            self.memory.free()


@functools.cache
def driver_library() -> Library:
    """The driver of this machine; `OctantsRuntimeError` if there is none, or if it is too old."""
    return open_library()


_devices: weakref.WeakSet[CudaDevice] = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    """Say what kernels have printed that nobody waited for; failures are left pending."""
    for device in list(_devices):
        try:
            if device.context.lost is None:
                device.look()
        except OctantsError as error:
            device.pending.add(error)
