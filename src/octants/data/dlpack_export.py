"""The memory of fields and ndarrays, exported to other libraries by DLPack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from octants.data.errors import CannotShare
from octants.data.host_element_access import HostWindow
from octants.deferred_import import Deferred
from octants.runtime.device import Device

if TYPE_CHECKING:
    from octants.runtime.interop import dlpack
else:
    dlpack = Deferred("octants.runtime.interop.dlpack")

ELSEWHERE = "it is in the memory of the device, which the host cannot touch"
SPLIT = "an axis of it is split over several blocks"
_CPU = (1, 0)


def capsule(
    what: str,
    window: HostWindow,
    device: Device,
    is_read_only: bool,
    stream: int | None,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """The result of ``__dlpack__``: the memory itself, or a copy if one is requested."""
    target = dl_device or device.dlpack_device
    is_elsewhere = target != device.dlpack_device
    if is_elsewhere and (copy is False or target != _CPU):
        raise CannotShare(what, f"it is not on device {target}", "leave out `dl_device`").at()
    is_out_of_reach = not device.shares_memory and device.dlpack_device == _CPU
    if is_elsewhere or (is_out_of_reach and copy):
        values, owner = window.read(), None
    elif copy:
        values, owner = _copied(window)
    else:
        values, owner = _shared(what, window, device), device.export_memory(window.storage)
    if not is_elsewhere:
        device.make_stream_wait(stream)
    address = values.__array_interface__["data"][0]
    is_copy = bool(copy) or is_elsewhere
    part = dlpack.DlpackView(
        address if values.size else 0,
        values.shape,
        values.strides,
        values.dtype,
        target,
        is_read_only and not is_copy,
        (values, owner),
    )
    if part.is_read_only and not max_version:
        raise CannotShare(what, "it is read-only, which a capsule of old cannot say", "").at()
    return dlpack.export_capsule(part, versioned=bool(max_version), flags=dlpack.IS_COPY * is_copy)


def _copied(window: HostWindow) -> tuple[np.ndarray[Any, Any], Any]:
    part = window.part()
    if part is None:
        raise CannotShare("a copy", SPLIT, "use `to_numpy()` or `to_torch()`").at()
    saved = window.parts.save(part)
    return (saved, None) if isinstance(saved, np.ndarray) else (saved.part, saved.owner)


def _shared(what: str, window: HostWindow, device: Device) -> np.ndarray[Any, Any]:
    part = window.part()
    if part is None:
        raise CannotShare(what, SPLIT, "use `to_numpy()`").at()
    if not device.shares_memory and device.dlpack_device == _CPU:
        raise CannotShare(what, ELSEWHERE, "use `to_numpy()`").at()
    return part
