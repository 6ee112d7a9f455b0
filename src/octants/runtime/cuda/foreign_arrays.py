"""Reads the address, layout and stream of arrays of other libraries in GPU memory.

It understands torch tensors, ``__cuda_array_interface__`` (version 3), and DLPack. It copies
nothing.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from octants.deferred_import import Deferred
from octants.lazy_dataclass import dataclass
from octants.runtime.arguments.conversions import (
    interface_strides,
    numpy_type,
    torch_strides,
    torch_type,
)
from octants.runtime.cuda.streams import LEGACY_STREAM

if TYPE_CHECKING:
    from octants.runtime.interop import dlpack
else:
    dlpack = Deferred("octants.runtime.interop.dlpack")


@dataclass(frozen=True)
class ForeignGpuArray:
    """An array of another library in GPU memory.

    `strides` are in bytes. `dtype` is None where numpy has no such type of numbers. `stream` is the
    stream in which the library may still write to the array; None if it is complete or ordered
    already. `owner` keeps it alive. If `has_no_stream`, the library names none that could wait for
    the uses of the array, so that its memory must not be freed before they have ended.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any] | None
    ordinal: int | None
    stream: int | None
    is_read_only: bool
    owner: Any
    has_no_stream: bool = False


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
        return _interface(value, interface, stream or LEGACY_STREAM)
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
    return ForeignGpuArray(
        tensor.data_ptr(),
        tuple(tensor.shape),
        torch_strides(tensor),
        numpy_type(torch_type(tensor)),
        ordinal,
        torch_stream(ordinal),
        is_read_only=False,
        owner=tensor,
    )


def _interface(value: Any, given: Mapping[str, Any], stream: int) -> ForeignGpuArray:
    address, is_read_only = given["data"]
    if "stream" not in given and hasattr(value, "block_until_ready"):
        _order_behind_jax(value, stream)
    return ForeignGpuArray(
        address,
        tuple(given["shape"]),
        interface_strides(value),
        numpy_type(given["typestr"]),
        None,
        given.get("stream"),
        is_read_only,
        owner=value,
        has_no_stream="stream" not in given,
    )


def _order_behind_jax(value: Any, stream: int) -> None:
    """Let a stream wait until JAX has computed an array.

    An export to DLPack queues that, and is dropped. The host waits instead where there is none, as
    for truth values in some versions of JAX.
    """
    try:
        value.__dlpack__(stream=stream)
    except Exception:
        value.block_until_ready()


def _dlpack(value: Any, stream: int) -> ForeignGpuArray:
    part = dlpack.import_view(value, stream=stream)
    return ForeignGpuArray(
        part.address,
        part.shape,
        part.strides,
        part.dtype,
        part.device[1] if part.device[0] in (dlpack.GPU, dlpack.ROCM) else None,
        None,
        part.is_read_only,
        part.owner,
        has_no_stream=True,
    )
