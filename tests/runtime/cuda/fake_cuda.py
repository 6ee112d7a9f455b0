"""A fake libcuda, for machines without a GPU.

Functions have the entry points and the C types of the real ones. Memory of the "device" is at
addresses where there is nothing, and begins as garbage. Work in streams is put off as long as it
may be: an operation runs when the host waits for it, after just those that come before it by CUDA's
rules. Kernels are Python functions, registered by the names of entries.
"""

from __future__ import annotations

import ctypes
import functools
import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, c_int
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from octants import abi
from octants.runtime.cuda import library as cuda
from octants.runtime.cuda.library import SIGNATURES, Library

ILLEGAL_ADDRESS = 700
LAUNCH_FAILED = 719
INVALID_VALUE = 1
NOT_INITIALIZED = 3
NO_BINARY = 209
INVALID_PTX = 218
BINARY = b"\x7fELF"
NAMES = {
    1: ("CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    2: ("CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    3: ("CUDA_ERROR_NOT_INITIALIZED", "initialization error"),
    100: ("CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"),
    201: ("CUDA_ERROR_INVALID_CONTEXT", "invalid device context"),
    209: ("CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for the device"),
    218: ("CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"),
    400: ("CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"),
    700: ("CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"),
    719: ("CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"),
}
_ENTRY = re.compile(r"entry (\w+)(?: |\([^\[]*\[)(\d+)")  # of `code_of`, and of PTX
_NO_CONTEXT = re.compile(r"cu(Init|DriverGet|GetError|Device|Ctx(?!Sync))")
_FIRST = 0x7000_0000_0000
_CONTEXT = 0xC0DE_0000


class Trap(Exception):
    """What a kernel raises to end the context."""

    def __init__(self, status: int = ILLEGAL_ADDRESS) -> None:
        super().__init__(status)
        self.status = status


@dataclass(eq=False)
class Operation:
    """Something in a stream, and what comes before it."""

    run: Callable[[], None] | None
    after: list[Operation]
    context: int = 0
    """The context whose memory it works on; 0 for that of several."""


@dataclass(eq=False)
class FakeStream:
    blocking: bool
    context: int
    last: Operation | None = None


@dataclass(eq=False)
class FakeEvent:
    flags: int = 0
    context: int = 0
    operation: Operation | None = None


@dataclass(eq=False)
class FakeGraph:
    """What nodes do, in order, by their handles: launches, or functions."""

    nodes: dict[int, Any] = field(default_factory=dict)
    made_of: int = 0


@dataclass
class Failure:
    status: int
    skip: int
    times: int


@dataclass
class Call:
    """A launch, as a kernel sees it."""

    cuda: FakeCuda
    entry: str
    parameters: bytes
    launch: list[int]
    grid: int
    block: int
    stream: int

    @property
    def threads(self) -> int:
        return self.grid * self.block

    @property
    def slots(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.frombuffer(self.parameters, np.int64)

    def words(self, address: int, count: int, dtype: Any = np.int64) -> Any:
        """Memory of the device, to read and to write."""
        return self.cuda.view(address, count, dtype)


def _clear(call: Call) -> None:
    ranges = call.slots.reshape(-1, 2).tolist()
    assert call.grid <= len(ranges)
    for address, nbytes in ranges[: call.grid]:
        assert not (address | nbytes) % 4
        call.cuda.bytes_at(address, nbytes)[:] = bytes(nbytes)


def _copy_each(call: Call) -> None:
    for target, source, nbytes in call.slots.reshape(-1, 3).tolist():
        if not nbytes:
            continue
        assert not (target | source | nbytes) % 4
        call.cuda.bytes_at(target, nbytes)[:] = bytes(call.cuda.bytes_at(source, nbytes))


_OWN = {"octants_clear": _clear, "octants_copy_each": _copy_each}


@dataclass
class FakeCuda:
    """The driver, its devices, and everything that happens in them."""

    total: int = 1 << 26
    devices: int = 1
    capability: tuple[int, int] = (9, 0)
    capabilities: dict[int, tuple[int, int]] = field(default_factory=dict)  # of single devices
    multiprocessors: int = 4
    cache: int = 1 << 22
    """The bytes of its last cache."""
    resident: int = 512
    """The threads that a multiprocessor holds at a time."""
    driver: int = 13000
    pools: bool = True
    peers: bool = True
    """Whether GPUs can access each other's memory."""
    accesses: set[tuple[int, int]] = field(default_factory=set)
    """Contexts whose GPU may access another one's memory, and the contexts of that."""
    init_status: int = 0
    kernels: dict[str, Callable[[Call], None]] = field(default_factory=lambda: dict(_OWN))
    calls: Counter[str] = field(default_factory=Counter)
    order: list[str] = field(default_factory=list)
    """The functions that were called, in order."""
    launches: list[Call] = field(default_factory=list)
    early_starts: list[str] = field(default_factory=list)
    """The entries of the nodes of graphs that start before the launch before them has ended."""
    problems: list[str] = field(default_factory=list)
    lost: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._failures: dict[str, Failure] = {}
        self._memory: dict[int, bytearray] = {}
        self._ordinals: dict[int, int] = {}
        self._next = _FIRST
        self._pooled = 0
        self._pinned: dict[int, Any] = {}
        self._handles: dict[int, Any] = {}
        self._streams: dict[int, FakeStream] = {}
        self._defaults: dict[int, FakeStream] = {}
        self._running = 0  # the context of the operation that is running
        self._thread = threading.local()
        self._references: list[Any] = []

    def library(self) -> Library:
        return Library(self._find)

    def fail(self, name: str, status: int, skip: int = 0, times: int = 1) -> None:
        """Let a function fail, after so many calls, so many times."""
        self._failures[name] = Failure(status, skip, times)

    def add_foreign_stream(self, ordinal: int = 0) -> int:
        """A stream as other libraries make them: no implicit order with the default stream."""
        return self._handle(FakeStream(False, _CONTEXT + ordinal), self._streams)

    def end_foreign_stream(self, handle: int) -> None:
        """Destroy a stream as its owner may: what is in it runs to its end."""
        del self._streams[handle]

    @property
    def used(self) -> int:
        """The bytes that are allocated."""
        return sum(map(len, self._memory.values()))

    @property
    def stack(self) -> list[int]:
        """The contexts of this thread; the last one is current."""
        if not hasattr(self._thread, "stack"):
            self._thread.stack = []
        stack: list[int] = self._thread.stack
        return stack

    # -- the table of functions -----------------------------------------------------------------

    def _find(self, symbol: str) -> Callable[..., int]:
        name = symbol.partition("_v2")[0]
        made = CFUNCTYPE(c_int, *SIGNATURES[symbol])(self._guarded(name))
        self._references.append(made)
        return made

    def _guarded(self, name: str) -> Callable[..., int]:
        """A function of this class, which fails on request."""
        implementation = getattr(self, name)

        def function(*arguments: Any) -> int:
            with self._lock:
                self.calls[name] += 1
                self.order.append(name)
                try:
                    return self._refusal(name) or implementation(*arguments) or 0
                except Trap as trap:
                    self.lost = trap.status
                    return trap.status
                except Exception as error:
                    self.problems.append(f"{name}: {error!r}")
                    return 999

        return function

    def _refusal(self, name: str) -> int:
        failure = self._failures.get(name)
        if failure is not None:
            failure.skip -= 1
            if failure.skip < 0 < failure.times:
                failure.times -= 1
                return failure.status
        if _NO_CONTEXT.match(name):
            return 0
        if self.lost:
            return self.lost
        return 0 if self.stack else cuda.INVALID_CONTEXT

    def _handle(self, thing: Any, table: dict[int, Any] | None = None) -> int:
        self._next += 256
        (self._handles if table is None else table)[self._next] = thing
        return self._next

    # -- streams --------------------------------------------------------------------------------

    def _stream(self, handle: int | None) -> FakeStream:
        """The stream with a handle; 0 is the default stream of the current context."""
        if handle:
            return self._streams[handle]
        context = self.stack[-1]
        return self._defaults.setdefault(context, FakeStream(True, context))

    def _put(
        self, stream: int | None, run: Callable[[], None] | None, context: int | None = None
    ) -> Operation:
        own = self._stream(stream)
        default = self._defaults.get(own.context)
        after = [own.last]
        if own is default:
            others = (each for each in self._streams.values() if each.context == own.context)
            after += [each.last for each in others if each.blocking]
        elif own.blocking and default is not None:
            after.append(default.last)
        found = [each for each in after if each is not None]
        own.last = Operation(run, found, own.context if context is None else context)
        return own.last

    def _all_streams(self) -> list[FakeStream]:
        return [*self._defaults.values(), *self._streams.values()]

    def _pending(self) -> set[Operation | None]:
        """The last operations of all streams, and everything before them that may not have run."""
        waiting, found = [stream.last for stream in self._all_streams()], set[Operation | None]()
        while waiting:
            top = waiting.pop()
            if top is not None and top not in found:
                found.add(top)
                waiting += top.after
        return found

    def _finish(self, operation: Operation | None) -> bool:
        """Run an operation with everything before it; whether there was something to be run."""
        if operation is None:
            return False
        waiting, found = [operation], False
        while waiting:
            top = waiting[-1]
            if top.after:
                waiting.append(top.after.pop())
                continue
            waiting.pop()
            if top.run is not None:
                run, top.run, found = top.run, None, True
                outer, self._running = self._running, top.context
                try:
                    run()
                finally:
                    self._running = outer
        return found

    def cuStreamCreate(self, out: Any, flags: int) -> int:
        out[0] = self._handle(FakeStream(flags == 0, self.stack[-1]), self._streams)
        return 0

    def cuStreamDestroy(self, stream: int) -> int:
        last = self._streams.pop(stream).last
        is_awaited = last in self._pending()
        if self._finish(last) and not is_awaited:
            self.problems.append("a stream was destroyed that was not waited for")
        return 0

    def cuStreamGetCtx(self, stream: int, out: Any) -> int:
        out[0] = self._streams[stream].context
        return 0

    def cuStreamQuery(self, stream: int | None) -> int:
        return cuda.NOT_READY if self._finish(self._stream(stream).last) else 0

    def cuStreamWaitEvent(self, stream: int | None, event: int, flags: int) -> int:
        other = self._handles[event].operation
        operation = self._put(stream, None)
        if other is not None:
            operation.after.append(other)
        return 0

    def cuEventCreate(self, out: Any, flags: int) -> int:
        out[0] = self._handle(FakeEvent(flags, self.stack[-1]))
        return 0

    def cuEventDestroy(self, event: int) -> int:
        del self._handles[event]
        return 0

    def cuEventRecord(self, event: int, stream: int | None) -> int:
        if self._handles[event].context != self._stream(stream).context:
            return cuda.INVALID_HANDLE
        self._handles[event].operation = self._put(stream, None)
        return 0

    def cuEventQuery(self, event: int) -> int:
        return cuda.NOT_READY if self._finish(self._handles[event].operation) else 0

    def cuEventElapsedTime(self, out: Any, start: int, end: int) -> int:
        if any(self._handles[each].flags for each in (start, end)):
            return 400  # CUDA_ERROR_INVALID_HANDLE: an event without timing
        if any(self._finish(self._handles[each].operation) for each in (start, end)):
            return cuda.NOT_READY
        out[0] = 0.25
        return 0

    # -- memory ---------------------------------------------------------------------------------

    def bytes_at(self, address: int, count: int) -> memoryview:
        """Memory of the device; what is none of it is an illegal address."""
        for start, memory in self._memory.items():
            if start <= address and address + count <= start + len(memory):
                ordinal = self._ordinals.get(start, self._running - _CONTEXT)
                if self._running and ordinal != self._running - _CONTEXT:
                    self.problems.append(f"GPU {self._running - _CONTEXT} uses another's memory")
                return memoryview(memory)[address - start : address - start + count]
        self.problems.append(f"illegal address {address:#x}")
        raise Trap

    def view(self, address: int, count: int, dtype: Any = np.int64) -> Any:
        return np.frombuffer(self.bytes_at(address, count * np.dtype(dtype).itemsize), dtype)

    def _allocate(self, out: Any, size: int) -> int:
        if self.used + size > self.total:
            return cuda.OUT_OF_MEMORY
        self._next += 256
        out[0] = address = self._next
        self._memory[address] = bytearray(b"\xcd" * size)
        self._ordinals[address] = self.stack[-1] - _CONTEXT
        self._next += size // 256 * 256 + 512
        self._pooled = max(self._pooled, self.used)
        return 0

    def cuMemGetInfo(self, free: Any, total: Any) -> int:
        free[0], total[0] = self.total - self.used, self.total
        return 0

    def cuMemAlloc(self, out: Any, size: int) -> int:
        return self._allocate(out, size)

    def cuMemFree(self, address: int) -> int:
        for stream in self._all_streams():
            self._finish(stream.last)
        del self._memory[address]
        return 0

    def cuMemPoolCreate(self, out: Any, properties: Any) -> int:
        assert properties[0].location == cuda.LOCATION_DEVICE
        out[0] = self._handle("pool")
        return 0

    def cuMemPoolSetAttribute(self, pool: int, attribute: int, value: int) -> int:
        return 0

    def cuMemPoolGetAttribute(self, pool: int, attribute: int, value: Any) -> int:
        assert attribute == cuda.POOL_RESERVED
        value[0] = self._pooled
        return 0

    def cuMemPoolSetAccess(self, pool: int, access: Any, count: int) -> int:
        assert self._handles[pool] == "pool"
        assert (access[0].location, access[0].access, count) == (1, cuda.READ_AND_WRITE, 1)
        return 0

    def cuMemPoolTrimTo(self, pool: int, size: int) -> int:
        self._pooled = self.used
        return 0

    def cuMemAllocFromPoolAsync(self, out: Any, size: int, pool: int, stream: int) -> int:
        assert self._handles[pool] == "pool"
        return self._allocate(out, size)

    def cuMemFreeAsync(self, address: int, stream: int | None) -> int:
        self._put(stream, lambda: self._memory.pop(address) and None)
        return 0

    def cuMemAllocHost(self, out: Any, size: int) -> int:
        memory = ctypes.create_string_buffer(size)
        out[0] = ctypes.addressof(memory)
        self._pinned[ctypes.addressof(memory)] = memory
        return 0

    def cuMemFreeHost(self, address: int) -> int:
        del self._pinned[address]
        return 0

    def _is_pinned(self, address: int) -> bool:
        return any(start <= address < start + len(m) for start, m in self._pinned.items())

    def cuMemcpyHtoDAsync(self, target: int, source: int, size: int, stream: int | None) -> int:
        if self._is_pinned(source):
            self._put(stream, lambda: self._store(target, ctypes.string_at(source, size)))
        else:
            values = ctypes.string_at(source, size)
            self._put(stream, lambda: self._store(target, values))
        return 0

    def cuMemcpyDtoHAsync(self, target: int, source: int, size: int, stream: int | None) -> int:
        def run() -> None:
            ctypes.memmove(target, bytes(self.bytes_at(source, size)), size)

        operation = self._put(stream, run)
        if not self._is_pinned(target):
            self._finish(operation)
        return 0

    def cuMemcpyDtoDAsync(self, target: int, source: int, size: int, stream: int | None) -> int:
        self._put(stream, lambda: self._store(target, bytes(self.bytes_at(source, size))))
        return 0

    def cuMemcpyPeerAsync(
        self, target: int, own: int, source: int, other: int, size: int, stream: int | None
    ) -> int:
        if self._stream(stream).context not in (own, other):
            return INVALID_VALUE

        def run() -> None:
            values = bytes(self._bytes_of(other, source, size))
            self._bytes_of(own, target, size)[:] = values

        self._put(stream, run, 0)
        return 0

    def _bytes_of(self, context: int, address: int, size: int) -> memoryview:
        """Memory of one GPU."""
        self._running = context
        return self.bytes_at(address, size)

    def cuMemcpy2DAsync(self, copy: Any, stream: int | None) -> int:
        address = ctypes.cast(copy, ctypes.c_void_p).value
        assert address is not None
        rows = cuda.RowCopy.from_buffer_copy(cuda.RowCopy.from_address(address))
        assert rows.source_kind == rows.target_kind == cuda.ON_DEVICE
        if max(rows.source_pitch, rows.target_pitch) > cuda.MOST_PITCH:
            return INVALID_VALUE

        def run() -> None:
            for row in range(rows.height):
                source = rows.source + row * rows.source_pitch
                values = bytes(self.bytes_at(source, rows.width))
                self._store(rows.target + row * rows.target_pitch, values)

        self._put(stream, run)
        return 0

    def cuMemsetD8Async(self, target: int, value: int, size: int, stream: int | None) -> int:
        return self._fill(target, value, 1, size, stream)

    def cuMemsetD16Async(self, target: int, value: int, count: int, stream: int | None) -> int:
        return self._fill(target, value, 2, count, stream)

    def cuMemsetD32Async(self, target: int, value: int, count: int, stream: int | None) -> int:
        return self._fill(target, value, 4, count, stream)

    def _fill(self, target: int, value: int, size: int, count: int, stream: int | None) -> int:
        if target % size:
            return INVALID_VALUE
        values = value.to_bytes(size, "little") * count
        self._put(stream, lambda: self._store(target, values))
        return 0

    def _store(self, target: int, values: bytes) -> None:
        self.bytes_at(target, len(values))[:] = values

    def cuPointerGetAttribute(self, out: int, attribute: int, address: int) -> int:
        assert attribute == cuda.POINTER_ORDINAL
        for start, memory in self._memory.items():
            if start <= address < start + len(memory):
                ctypes.cast(out, ctypes.POINTER(c_int))[0] = self._ordinals[start]
                return 0
        return INVALID_VALUE

    # -- code -----------------------------------------------------------------------------------

    def cuModuleLoadDataEx(self, out: Any, code: int, count: int, options: Any, values: Any) -> int:
        text = ctypes.string_at(code)
        entries = dict(_ENTRY.findall(text.decode(errors="replace")))
        if text.startswith(BINARY):
            if not text.startswith(self._binary_head):
                return NO_BINARY
        elif not entries:
            return self._refuse(dict(zip(options[:count], values[:count], strict=True)))
        out[0] = self._handle((entries, self.stack[-1]))
        return 0

    def _refuse(self, log: dict[int, int]) -> int:
        said = b"ptxas fatal   : Unexpected text at line 1\0"
        assert log[cuda.JIT_ERROR_LOG_SIZE] >= len(said)
        ctypes.memmove(log[cuda.JIT_ERROR_LOG], said, len(said))
        return INVALID_PTX

    @property
    def _binary_head(self) -> bytes:
        """How what is linked for the current GPU begins."""
        return BINARY + b" for %d.%d\n" % self._capability(self.stack[-1] - _CONTEXT)

    def _capability(self, device: int) -> tuple[int, int]:
        return self.capabilities.get(device, self.capability)

    def cuLinkCreate(self, count: int, options: Any, values: Any, out: Any) -> int:
        log = dict(zip(options[:count], values[:count], strict=True))
        out[0] = self._handle((log, bytearray()))
        return 0

    def cuLinkAddData(
        self, state: int, kind: int, data: int, size: int, name: bytes, count: int, *options: Any
    ) -> int:
        log, linked = self._handles[state]
        text = ctypes.string_at(data, size)
        assert kind == cuda.INPUT_PTX and text.endswith(b"\0") and name and not count
        if not _ENTRY.search(text.decode()):
            return self._refuse(log)
        linked[:] = self._binary_head + text
        return 0

    def cuLinkComplete(self, state: int, out: Any, size: Any) -> int:
        linked = self._handles[state][1]
        out[0], size[0] = ctypes.addressof(ctypes.c_char.from_buffer(linked)), len(linked)
        return 0

    def cuLinkDestroy(self, state: int) -> int:
        del self._handles[state]
        return 0

    def cuModuleUnload(self, module: int) -> int:
        del self._handles[module]
        return 0

    def cuModuleGetFunction(self, out: Any, module: int, name: bytes) -> int:
        entry = name.decode()
        entries, context = self._handles[module]
        out[0] = self._handle((entry, int(entries[entry]), context))
        return 0

    def cuFuncGetAttribute(self, out: Any, attribute: int, function: int) -> int:
        assert attribute == cuda.FUNCTION_MAX_THREADS
        out[0] = 1024
        return 0

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(
        self, out: Any, function: int, block: int, shared: int
    ) -> int:
        out[0] = self.resident // block
        return 0

    def cuLaunchKernelEx(self, made: Any, function: int, arguments: Any, extra: Any) -> int:
        configuration = made[0]
        entry, size, context = self._handles[function]
        if context != self.stack[-1] or context != self._stream(configuration.stream).context:
            return cuda.INVALID_HANDLE
        assert configuration.grid > 0 and configuration.block > 0
        words: Any = ()
        if entry not in _OWN:
            words = (ctypes.c_int64 * (abi.LAUNCH_SIZE // 8)).from_address(arguments[1])
        call = Call(
            self,
            entry,
            ctypes.string_at(arguments[0], size),
            list(words),
            configuration.grid,
            configuration.block,
            configuration.stream or 0,
        )
        self._put(configuration.stream, lambda: self._launch(call))
        return 0

    def _launch(self, call: Call) -> None:
        self.launches.append(call)
        self._kernel(call.entry)(call)

    def _kernel(self, entry: str) -> Callable[[Call], None]:
        """The function of an entry; that of the compiler's first one goes by the kernel's name."""
        name = re.sub(r"^octants_(\w+)_task_0$", r"\1", entry)
        return self.kernels[entry if entry in self.kernels else name]

    # -- graphs ---------------------------------------------------------------------------------

    def cuGraphCreate(self, out: Any, flags: int) -> int:
        out[0] = self._handle(FakeGraph())
        return 0

    def cuGraphDestroy(self, graph: int) -> int:
        del self._handles[graph]
        return 0

    def _add_node(self, out: Any, graph: int, before: Any, count: int, run: Any) -> int:
        """A node after the last one, or one that waits for none, as all of its graph then do.

        Nodes that wait for none run last first.
        """
        nodes = self._handles[graph].nodes
        assert not count or before[0] == list(nodes)[-1]
        self._next += 256
        out[0] = self._next
        if count or not nodes:
            nodes[self._next] = run
        else:
            self._handles[graph].nodes = {self._next: run, **nodes}
        return 0

    def cuGraphAddDependencies(
        self, graph: int, before: Any, node: Any, edges: Any, count: int
    ) -> int:
        """An edge from the last launch to the one just added, which waits for that itself."""
        (kind,) = edges[:count]
        assert (kind.from_port, kind.to_port, kind.type) == (1, 0, 1)
        nodes = self._handles[graph].nodes
        added = nodes.pop(node[0])
        assert before[0] == list(nodes)[-1]
        assert isinstance(nodes[before[0]], Call)
        assert isinstance(added, Call)
        self.early_starts.append(added.entry)
        nodes[node[0]] = added
        return 0

    def _kernel_node(self, made: Any) -> Call:
        node, arguments = made[0], ctypes.cast(made[0].arguments, ctypes.POINTER(ctypes.c_void_p))
        entry, size, _ = self._handles[node.function]
        assert node.grid > 0
        assert node.block > 0
        assert (node.grid_y, node.grid_z, node.block_y, node.block_z) == (1, 1, 1, 1)
        words: Any = ()
        if entry not in _OWN:
            words = (ctypes.c_int64 * (abi.LAUNCH_SIZE // 8)).from_address(arguments[1] or 0)
        parameters = ctypes.string_at(arguments[0] or 0, size)
        return Call(self, entry, parameters, list(words), node.grid, node.block, 0)

    def cuGraphAddKernelNode(self, out: Any, graph: int, before: Any, count: int, made: Any) -> int:
        return self._add_node(out, graph, before, count, self._kernel_node(made))

    def cuGraphAddMemsetNode(
        self, out: Any, graph: int, before: Any, count: int, made: Any, context: int
    ) -> int:
        fill = made[0]
        assert fill.size in (1, 2, 4)
        assert fill.target % fill.size == 0
        assert fill.width * fill.height > 0
        values = fill.value.to_bytes(fill.size, "little") * (fill.width * fill.height)
        run = functools.partial(self._store, fill.target, values)
        return self._add_node(out, graph, before, count, run)

    def cuGraphAddMemcpyNode(
        self, out: Any, graph: int, before: Any, count: int, made: Any, context: int
    ) -> int:
        c = type(made[0]).from_buffer_copy(made[0])
        assert c.depth == 1
        assert min(c.source_pitch, c.target_pitch) >= c.width
        if cuda.ON_HOST in (c.source_kind, c.target_kind):
            return self._add_node(out, graph, before, count, self._copy_piece(c))
        assert c.source_kind == c.target_kind == cuda.ON_DEVICE

        def run() -> None:
            for row in range(c.height):
                values = bytes(self.bytes_at(c.source + row * c.source_pitch, c.width))
                self._store(c.target + row * c.target_pitch, values)

        return self._add_node(out, graph, before, count, run)

    def _copy_piece(self, c: Any) -> Callable[[], None]:
        """A copy between pinned memory and the device."""
        assert c.height == 1
        if c.source_kind == cuda.ON_HOST:
            assert c.target_kind == cuda.ON_DEVICE
            assert self._is_pinned(c.source_host)
            return lambda: self._store(c.target, ctypes.string_at(c.source_host, c.width))
        assert c.source_kind == cuda.ON_DEVICE
        assert self._is_pinned(c.target_host)
        return lambda: (
            ctypes.memmove(c.target_host, bytes(self.bytes_at(c.source, c.width)), c.width) and None
        )

    def cuGraphInstantiateWithFlags(self, out: Any, graph: int, flags: int) -> int:
        assert flags == 0
        out[0] = self._handle(FakeGraph(dict(self._handles[graph].nodes), graph))
        return 0

    def cuGraphExecKernelNodeSetParams(self, graph: int, node: int, made: Any) -> int:
        nodes, origin = self._handles[graph].nodes, self._handles[graph].made_of
        if origin not in self._handles:  # so has it been seen on an H100
            return INVALID_VALUE
        assert isinstance(nodes[node], Call)
        nodes[node] = self._kernel_node(made)
        return 0

    def cuGraphExecDestroy(self, graph: int) -> int:
        del self._handles[graph]
        return 0

    def cuGraphLaunch(self, graph: int, stream: int | None) -> int:
        for run in self._handles[graph].nodes.values():
            self._put(stream, functools.partial(self._launch, run) if type(run) is Call else run)
        return 0

    # -- the driver and its devices -------------------------------------------------------------

    def cuInit(self, flags: int) -> int:
        return self.init_status

    def cuDriverGetVersion(self, out: Any) -> int:
        out[0] = self.driver
        return 0

    def cuGetErrorName(self, status: int, out: Any) -> int:
        return self._word(status, 0, out)

    def cuGetErrorString(self, status: int, out: Any) -> int:
        return self._word(status, 1, out)

    def _word(self, status: int, which: int, out: Any) -> int:
        text = ctypes.c_char_p(
            NAMES.get(status, (f"CUDA_ERROR_{status}", "an error"))[which].encode()
        )
        self._references.append(text)
        out[0] = text
        return 0

    def cuDeviceGetCount(self, out: Any) -> int:
        out[0] = self.devices
        return 0

    def cuDeviceGet(self, out: Any, ordinal: int) -> int:
        out[0] = ordinal
        return 0

    def cuDeviceGetName(self, out: Any, size: int, device: int) -> int:
        ctypes.memmove(out, b"Fake GPU\0", 9)
        return 0

    def cuDeviceGetAttribute(self, out: Any, attribute: int, device: int) -> int:
        out[0] = {
            cuda.ATTRIBUTE_MULTIPROCESSORS: self.multiprocessors,
            cuda.ATTRIBUTE_CACHE_BYTES: self.cache,
            cuda.ATTRIBUTE_MAJOR: self._capability(device)[0],
            cuda.ATTRIBUTE_MINOR: self._capability(device)[1],
            cuda.ATTRIBUTE_MEMORY_POOLS: self.pools,
        }[attribute]
        return 0

    def cuDeviceTotalMem(self, out: Any, device: int) -> int:
        out[0] = self.total
        return 0

    def cuDevicePrimaryCtxRetain(self, out: Any, device: int) -> int:
        out[0] = _CONTEXT + device
        return 0

    def cuCtxGetCurrent(self, out: Any) -> int:
        out[0] = self.stack[-1] if self.stack else None
        return 0

    def cuCtxGetDevice(self, out: Any) -> int:
        out[0] = self.stack[-1] - _CONTEXT
        return 0

    def cuCtxSetCurrent(self, context: int) -> int:
        self.stack[-1:] = [context]
        return 0

    def cuCtxSynchronize(self) -> int:
        for stream in self._all_streams():
            self._finish(stream.last)
        return 0

    def cuCtxPushCurrent(self, context: int) -> int:
        self.stack.append(context)
        return 0

    def cuCtxPopCurrent(self, out: Any) -> int:
        out[0] = self.stack.pop()
        return 0

    def cuDeviceCanAccessPeer(self, out: Any, device: int, other: int) -> int:
        assert device != other
        out[0] = self.peers
        return 0

    def cuCtxEnablePeerAccess(self, context: int, flags: int) -> int:
        pair = self.stack[-1], context
        if pair in self.accesses:
            return cuda.ACCESS_ENABLED
        self.accesses.add(pair)
        return 0


def code_of(entries: Sequence[str], slots: int) -> bytes:
    """What the fake takes for PTX: entries with the bytes of their parameters."""
    return "".join(f"entry {entry} {8 * slots}\n" for entry in entries).encode()
