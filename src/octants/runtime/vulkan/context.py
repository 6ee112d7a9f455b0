"""The logical device: its functions, its queue, and the submissions to that queue."""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Callable, Iterable
from ctypes import addressof, byref, c_char_p, c_float, c_uint64, c_void_p, pointer
from typing import Any

from octants.diagnostics.vulkan_errors import DeviceLost, ForkedVulkan, VulkanFailed
from octants.runtime.gpu.batched_device import SubmissionContext
from octants.runtime.reports.suspect_kernels import suspects
from octants.runtime.vulkan import structures as vk
from octants.runtime.vulkan.library import (
    DEVICE_LOST,
    SUCCESS,
    TIMEOUT,
    device_functions,
    handle_argument,
)
from octants.runtime.vulkan.physical_devices import Hardware, used_extensions, used_features

_SLICE = 50_000_000  # nanoseconds after which a wait lets Python handle Ctrl-C
_PATIENCE = 3e-4  # seconds that a wait polls before it sleeps
_TIMELINE = 1
_ONE_NUMBER = c_uint64 * 1


class Submission:
    """Preallocated arguments of a submission of some command buffers."""

    def __init__(self, commands: ctypes.Array[c_void_p], timeline: int) -> None:
        self.number, self._timeline = c_uint64(), c_uint64(timeline)
        self._order = vk.TimelineSubmitInfo(signal_count=1, signals=pointer(self.number))
        self._info = vk.SubmitInfo(
            next=addressof(self._order),
            command_count=len(commands),
            commands=ctypes.cast(commands, ctypes.POINTER(c_void_p)),
            signal_count=1,
            signals=pointer(self._timeline),
        )
        self.reference = byref(self._info)


class Context(SubmissionContext):
    """A logical device with one queue."""

    forked = ForkedVulkan

    def __init__(self, hardware: Hardware) -> None:
        super().__init__()
        self.hardware = hardware
        self.family = hardware.family()
        self._is_cpu = hardware.is_cpu
        self.handle = c_void_p(self._make_device())
        handle = self.handle.value or 0
        self.functions = device_functions(hardware.functions, handle, self._lose)
        queue = c_void_p()
        self.functions.vkGetDeviceQueue(self.handle, self.family, 0, byref(queue))
        self._queue = handle_argument(queue.value)
        self.timeline = self._make_timeline()
        self._timeline_arguments = handle_argument(handle), handle_argument(self.timeline)
        self._retired: deque[tuple[int, str, int]] = deque()

    def _make_device(self) -> int:
        hardware, priority = self.hardware, c_float(1.0)
        queue = vk.QueueCreateInfo(family=self.family, count=1, priorities=pointer(priority))
        features, *others = used_features(hardware)
        extensions = used_extensions(hardware)
        names = (c_char_p * len(extensions))(*extensions)
        info = vk.DeviceCreateInfo(
            next=addressof(features),
            queue_count=1,
            queues=addressof(queue),
            extension_count=len(extensions),
            extensions=names,
        )
        handle = c_void_p()
        create = hardware.functions.vkCreateDevice
        status = create(hardware.handle, byref(info), None, byref(handle))
        if status != SUCCESS or handle.value is None:
            raise VulkanFailed("vkCreateDevice", f"status {status}").at()
        del others  # alive until here
        return handle.value

    def _make_timeline(self) -> int:
        kind = vk.SemaphoreTypeCreateInfo(type=_TIMELINE, start=0)
        return self.create("vkCreateSemaphore", vk.SemaphoreCreateInfo(next=addressof(kind)))

    def create(self, function: str, info: Any) -> int:
        """Create an object as ``info`` describes; return its handle, or 0 if the device is out of
        memory.
        """
        handle = c_uint64()
        call: Callable[..., int] = getattr(self.functions, function)
        status = call(self.handle, byref(info), None, byref(handle))
        return handle.value if status == SUCCESS else 0

    def _lose(self) -> Exception:
        """The error for a lost device."""
        if self.lost is None:
            self.lost = DeviceLost(self.hardware.name, suspects(self.launched))
        return self.lost.at()

    def fail(self, function: str, status: int) -> Exception:
        """The error for queued work that the driver failed to run; the device is lost with it."""
        if self.lost is None:
            self.lost = VulkanFailed(function, f"status {status}")
        return self.lost.at()

    def retire(self, function: str, handles: Iterable[int]) -> None:
        """Register a function that destroys an object once no submission uses it.

        The garbage collector may call this in any thread at any time.
        """
        self._retired.extend((self.submitted + 1, function, handle) for handle in handles)

    def _destroy_retired(self) -> None:
        """Destroy the retired objects whose last use is known to be complete."""
        while self._retired and self._retired[0][0] <= self.done:
            _, function, handle = self._retired.popleft()
            getattr(self.functions, function)(self.handle, handle, None)

    # -- the queue ------------------------------------------------------------------------------

    def submit(self, what: Submission) -> int:
        """Submit command buffers; return the number of the submission."""
        if self.lost is not None:
            self.check()
        what.number.value = number = self.submitted + 1
        status = self.functions.quick.vkQueueSubmit(self._queue, 1, what.reference, None)
        if status != SUCCESS:
            raise self._lose() if status == DEVICE_LOST else self.fail("vkQueueSubmit", status)
        self.submitted = number
        if self._retired:
            self._destroy_retired()
        return number

    def wait(self, number: int) -> None:
        """Wait for a submission; Ctrl-C ends the wait."""
        if number > self.done:
            self.check()
            if not self._ends_soon(number):
                self._sleep(number)
            self.done = max(self.done, number)
        if number == self.submitted:
            self.launched.clear()

    def _ends_soon(self, number: int) -> bool:
        """Whether it completes while the host polls, which is faster than a wait.

        A device that is the CPU gets the time instead.
        """
        if self._is_cpu:
            return False
        end, counter = time.perf_counter() + _PATIENCE, c_uint64()
        query = self.functions.quick.vkGetSemaphoreCounterValue
        arguments = *self._timeline_arguments, byref(counter)
        while True:
            if query(*arguments):
                self._count()  # raises the error
            if counter.value >= number:
                return True
            if time.perf_counter() > end:
                return False

    def _count(self) -> int:
        """The number of the last complete submission."""
        counter = c_uint64()
        query = self.functions.vkGetSemaphoreCounterValue
        query(self.handle, self.timeline, byref(counter))
        return counter.value

    def is_idle(self) -> bool:
        """Whether all submissions are complete."""
        if self.done < self.submitted:
            self.done = max(self.done, self._count())
        return self.done == self.submitted

    def _sleep(self, number: int) -> None:
        semaphores, values = _ONE_NUMBER(self.timeline), _ONE_NUMBER(number)
        order = byref(vk.SemaphoreWaitInfo(count=1, semaphores=semaphores, values=values))
        while True:
            status = self.functions.vkWaitSemaphores(self.handle, order, _SLICE)
            if status == SUCCESS:
                break
            if status != TIMEOUT:
                raise VulkanFailed("vkWaitSemaphores", f"status {status}").at()
