"""Implements `runtime.device.Device` for Vulkan devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import addressof, byref, c_int64
from typing import Any

import numpy as np

from octants import abi
from octants.artifact import Artifact
from octants.diagnostics.vulkan_errors import LoopCut
from octants.runtime.capture import Command, CommandReplay
from octants.runtime.gpu.batched_device import BatchedDevice, SharedState, shared_state
from octants.runtime.gpu.suballocation import ALIGNMENT, SubAllocation
from octants.runtime.memory.host import view_memory
from octants.runtime.vulkan.context import Context
from octants.runtime.vulkan.kernel import VulkanKernel
from octants.runtime.vulkan.library import handle_argument
from octants.runtime.vulkan.memory import MAPPED, NEAR, Buffer, Heap, large_buffer
from octants.runtime.vulkan.physical_devices import Hardware, choose
from octants.runtime.vulkan.pipelines import Pipeline
from octants.runtime.vulkan.push_constants_and_descriptors import BoundMemory, pipeline_layout
from octants.runtime.vulkan.queue import PUSHED, PushedWords, Queue
from octants.runtime.vulkan.recorded_graph import recorded_graph
from octants.runtime.vulkan.transfers import CopyKernel, Transfers

_HOST_SHARE = 8  # an eighth of the one buffer, where all memory is one, is for the host
_THREADS, _FEW_THREADS = 1 << 18, 1 << 10  # that occupy a GPU; a CPU with a Vulkan driver


class _Shared(SharedState):
    """The shared state of a device, with its memory and the layout of its pipelines."""

    def __init__(self, hardware: Hardware) -> None:
        context = Context(hardware)
        pushed = PUSHED + 8 * _pushed_slots(hardware)
        if hardware.is_bound:
            buffer = large_buffer(context, hardware.memory_bytes)
            heap, mapped = _divided(context, buffer)
            bound = BoundMemory(context, buffer, pushed)
            near, self.layout = mapped, bound.layout
        else:
            heap, mapped = Heap(context), Heap(context, MAPPED)
            near, self.layout = Heap(context, NEAR), pipeline_layout(context, pushed)
        queue = Queue(context, near)
        if hardware.is_bound:
            queue.bind = bound.bind
        super().__init__(context, heap, queue, mapped, Transfers)


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


def _pushed_slots(hardware: Hardware) -> int:
    """The most slots of the parameter block that a launch pushes."""
    return abi.MANY_PUSHED_SLOTS if "push256" in hardware.features else abi.PUSHED_SLOTS


_known: dict[Hardware, _Shared] = {}


class VulkanDevice(BatchedDevice):
    """A Vulkan device. Launches are queued.

    Args:
        number: The position of the device in `physical_devices.all_hardware`; None: the best one.
        record_budget: See `BatchedDevice`.
        record_buffer_limit: See `BatchedDevice`.
        without: Features not to use; see `Hardware.leaving`.
        copy_kernel: Compiles the kernel of `transfers.CopyKernel` for large copies within the
            device, where its driver copies slowly.

    Raises:
        OctantsRuntimeError: there is no Vulkan, no such device, or the device cannot run kernels.
    """

    def __init__(
        self,
        number: int | None = None,
        record_budget: int = 0,
        record_buffer_limit: int = 0,
        without: str = "",
        copy_kernel: Callable[[], Artifact] | None = None,
    ) -> None:
        hardware = choose(number or 0, without)
        shared = shared_state(_known, hardware, _Shared)
        threads = _FEW_THREADS if hardware.is_cpu else _THREADS
        super().__init__(hardware, shared, threads, record_budget, record_buffer_limit)
        self._layout_handle, self.layout = shared.layout, handle_argument(shared.layout)
        self.cut: SubAllocation = shared.mapped.allocate(
            4, "loops cut short"
        )  # the word that kernels set when the driver cut a loop short
        self._cut_word = view_memory(self.cut.host, np.uint32, (1,)).data
        self._cut_word[0] = 0
        if copy_kernel is not None and hardware.copies_slowly and not hardware.is_bound:
            made = CopyKernel(self.queue, shared.layout, self.new_push_constants(0), copy_kernel)
            self.transfers.copy_kernel = self.transfers.copy_kernel or made

    def _queue_copies(self, pieces: tuple[tuple[int, int, int], ...]) -> None:
        """Queue several copies, after one barrier."""
        self.transfers.copy_each(pieces)

    def _queue_clears(self, ranges: tuple[tuple[int, int], ...]) -> None:
        """Queue fills of ranges with zeros, after one barrier."""
        self.transfers.clear_each(ranges)

    def make_graph(self, commands: Sequence[Command], kept: Any = None) -> CommandReplay:
        """Make a graph that replays commands: by one submission, if they can be recorded."""
        return recorded_graph(self, commands, kept) or super().make_graph(commands, kept)

    def __repr__(self) -> str:
        return f"device of Vulkan ({self.hardware.name})"

    def load(self, artifact: Artifact) -> VulkanKernel:
        """Load a kernel.

        Raises:
            OctantsRuntimeError: the driver rejects it.
        """
        return VulkanKernel(self, artifact)

    def make_program(self, artifact: Artifact) -> Pipeline:
        """Create the pipelines of an artifact."""
        return Pipeline(self.context, self._layout_handle, artifact)

    def new_push_constants(self, slots: int) -> tuple[Any, Any, PushedWords]:
        """The words of `PUSHED`, and then slots, as far as the device takes them."""
        count = min(slots, _pushed_slots(self.hardware))
        nbytes = PUSHED + 8 * count
        words = (c_int64 * (nbytes // 8))()
        words[PUSHED // 8 - 1] = self.cut.address
        among = view_memory(addressof(words) + PUSHED, np.uint8, (8 * count,)).data
        return words, among, (nbytes, byref(words))

    def report(self) -> None:
        """Raise the error for a loop that was cut short."""
        if self._cut_word[0]:
            self._cut_word[0] = 0
            raise LoopCut(self.hardware.name).at()
