"""Implements `runtime.device.Device` for the CPU: loaded kernels, and the state of launches."""

from __future__ import annotations

import atexit
import ctypes
import importlib
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from octants.artifact import SYSTEM, Artifact, Slot
from octants.diagnostics.exceptions import InternalError
from octants.runtime.capture import Command, CommandReplay
from octants.runtime.cpu import system_limits
from octants.runtime.cpu.command_table import ROW_BYTES, CommandTable
from octants.runtime.cpu.native import linking as native
from octants.runtime.cpu.native.launches import STATUS_BITS
from octants.runtime.cpu.native.structures import ThreadContext, aligned
from octants.runtime.cpu.thread_pool import ThreadPool
from octants.runtime.devices.serial_streams_and_graphs import SerialLaunches
from octants.runtime.memory.host import HostMemory, free_pooled_memory
from octants.runtime.reports.messages import MessageBuffer
from octants.runtime.reports.pending_errors import Pending

# What `signal` wraps: that makes enumerations, which take long to define and to look up.
_signal: Any = importlib.import_module("_signal")
_INTERRUPT, _PYTHON_HANDLER = int(_signal.SIGINT), _signal.default_int_handler
_get_handler: Callable[[int], Any] = _signal.getsignal
_SPOKE, _INTERRUPTED, _LARGE_RECORD_BUFFERS = 1, 2, 4  # bits of a launch's status
_EXIT_PATIENCE = 1.0  # seconds that the end of the process waits for launches of other threads


class LaunchState:
    """The state that one launch at a time uses: its context, message buffer and record buffer."""

    def __init__(self, support: native.Support, pool: ThreadPool) -> None:
        self._memory, self.address = aligned(ThreadContext)
        self._free_record_buffer, self._pool = support.free_record_buffer, pool
        self._free_parts = support.free_parts
        self.messages = MessageBuffer()
        self.fields = ThreadContext.from_address(self.address)
        self.fields.parallel_for = support.addresses["octants_parallel_for"]
        self.fields.parallel_sums = support.addresses["octants_parallel_sums"]
        self.fields.grow = support.addresses["octants_grow"]
        self.fields.guard = support.addresses["octants_guard"]
        self.fields.serial = support.addresses["octants_serial"]
        self.fields.worker = self.address + ThreadContext.main_worker.offset
        self.fields.pool = pool.address
        self.fields.messages = self.messages.address

    def free_record_buffer(self) -> None:
        self._free_record_buffer(self._pool.address, self.fields.worker)

    def __del__(self) -> None:
        self.free_record_buffer()
        self._free_parts(self.address)


class CpuKernel:
    """A loaded kernel; any thread can launch it."""

    def __init__(self, device: CpuDevice, artifact: Artifact) -> None:
        if artifact.parameters.slots[0] != Slot("system", SYSTEM[0]):
            raise InternalError("the message buffer is not the first parameter")
        self.artifact = artifact
        self._library = device.link(artifact)
        self.entry: int = self._library[artifact.entry]
        self._device = device
        self._contexts = device.contexts
        self._run = device.support.launch
        self._has_signals = device.support.has_signals

    def launch(self, block: int) -> None:
        """Launch with the parameter block at an address; see `runtime.device.LoadedKernel`."""
        try:
            context = self._contexts.pop()
        except IndexError:
            context = self._device.make_context()
        may_interrupt = (
            self._has_signals
            and threading.get_ident() == _main_thread
            and _get_handler(_INTERRUPT) is _PYTHON_HANDLER
        )
        try:
            status = self._run(self.entry, block, context.address, may_interrupt)
            if status:
                self.report(context, status)
        finally:
            self._contexts.append(context)

    def report(self, context: LaunchState, status: int) -> None:
        """Deliver messages of a launch that returned a status, and raise what ended it."""
        if status & _LARGE_RECORD_BUFFERS:
            context.free_record_buffer()
            self._device.free_record_buffers()
        if status & _SPOKE:
            overflow = context.messages.deliver(self.artifact)
            if overflow is not None:
                self._device.pending.add(overflow)
        if status & _INTERRUPTED:  # where Python has not raised it yet
            raise SystemExit if _is_ending else KeyboardInterrupt


class CpuDevice(SerialLaunches, HostMemory):
    """The CPU as a device; launches of all threads share a pool of threads.

    Args:
        max_threads: The most threads of the pool; 0: as many as the process may use.
        record_buffer_limit: The most bytes of all record buffers; 0: most of the memory.
        record_budget: Bytes that the records of all threads should take, if shorter blocks of
            long loops make that possible; 0: no bound.
        support: The native code; by default that of the process.
    """

    def __init__(
        self,
        max_threads: int = 0,
        record_buffer_limit: int = 0,
        record_budget: int = 0,
        support: native.Support | None = None,
    ) -> None:
        self.support = support or native.native_support()
        threads = max_threads or system_limits.thread_count()
        limit = record_buffer_limit or system_limits.memory_bytes() // 10 * 9
        self.pool = ThreadPool(self.support, threads, limit, record_budget)
        self._relieve = ctypes.CFUNCTYPE(None)(_reliever(weakref.ref(self)))
        self.pool.fields.relieve = ctypes.cast(self._relieve, ctypes.c_void_p).value
        self.pending = Pending()
        self._clears: tuple[Any, Any] = (), None  # ranges, and the native table of them
        self.contexts: list[LaunchState] = []  # those that no launch uses
        self._all_contexts: weakref.WeakSet[LaunchState] = weakref.WeakSet()
        self._libraries: weakref.WeakValueDictionary[bytes, Any] = weakref.WeakValueDictionary()
        _devices.add(self)

    def clear_each(self, ranges: tuple[tuple[int, int], ...]) -> None:
        """Set several ranges to zero: addresses and bytes. Not in a capture."""
        known, table = self._clears
        if known != ranges:
            table = (ctypes.c_int64 * (2 * len(ranges)))(*itertools.chain.from_iterable(ranges))
            self._clears = ranges, table
        self.support.clear(table, len(ranges))

    def load(self, artifact: Artifact) -> CpuKernel:
        """Load a kernel.

        Raises:
            OctantsRuntimeError: its code cannot be loaded.
        """
        return CpuKernel(self, artifact)

    def make_graph(self, commands: Sequence[Command], kept: Any = None) -> CommandReplay:
        """Make a table that replays commands with few native calls."""
        return CommandTable(self, commands, kept)

    def run_rows(self, first: int, kernels: Sequence[CpuKernel | None], later: int) -> None:
        """Run rows of a `CommandTable`.

        Args:
            first: The address of the first row.
            kernels: The kernel that each row launches; None for copies.
            later: What is added to the numbers of launches.
        """
        try:
            context = self.contexts.pop()
        except IndexError:
            context = self.make_context()
        may_interrupt = (
            self.support.has_signals
            and threading.get_ident() == _main_thread
            and _get_handler(_INTERRUPT) is _PYTHON_HANDLER
        )
        address, run, done = context.address, self.support.replay, 0
        end = first + len(kernels) * ROW_BYTES
        try:
            while done < len(kernels):
                found = run(first + done * ROW_BYTES, end, address, may_interrupt, later)
                done += found >> STATUS_BITS
                kernel = kernels[done - 1]
                if kernel is not None:
                    kernel.report(context, found & (1 << STATUS_BITS) - 1)
        finally:
            self.contexts.append(context)

    def synchronize(self) -> None:
        """Raise the first pending error; a launch returns when its work is done."""
        self.pending.raise_first()

    def close(self) -> None:
        """Stop the threads, free record buffers and pooled memory; launches start threads again."""
        self.pool.stop()
        self.contexts.clear()
        free_pooled_memory()

    @property
    def threads(self) -> int:
        """The number of threads that run a parallel loop."""
        return self.pool.threads

    @property
    def record_buffer_bytes(self) -> int:
        """The bytes of all record buffers, which are retained for later launches until `close`."""
        return self.pool.record_buffer_bytes

    # -- for kernels ----------------------------------------------------------------------------

    def link(self, artifact: Artifact) -> Any:
        """Load the code of an artifact; kernels that were compiled together share it."""
        library = self._libraries.get(artifact.code)
        if library is None:
            facts = dict(artifact.metadata)
            entries = facts.get("entries", (artifact.entry,))
            library = native.link(artifact.code, entries, native.implied_symbols())
            self._libraries[artifact.code] = library
        return library

    def make_context(self) -> LaunchState:
        context = LaunchState(self.support, self.pool)
        self._all_contexts.add(context)
        return context

    def free_record_buffers(self) -> None:
        """Free pooled memory, and the record buffers that no launch uses, for later launches."""
        free_pooled_memory()
        self.pool.free_record_buffers()
        for _ in range(len(self.contexts)):
            try:
                context = self.contexts.pop()
            except IndexError:  # taken by another thread meanwhile
                break
            context.free_record_buffer()
            self.contexts.insert(0, context)

    # -- the process ----------------------------------------------------------------------------

    def at_exit(self) -> None:
        """Interrupt launches of threads that the process does not wait for."""
        for context in list(self._all_contexts):
            context.fields.interrupted = 1
        self.pool.stop(_EXIT_PATIENCE)


def _reliever(device: weakref.ref[CpuDevice]) -> Callable[[], None]:
    """The callback of a launch that runs out of memory: frees the record buffers not in use."""

    def relieve() -> None:
        found = device()
        if found is not None:
            found.free_record_buffers()

    return relieve


_devices: weakref.WeakSet[CpuDevice] = weakref.WeakSet()
_main_thread = threading.main_thread().ident
_is_ending = False


def _after_fork() -> None:
    global _main_thread
    _main_thread = threading.get_ident()
    for device in list(_devices):
        device.support.after_fork()
        device.pool.after_fork()


@atexit.register
def _at_exit() -> None:
    global _is_ending
    _is_ending = True
    for device in list(_devices):
        device.at_exit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
