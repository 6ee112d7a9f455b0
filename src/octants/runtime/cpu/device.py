"""The CPU as a device: loaded kernels, and the contexts of launches."""

from __future__ import annotations

import atexit
import ctypes
import importlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from octants.artifact import SYSTEM, Artifact, Slot
from octants.diagnostics.exceptions import InternalError
from octants.runtime.cpu import system_limits
from octants.runtime.cpu.native import support as native
from octants.runtime.cpu.native.structures import ThreadContext, aligned
from octants.runtime.cpu.thread_pool import ThreadPool
from octants.runtime.devices.serial_queue import SerialLaunches
from octants.runtime.memory.host import HostMemory
from octants.runtime.reports.messages import MessageBuffer
from octants.runtime.reports.pending_errors import Pending

# What `signal` wraps: that makes enumerations, which take long to define and to look up.
_signal: Any = importlib.import_module("_signal")
_INTERRUPT, _PYTHON_HANDLER = int(_signal.SIGINT), _signal.default_int_handler
_get_handler: Callable[[int], Any] = _signal.getsignal
_SPOKE, _INTERRUPTED, _LARGE_TAPES = 1, 2, 4  # bits of a launch's status
_EXIT_PATIENCE = 1.0  # seconds that the end of the process waits for launches of other threads


class LaunchContext:
    """What one launch at a time needs: its context, its message buffer, its thread's tape."""

    def __init__(self, support: native.Support, pool: ThreadPool) -> None:
        self._memory, self.address = aligned(ThreadContext)
        self._free_tape, self._pool = support.free_tape, pool
        self._free_parts = support.free_parts
        self.messages = MessageBuffer()
        self.fields = ThreadContext.from_address(self.address)
        self.fields.parallel_for = support.addresses["octants_parallel_for"]
        self.fields.parallel_sums = support.addresses["octants_parallel_sums"]
        self.fields.grow = support.addresses["octants_grow"]
        self.fields.guard = support.addresses["octants_guard"]
        self.fields.serial = support.addresses["octants_serial"]
        self.fields.worker = self.address + ThreadContext.own.offset
        self.fields.pool = pool.address
        self.fields.messages = self.messages.address

    def free_tape(self) -> None:
        self._free_tape(self._pool.address, self.fields.worker)

    def __del__(self) -> None:
        self.free_tape()
        self._free_parts(self.address)


class CpuKernel:
    """A kernel in memory, ready to be launched from any thread."""

    def __init__(self, device: CpuDevice, artifact: Artifact) -> None:
        if artifact.parameters.slots[0] != Slot("system", SYSTEM[0]):
            raise InternalError("the message buffer is not the first parameter")
        self.artifact = artifact
        self._library = device.link(artifact)
        self._entry: int = self._library[artifact.entry]
        self._device = device
        self._contexts = device.contexts
        self._run = device.support.launch
        self._has_signals = device.support.has_signals

    def launch(self, block: int) -> None:
        """Run with the parameter block at an address; see `runtime.device.LoadedKernel`."""
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
            status = self._run(self._entry, block, context.address, may_interrupt)
            if status:
                self._report(context, status)
        finally:
            self._contexts.append(context)

    def _report(self, context: LaunchContext, status: int) -> None:
        if status & _LARGE_TAPES:
            context.free_tape()
            self._device.free_tapes()
        if status & _SPOKE:
            overflow = context.messages.deliver(self.artifact)
            if overflow is not None:
                self._device.pending.add(overflow)
        if status & _INTERRUPTED:  # where Python has not raised it yet
            raise SystemExit if _is_ending else KeyboardInterrupt


class CpuDevice(SerialLaunches, HostMemory):
    """The host as a device. Launches of all threads share its pool of ``max_threads`` threads.

    0 threads stand for as many as the process may use. ``tape_limit`` bounds the bytes of all tapes
    together; 0 lets them take most of the memory that there is. ``tape_budget`` is what the records
    of the threads' work items should take together, as far as shorter blocks of long loops make
    that possible; 0: any number of bytes. ``support`` is the native code, which is that of the
    process unless given.
    """

    def __init__(
        self,
        max_threads: int = 0,
        tape_limit: int = 0,
        tape_budget: int = 0,
        support: native.Support | None = None,
    ) -> None:
        self.support = support or native.native_support()
        threads = max_threads or system_limits.thread_count()
        limit = tape_limit or system_limits.memory_bytes() // 10 * 9
        self.pool = ThreadPool(self.support, threads, limit, tape_budget)
        self._relieve = ctypes.CFUNCTYPE(None)(_reliever(weakref.ref(self)))
        self.pool.fields.relieve = ctypes.cast(self._relieve, ctypes.c_void_p).value
        self.pending = Pending()
        self.contexts: list[LaunchContext] = []  # those that no launch uses
        self._all_contexts: weakref.WeakSet[LaunchContext] = weakref.WeakSet()
        self._libraries: weakref.WeakValueDictionary[bytes, Any] = weakref.WeakValueDictionary()
        _devices.add(self)

    def load(self, artifact: Artifact) -> CpuKernel:
        """Make a kernel ready to be launched; `OctantsRuntimeError` if that cannot be."""
        return CpuKernel(self, artifact)

    def synchronize(self) -> None:
        """Raise what launches have left; a launch returns when its work is done."""
        self.pending.raise_first()

    def close(self) -> None:
        """End the threads, free the tapes. A later launch starts threads anew."""
        self.pool.stop()
        self.contexts.clear()

    @property
    def threads(self) -> int:
        """How many threads work at a parallel loop."""
        return self.pool.threads

    def set_threads(self, max_threads: int) -> None:
        """Use another number of threads; 0 stands for as many as the process may use."""
        self.pool.resize(max_threads or system_limits.thread_count())

    @property
    def tape_bytes(self) -> int:
        """The bytes that tapes take now; they are kept for later launches until `close`."""
        return self.pool.tape_bytes

    @contextmanager
    def exact_tapes(self) -> Iterator[None]:
        """Let tapes begin anew and grow by just what is needed, so that `tape_bytes` tells it.

        That is slow where a `while` loop is recorded. No launch may be running at either end.
        """
        self.free_tapes()
        self.pool.fields.tape_exact = 1
        try:
            yield
        finally:
            self.pool.fields.tape_exact = 0
            self.free_tapes()

    # -- for kernels ----------------------------------------------------------------------------

    def link(self, artifact: Artifact) -> Any:
        """The loaded code of an artifact; kernels that were compiled together share theirs."""
        library = self._libraries.get(artifact.code)
        if library is None:
            facts = dict(artifact.metadata)
            entries = facts.get("entries", (artifact.entry,))
            library = native.link(artifact.code, entries, native.implied_symbols())
            self._libraries[artifact.code] = library
        return library

    def make_context(self) -> LaunchContext:
        context = LaunchContext(self.support, self.pool)
        self._all_contexts.add(context)
        return context

    def free_tapes(self) -> None:
        """Free the tapes that no launch uses, lest they leave too little to later ones."""
        self.pool.free_tapes()
        for _ in range(len(self.contexts)):
            try:
                context = self.contexts.pop()
            except IndexError:  # taken by another thread meanwhile
                break
            context.free_tape()
            self.contexts.insert(0, context)

    # -- the process ----------------------------------------------------------------------------

    def at_exit(self) -> None:
        """Launches of threads that the process does not wait for shall end."""
        for context in list(self._all_contexts):
            context.fields.interrupted = 1
        self.pool.stop(_EXIT_PATIENCE)


def _reliever(device: weakref.ref[CpuDevice]) -> Callable[[], None]:
    """What a launch calls to which memory is refused: frees the tapes that no launch uses."""

    def relieve() -> None:
        found = device()
        if found is not None:
            found.free_tapes()

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
