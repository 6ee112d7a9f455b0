"""The GPU of a Mac as a device."""

from __future__ import annotations

from ctypes import c_int64
from typing import Any

from octants.artifact import Artifact
from octants.runtime.gpu.batched_device import BatchedDevice, SharedState, shared_state
from octants.runtime.gpu.batched_kernel import WORDS, BatchedKernel
from octants.runtime.metal.context import Context, Hardware, hardware
from octants.runtime.metal.memory import Heap
from octants.runtime.metal.pipelines import MetalPipelines
from octants.runtime.metal.queue import Queue
from octants.runtime.metal.transfers import Transfers

_THREADS = 1 << 16  # that occupy a GPU


def _make_shared(found: Hardware) -> SharedState:
    context = Context(found)
    heap = Heap(context)
    return SharedState(context, heap, Queue(context, heap), heap, Transfers)


_known: dict[Hardware, SharedState] = {}


class MetalDevice(BatchedDevice):
    """The GPU of this machine. Launches are queued.

    ``record_budget`` is what the records of a launch should take; 0: a 64th of the memory.

    Raises `OctantsRuntimeError` if there is no Metal, or no GPU that will do.
    """

    def __init__(self, record_budget: int = 0) -> None:
        found = hardware()
        super().__init__(found, shared_state(_known, found, _make_shared), _THREADS, record_budget)

    def __repr__(self) -> str:
        return f"device of Metal ({self.hardware.name})"

    def load(self, artifact: Artifact) -> BatchedKernel:
        """Make a kernel ready to be launched; `OctantsRuntimeError` if that cannot be."""
        return BatchedKernel(self, artifact)

    def make_program(self, artifact: Artifact) -> MetalPipelines:
        return MetalPipelines(self.context, artifact)

    def new_push_constants(self, slots: int) -> tuple[Any, Any, Any]:  # noqa: ARG002
        words = (c_int64 * (1 + WORDS))()
        return words, memoryview(bytearray()), words
