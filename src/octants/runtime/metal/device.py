"""The GPU of a Mac as a device, and what launches need of it."""

from __future__ import annotations

import weakref
from ctypes import c_int64
from typing import Any

from octants.artifact import Artifact
from octants.diagnostics.metal_errors import ForkedMetal
from octants.runtime.capture import refuse_read
from octants.runtime.device import Bytes
from octants.runtime.devices.serial_queue import SerialLaunches
from octants.runtime.gpu.batched_kernel import WORDS, BatchedKernel
from octants.runtime.gpu.device import GpuDevice
from octants.runtime.gpu.heap import SubAllocation
from octants.runtime.gpu.messages import MessageQueue
from octants.runtime.gpu.tapes import DeviceTape
from octants.runtime.memory.versions import Versions
from octants.runtime.metal.context import Context, Hardware, hardware
from octants.runtime.metal.memory import Heap
from octants.runtime.metal.pipelines import Program
from octants.runtime.metal.queue import Queue
from octants.runtime.metal.transfers import Transfers
from octants.runtime.reports.pending_errors import Pending

_BLOCKS = 1024  # that fill a GPU


class _Shared:
    """What of a GPU stays as long as the process, since arrays may outlive their device."""

    def __init__(self, found: Hardware) -> None:
        self.context = Context(found)
        self.programs: weakref.WeakValueDictionary[bytes, Program] = weakref.WeakValueDictionary()
        self.heap = Heap(self.context)
        self.queue = Queue(self.context, self.heap)
        self.transfers = Transfers(self.queue, self.heap)


_known: dict[Hardware, _Shared] = {}


def _shared(found: Hardware) -> _Shared:
    """What is there for a GPU; after its loss that is made again, but not after a fork."""
    known = _known.get(found)
    if known is not None and isinstance(known.context.lost, ForkedMetal):
        known.context.check()
    if known is None or known.context.lost is not None:
        known = _known[found] = _Shared(found)
    return known


class MetalDevice(GpuDevice, SerialLaunches):
    """The GPU of this machine. Launches are queued.

    ``tape_budget`` is what the records of a launch should take; 0: a 64th of the memory.

    Raises `OctantsRuntimeError` if there is no Metal, or no GPU that will do.
    """

    layout = None

    def __init__(self, tape_budget: int = 0) -> None:
        super().__init__()
        self.hardware = hardware()
        shared = _shared(self.hardware)
        self.context, self.queue = shared.context, shared.queue
        self.heap, self.transfers = shared.heap, shared.transfers
        self.queue_here = lambda: shared.transfers
        self.programs = shared.programs
        total = self.hardware.memory_bytes
        self.tape_budget = tape_budget or total // 64
        self.tape = DeviceTape(self.heap, self.transfers, total // 10 * 9)
        self.fill = _BLOCKS
        self.pending = Pending()
        self.messages = MessageQueue(
            self.heap, self.transfers, self.pending, self.wait_for_launches
        )
        self.bounds: SubAllocation = self.heap.allocate(32, "bounds of loops")
        self.versions = Versions(self.heap.live.find)

    def __repr__(self) -> str:
        return f"device of Metal ({self.hardware.name})"

    def load(self, artifact: Artifact) -> BatchedKernel:
        """Make a kernel ready to be launched; `OctantsRuntimeError` if that cannot be."""
        return BatchedKernel(self, artifact)

    def program(self, artifact: Artifact) -> Program:
        """The pipelines of an artifact; those of the same code are shared."""
        known = self.programs.get(artifact.code)
        if known is None:
            known = self.programs[artifact.code] = Program(self.context, artifact)
        return known

    def new_push_constants(self) -> Any:
        """What a launch pushes: the address of the parameter block, and the words of `abi`."""
        return (c_int64 * (1 + WORDS))()

    def allocate_zeros(self, nbytes: int, what: str) -> SubAllocation:
        """Memory that is zero for whatever is launched later."""
        piece = self.heap.allocate(nbytes, what)
        self.versions.freed(piece.address, nbytes)  # what was there before
        self.transfers.clear(piece.address, -(-nbytes // 4) * 4)
        return piece

    def read(self, address: int, into: Bytes) -> None:
        """Copy memory to the host, after what was launched; raises what failed in that."""
        refuse_read()
        self.transfers.read(address, into)
        self.deliver()
        self.pending.raise_first()

    def wait_for_launches(self) -> None:
        """Wait, print what kernels have printed, and raise the first failure."""
        self.queue.finish()
        self.deliver()

    def deliver(self) -> None:
        """The same when everything is done."""
        if self.tape.is_trusted or self.messages:
            with self.queue.lock:  # first, as in a launch
                self.confirm_tapes()
                self.messages.deliver()

    def tapes(self) -> tuple[DeviceTape]:
        """The only one."""
        return (self.tape,)
