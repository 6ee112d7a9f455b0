"""Staging buffers whose copies go into one submission with their launch.

    host ──copy──▶ memory ──kernel──▶ memory ──copy──▶ host

The commands of a launch that repeats with the same other arguments are recorded once.
The host writes `memory` itself where it is mapped. It uses no other memory where it also reads that
well; reading a few hundred bytes that are not cached takes as long as a submission.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from octants.artifact import SYSTEM_BYTES
from octants.diagnostics.exceptions import OctantsError
from octants.runtime.device import Allocation, Bytes
from octants.runtime.gpu.batches import SAME
from octants.runtime.gpu.suballocation import SubAllocation
from octants.runtime.memory.host import view_memory
from octants.runtime.repetitions import Repetitions

_abandoned: list[SubAllocation] = []
"""Memory of launches whose wait Ctrl-C has ended; the device may still use it."""


class BatchedStagingBuffer:
    """Implements `runtime.device.StagingBuffer`, for launches that write to it.

    ``device`` is a `batched_device.BatchedDevice`.
    """

    def __init__(self, device: Any, nbytes: int, written: int) -> None:
        self._device, self._nbytes, self._written = device, nbytes, written
        self._own = own = device.allocate_dirty(nbytes, "copies of arguments")
        self.memory: Allocation = own
        is_one = bool(own.host) and bool(own.buffer.reads_well)
        self._shared = own if is_one else device.mapped.allocate(nbytes, "copies of arguments")
        self.host: Bytes = view_memory(self._shared.host, np.uint8, (nbytes,))
        self._mapped = view_memory(own.host, np.uint8, (nbytes,)) if own.host else None
        self._is_one = is_one
        self._recorded = Repetitions[Any](SAME)
        """By the arguments of launches that repeat."""
        self.is_launched = False
        device.queue.finish()  # earlier commands may use memory that was freed

    def launch(self, run: Callable[[int], None], kernel: Any, block: int) -> None:
        """Submit a copy of `host`, a launch, and a copy of what it may have written."""
        device = self._device
        watches, queue = device.versions.watches, device.queue
        if watches:
            device.versions.wrote(self._own.address, self._nbytes)
        view = kernel.slots.view(block)
        arguments = view.tobytes()[SYSTEM_BYTES:]
        with queue.lock:
            if self._mapped is not None and not self._is_one:
                self._mapped[...] = self.host
            self.is_launched = True
            if run is not kernel.launch or not kernel.may_repeat:
                self._submit(run, block)
                return
            recorded = self._recorded.made.get(arguments)
            if recorded is None:
                self._submit(run, block)
                if self._recorded.is_due(arguments):
                    self._record(kernel, block, arguments)
                return
            device.context.launched.append(kernel.name)
            if watches:
                kernel.report(view)
            recorded.submit()

    def _submit(self, run: Callable[[int], None], block: int) -> None:
        """Submit the commands of a launch."""
        queue = self._device.queue
        queue.open().is_urgent = False  # it takes more than one launch
        try:
            self._queue(run, block)
        finally:
            queue.flush()

    def _record(self, kernel: Any, block: int, arguments: bytes) -> None:
        """Record the commands of a launch."""
        with contextlib.suppress(OctantsError):  # then they are queued as before
            device = self._device
            by_kernel = device.transfers.copy_kernel  # takes less time, but has to be compiled
            recorded = device.queue.record(
                lambda: self._queue(kernel.launch, block, by_kernel), kernel.parameter_bytes
            )
            if recorded is not None:
                self._recorded.made[arguments] = recorded

    def _queue(self, run: Callable[[int], None], block: int, by_kernel: Any = None) -> None:
        """Queue the commands of a launch; a kernel may copy instead of commands."""
        own, shared, queue = self._own, self._shared, self._device.queue

        def copy(to: Any, of: Any, nbytes: int) -> None:
            if by_kernel is not None:
                by_kernel(to.address, of.address, nbytes)
            else:
                queue.copy((to.buffer, to.offset), (of.buffer, of.offset), nbytes)

        if self._mapped is None:
            copy(own, shared, self._nbytes)
        try:
            run(block)
        finally:
            if not self._is_one:
                copy(shared, own, self._written)

    def download(self) -> None:
        """Wait for all launches."""
        device = self._device
        try:
            device.queue.finish()
        except BaseException:  # such as Ctrl-C
            _abandoned.append(self._shared)
            raise
        self.is_launched = False
        device.deliver()
        device.pending.raise_first()
