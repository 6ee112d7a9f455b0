"""Calls of the CUDA driver in the context of a GPU, their errors, and waiting.

Each process has one primary context for a GPU, which other libraries share. Octants never releases
it: memory of arrays that outlive a device stays valid, and the driver frees it with the process.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections import deque
from ctypes import byref, c_char, c_int, c_size_t, c_void_p
from typing import Any

from octants.cached_property import cached_property
from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import OctantsError
from octants.locks_at_fork import released_in_children
from octants.runtime.cuda import library as cuda
from octants.runtime.cuda.errors import (
    CallFailed,
    DeviceLost,
    Forked,
    NoSuchDevice,
)
from octants.runtime.cuda.library import Library
from octants.runtime.reports.suspect_kernels import suspects

_PATIENCE = 2e-3  # seconds that a wait spins before it sleeps
_MOST_SLEEP = 5e-3
_beginning = released_in_children(threading.Lock())


class Context:
    """The primary context of one GPU.

    Calls are made by `call`, inside of `active` where they need the context. `launched` lists the
    names of the kernels that were launched since the last synchronisation. `current` is where the
    driver tells which context is current in the calling thread.

    Creating the context takes the driver a tenth of a second: `begin` does it in a thread, while
    the caller goes on with work that does not need it.
    """

    def __init__(self, library: Library, ordinal: int) -> None:
        self.library = library
        self.ordinal = ordinal
        self.lost: UserError | None = None
        self.launched: deque[str] = deque(maxlen=1024)
        self._handle = 0
        self._begun: threading.Thread | None = None
        self._retained = 0, c_void_p()  # the status of that, and the handle
        self.current = CurrentContext()
        device = c_int()
        self.call("cuDeviceGet", byref(device), ordinal)
        self._device = device.value
        self.name = self._name()
        model = library.identify(self.name, self._device, self.attribute)
        self.capability, self.processor, self.wave = model
        self.multiprocessors = self.attribute(library.multiprocessors_attribute)
        cache = library.cache_attribute
        self.cache_bytes = 0 if cache is None else self.attribute(cache)
        self.has_pools = bool(self.attribute(library.pools_attribute))
        total = c_size_t()
        self.call("cuDeviceTotalMem", byref(total), self._device)
        self.total_memory = total.value
        _contexts.add(self)

    def __repr__(self) -> str:
        return f"GPU {self.ordinal} ({self.name})"

    def begin(self) -> None:
        """Create the driver's context in a thread; callers that need it wait for it."""
        with _beginning:
            if self._begun is None and not self._handle:
                self._begun = threading.Thread(target=self._retain, name="octants context")
                self._begun.start()

    @property
    def is_starting(self) -> bool:
        """Whether a caller that needs the context would have to wait for it."""
        return not self._handle and (self._begun is None or self._begun.is_alive())

    @property
    def handle(self) -> int:
        """The driver's handle of the context; waits until it exists.

        Raises:
            OctantsRuntimeError: it cannot be created.
        """
        if not self._handle:
            self.begin()
            assert self._begun is not None
            self._begun.join()
            status, handle = self._retained
            if status:
                self._begun = None
                raise self.error("cuDevicePrimaryCtxRetain", status)
            self._handle = handle.value or 0
            _handles.add(self._handle)
        return self._handle

    @cached_property
    def has_others(self) -> bool:
        """Whether the process has other GPUs."""
        return _count(self.library) > 1

    def _retain(self) -> None:
        handle = c_void_p()
        status: int = self.library.cuDevicePrimaryCtxRetain(byref(handle), self._device)
        self._retained = status, handle

    def attribute(self, which: int) -> int:
        """An attribute of the GPU, by the driver's number for it."""
        value = c_int()
        self.call("cuDeviceGetAttribute", byref(value), which, self._device)
        return value.value

    def _name(self) -> str:
        text = (c_char * 128)()
        self.call("cuDeviceGetName", text, len(text), self._device)
        return text.value.decode(errors="replace")

    # -- calls ----------------------------------------------------------------------------------

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver.

        Raises:
            OctantsRuntimeError: it fails.
        """
        status = self.status(name, *arguments)
        if status:
            raise self.error(name, status)

    def status(self, name: str, *arguments: Any) -> int:
        """The status that a function of the driver returns."""
        if self.lost is not None:
            raise self.lost.at()
        status: int = getattr(self.library, name)(*arguments)
        return status

    def call_here(self, name: str, *arguments: Any) -> None:
        """Like `call`, for functions that need the context; fast if the context is current."""
        if not self.is_current():
            with self.active():
                self.call(name, *arguments)
            return
        status = getattr(self.library, name)(*arguments)
        if status:
            raise self.error(name, status)

    def is_current(self) -> bool:
        """Whether the context exists, works, and is current in this thread."""
        current = self.current
        self.library.cuCtxGetCurrent(current.reference)
        return current.handle.value == self._handle and self.lost is None

    def call_quickly(self, name: str, *arguments: Any) -> None:
        """Like `call`, for functions that fail unless the context is current; mostly it is."""
        status = self.status(name, *arguments)
        if status in (cuda.INVALID_CONTEXT, cuda.INVALID_HANDLE):
            with self.active():
                status = self.status(name, *arguments)
        if status:
            raise self.error(name, status)

    def error(self, function: str, status: int) -> OctantsError:
        """The exception for a status that is not success."""
        name, text = self.library.name_of(status), self.library.text_of(status)
        if self.lost is None and status in cuda.LOST:
            self.lost = DeviceLost(name, text, suspects(self.launched))
        library = self.library
        error = self.lost or CallFailed(library.api, library.spelled(function), name, text)
        return error.at()

    def active(self) -> _Active:
        """Make the context current in this thread for a ``with`` block."""
        return _Active(self)

    def replaces(self, current: int | None) -> bool:
        """Whether it stays current in a thread that had another context, or none."""
        return not current or ("torch" not in sys.modules and current in _handles)

    # -- waiting --------------------------------------------------------------------------------

    def wait_for_stream(self, stream: int) -> None:
        """Wait for all work in a stream. Ctrl-C ends the wait, not the work."""
        self._wait("cuStreamQuery", stream)

    def wait_for_event(self, event: int) -> None:
        """Wait until an event has happened. Ctrl-C ends the wait, not the work."""
        self._wait("cuEventQuery", event)

    def has_happened(self, event: int) -> bool:
        """Whether an event has happened."""
        status = self.library.cuEventQuery(event)
        if status not in (cuda.SUCCESS, cuda.NOT_READY):
            raise self.error("cuEventQuery", status)
        return bool(status == cuda.SUCCESS)

    def _wait(self, name: str, handle: int) -> None:
        if self.lost is not None:
            raise self.lost.at()
        query = getattr(self.library, name)
        start = time.perf_counter()
        while (status := query(handle)) == cuda.NOT_READY:
            waited = time.perf_counter() - start
            if waited > _PATIENCE:
                time.sleep(min(waited / 50, _MOST_SLEEP))
        if status:
            raise self.error(name, status)

    def can_access(self, other: Context) -> bool:
        """Whether this GPU can access memory of another one, as it may from now on if so."""
        can = c_int()
        self.call("cuDeviceCanAccessPeer", byref(can), self._device, other._device)
        if not can.value:
            return False
        with self.active():
            status = self.status("cuCtxEnablePeerAccess", other.handle, 0)
        return status in (cuda.SUCCESS, cuda.ACCESS_ENABLED)

    def ordinal_of(self, address: int) -> int | None:
        """The ordinal of the GPU whose memory is at an address; None if it is unknown."""
        ordinal = c_int()
        with self.active():
            failed = self.status(
                "cuPointerGetAttribute", byref(ordinal), cuda.POINTER_ORDINAL, address
            )
        return None if failed else ordinal.value

    def ordinal_of_stream(self, handle: int) -> int:
        """The ordinal of the GPU that a stream of any library belongs to."""
        other, ordinal = c_void_p(), c_int()
        with self.active():
            self.call("cuStreamGetCtx", handle, byref(other))
            if other.value == self.handle:
                return self.ordinal
            self.call("cuCtxPushCurrent", other)
            try:
                self.call("cuCtxGetDevice", byref(ordinal))
            finally:
                self.call("cuCtxPopCurrent", byref(other))
        return ordinal.value

    def free_memory(self) -> int:
        """The free memory of the GPU, in bytes."""
        free, total = c_size_t(), c_size_t()
        with self.active():
            self.call("cuMemGetInfo", byref(free), byref(total))
        return free.value


class CurrentContext(threading.local):
    """The memory into which the driver writes the handle of the thread's current context."""

    def __init__(self) -> None:
        self.handle = c_void_p()
        self.reference = byref(self.handle)


class _Active:
    """The result of `Context.active`; mostly the context is current already.

    It becomes the current context of a thread that has none, or another one of Octants; a context
    of another library is restored.
    """

    __slots__ = ("_context", "_is_pushed")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._is_pushed = False

    def __enter__(self) -> None:
        if not self._context.is_current():
            self._make_current()

    def _make_current(self) -> None:
        context = self._context
        if context.lost is not None:
            raise context.lost.at()
        current = context.current.handle.value  # as `is_current` has read it
        if current != context.handle:
            is_pushed = not context.replaces(current)
            context.call("cuCtxPushCurrent" if is_pushed else "cuCtxSetCurrent", context.handle)
            self._is_pushed = is_pushed

    def __exit__(self, *_: object) -> None:
        if self._is_pushed:
            self._context.library.cuCtxPopCurrent(byref(c_void_p()))


def context_of(library: Library, ordinal: int) -> Context:
    """The context of a GPU, one for each process.

    Raises:
        OctantsRuntimeError: the GPU cannot be used.
    """
    made = library.find_shared_object("context", ordinal)
    if made is None:
        _check_number(library, ordinal)
        made = library.shared_object("context", ordinal, lambda: Context(library, ordinal))
    context: Context = made
    return context


def names_of_devices(library: Library) -> tuple[str, ...]:
    """The names of the GPUs by their ordinals.

    Raises:
        OctantsRuntimeError: there is none, or one cannot be used.
    """
    first = context_of(library, 0)
    others = (context_of(library, ordinal) for ordinal in range(1, _count(library)))
    return (first.name, *(each.name for each in others))


def _count(library: Library) -> int:
    count = c_int()
    library.cuDeviceGetCount(byref(count))
    return count.value


def _check_number(library: Library, ordinal: int) -> None:
    """Check that there is a GPU with a number."""
    status = library.started()
    if status:
        problem = f"{library.text_of(status)} ({library.name_of(status)})"
        raise library.missing_device(problem).at()
    count = _count(library)
    if count == 0:
        raise library.missing_device("the driver reports none").at()
    if not 0 <= ordinal < count:
        raise NoSuchDevice(ordinal, count).at()


_contexts: weakref.WeakSet[Context] = weakref.WeakSet()
_handles: set[int] = set()
"""The driver's handles of contexts, which the process never releases."""


def _after_fork() -> None:
    for context in list(_contexts):
        context.lost = Forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
