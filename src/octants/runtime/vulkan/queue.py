"""The queue of a device: command buffers that are filled, submitted and reused in order."""

from __future__ import annotations

import ctypes
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from ctypes import byref, c_uint64, c_void_p
from typing import Any

from octants.diagnostics.exceptions import OctantsMemoryError
from octants.runtime.gpu import batches
from octants.runtime.gpu.batched_kernel import WORDS as WORDS
from octants.runtime.gpu.batches import Batch, BatchQueue
from octants.runtime.vulkan import structures as vk
from octants.runtime.vulkan.context import Context, Submission
from octants.runtime.vulkan.library import SUCCESS, QuickFunctions, handle_argument
from octants.runtime.vulkan.memory import Buffer, Heap

PUSHED = 8 * (WORDS + 2)
"""Bytes: the address of the parameter block, the words of `abi`, the address of
`VulkanDevice.cut`. Slots of the parameter block follow."""

PushedWords = tuple[int, Any]
"""The bytes that a launch pushes: their number, and a reference to them."""

_MOST_AHEAD = 64  # submissions of recorded commands that the device has not begun
_MOST_IN_COMMAND = 1024  # bytes
_COMPUTE_BIND, _COMPUTE_STAGE = 1, 0x20
_SHADER, _TRANSFER, _HOST = 0x800, 0x1000, 0x4000  # stages of the pipeline
_SHADER_WRITES, _SHADER_READS_AND_WRITES = 0x40, 0x60  # accesses
# A barrier for all accesses, of any kind, takes an H200 two microseconds more than for these.
_WRITES, _READS_AND_WRITES, _HOST_READ = 0x1040, 0x1860, 0x2000  # of shaders and transfers; host
_MAY_BE_RESET = 2
_ONCE, _SIMULTANEOUS = 1, 4  # how often commands are submitted: again while they still run


class CommandBatch(Batch):
    """A command buffer; `is_after_dispatch` if its last command is one."""

    is_after_dispatch: bool

    def __init__(
        self, context: Context, pool: int, memory: Heap, nbytes: int = batches.ARENA
    ) -> None:
        super().__init__(memory.allocate(nbytes, "parameters of launches"))
        self.handle = c_void_p()
        info = vk.CommandBufferAllocateInfo(pool=pool, count=1)
        allocate = context.functions.vkAllocateCommandBuffers
        if allocate(context.handle, byref(info), byref(self.handle)) != SUCCESS:
            raise OctantsMemoryError("the device has no memory left for commands")
        self.commands = handle_argument(self.handle.value)
        self.submission = Submission((c_void_p * 1)(self.handle), context.timeline)


Fill = tuple[Any, c_uint64, c_uint64]
"""Whole words of a buffer that are set to zero: its handle, an offset, and bytes."""


def fill_of(buffer: Buffer, offset: int, nbytes: int) -> Fill:
    """A fill, for `Queue.fill`."""
    return handle_argument(buffer.handle), c_uint64(offset), c_uint64(nbytes)


Copy = tuple[Any, Any, Any]
"""A copy between buffers: the handles of the source and of the target, and a `vk.BufferCopy`."""


def copy_of(to: tuple[Buffer, int], of: tuple[Buffer, int], nbytes: int) -> Copy:
    """A copy between buffers, each with an offset, for `Queue.copy_each`."""
    piece = vk.BufferCopy(of[1], to[1], nbytes)
    return handle_argument(of[0].handle), handle_argument(to[0].handle), byref(piece)


class RecordedCommands:
    """Commands that a queue has recorded, and may submit any number of times."""

    def __init__(self, queue: Queue, batch: CommandBatch) -> None:
        self._queue, self.batch = queue, batch

    def __del__(self) -> None:
        self._queue.recycle(self.batch)

    def submit(self) -> None:
        """Submit the commands, after everything that is queued. The caller holds the lock."""
        self._queue.submit_again(self.batch)


class Queue(BatchQueue):
    """Records commands in order; each command sees everything that earlier ones wrote.

    Args:
        context: The device.
        memory: Allocates the parameters, which the host writes.

    `bind` is called at the start of each batch.
    """

    may_record = True
    dispatch: Callable[[CommandBatch, Any, Any, int, PushedWords], None]
    """Add a dispatch to an open batch: its pipeline and layout, the number of workgroups, and what
    it pushes. The caller holds the lock.
    """

    def __init__(self, context: Context, memory: Heap) -> None:
        super().__init__(context)
        self._memory = memory
        self.bind: Callable[[c_void_p], None] | None = None
        info = vk.CommandPoolCreateInfo(flags=_MAY_BE_RESET, family=context.family)
        self._pool = context.create("vkCreateCommandPool", info)
        self._start = byref(vk.CommandBufferBeginInfo(flags=_ONCE))
        self._recording = byref(vk.CommandBufferBeginInfo(flags=_SIMULTANEOUS))
        self._spare: list[CommandBatch] = []
        self._recycled: deque[CommandBatch] = deque()
        # A batch that only garbage referred to would lose its memory before its owner ends.
        self._recorded: set[CommandBatch] = set()
        self._pair = (c_void_p * 2)()
        self._both = Submission(self._pair, context.timeline)
        self._barrier = byref(vk.MemoryBarrier(source=_WRITES, target=_READS_AND_WRITES))
        between = vk.MemoryBarrier(source=_SHADER_WRITES, target=_SHADER_READS_AND_WRITES)
        self._last_barrier = byref(vk.MemoryBarrier(source=_WRITES, target=_HOST_READ))
        self.dispatch = _dispatcher(context.functions.quick, self._barrier, byref(between))

    # -- batches --------------------------------------------------------------------------------

    def _make_batch(self) -> CommandBatch:
        return CommandBatch(self.context, self._pool, self._memory)

    def _begin_batch(self, batch: CommandBatch) -> None:
        batch.is_after_dispatch = False
        start = self._recording if batch.is_recorded else self._start
        self.context.functions.vkBeginCommandBuffer(batch.commands, start)
        if self.bind is not None:
            self.bind(batch.commands)

    def _end(self, batch: CommandBatch, *, is_last: bool = True) -> None:
        """End the commands of a batch; those of the last one in a submission reach the host."""
        context, functions = self.context, self.context.functions
        if is_last:
            stages = (_SHADER | _TRANSFER, _HOST)
            functions.quick.vkCmdPipelineBarrier(
                batch.commands, *stages, 0, 1, self._last_barrier, 0, None, 0, None
            )
        status = functions.vkEndCommandBuffer(batch.commands)
        if status != SUCCESS:
            raise context.fail("vkEndCommandBuffer", status)

    def _submit_batch(self, batch: CommandBatch) -> int:
        self._end(batch)
        return int(self.context.submit(batch.submission))

    # -- recorded batches -----------------------------------------------------------------------

    def record(self, run: Callable[[], None], nbytes: int) -> RecordedCommands | None:
        with self.lock:
            self.context.check()
            try:
                batch = self._spare_batch(nbytes)
            except OctantsMemoryError:
                return None
            batch.due, batch.is_recorded = sys.maxsize, True
            self._begin_batch(batch)
            before, self.batch = self.batch, batch
            try:
                run()
                self._recorded.add(batch)
            except batches.NotRecordable:
                pass
            finally:
                self.batch = before
                self._end(batch)
                if batch not in self._recorded:
                    self._spare.append(batch)
            return RecordedCommands(self, batch) if batch in self._recorded else None

    def submit_again(self, batch: CommandBatch) -> None:
        """Submit a recorded batch, after everything that is queued, and together with that.

        The caller holds the lock.
        """
        known = self._take_repeated() if self._pending else None
        before, submission = self.batch, batch.submission
        if before is not None:
            if before.is_recorded:
                raise batches.NotRecordable
            self.batch = None
            self._end(before, is_last=False)
            self._flying.append(before)
        elif known is not None:
            before = known.batch
        if before is not None:
            self._pair[0], self._pair[1] = before.handle, batch.handle
            submission = self._both
        batch.number = number = self.context.submit(submission)
        if before is not None:
            before.number = number
        self._submitted_at = time.perf_counter()
        if number - self.context.done > 2 * _MOST_AHEAD:
            self.context.wait(number - _MOST_AHEAD)

    def recycle(self, batch: CommandBatch) -> None:
        """Take a recorded batch back. The garbage collector may call this in any thread."""
        self._recycled.append(batch)

    def _spare_batch(self, nbytes: int) -> CommandBatch:
        """A batch that no submission uses; a recycled one if it is large enough."""
        self.context.is_idle()  # finds out what is complete
        for _ in range(len(self._recycled)):
            batch = self._recycled.popleft()
            if batch.number <= self.context.done:
                self._recorded.discard(batch)
                self._spare.append(batch)
            else:
                self._recycled.append(batch)
        for batch in self._spare:
            if nbytes <= batch.arena.nbytes:
                self._spare.remove(batch)
                batch.clear()
                return batch
        return CommandBatch(self.context, self._pool, self._memory, nbytes)

    def _begin(self, batch: CommandBatch) -> Any:
        """Add a barrier, so that the next command of a batch sees what the earlier ones wrote."""
        stages, commands = _SHADER | _TRANSFER, batch.commands
        self.context.functions.quick.vkCmdPipelineBarrier(
            commands, stages, stages, 0, 1, self._barrier, 0, None, 0, None
        )
        batch.count += 1
        batch.is_after_dispatch = False
        return commands

    # -- commands -------------------------------------------------------------------------------

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

    def copy_each(self, pieces: Sequence[Copy]) -> None:
        """Add copies between buffers."""
        with self.lock:
            copy, commands = self.context.functions.quick.vkCmdCopyBuffer, self._begin(self.open())
            for source, target, piece in pieces:
                copy(commands, source, target, 1, piece)

    def write(self, to: tuple[Buffer, int], data: bytes) -> None:
        """Add a copy of a few bytes from the host; very few go into the command itself."""
        offset, count = to[1], len(data)
        with self.lock:
            if count <= _MOST_IN_COMMAND and not (offset | count) % 4:
                write = self.context.functions.quick.vkCmdUpdateBuffer
                write(self._begin(self.open()), *fill_of(to[0], offset, count), data)
                return
            batch = self.open(count)
            piece = vk.BufferCopy(batch.arena.offset + batch.put(data), offset, count)
            copy, source = self.context.functions.vkCmdCopyBuffer, batch.arena.buffer.handle
            copy(self._begin(batch), source, to[0].handle, 1, byref(piece))

    def fill(self, pieces: Sequence[Fill]) -> None:
        """Add fills with zeros."""
        with self.lock:
            fill, commands = self.context.functions.quick.vkCmdFillBuffer, self._begin(self.open())
            for buffer, offset, nbytes in pieces:
                fill(commands, buffer, offset, nbytes, 0)


def _dispatcher(quick: QuickFunctions, barrier: Any, between: Any) -> Callable[..., None]:
    """Make `Queue.dispatch`, which each launch calls.

    ``between`` is the barrier between two dispatches, which a GPU may pass sooner than ``barrier``.
    """
    order, bind = quick.vkCmdPipelineBarrier, quick.vkCmdBindPipeline
    push, run = quick.vkCmdPushConstants, quick.vkCmdDispatch
    stages, stage = _SHADER | _TRANSFER, _COMPUTE_STAGE

    def dispatch(
        batch: CommandBatch, pipeline: Any, layout: Any, groups: int, pushed: PushedWords
    ) -> None:
        commands = batch.commands
        if batch.is_after_dispatch:
            order(commands, _SHADER, _SHADER, 0, 1, between, 0, None, 0, None)
        else:
            order(commands, stages, stages, 0, 1, barrier, 0, None, 0, None)
            batch.is_after_dispatch = True
        batch.count += 1
        if batch.pipeline is not pipeline:
            bind(commands, _COMPUTE_BIND, pipeline)
            batch.pipeline = pipeline
        push(commands, layout, stage, 0, *pushed)
        run(commands, groups, 1, 1)

    return dispatch
