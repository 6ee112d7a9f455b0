"""An AMD GPU as a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from octants.deferred_import import Deferred
from octants.runtime.cuda.device import CudaDevice

if TYPE_CHECKING:
    from octants.runtime.interop import dlpack
else:
    dlpack = Deferred("octants.runtime.interop.dlpack")


class HipDevice(CudaDevice):
    """An AMD GPU.

    Args:
        abortable_code: Makes the code object of the kernels in abortable graphs.
        given: As `CudaDevice` takes it; the library is HIP's.
    """

    def __init__(self, abortable_code: Callable[[], bytes], *given: Any, **named: Any) -> None:
        self._make_abortable_code = abortable_code
        super().__init__(*given, **named)
        self.dlpack_device = dlpack.ROCM, self.context.ordinal

    def number_of(self, _: Any) -> int | None:
        """None: a process uses one GPU of AMD."""
        return None

    def abortable_code(self) -> bytes:
        return self._make_abortable_code()

    def copy_kernel(self) -> None:
        """None: the driver makes copies."""

    def clear_kernel(self) -> None:
        """None: fills are nodes of their own."""
