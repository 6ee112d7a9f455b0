"""Copies between the host and the device, and within the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octants.artifact import Artifact
from octants.runtime.gpu.batched_transfers import BatchedTransfers
from octants.runtime.gpu.batches import MOST_PENDING
from octants.runtime.gpu.driver import Chunk
from octants.runtime.gpu.staging import CHUNKS, Staging
from octants.runtime.vulkan import structures as vk
from octants.runtime.vulkan.library import handle_argument
from octants.runtime.vulkan.memory import MAPPED, Buffer, Heap
from octants.runtime.vulkan.pipelines import Pipeline
from octants.runtime.vulkan.queue import Copy, Fill, Queue, copy_of, fill_of

LARGE = 1 << 24
"""Size of the staging buffers for long copies to memory that is not mapped, in bytes."""
BY_KERNEL = 1 << 18
"""Bytes that a kernel copies, where there is one, in less time than a command."""
ITEM_BYTES = 16
_GROUP_ITEMS, _MOST_GROUPS = 256, 65535
_MOST_ROWS = 1 << 16
_MOST_REPEATED = 1 << 12


class MappedChunk:
    """A staging buffer; `number` is that of the submission that used it last."""

    def __init__(self, transfers: Transfers, buffer: Buffer, offset: int) -> None:
        self._transfers, self._queue = transfers, transfers.queue
        self._chunk = buffer, offset
        self.host = buffer.host + offset
        self.number = 0

    def upload(self, target: int, nbytes: int, _: int) -> None:
        """Submit a copy to the device."""
        self._queue.copy(self._transfers.buffer_of(target, nbytes), self._chunk, nbytes)
        self.number = self._queue.flush()

    def download(self, source: int, nbytes: int, _: int) -> None:
        """Submit a copy from the device."""
        self._queue.copy(self._chunk, self._transfers.buffer_of(source, nbytes), nbytes)
        self.number = self._queue.flush()

    def wait(self) -> None:
        """Wait for the last copy."""
        self._queue.context.wait(self.number)


class CopyKernel:
    """Copies within the device by a kernel of `codegen.spirv.copy_kernel`, which ``make`` compiles.

    ``pushed`` is what its launches push, as `VulkanDevice.new_push_constants` makes it, and
    ``layout`` the layout of its pipeline.
    """

    def __init__(
        self, queue: Queue, layout: int, pushed: Any, make: Callable[[], Artifact]
    ) -> None:
        self._queue, self._layout, self._make = queue, layout, make
        self._words, _, self._pushed = pushed
        self._program: Pipeline | None = None

    def __call__(self, target: int, source: int, nbytes: int) -> None:
        """Queue a copy of whole items between aligned addresses."""
        queue, items = self._queue, nbytes // ITEM_BYTES
        with queue.lock:
            if self._program is None:
                self._program = Pipeline(queue.context, self._layout, self._make())
            (pipeline,) = self._program.pipelines.values()
            self._words[1:4] = source, target, items
            groups = min(-(-items // _GROUP_ITEMS), _MOST_GROUPS)
            layout = handle_argument(self._layout)
            queue.dispatch(queue.open(), pipeline, layout, groups, self._pushed)


class Transfers(BatchedTransfers):
    """Copies through staging buffers where memory is not mapped.

    Large copies within the device are made by `copy_kernel`, where there is one.
    """

    def __init__(self, queue: Queue, heap: Heap) -> None:
        super().__init__(queue, heap, Staging(self._make_chunks, LARGE))
        self._cleared: dict[Any, Any] = {}  # what repeated calls of `clear_each` fill
        self._copied: dict[Any, Any] = {}  # what repeated calls of `copy_each` copy
        self._generation = 0

    def _make_chunks(self, nbytes: int) -> list[Chunk]:
        buffer = Buffer(self.queue.context, CHUNKS * nbytes, MAPPED)
        return [MappedChunk(self, buffer, number * nbytes) for number in range(CHUNKS)]

    def copy(self, target: int, source: int, nbytes: int) -> None:
        if self.copy_kernel is None or nbytes < BY_KERNEL or (target | source) % ITEM_BYTES:
            super().copy(target, source, nbytes)
            return
        rest = nbytes % ITEM_BYTES
        whole = nbytes - rest
        self.copy_kernel(target, source, whole)
        super().copy(target + whole, source + whole, rest)

    def copy_rows(
        self, target: int, target_step: int, source: int, source_step: int, nbytes: int, rows: int
    ) -> None:
        if not nbytes or not rows:
            return
        to, to_offset = self.buffer_of(target, (rows - 1) * target_step + nbytes)
        of, of_offset = self.buffer_of(source, (rows - 1) * source_step + nbytes)
        for start in range(0, rows, _MOST_ROWS):
            count = min(_MOST_ROWS, rows - start)
            pieces: Any = (vk.BufferCopy * count)()
            for k in range(count):
                piece, row = pieces[k], start + k
                piece.source = of_offset + row * source_step
                piece.target = to_offset + row * target_step
                piece.size = nbytes
            self.queue.copy_pieces(to, of, pieces, count)

    def copy_each(self, pieces: tuple[tuple[int, int, int], ...]) -> None:
        """Queue copies; small ones have one barrier together."""
        self._forget_old(self._copied)
        known = self._copied.get(pieces)
        if known is None:
            known = self._copied[pieces] = self._small_and_others(pieces)
        small, others = known
        if small:
            self.queue.copy_each(small)
        for piece in others:
            self.copy(*piece)

    def _small_and_others(
        self, pieces: tuple[tuple[int, int, int], ...]
    ) -> tuple[list[Copy], list[tuple[int, int, int]]]:
        """Divide copies into those of buffers, which the queue makes, and others."""
        small, others = [], []
        for target, source, nbytes in pieces:
            if not 0 < nbytes < BY_KERNEL:
                others.append((target, source, nbytes))
                continue
            to, of = self.buffer_of(target, nbytes), self.buffer_of(source, nbytes)
            small.append(copy_of(to, of, nbytes))
        return small, others

    def _forget_old(self, known: dict[Any, Any]) -> None:
        """Forget what refers to buffers that may be gone, and what is too much."""
        if self._generation != self._heap.generation:
            self._copied.clear()
            self._cleared.clear()
            self._generation = self._heap.generation
        if len(known) > _MOST_REPEATED:
            known.clear()

    def clear_each(self, ranges: tuple[tuple[int, int], ...]) -> None:
        """Queue fills of several ranges; those of whole words have one barrier together.

        Tapes begin with it, so the launches that follow are submitted together.
        """
        self._forget_old(self._cleared)
        known = self._cleared.get(ranges)
        if known is None:
            known = self._cleared[ranges] = self._whole_and_others(ranges)
        whole, others = known
        if whole:
            with self.queue.lock:
                key = self._generation, ranges
                self.queue.add(key, self.queue.fill, whole, 0, launches=MOST_PENDING)
        for address, nbytes in others:
            self.clear(address, nbytes)

    def _whole_and_others(
        self, ranges: tuple[tuple[int, int], ...]
    ) -> tuple[list[Fill], list[tuple[int, int]]]:
        """Divide ranges into those of whole words, in their buffers, and others."""
        whole, others = [], []
        for address, nbytes in ranges:
            buffer, offset = self.buffer_of(address, nbytes)
            if (offset | nbytes) % 4:
                others.append((address, nbytes))
            else:
                whole.append(fill_of(buffer, offset, nbytes))
        return whole, others

    def clear(self, address: int, nbytes: int) -> None:
        """Queue a fill with zeros: whole words by a fill, the bytes around them by copies."""
        if nbytes <= 0:
            return
        buffer, offset = self.buffer_of(address, nbytes)
        first, last = -(-offset // 4) * 4, (offset + nbytes) // 4 * 4
        if first >= last:
            self.queue.write((buffer, offset), bytes(nbytes))
            return
        self.queue.fill([fill_of(buffer, first, last - first)])
        for start, end in ((offset, first), (last, offset + nbytes)):
            if start < end:
                self.queue.write((buffer, start), bytes(end - start))
