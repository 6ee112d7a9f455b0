"""The queue of a device: command buffers that are filled, submitted and reused in order."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from ctypes import byref, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any

import numpy as np

from octants import abi
from octants.diagnostics.exceptions import OctantsError, OctantsMemoryError
from octants.runtime.memory.host import view_memory
from octants.runtime.vulkan import structures as vk
from octants.runtime.vulkan.context import Context, Submission
from octants.runtime.vulkan.library import SUCCESS
from octants.runtime.vulkan.memory import Buffer, Heap
from octants.runtime.vulkan.periodic_thread import PeriodicThread

if TYPE_CHECKING:
    Bytes = memoryview[int]

MOST_COMMANDS = 64
"""The most commands of a batch: the device begins while the host goes on."""
EARLY_COMMANDS = 16
"""After each so many commands, the batch is submitted if the device is idle."""
PATIENCE = 2e-3
"""The most seconds that a batch waits for more commands; many launches fill it sooner."""

WORDS = abi.LAUNCH_SIZE // 8
PUSHED = 8 * (WORDS + 2)
"""Bytes: the address of the parameter block, the words of `abi`, the address of
`LaunchContext.cut`."""

_IN_FLIGHT = 4
ARENA = 1 << 20  # bytes of a batch for parameters, and for small copies from the host
_ALIGNMENT = 64
_COMPUTE_BIND, _COMPUTE_STAGE = 1, 0x20
_SHADER, _TRANSFER, _HOST = 0x800, 0x1000, 0x4000  # stages of the pipeline
_WRITES, _READS_AND_WRITES, _HOST_READ = 0x10000, 0x18000, 0x2000  # accesses
_MAY_BE_RESET = 2
_ONCE = 1


class Batch:
    """A command buffer, and the memory for its parameters; `number` is that of its submission.

    At `due` commands the queue decides whether to submit it. It `is_urgent` if the device was idle
    when it was opened, at the time `since`; then it is submitted after one launch.
    """

    def __init__(self, context: Context, pool: int, memory: Heap) -> None:
        self.commands = c_void_p()
        self.arena = memory.allocate(ARENA, "parameters of launches")
        self._bytes: Bytes = view_memory(self.arena.host, np.uint8, (ARENA,)).data
        info = vk.CommandBufferAllocateInfo(pool=pool, count=1)
        allocate = context.functions.vkAllocateCommandBuffers
        if allocate(context.handle, byref(info), byref(self.commands)) != SUCCESS:
            raise OctantsMemoryError("the device has no memory left for commands")
        self.submission = Submission(self.commands)
        self.clear()

    def clear(self) -> None:
        """Reset the batch for reuse."""
        self.used = 0
        self.count = 0
        self.due = EARLY_COMMANDS
        self.number = 0
        self.since = time.perf_counter()
        self.is_urgent = False
        self.pipeline: c_uint64 | None = None  # the bound pipeline

    def put(self, data: Bytes | bytes) -> int:
        """Copy bytes to the arena, which has space for them; return their offset."""
        place, count = self.used, len(data)
        self._bytes[place : place + count] = data
        self.used = place + -(-count // _ALIGNMENT) * _ALIGNMENT
        return place


class Queue:
    """Records commands in order; each command sees everything that earlier ones wrote.

    Commands are gathered in batches while the device is busy, for at most `PATIENCE`. A caller
    holds the `lock` for a sequence of commands.

    Args:
        context: The device.
        memory: Allocates the parameters, which the host writes.

    `bind` is called at the start of each batch.
    """

    def __init__(self, context: Context, memory: Heap) -> None:
        self.context = context
        self._memory = memory
        self.bind: Callable[[c_void_p], None] | None = None
        self.lock = threading.RLock()
        info = vk.CommandPoolCreateInfo(flags=_MAY_BE_RESET, family=context.family)
        self._pool = context.create("vkCreateCommandPool", info)
        self._batch: Batch | None = None
        self._flying: deque[Batch] = deque()
        self._submitted_at = 0.0
        self.timer = PeriodicThread(self._submit_old)
        self._start = byref(vk.CommandBufferBeginInfo(flags=_ONCE))
        self._barrier = byref(vk.MemoryBarrier(source=_WRITES, target=_READS_AND_WRITES))
        self._last_barrier = byref(vk.MemoryBarrier(source=_WRITES, target=_HOST_READ))
        queues.add(self)

    # -- batches --------------------------------------------------------------------------------

    def open(self, nbytes: int = 0) -> Batch:
        """The batch for the next command, with ``nbytes`` free in its arena."""
        batch = self._batch
        if batch is not None:
            if not self._is_due(batch) and batch.used + nbytes <= ARENA:
                return batch
            self.flush()
        batch = self._next()
        self._begin_batch(batch)
        batch.is_urgent = self._is_urgent(batch)
        self._batch = batch
        self.timer.start()
        return batch

    def _begin_batch(self, batch: Batch) -> None:
        """Have a batch take commands."""
        self.context.functions.vkBeginCommandBuffer(batch.commands, self._start)
        if self.bind is not None:
            self.bind(batch.commands)

    def _is_due(self, batch: Batch) -> bool:
        """Whether a batch should be submitted before it takes one more command."""
        if batch.count < batch.due:
            return False
        batch.due += EARLY_COMMANDS
        return batch.count >= MOST_COMMANDS or self.context.is_idle()

    def _is_urgent(self, batch: Batch) -> bool:
        """Whether the device is idle, except if it has just been given little work."""
        context = self.context
        if context.done == context.submitted:  # the host has waited
            return True
        return batch.since - self._submitted_at > PATIENCE and context.is_idle()

    def launched(self) -> None:
        """End a launch; the caller holds the lock."""
        batch = self._batch
        if batch is not None and batch.is_urgent:
            self.flush()

    def _submit_old(self) -> float | None:
        """Submit a batch that has waited for too long; return the seconds until the next check."""
        batch = self._batch
        if batch is None or self.context.lost is not None:
            return None
        left = batch.since + PATIENCE - time.perf_counter()
        if left > 0.0:
            return left
        with self.lock, contextlib.suppress(OctantsError):  # the next call raises it
            if self._batch is batch:
                self.flush()
        return PATIENCE

    def _next(self) -> Batch:
        self.context.check()
        if len(self._flying) < _IN_FLIGHT:
            return self._make_batch()
        batch = self._flying.popleft()
        self.context.wait(batch.number)
        batch.clear()
        return batch

    def _make_batch(self) -> Batch:
        """One more batch."""
        return Batch(self.context, self._pool, self._memory)

    def flush(self) -> int:
        """Submit the open batch; return the number of the last submission."""
        with self.lock:
            batch = self._batch
            if batch is None:
                return self.context.submitted
            self._batch = None
            batch.number = self._submit(batch)
            self._submitted_at = time.perf_counter()
            self._flying.append(batch)
            return batch.number

    def _submit(self, batch: Batch) -> int:
        """End a batch and submit it; gives the number of the submission."""
        context, functions = self.context, self.context.functions
        stages = (_SHADER | _TRANSFER, _HOST)
        functions.quick.vkCmdPipelineBarrier(
            batch.commands, *stages, 0, 1, self._last_barrier, 0, None, 0, None
        )
        status = functions.vkEndCommandBuffer(batch.commands)
        if status != SUCCESS:
            raise context.fail("vkEndCommandBuffer", status)
        number = context.submit(batch.submission)
        context.destroy_retired()
        return number

    def finish(self) -> None:
        """Submit the open batch, and wait for everything."""
        self.context.check()
        self.context.wait(self.flush())

    @property
    def is_idle(self) -> bool:
        """Whether everything queued is known to be complete."""
        return self._batch is None and self.context.done == self.context.submitted

    def _begin(self, batch: Batch) -> c_void_p:
        """Add a barrier, so that the next command of a batch sees what the earlier ones wrote."""
        stages, commands = _SHADER | _TRANSFER, batch.commands
        self.context.functions.quick.vkCmdPipelineBarrier(
            commands, stages, stages, 0, 1, self._barrier, 0, None, 0, None
        )
        batch.count += 1
        return commands

    # -- commands -------------------------------------------------------------------------------

    def dispatch(
        self, batch: Batch, pipeline: c_uint64, layout: c_uint64, groups: int, pushed: Any
    ) -> None:
        """Add a dispatch of ``groups`` workgroups to an open batch; the caller holds the lock."""
        quick, commands = self.context.functions.quick, self._begin(batch)
        if batch.pipeline is not pipeline:
            quick.vkCmdBindPipeline(commands, _COMPUTE_BIND, pipeline)
            batch.pipeline = pipeline
        quick.vkCmdPushConstants(commands, layout, _COMPUTE_STAGE, 0, PUSHED, pushed)
        quick.vkCmdDispatch(commands, groups, 1, 1)

    def copy(self, to: tuple[Buffer, int], of: tuple[Buffer, int], nbytes: int) -> None:
        """Add a copy between buffers, each with an offset."""
        piece = vk.BufferCopy(of[1], to[1], nbytes)
        self.copy_pieces(to[0], of[0], piece, 1)

    def copy_pieces(self, to: Buffer, of: Buffer, pieces: ctypes.Structure, count: int) -> None:
        """Add a copy of several pieces between two buffers."""
        with self.lock:
            commands = self._begin(self.open())
            self.context.functions.vkCmdCopyBuffer(
                commands, of.handle, to.handle, count, byref(pieces)
            )

    def write(self, to: tuple[Buffer, int], data: bytes) -> None:
        """Add a copy of a few bytes from the host."""
        with self.lock:
            batch = self.open(len(data))
            piece = vk.BufferCopy(batch.arena.offset + batch.put(data), to[1], len(data))
            copy, source = self.context.functions.vkCmdCopyBuffer, batch.arena.buffer.handle
            copy(self._begin(batch), source, to[0].handle, 1, byref(piece))

    def fill(self, buffer: Buffer, offset: int, nbytes: int) -> None:
        """Add a fill of whole words with zeros."""
        with self.lock:
            fill = self.context.functions.vkCmdFillBuffer
            fill(self._begin(self.open()), buffer.handle, offset, nbytes, 0)


queues: weakref.WeakSet[Queue] = weakref.WeakSet()
_held: list[Queue] = []


def _hold() -> None:
    """Acquire all locks before a fork, since a child could not release one of another thread."""
    _held.extend(queues)
    for queue in _held:
        queue.lock.acquire()


def _let_go() -> None:
    for queue in _held:
        queue.lock.release()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_let_go)
