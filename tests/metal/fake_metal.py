"""A fake libobjc with a fake Metal, for machines that are no Macs.

Methods have the C types of the real ones, and are called through them. Objects count references as
those of Objective-C do. Command buffers run when the host waits for them; kernels are run by the
CPU, from their text compiled as C++. What Metal would refuse, or leave undefined, is a `problem`.
"""

from __future__ import annotations

import ctypes
import threading
from collections import Counter, deque
from collections.abc import Callable
from ctypes import CFUNCTYPE, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

from octants.runtime.metal.library import METHODS, Library
from tests.metal.cpp import CppLibrary

ARCHIVE, BROKEN_ARCHIVE = b"archive", b"broken archive"
"""How the files of archives begin; of broken ones, no pipelines can be made."""

_FIRST = 0x1000
_COMPLETED, _FAILED = 4, 5
_WORDS = 9


class FakeObject:
    """An object with its references; ``kind`` is the name of its class."""

    def __init__(self, kind: str, **members: Any) -> None:
        self.kind = kind
        self.count = 1
        self.held: list[int] = []
        self.__dict__.update(members)

    members: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a {self.kind} has no {name}")


class FakeMetal:
    """The system, for `octants.runtime.metal.library.Library`.

    ``families`` are those that the GPU supports. At most ``limit`` bytes are given at once, and
    ``total`` in all. A command buffer with a kernel of a name in `faults` fails. `calls` counts
    messages by their selectors. `compiled` has the names of the functions that were compiled for
    the GPU, and not taken from an archive.
    """

    def __init__(
        self,
        version: tuple[int, ...] = (15, 1),
        families: tuple[int, ...] = (1007, 5001),
        total: int = 1 << 33,
        limit: int = 1 << 32,
        most_threads: int = 1024,
        width: int = 32,
    ) -> None:
        self.version, self.build = version, "24B83"
        self.families, self.total, self.limit = families, total, limit
        self.most_threads, self.width = most_threads, width
        self.compiled: list[str] = []
        self.refuses_to_archive = False
        self.problems: list[str] = []
        self.refusals: list[str] = []
        self.calls: Counter[str] = Counter()
        self.launches: list[tuple[str, int, int]] = []
        self.faults: set[str] = set()
        self._objects: dict[int, FakeObject] = {}
        self._next = _FIRST
        self._callbacks: dict[str, Any] = {}
        self._of_thread = threading.local()
        self._classes: dict[str, int] = {}
        self._flying: deque[int] = deque()
        self._lock = threading.RLock()  # methods, and kernels, run one at a time
        self._device = self._make("MTLDevice")

    def library(self) -> Library:
        """The methods, as the runtime calls them."""
        return Library(self)

    # -- the system -----------------------------------------------------------------------------

    def selector(self, name: str) -> int:
        return list(METHODS).index(name) + 1

    def send(self, name: str) -> int:
        """The address of a function that does what a method does."""
        result, *arguments = METHODS[name]
        kind = CFUNCTYPE(result, c_void_p, c_void_p, *arguments)
        method = getattr(self, "_" + name.replace(":", "_"))
        self._callbacks[name] = callback = kind(self._guarded(name, method))
        return ctypes.cast(callback, c_void_p).value or 0

    def _guarded(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method that notes what goes wrong: exceptions do not pass through C."""

        def call(receiver: int, selector: int, *arguments: Any) -> Any:
            self._lock.acquire()
            self.calls[name] += 1
            try:
                if selector != self.selector(name):
                    self.problems.append(f"{name}: wrong selector")
                return method(self._objects[receiver], *arguments)
            except Exception as error:  # noqa: BLE001
                self.problems.append(f"{name}: {type(error).__name__} {error}")
                return 0 if METHODS[name][0] is not None else None
            finally:
                self._lock.release()

        return call

    @property
    def _pools(self) -> list[list[int]]:
        """The open pools of a thread, in the order of their opening."""
        if not hasattr(self._of_thread, "pools"):
            self._of_thread.pools = []
        pools: list[list[int]] = self._of_thread.pools
        return pools

    def find_class(self, name: str) -> int:
        if name not in self._classes:
            self._classes[name] = self._make(f"class {name}", name=name)
        return self._classes[name]

    def default_device(self) -> int:
        return self._device

    def push_pool(self) -> int:
        self._pools.append([])
        return len(self._pools)

    def pop_pool(self, pool: int) -> None:
        assert pool == len(self._pools), "pools are closed in another order"
        with self._lock:
            for handle in self._pools.pop():
                self._release(self._objects[handle])

    # -- objects --------------------------------------------------------------------------------

    def _make(self, kind: str, **members: Any) -> int:
        handle, self._next = self._next, self._next + 16
        self._objects[handle] = FakeObject(kind, handle=handle, **members)
        return handle

    def _autoreleased(self, kind: str, **members: Any) -> int:
        if not self._pools:
            self.problems.append(f"a {kind} leaks: there is no pool")
            return self._make(kind, **members)
        handle = self._make(kind, **members)
        self._pools[-1].append(handle)
        return handle

    def alive(self, kind: str) -> int:
        """How many objects of a class there are."""
        return sum(each.kind == kind for each in self._objects.copy().values())

    def count(self) -> Counter[str]:
        """How many objects of each class there are."""
        return Counter(each.kind for each in self._objects.copy().values())

    def _new(self, kind: FakeObject) -> int:
        return self._make(kind.name)

    def _retain(self, found: FakeObject) -> int:
        found.count += 1
        return found.handle

    def _hold(self, owner: FakeObject, handle: int) -> int:
        """Let an object keep another one for as long as it is there."""
        owner.held.append(self._retain(self._objects[handle]))
        return handle

    def _release(self, found: FakeObject) -> None:
        found.count -= 1
        if found.count == 0:
            for handle in found.held:
                self._release(self._objects[handle])
            if found.kind == "MTLCommandBuffer" and found.status < _COMPLETED:
                self.problems.append("a command buffer is released that has not ended")
            del self._objects[found.handle]

    # -- strings, arrays, and errors ------------------------------------------------------------

    def _stringWithUTF8String_(self, _: FakeObject, text: bytes) -> int:
        return self._autoreleased("NSString", text=text)

    def _fileURLWithPath_(self, _: FakeObject, path: int) -> int:
        return self._autoreleased("NSURL", path=self._objects[path].text.decode())

    def _arrayWithObject_(self, _: FakeObject, item: int) -> int:
        made = self._autoreleased("NSArray", item=item)
        self._hold(self._objects[made], item)
        return made

    def _UTF8String(self, string: FakeObject) -> int:
        string.data = ctypes.create_string_buffer(string.text)
        return ctypes.addressof(string.data)

    def _localizedDescription(self, error: FakeObject) -> int:
        return self._autoreleased("NSString", text=error.text)

    def _error_of(self, text: str, out: Any) -> int:
        out[0] = self._autoreleased("NSError", text=text.encode())
        return 0

    # -- the device -----------------------------------------------------------------------------

    def _name(self, _: FakeObject) -> int:
        return self._autoreleased("NSString", text=b"Apple M0")

    def _supportsFamily_(self, _: FakeObject, family: int) -> bool:
        return family in self.families

    def _recommendedMaxWorkingSetSize(self, _: FakeObject) -> int:
        return self.total

    def _maxBufferLength(self, _: FakeObject) -> int:
        return self.limit

    def _maxThreadgroupMemoryLength(self, _: FakeObject) -> int:
        return 32 * 1024

    def _newCommandQueue(self, _: FakeObject) -> int:
        return self._make("MTLCommandQueue")

    def _newSharedEvent(self, _: FakeObject) -> int:
        return self._make("MTLSharedEvent", value=0)

    def _newBufferWithLength_options_(self, _: FakeObject, nbytes: int, options: int) -> int:
        held = sum(e.nbytes for e in self._objects.copy().values() if e.kind == "MTLBuffer")
        if nbytes > self.limit or held + nbytes > self.total or not nbytes:
            return 0
        memory = np.zeros(nbytes + 4096, np.uint8)
        start = -memory.ctypes.data % 4096
        return self._make(
            "MTLBuffer", nbytes=nbytes, memory=memory, address=memory.ctypes.data + start
        )

    def _contents(self, buffer: FakeObject) -> int:
        return int(buffer.address)

    def _gpuAddress(self, buffer: FakeObject) -> int:
        return int(buffer.address)

    # -- pipelines ------------------------------------------------------------------------------

    def _setLanguageVersion_(self, _: FakeObject, version: int) -> None:
        assert version == 3 << 16 | 2

    def _setMathMode_(self, options: FakeObject, mode: int) -> None:
        options.mode = mode

    def _setMathFloatingPointFunctions_(self, options: FakeObject, functions: int) -> None:
        options.functions = functions

    def _newLibraryWithSource_options_error_(
        self, _: FakeObject, source: int, options: int, error: Any
    ) -> int:
        made = self._objects[options]
        assert (made.mode, made.functions) == (0, 1), "floats are not exact"
        text = self._objects[source].text.decode()
        try:
            return self._make("MTLLibrary", code=CppLibrary(text))
        except AssertionError as failure:
            self.problems.append(str(failure))
            return self._error_of(str(failure)[:200], error)

    def _newFunctionWithName_(self, library: FakeObject, name: int) -> int:
        text = self._objects[name].text.decode()
        if not library.code.has(text):
            return 0
        return self._make("MTLFunction", name=text, code=library.code)

    def _setComputeFunction_(self, descriptor: FakeObject, function: int) -> None:
        descriptor.function = self._hold(descriptor, function)
        descriptor.archives = []

    def _setBinaryArchives_(self, descriptor: FakeObject, array: int) -> None:
        descriptor.archives = [self._objects[self._objects[self._hold(descriptor, array)].item]]

    def _newComputePipelineStateWithDescriptor_options_reflection_error_(
        self, _: FakeObject, handle: int, options: int, reflection: int, error: Any
    ) -> int:
        descriptor = self._objects[handle]
        found = self._objects[descriptor.function]
        assert options == 0 and not reflection
        if any(archive.is_broken for archive in descriptor.archives):
            return self._error_of("the archive is broken", error)
        if not any(self._entry_of(found) in archive.entries for archive in descriptor.archives):
            self.compiled.append(found.name)
        return self._make("MTLComputePipelineState", name=found.name, code=found.code)

    def _maxTotalThreadsPerThreadgroup(self, _: FakeObject) -> int:
        return self.most_threads

    def _threadExecutionWidth(self, _: FakeObject) -> int:
        return self.width

    # -- archives of pipelines ------------------------------------------------------------------

    def _entry_of(self, function: FakeObject) -> bytes:
        """What an archive has for a function."""
        return f"{function.name} {function.code.key}".encode()

    def _setUrl_(self, descriptor: FakeObject, url: int) -> None:
        descriptor.path = self._objects[url].path

    def _newBinaryArchiveWithDescriptor_error_(self, _: FakeObject, handle: int, error: Any) -> int:
        path, entries, is_broken = getattr(self._objects[handle], "path", None), set(), False
        if path is not None:
            head, *lines = Path(path).read_bytes().split(b"\n")
            if head not in (ARCHIVE, BROKEN_ARCHIVE):
                return self._error_of("this is no archive of the GPU", error)
            entries, is_broken = set(lines), head == BROKEN_ARCHIVE
        return self._make("MTLBinaryArchive", entries=entries, is_broken=is_broken)

    def _addComputePipelineFunctionsWithDescriptor_error_(
        self, archive: FakeObject, handle: int, error: Any
    ) -> bool:
        if self.refuses_to_archive:
            self._error_of("no space", error)
            return False
        found = self._objects[self._objects[handle].function]
        archive.entries.add(self._entry_of(found))
        self.compiled.append(found.name)
        return True

    def _serializeToURL_error_(self, archive: FakeObject, url: int, error: Any) -> bool:
        lines = [ARCHIVE, *sorted(archive.entries)]
        Path(self._objects[url].path).write_bytes(b"\n".join(lines))
        return True

    # -- commands -------------------------------------------------------------------------------

    def _commandBuffer(self, _: FakeObject) -> int:
        return self._autoreleased(
            "MTLCommandBuffer", commands=[], status=0, encoder=None, event=None, error=None
        )

    def _encoder(self, commands: FakeObject, kind: str) -> int:
        assert commands.encoder is None, "two encoders of a command buffer are open"
        assert commands.status == 0, "a command buffer takes commands after its commit"
        handle = self._autoreleased(
            kind, owner=commands, pipeline=0, bytes=b"", buffers=set(), needs_barrier=False
        )
        commands.encoder = handle
        return handle

    def _computeCommandEncoder(self, commands: FakeObject) -> int:
        return self._encoder(commands, "MTLComputeCommandEncoder")

    def _blitCommandEncoder(self, commands: FakeObject) -> int:
        return self._encoder(commands, "MTLBlitCommandEncoder")

    def _endEncoding(self, encoder: FakeObject) -> None:
        assert encoder.owner.encoder == encoder.handle
        encoder.owner.encoder = None

    def _setComputePipelineState_(self, encoder: FakeObject, pipeline: int) -> None:
        encoder.pipeline = self._objects[pipeline]

    def _setBytes_length_atIndex_(
        self, encoder: FakeObject, data: int, nbytes: int, index: int
    ) -> None:
        assert nbytes <= 4096 and index == 0
        encoder.bytes = ctypes.string_at(data, nbytes)

    def _useResources_count_usage_(
        self, encoder: FakeObject, handles: int, count: int, usage: int
    ) -> None:
        assert usage == 3
        given = (c_void_p * count).from_address(handles)
        encoder.buffers |= {self._objects[handle].handle for handle in given}

    def _memoryBarrierWithScope_(self, encoder: FakeObject, scope: int) -> None:
        assert scope == 1
        encoder.needs_barrier = False

    def _dispatchThreadgroups_threadsPerThreadgroup_(
        self, encoder: FakeObject, groups: Any, threads: Any
    ) -> None:
        assert not encoder.needs_barrier, "kernels run without a barrier between them"
        assert groups.width and groups.height == groups.depth == 1
        assert threads.width <= self.most_threads and threads.height == threads.depth == 1
        assert len(encoder.bytes) == 8 * _WORDS
        for word in memoryview(encoder.bytes).cast("q"):
            owner = self._buffer_at(word)
            assert owner is None or owner in encoder.buffers, "a buffer is not resident"
        encoder.needs_barrier = True
        pipeline, words, blocks, size = encoder.pipeline, encoder.bytes, groups.width, threads.width

        def run() -> None:
            self.launches.append((pipeline.name, blocks, size))
            if pipeline.name in self.faults:
                raise RuntimeError("Caused GPU Address Fault Error")
            pipeline.code.run(pipeline.name, words, blocks, size)

        encoder.owner.commands.append(run)

    def _copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size_(
        self, encoder: FakeObject, source: int, start: int, target: int, to: int, nbytes: int
    ) -> None:
        a, b = self._objects[source], self._objects[target]
        assert not (start % 4 or to % 4 or nbytes % 4), "copies are of words on macOS"
        assert nbytes and start + nbytes <= a.nbytes and to + nbytes <= b.nbytes
        move = ctypes.memmove
        encoder.owner.commands.append(lambda: move(b.address + to, a.address + start, nbytes))

    def _fillBuffer_range_value_(
        self, encoder: FakeObject, buffer: int, span: Any, value: int
    ) -> None:
        found, start, nbytes = self._objects[buffer], span.start, span.length
        assert not (start % 4 or nbytes % 4), "fills are of words on macOS"
        assert nbytes and start + nbytes <= found.nbytes
        encoder.owner.commands.append(lambda: ctypes.memset(found.address + start, value, nbytes))

    def _buffer_at(self, address: int) -> int | None:
        """The buffer that an address is in."""
        for handle, each in self._objects.copy().items():
            if each.kind == "MTLBuffer" and each.address <= address < each.address + each.nbytes:
                return handle
        return None

    # -- running them ---------------------------------------------------------------------------

    def _encodeSignalEvent_value_(self, commands: FakeObject, event: int, value: int) -> None:
        assert commands.encoder is None
        commands.event = self._objects[event], value

    def _commit(self, commands: FakeObject) -> None:
        assert commands.encoder is None and commands.status == 0
        commands.status = 2
        commands.count += 1  # until it has run
        self._flying.append(commands.handle)

    def _run(self) -> bool:
        """Run the next command buffer; whether there is one."""
        with self._lock:
            if self._flying:
                self._run_one(self._objects[self._flying.popleft()])
                return True
        return False

    def _run_one(self, found: FakeObject) -> None:
        try:
            for command in found.commands:
                command()
            found.status = _COMPLETED
        except Exception as error:  # noqa: BLE001
            found.status = _FAILED
            found.error = self._make("NSError", text=str(error).encode())
            found.held.append(found.error)
            if not isinstance(error, RuntimeError):
                self.problems.append(str(error))
        if found.event is not None and found.status == _COMPLETED:
            event, value = found.event
            event.value = value
        self._release(found)

    def run_all(self) -> None:
        """Run all command buffers, as a GPU does without being asked."""
        while self._run():
            pass

    def _waitUntilCompleted(self, commands: FakeObject) -> None:
        while commands.status < _COMPLETED and self._run():
            pass

    def _status(self, commands: FakeObject) -> int:
        return int(commands.status)

    def _error(self, commands: FakeObject) -> int | None:
        found: int | None = commands.error
        return found

    def _signaledValue(self, event: FakeObject) -> int:
        return int(event.value)

    def _waitUntilSignaledValue_timeoutMS_(
        self, event: FakeObject, value: int, patience: int
    ) -> bool:
        assert patience > 0
        while event.value < value and self._run():
            pass
        return bool(event.value >= value)
