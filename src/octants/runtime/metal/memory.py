"""Memory of the GPU, which the host shares: nothing is copied to be read or written."""

from __future__ import annotations

from octants.diagnostics.byte_counts import format_bytes
from octants.diagnostics.exceptions import OctantsError, OctantsMemoryError
from octants.diagnostics.metal_errors import OutOfMetalMemory
from octants.runtime.gpu import suballocation
from octants.runtime.metal.context import Context

_SHARED = 0  # MTLResourceStorageModeShared, with hazards that Metal tracks


class Buffer:
    """A buffer; `host` is its address on the host, `address` on the GPU."""

    reads_well = True

    def __init__(self, context: Context, nbytes: int) -> None:
        self._context, functions = context, context.library
        self.nbytes = nbytes
        is_too_large = nbytes > context.hardware.largest
        new = functions.newBufferWithLength_options_
        self.handle = 0 if is_too_large else new(context.hardware.handle, nbytes, _SHARED)
        if not self.handle:
            raise OctantsMemoryError(f"{nbytes} bytes are refused")
        self.host = int(functions.contents(self.handle))
        self.address = int(functions.gpuAddress(self.handle))

    def free(self) -> None:
        """Give the memory back; nothing may use it any more."""
        self._context.library.release(self.handle)


class Heap(suballocation.Heap[Buffer]):
    """Pieces of buffers. `resident` are the handles of all buffers, None if they have changed."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._metal = context
        self.resident: tuple[int, ...] | None = None

    def handles(self) -> tuple[int, ...]:
        """The handles of all buffers that kernels may use; the same tuple until they change."""
        with self._lock:
            if self.resident is None:
                self.resident = tuple(each.handle for each in self._buffers)
            return self.resident

    def _make(self, nbytes: int) -> Buffer:
        self.resident = None
        return Buffer(self._metal, nbytes)

    def _drop(self, buffer: Buffer) -> None:
        self.resident = None
        super()._drop(buffer)

    def _refused(self, nbytes: int) -> OctantsError:
        found = self._metal.hardware
        left = (
            f"of {format_bytes(found.memory_bytes)}, Octants uses {format_bytes(self.live.nbytes)}"
        )
        error = OutOfMetalMemory(found.name, format_bytes(nbytes), left)
        return self.live.refusal(error)
