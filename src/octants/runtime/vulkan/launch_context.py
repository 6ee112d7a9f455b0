"""The state of a Vulkan device that launches share: queue, memory, pipelines, messages, tape."""

from __future__ import annotations

import weakref
from ctypes import c_int64
from typing import Any

import numpy as np

from octants.artifact import Artifact
from octants.diagnostics.vulkan_errors import ForkedVulkan, LoopCut
from octants.runtime.gpu.device import GpuDevice
from octants.runtime.gpu.heap import ALIGNMENT, SubAllocation
from octants.runtime.gpu.messages import MessageQueue
from octants.runtime.gpu.tapes import DeviceTape
from octants.runtime.memory.host import view_memory
from octants.runtime.memory.versions import Versions
from octants.runtime.reports.pending_errors import Pending
from octants.runtime.vulkan.bindings import BoundMemory, pipeline_layout
from octants.runtime.vulkan.context import Context
from octants.runtime.vulkan.memory import (
    MAPPED,
    NEAR,
    Buffer,
    Heap,
    large_buffer,
)
from octants.runtime.vulkan.physical_devices import Hardware, choose
from octants.runtime.vulkan.pipelines import Pipeline
from octants.runtime.vulkan.queue import PUSHED, WORDS, Queue
from octants.runtime.vulkan.transfers import Transfers

_HOST_SHARE = 8  # an eighth of the one buffer, where all memory is one, is for the host
_MANY_BLOCKS, _FEW_BLOCKS = 1024, 16  # blocks that occupy a GPU, and a CPU with a Vulkan driver


class _Shared:
    """The state of a device that stays until the process ends, as arrays may outlive a `Device`."""

    def __init__(self, hardware: Hardware) -> None:
        self.context = context = Context(hardware)
        self.programs: weakref.WeakValueDictionary[bytes, Pipeline] = weakref.WeakValueDictionary()
        if hardware.is_bound:
            buffer = large_buffer(context, hardware.memory_bytes)
            self.heap, self.mapped = _divided(context, buffer)
            bound = BoundMemory(context, buffer, PUSHED)
            near, self.layout = self.mapped, bound.layout
        else:
            self.heap, self.mapped = Heap(context), Heap(context, MAPPED)
            near, self.layout = Heap(context, NEAR), pipeline_layout(context, PUSHED)
        self.queue = Queue(context, near)
        if hardware.is_bound:
            self.queue.bind = bound.bind
        self.transfers = Transfers(self.queue, self.heap)


def _divided(context: Context, buffer: Buffer) -> tuple[Heap, Heap]:
    """Split a buffer into a heap for the device, and one that the host writes while the device is
    busy.

    The first bytes stay unused, so that no address is 0.
    """
    device, host = Heap(context), Heap(context, NEAR)
    own = buffer.nbytes // _HOST_SHARE // ALIGNMENT * ALIGNMENT
    host.stay_within(buffer, ALIGNMENT, own)
    start = ALIGNMENT + own
    device.stay_within(buffer, start, buffer.nbytes - start)
    return device, host


_known: dict[Hardware, _Shared] = {}


def _shared(hardware: Hardware) -> _Shared:
    """The shared state of a device; created again after a loss, but not after a fork."""
    known = _known.get(hardware)
    if known is not None and isinstance(known.context.lost, ForkedVulkan):
        known.context.check()
    if known is None or known.context.lost is not None:
        known = _known[hardware] = _Shared(hardware)
    return known


class LaunchContext(GpuDevice):
    """A Vulkan device.

    Args:
        number: The position of the device in `physical_devices.all_hardware`; None: the best one.
        tape_budget: Bytes that the records of a launch should take, as far as shorter blocks of
            long loops make that possible; 0: 1/64 of the memory.
        tape_limit: The most bytes of all tapes; 0: 9/10 of the memory.
        without: Features not to use; see `Hardware.leaving`.
        is_checked: Whether the validation layer checks all calls.

    Raises:
        OctantsRuntimeError: there is no Vulkan, no such device, or the device cannot run kernels.
    """

    def __init__(
        self,
        number: int | None = None,
        tape_budget: int = 0,
        tape_limit: int = 0,
        without: str = "",
        is_checked: bool = False,
    ) -> None:
        super().__init__()
        self.hardware = choose(number or 0, without, is_checked)
        shared = _shared(self.hardware)
        self.context, self.queue = shared.context, shared.queue
        self.heap, self.transfers = shared.heap, shared.transfers
        self.queue_here = lambda: shared.transfers
        self.layout = shared.layout
        total = self.hardware.memory_bytes
        self.tape_budget = tape_budget or total // 64
        self.tape = DeviceTape(self.heap, self.transfers, tape_limit or total // 10 * 9)
        self.fill = _FEW_BLOCKS if self.hardware.is_cpu else _MANY_BLOCKS
        self.pending = Pending()
        mapped = Transfers(self.queue, shared.mapped)
        self.messages = MessageQueue(shared.mapped, mapped, self.pending, self.wait_for_launches)
        self.bounds: SubAllocation = self.heap.allocate(32, "bounds of loops")
        self.cut: SubAllocation = shared.mapped.allocate(
            4, "loops cut short"
        )  # the word that kernels set when the driver cut a loop short
        self._cut_word = view_memory(self.cut.host, np.uint32, (1,))
        self._cut_word[0] = 0
        self.programs = shared.programs
        self.versions = Versions(self.heap.live.find)

    def __repr__(self) -> str:
        return self.hardware.name

    def program(self, artifact: Artifact) -> Pipeline:
        """The pipelines of an artifact; kernels with the same code share them."""
        known = self.programs.get(artifact.code)
        if known is None:
            known = Pipeline(self.context, self.layout, artifact)
            self.programs[artifact.code] = known
        return known

    def new_push_constants(self) -> Any:
        """What a launch pushes: the words of `PUSHED`."""
        return (c_int64 * (WORDS + 2))(*[0] * (WORDS + 1), self.cut.address)

    def wait_for_launches(self) -> None:
        """Synchronise: wait for all launches, write what kernels printed, raise the first error."""
        self.queue.finish()
        self.deliver()

    def deliver(self) -> None:
        """Write what kernels printed, and raise the first error; all launches are complete."""
        if self.hardware.validation is not None:
            self.hardware.validation.tell()
        if self._cut_word[0]:
            self._cut_word[0] = 0
            raise LoopCut(self.hardware.name).at(None)
        if self.tape.is_trusted or self.messages:
            with self.queue.lock:  # first, as in a launch
                self.confirm_tapes()
                self.messages.deliver()

    def tapes(self) -> tuple[DeviceTape]:
        """The one tape."""
        return (self.tape,)
