"""What the device is to do, in order: command buffers that are filled, submitted, used again."""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from ctypes import byref, c_int64, c_void_p

from octants import abi
from octants.diagnostics.exceptions import OctantsMemoryError
from octants.diagnostics.vulkan_errors import VulkanFailed
from octants.runtime.vulkan import structures as vk
from octants.runtime.vulkan.context import Context
from octants.runtime.vulkan.library import SUCCESS
from octants.runtime.vulkan.memory import MAPPED, Buffer

MOST_COMMANDS = 64
"""From so many on a batch is submitted: the device begins while the host goes on."""

WORDS = abi.LAUNCH_SIZE // 8
PUSHED = 8 * (WORDS + 2)
"""Bytes: the address of the parameter block, the words of `abi`, the address of `Machine.cut`."""

_IN_FLIGHT = 4
_ARENA = 1 << 20  # bytes of a batch for parameters, and for small copies from the host
_COMPUTE_BIND, _COMPUTE_STAGE = 1, 0x20
_SHADER, _TRANSFER, _HOST = 0x800, 0x1000, 0x4000  # stages of the pipeline
_WRITES, _READS_AND_WRITES, _HOST_READ = 0x8000, 0x18000, 0x2000  # accesses
_MAY_BE_RESET = 2
_ONCE = 1


class Batch:
    """A command buffer, and memory that its commands read; `number` is that of its submission."""

    def __init__(self, context: Context, pool: int) -> None:
        self.commands = c_void_p()
        self.arena = Buffer(context, _ARENA, MAPPED)
        self.used = 0
        self.count = 0
        self.number = 0
        info = vk.CommandBufferAllocateInfo(pool=pool, count=1)
        allocate = context.functions.vkAllocateCommandBuffers
        if allocate(context.handle, byref(info), byref(self.commands)) != SUCCESS:
            raise OctantsMemoryError("the device has no memory left for commands")


class Queue:
    """The commands of a device. Whatever is written is read by all that comes after it."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.lock = threading.RLock()
        info = vk.CommandPoolCreateInfo(flags=_MAY_BE_RESET, family=context.family)
        self._pool = context.create("vkCreateCommandPool", info)
        self._batch: Batch | None = None
        self._flying: deque[Batch] = deque()
        self._barrier = byref(vk.MemoryBarrier(source=_WRITES, target=_READS_AND_WRITES))
        self._last_barrier = byref(vk.MemoryBarrier(source=_WRITES, target=_HOST_READ))

    # -- batches --------------------------------------------------------------------------------

    def _open(self) -> Batch:
        """The batch that commands go to."""
        if self._batch is None:
            self._batch = self._next()
            info = vk.CommandBufferBeginInfo(flags=_ONCE)
            self.context.functions.vkBeginCommandBuffer(self._batch.commands, byref(info))
        return self._batch

    def _next(self) -> Batch:
        if len(self._flying) < _IN_FLIGHT:
            return Batch(self.context, self._pool)
        batch = self._flying.popleft()
        self.context.wait(batch.number)
        batch.used = batch.count = 0
        return batch

    def flush(self) -> None:
        """Submit what there is."""
        with self.lock:
            batch, functions = self._batch, self.context.functions
            if batch is None:
                return
            self._batch = None
            stages = (_SHADER | _TRANSFER, _HOST)
            functions.vkCmdPipelineBarrier(
                batch.commands, *stages, 0, 1, self._last_barrier, 0, None, 0, None
            )
            status = functions.vkEndCommandBuffer(batch.commands)
            if status != SUCCESS:
                raise VulkanFailed("vkEndCommandBuffer", f"status {status}").at(None)
            batch.number = self.context.submit(batch.commands)
            self._flying.append(batch)

    def finish(self) -> None:
        """Wait until all is done."""
        with self.lock:
            self.flush()
            number = self.context.submitted
        self.context.wait(number)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is queued that is not known to be done."""
        return self._batch is None and self.context.done == self.context.submitted

    def _command(self) -> Batch:
        """The batch for one more command, which comes after those before it."""
        batch = self._open()
        if batch.count >= MOST_COMMANDS:
            self.flush()
            batch = self._open()
        stages = _SHADER | _TRANSFER
        self.context.functions.vkCmdPipelineBarrier(
            batch.commands, stages, stages, 0, 1, self._barrier, 0, None, 0, None
        )
        batch.count += 1
        return batch

    # -- commands -------------------------------------------------------------------------------

    def put(self, data: bytes) -> int:
        """The address of a copy of some bytes, for the commands of the batch that is open now.

        The caller holds the lock until it has given these commands.
        """
        batch, _ = self._room(len(data))
        place = batch.used
        ctypes.memmove(batch.arena.host + place, data, len(data))
        batch.used = place + -(-len(data) // 64) * 64
        return batch.arena.address + place

    def _room(self, nbytes: int) -> tuple[Batch, int]:
        batch = self._open()
        if batch.used + nbytes > _ARENA or batch.count >= MOST_COMMANDS:
            self.flush()
            batch = self._open()
        return batch, batch.used

    def dispatch(
        self, pipeline: int, layout: int, groups: int, pushed: ctypes.Array[c_int64]
    ) -> None:
        """Run so many blocks of threads."""
        commands, functions = self._command().commands, self.context.functions
        functions.vkCmdBindPipeline(commands, _COMPUTE_BIND, pipeline)
        size = ctypes.sizeof(pushed)
        functions.vkCmdPushConstants(commands, layout, _COMPUTE_STAGE, 0, size, pushed)
        functions.vkCmdDispatch(commands, groups, 1, 1)

    def copy(self, to: tuple[Buffer, int], of: tuple[Buffer, int], nbytes: int) -> None:
        """Copy between buffers, from and to an offset in each."""
        piece = vk.BufferCopy(of[1], to[1], nbytes)
        self.copy_pieces(to[0], of[0], piece, 1)

    def copy_pieces(self, to: Buffer, of: Buffer, pieces: ctypes.Structure, count: int) -> None:
        """Copy several pieces between two buffers."""
        with self.lock:
            commands = self._command().commands
            self.context.functions.vkCmdCopyBuffer(
                commands, of.handle, to.handle, count, byref(pieces)
            )

    def write(self, to: tuple[Buffer, int], data: bytes) -> None:
        """Copy bytes from the host, which are few."""
        with self.lock:
            batch, place = self._room(len(data))
            ctypes.memmove(batch.arena.host + place, data, len(data))
            batch.used = place + -(-len(data) // 64) * 64
            self.copy(to, (batch.arena, place), len(data))

    def fill(self, buffer: Buffer, offset: int, nbytes: int) -> None:
        """Set whole words to zero."""
        with self.lock:
            commands = self._command().commands
            fill = self.context.functions.vkCmdFillBuffer
            fill(commands, buffer.handle, offset, nbytes, 0)

    def close(self) -> None:
        """Wait, and give the command buffers back."""
        self.finish()
        for batch in self._flying:
            batch.arena.free()
        self._flying.clear()
        self.context.functions.vkDestroyCommandPool(self.context.handle, self._pool, None)
