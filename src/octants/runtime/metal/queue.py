"""The queue of the GPU: command buffers, each filled by one encoder at a time."""

from __future__ import annotations

import ctypes
from typing import Any

from octants.abi import LAUNCH_SIZE
from octants.runtime.gpu import batches
from octants.runtime.gpu.batches import Batch, BatchQueue
from octants.runtime.metal.context import Context
from octants.runtime.metal.library import Range, Size
from octants.runtime.metal.memory import Buffer, Heap
from octants.runtime.metal.pipelines import Pipeline

_PUSHED = 8 + LAUNCH_SIZE
_BUFFERS = 1  # MTLBarrierScopeBuffers
_READ_AND_WRITE = 3  # MTLResourceUsageRead | MTLResourceUsageWrite
_PLAIN, _COPIES, _KERNELS = "", "copies", "kernels"


class CommandBatch(Batch):
    """A command buffer, its open encoder, and what that takes: copies or kernels."""

    def __init__(self, memory: Heap) -> None:
        super().__init__(memory.allocate(batches.ARENA, "parameters of launches"))
        self.handle = self.encoder = 0
        self.takes = _PLAIN
        self.resident: tuple[int, ...] | None = None


class Queue(BatchQueue):
    """The commands of a device, each of which sees what earlier ones have written.

    Metal orders encoders by the buffers that they use, and kernels of one by a barrier.
    """

    def __init__(self, context: Context, memory: Heap) -> None:
        super().__init__(context)
        self._library, self._heap = context.library, memory

    # -- batches --------------------------------------------------------------------------------

    def _make_batch(self) -> CommandBatch:
        return CommandBatch(self._heap)

    def _begin_batch(self, batch: CommandBatch) -> None:
        with self._library.pool():
            found = self._library.commandBuffer(self.context.handle)
            batch.handle = self._library.retain(found)

    def _submit_batch(self, batch: CommandBatch) -> int:
        self._end_encoder(batch)
        return int(self.context.submit(batch.handle))

    # -- encoders -------------------------------------------------------------------------------

    def _encoder(self, batch: CommandBatch, takes: str) -> int:
        """An encoder for copies or kernels; the commands of the last one come before."""
        batch.count += 1
        if batch.takes == takes:
            return batch.encoder
        self._end_encoder(batch)
        functions = self._library
        begin = (
            functions.computeCommandEncoder if takes == _KERNELS else functions.blitCommandEncoder
        )
        with functions.pool():
            batch.encoder = functions.retain(begin(batch.handle))
        batch.takes, batch.pipeline, batch.resident = takes, None, None
        return batch.encoder

    def _end_encoder(self, batch: CommandBatch) -> None:
        if batch.takes:
            self._library.endEncoding(batch.encoder)
            self._library.release(batch.encoder)
        batch.takes = _PLAIN

    # -- commands -------------------------------------------------------------------------------

    def dispatch(
        self, batch: CommandBatch, pipeline: Any, _: Any, groups: int, pushed: Any
    ) -> None:
        """Run so many blocks of threads, in a batch that is open; the caller has the lock."""
        functions, encoder = self._library, self._encoder(batch, _KERNELS)
        if batch.pipeline is not None:
            functions.memoryBarrierWithScope_(encoder, _BUFFERS)
        handles = self._heap.handles()
        if batch.resident is not handles:
            given = (ctypes.c_void_p * len(handles))(*handles)
            functions.useResources_count_usage_(encoder, given, len(handles), _READ_AND_WRITE)
            batch.resident = handles
        if batch.pipeline is not pipeline:
            functions.setComputePipelineState_(encoder, pipeline.handle)
            batch.pipeline = pipeline
        functions.setBytes_length_atIndex_(encoder, pushed, _PUSHED, 0)
        self._dispatch(encoder, groups, pipeline)

    def _dispatch(self, encoder: int, groups: int, pipeline: Pipeline) -> None:
        self._library.dispatchThreadgroups_threadsPerThreadgroup_(
            encoder, Size(groups, 1, 1), pipeline.threads
        )

    def copy(self, to: tuple[Any, int], of: tuple[Any, int], nbytes: int) -> None:
        """Copy between buffers; offsets and bytes are multiples of 4."""
        with self.lock:
            self._copy(self.open(), to, of, nbytes)

    def _copy(
        self, batch: CommandBatch, to: tuple[Buffer, int], of: tuple[Buffer, int], nbytes: int
    ) -> None:
        self._library.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size_(
            self._encoder(batch, _COPIES), of[0].handle, of[1], to[0].handle, to[1], nbytes
        )

    def write(self, to: tuple[Any, int], data: bytes) -> None:
        """Copy a multiple of 4 bytes from the host, which are few."""
        with self.lock:
            batch = self.open(len(data))
            offset = batch.arena.offset + batch.put(data)
            source: Any = batch.arena.buffer
            self._copy(batch, to, (source, offset), len(data))

    def fill(self, buffer: Any, offset: int, nbytes: int) -> None:
        """Set whole words to zero."""
        with self.lock:
            batch = self.open()
            encoder = self._encoder(batch, _COPIES)
            self._library.fillBuffer_range_value_(encoder, buffer.handle, Range(offset, nbytes), 0)
