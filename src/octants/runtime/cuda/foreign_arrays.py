"""Reads the address, layout and stream of arrays of other libraries in GPU memory.

It understands torch tensors, ``__cuda_array_interface__`` (version 3), and DLPack. It copies
nothing.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

from octants.deferred_import import Deferred
from octants.lazy_dataclass import dataclass
from octants.runtime.cuda.streams import LEGACY_STREAM

if TYPE_CHECKING:
    from octants.runtime.interop import dlpack
else:
    dlpack = Deferred("octants.runtime.interop.dlpack")


@dataclass(frozen=True)
class ForeignGpuArray:
    """An array of another library in GPU memory.

    `strides` are in bytes; they are row-major if the library gave none. `type` is a numpy type
    string such as "f4", or "" where numpy has no such type. `stream` is the stream in which the
    library may still write to the array; None if it is complete or ordered already. `owner` keeps
    it alive.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    type: str
    ordinal: int | None
    stream: int | None
    is_read_only: bool
    owner: Any


def foreign_array(value: Any, stream: int = 0) -> ForeignGpuArray | None:
    """Describe an array of another library on a GPU.

    Args:
        value: The array.
        stream: The stream that will use it. A library that offers DLPack orders it after its own
            work.

    Returns:
        The array, without an ordinal if the library does not report it; None if ``value`` is on no
            GPU.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _tensor(value) if value.device.type == "cuda" else None
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        return _interface(value, interface)
    if hasattr(value, "__dlpack__"):
        where = dlpack.device_of(value)
        if where is not None and where[0] in (dlpack.GPU, dlpack.ROCM, dlpack.MANAGED):
            return _dlpack(value, stream or LEGACY_STREAM)
    return None


def torch_stream(ordinal: int) -> int:
    """The handle of torch's current stream on a GPU in this thread; 0 without torch."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    quick = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    handle: int = quick(ordinal) if quick else torch.cuda.current_stream(ordinal).cuda_stream
    return handle


def array_interface(
    address: int, shape: tuple[int, ...], strides: tuple[int, ...], type: str, stream: int
) -> dict[str, Any]:
    """The ``__cuda_array_interface__`` of memory that a stream may still write to."""
    return {
        "shape": shape,
        "strides": strides,
        "typestr": type,
        "data": (address if math.prod(shape) else 0, False),
        "version": 3,
        "stream": stream or LEGACY_STREAM,
    }


def _tensor(tensor: Any) -> ForeignGpuArray:
    ordinal = tensor.device.index
    size = tensor.element_size()
    name = str(tensor.dtype).removeprefix("torch.")
    return ForeignGpuArray(
        tensor.data_ptr(),
        tuple(tensor.shape),
        tuple(stride * size for stride in tensor.stride()),
        _TORCH_TYPES.get(name, ""),
        ordinal,
        torch_stream(ordinal),
        is_read_only=False,
        owner=tensor,
    )


_TORCH_TYPES = {
    "bool": "b1", "uint8": "u1", "int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8",
    "uint16": "u2", "uint32": "u4", "uint64": "u8", "float16": "f2", "float32": "f4",
    "float64": "f8",
}  # fmt: skip


def _interface(value: Any, interface: dict[str, Any]) -> ForeignGpuArray:
    shape = tuple(interface["shape"])
    name = interface["typestr"].lstrip("<|=")
    strides = interface.get("strides")
    address, is_read_only = interface["data"]
    return ForeignGpuArray(
        address,
        shape,
        _row_major(shape, int(name[1:])) if strides is None else tuple(strides),
        name,
        None,
        interface.get("stream"),
        is_read_only,
        owner=value,
    )


def _row_major(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    return tuple(size * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _dlpack(value: Any, stream: int) -> ForeignGpuArray:
    part = dlpack.import_view(value, stream=stream)
    return ForeignGpuArray(
        part.address,
        part.shape,
        part.strides,
        "" if part.dtype is None else part.dtype.str[1:],
        part.device[1] if part.device[0] in (dlpack.GPU, dlpack.ROCM) else None,
        None,
        part.is_read_only,
        part.owner,
    )
