"""An AMD GPU as a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octants.deferred_import import Deferred
from octants.runtime.cuda.device import CudaDevice

if TYPE_CHECKING:
    from octants.runtime.interop import dlpack
else:
    dlpack = Deferred("octants.runtime.interop.dlpack")


class HipDevice(CudaDevice):
    """An AMD GPU, made as a `CudaDevice` is; the library is HIP's."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.dlpack_device = dlpack.ROCM, self.context.ordinal

    def number_of(self, _: Any) -> int | None:
        """None: a process uses one GPU of AMD."""
        return None

    def copy_kernel(self) -> None:
        """None: the driver makes copies."""

    def clear_kernel(self) -> None:
        """None: fills are nodes of their own."""
