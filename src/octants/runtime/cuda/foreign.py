"""Arrays of other libraries in the memory of a GPU: whose they are, where, and in which stream.

Three ways lead to them: torch's tensors, ``__cuda_array_interface__`` (version 3), and DLPack.
Nothing is copied.
"""

from __future__ import annotations

import ctypes
import math
import sys
from ctypes import POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from typing import Any

from octants.lazy_dataclass import dataclass
from octants.runtime.cuda.streams import LEGACY_STREAM

_DLPACK_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged
_KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}  # of DLPack, and of numpy


@dataclass(frozen=True)
class ForeignArray:
    """An array in the memory of a GPU.

    `strides` are bytes, those of a row-major array where the other library gave none. `type` is a
    type of numpy, such as "f4", and "" where it has no such type. `stream` is where its owner may
    still work on it, None where all is done or ordered already. `owner` keeps it alive.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    type: str
    ordinal: int | None
    stream: int | None
    is_read_only: bool
    owner: Any


def foreign_array(value: Any, stream: int = 0) -> ForeignArray | None:
    """What another library says of an array on a GPU; None if it is none.

    ``stream`` is the one that will use it; owners that speak DLPack let it wait for them. The
    ordinal is None where the owner does not tell it.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _tensor(value) if value.device.type == "cuda" else None
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        return _interface(value, interface)
    if hasattr(value, "__dlpack__") and value.__dlpack_device__()[0] in _DLPACK_CUDA:
        return _dlpack(value, stream or LEGACY_STREAM)
    return None


def torch_stream(ordinal: int) -> int:
    """The stream of a GPU in which torch works in this thread; 0 if it does not work there."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    handle: int = torch.cuda.current_stream(ordinal).cuda_stream
    return handle


def array_interface(
    address: int, shape: tuple[int, ...], strides: tuple[int, ...], type: str, stream: int
) -> dict[str, Any]:
    """The ``__cuda_array_interface__`` of memory on which a stream may still be at work."""
    return {
        "shape": shape,
        "strides": strides,
        "typestr": type,
        "data": (address if math.prod(shape) else 0, False),
        "version": 3,
        "stream": stream or LEGACY_STREAM,
    }


def _tensor(tensor: Any) -> ForeignArray:
    ordinal = tensor.device.index
    size = tensor.element_size()
    name = str(tensor.dtype).removeprefix("torch.")
    return ForeignArray(
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


def _interface(value: Any, interface: dict[str, Any]) -> ForeignArray:
    shape = tuple(interface["shape"])
    name = interface["typestr"].lstrip("<|=")
    strides = interface.get("strides")
    address, is_read_only = interface["data"]
    return ForeignArray(
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


class _Tensor(Structure):
    """DLTensor."""

    _fields_ = [
        ("data", c_uint64),
        ("device", c_int32),
        ("ordinal", c_int32),
        ("rank", c_int32),
        ("kind", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("offset", c_uint64),
    ]


def _dlpack(value: Any, stream: int) -> ForeignArray:
    """The capsule stays as it is, and ends the loan when it is dropped."""
    capsule = value.__dlpack__(stream=stream)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _Tensor.from_address(pointer(capsule, b"dltensor"))
    shape = tuple(tensor.shape[: tensor.rank])
    size = tensor.bits // 8
    is_known = tensor.lanes == 1 and tensor.kind in _KINDS and tensor.bits % 8 == 0
    strides = _row_major(shape, size)
    if tensor.strides:
        strides = tuple(size * stride for stride in tensor.strides[: tensor.rank])
    return ForeignArray(
        tensor.data + tensor.offset,
        shape,
        strides,
        f"{_KINDS[tensor.kind]}{size}" if is_known else "",
        tensor.ordinal,
        None,
        is_read_only=False,
        owner=(capsule, value),
    )
