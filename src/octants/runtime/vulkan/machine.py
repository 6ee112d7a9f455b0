"""What launches need of a device: its queue, its memory, programs, messages, tapes, and waiting."""

from __future__ import annotations

import functools
import weakref
from ctypes import addressof, byref, c_char_p, c_uint64

import numpy as np

from octants.artifact import Artifact
from octants.diagnostics.vulkan_errors import LoopCut, VulkanFailed
from octants.runtime.memory import view_memory
from octants.runtime.pending import Pending
from octants.runtime.vulkan import structures as vk
from octants.runtime.vulkan.context import Context
from octants.runtime.vulkan.hardware import Hardware, choose
from octants.runtime.vulkan.library import SUCCESS
from octants.runtime.vulkan.memory import MAPPED, Heap, Piece
from octants.runtime.vulkan.messages import Messages
from octants.runtime.vulkan.queue import PUSHED, Queue
from octants.runtime.vulkan.tapes import Tape
from octants.runtime.vulkan.transfers import Transfers

_MANY_BLOCKS, _FEW_BLOCKS = 1024, 16  # that fill a GPU, and a CPU that stands for one
_COMPUTE_STAGE = 0x20


class _Shared:
    """What of a device stays as long as the process, since arrays may outlive their device."""

    def __init__(self, hardware: Hardware) -> None:
        self.context = Context(hardware)
        self.queue = Queue(self.context)
        self.heap = Heap(self.context)
        self.mapped = Heap(self.context, MAPPED)
        self.transfers = Transfers(self.queue, self.heap)
        self.layout = self._make_layout()
        cache = vk.PipelineCacheCreateInfo()
        self.pipeline_cache = self.context.create("vkCreatePipelineCache", cache)

    def _make_layout(self) -> c_uint64:
        pushed = vk.PushRange(_COMPUTE_STAGE, 0, PUSHED)
        info = vk.PipelineLayoutCreateInfo(range_count=1, ranges=addressof(pushed))
        return c_uint64(self.context.create("vkCreatePipelineLayout", info))


@functools.cache
def _shared(hardware: Hardware) -> _Shared:
    return _Shared(hardware)


class Machine:
    """The device of a number, or the best one for None.

    ``tape_budget`` is what the records of a launch should take, as far as shorter blocks of long
    loops make that possible; 0: a 64th of the memory. ``tape_limit`` bounds the bytes of all tapes;
    0: nine tenths of the memory.

    Raises `OctantsRuntimeError` if there is no Vulkan, no such device, or one that is unfit.
    """

    def __init__(
        self, number: int | None = None, tape_budget: int = 0, tape_limit: int = 0
    ) -> None:
        self.hardware = choose(number)
        shared = _shared(self.hardware)
        self.context, self.queue = shared.context, shared.queue
        self.heap, self.transfers = shared.heap, shared.transfers
        self.layout, self.pipeline_cache = shared.layout, shared.pipeline_cache
        total = self.context.memory_bytes
        self.tape_budget = tape_budget or total // 64
        self.tape = Tape(self.heap, self.transfers, tape_limit or total // 10 * 9)
        self.fill = _FEW_BLOCKS if self.hardware.is_cpu else _MANY_BLOCKS
        self.pending = Pending()
        self.messages = Messages(shared.mapped, self.pending)
        self.bounds: Piece = self.heap.allocate(32)
        self.cut: Piece = shared.mapped.allocate(4)  # where kernels tell that a loop was cut short
        self._cut_word = view_memory(self.cut.host, np.uint32, (1,))
        self._cut_word[0] = 0
        self._programs: weakref.WeakValueDictionary[bytes, Program] = weakref.WeakValueDictionary()

    def program(self, artifact: Artifact) -> Program:
        """The pipelines of an artifact; those of the same code are shared."""
        known = self._programs.get(artifact.code)
        if known is None:
            known = self._programs[artifact.code] = Program(self, artifact)
        return known

    def look(self) -> None:
        """Wait, print what kernels have printed, and raise the first failure."""
        self.queue.finish()
        self.deliver()

    def deliver(self) -> None:
        """The same when all is done."""
        if self._cut_word[0]:
            self._cut_word[0] = 0
            raise LoopCut(self.hardware.name).at(None)
        if self.messages:
            with self.queue.lock:
                self.messages.deliver()


class Program:
    """The pipelines of a SPIR-V module, by the names of its entry points."""

    def __init__(self, machine: Machine, artifact: Artifact) -> None:
        self._context, self._layout = machine.context, machine.layout
        info = vk.ShaderModuleCreateInfo(size=len(artifact.code), code=c_char_p(artifact.code))
        self._module = self._context.create("vkCreateShaderModule", info)
        names = [dispatch.entry for dispatch in artifact.dispatches]
        self.pipelines = {name: self._make(name, machine.pipeline_cache) for name in names}

    def _make(self, name: str, cache: int) -> c_uint64:
        stage = vk.ShaderStageCreateInfo(
            stage=_COMPUTE_STAGE, module=self._module, name=name.encode()
        )
        info = vk.ComputePipelineCreateInfo(stage=stage, layout=self._layout, base_index=-1)
        handle, context = c_uint64(), self._context
        create = context.functions.vkCreateComputePipelines
        status = create(context.handle, cache, 1, byref(info), None, byref(handle))
        if status != SUCCESS:
            raise VulkanFailed("vkCreateComputePipelines", f"status {status}").at(None)
        return handle
