"""Exports and imports arrays by DLPack: capsules around a C structure.

Exported memory stays alive until the other library calls the deleter, from any thread. Imported
memory stays alive until the capsule is dropped, which calls the deleter of its owner.
"""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Callable
from ctypes import POINTER, Structure, c_char_p, c_int64, c_void_p, py_object
from typing import Any

import numpy as np

from octants.lazy_dataclass import dataclass
from octants.runtime.arguments.conversions import numpy_type
from octants.runtime.c_declarations import fields
from octants.types.layouts import row_major

CPU = (1, 0)
"""Memory of the CPU: kDLCPU, number 0."""
GPU, PINNED, ROCM, MANAGED = 2, 3, 10, 13
"""The kinds of memory of CUDA: kDLCUDA, kDLCUDAHost, kDLCUDAManaged."""

VERSION = (1, 0)
READ_ONLY, IS_COPY = 1, 2
_NUMPY_KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}
_NUMBERS = {kind: number for number, kind in _NUMPY_KINDS.items()}
_PLAIN, _VERSIONED = b"dltensor", b"dltensor_versioned"


class DLTensor(Structure):
    """DLTensor; `strides` count elements."""

    _fields_ = fields(
        "uint64 data; int32 device, ordinal, rank; uint8 kind, bits; uint16 lanes; "
        "int64* shape, strides; uint64 offset"
    )


class Managed(Structure):
    """DLManagedTensor, of libraries before version 1."""

    _fields_ = fields("DLTensor tensor; void* context, deleter", DLTensor)


class ManagedVersioned(Structure):
    """DLManagedTensorVersioned."""

    _fields_ = fields(
        "uint32 major, minor; void* context, deleter; uint64 flags; DLTensor tensor", DLTensor
    )


_STRUCTURES: dict[bytes, type[Managed | ManagedVersioned]] = {
    _PLAIN: Managed,
    _VERSIONED: ManagedVersioned,
}


@dataclass(frozen=True)
class DlpackView:
    """An array in memory: `strides` are in bytes, `device` is DLPack's (kind, number).

    `owner` keeps it alive. `dtype` is None where numpy has no such type.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any] | None
    device: tuple[int, int]
    is_read_only: bool
    owner: Any


def _api(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new_capsule = _api("PyCapsule_New", py_object, c_void_p, c_char_p, c_void_p)
_name_of = _api("PyCapsule_GetName", c_char_p, py_object)
_pointer_of = _api("PyCapsule_GetPointer", c_void_p, py_object, c_char_p)
# The same for a capsule at an address, which is about to be freed.
_is_valid = _api("PyCapsule_IsValid", ctypes.c_int, c_void_p, c_char_p)
_pointer_at = _api("PyCapsule_GetPointer", c_void_p, c_void_p, c_char_p)
_fetch_error = _api("PyErr_Fetch", None)  # takes three references as they are, without checks
_restore_error = _api("PyErr_Restore", None, *[c_void_p] * 3)


# -- export ---------------------------------------------------------------------------------------

_exported: dict[int, tuple[Any, Any, DlpackView]] = {}


def export_capsule(part: DlpackView, *, versioned: bool, flags: int = 0) -> Any:
    """Export an array as a capsule; its memory lives until the other library releases it.

    The strides must be multiples of the size of an element.
    """
    structure = ManagedVersioned if versioned else Managed
    made, rank = structure(deleter=_deleter), len(part.shape)
    assert part.dtype is not None
    size = part.dtype.itemsize
    steps = [stride // size for stride in part.strides]
    extents = (c_int64 * (2 * rank))(*part.shape, *steps)
    tensor = made.tensor
    tensor.data = part.address
    tensor.device, tensor.ordinal = part.device
    tensor.kind, tensor.bits, tensor.lanes = _NUMBERS[part.dtype.kind], 8 * size, 1
    tensor.rank = rank
    first = ctypes.addressof(extents)
    tensor.shape = ctypes.cast(first, POINTER(c_int64))
    tensor.strides = ctypes.cast(first + 8 * rank, POINTER(c_int64))
    if isinstance(made, ManagedVersioned):
        made.major, made.minor = VERSION
        made.flags = flags | READ_ONLY * part.is_read_only
    address = ctypes.addressof(made)
    _exported[address] = made, extents, part
    return _new_capsule(address, _VERSIONED if versioned else _PLAIN, _destructor)


def export_count() -> int:
    """The number of exported arrays that other libraries still use."""
    return len(_exported)


def _make_callbacks() -> tuple[Any, Any]:
    """The deleter of exported memory, and the destructor of capsules.

    Both may be called after the interpreter has cleared modules, and use no globals.
    """
    is_valid, pointer_at, names, exported = _is_valid, _pointer_at, (_PLAIN, _VERSIONED), _exported
    fetch_error, restore_error = _fetch_error, _restore_error
    error = [c_void_p() for _ in range(3)]
    references = [ctypes.byref(each) for each in error]

    def end_export(address: int) -> None:
        exported.pop(address, None)

    def drop_capsule(capsule: int) -> None:
        # An exception may be active: save it, since Python must not be called with one set.
        fetch_error(*references)
        kept = [each.value for each in error]
        for name in names:
            if is_valid(capsule, name):  # no library has taken its content
                exported.pop(pointer_at(capsule, name), None)
        restore_error(*kept)

    return (
        ctypes.CFUNCTYPE(None, c_void_p)(end_export),
        ctypes.PYFUNCTYPE(None, c_void_p)(drop_capsule),
    )


_callbacks = _make_callbacks()
_deleter, _destructor = (ctypes.cast(each, c_void_p).value for each in _callbacks)


# Native code that may be called with any argument and after Python has ended, and does nothing.
# JAX's GPU runtime calls deleters without testing for null.
_no_op = ctypes.cast(ctypes.pythonapi.Py_IsInitialized, c_void_p).value


@atexit.register
def _forget() -> None:
    """Leave exported memory to other libraries, since no deleter can run after Python ends."""
    for made, *_ in list(_exported.values()):
        made.deleter = _no_op
    if _exported:
        for kept in (_exported, _callbacks):
            _api("Py_IncRef", None, py_object)(kept)


# -- import ---------------------------------------------------------------------------------------


def device_of(value: Any) -> tuple[int, int] | None:
    """The DLPack device of an array of another library; None if it does not report one."""
    tell = getattr(value, "__dlpack_device__", None)
    if tell is None:
        return None
    kind, number = tell()
    return int(kind), int(number)


def import_view(value: Any, **options: Any) -> DlpackView:
    """Import an array of another library that offers ``__dlpack__``.

    ``stream`` among the options is the stream that will use it, which the owner orders after its
    own work.
    """
    try:
        capsule = value.__dlpack__(max_version=VERSION, **options)
    except TypeError:  # a library from before version 1
        capsule = value.__dlpack__(**options)
    name = _name_of(capsule)
    managed = _STRUCTURES[name].from_address(_pointer_of(capsule, name))
    tensor = managed.tensor
    shape, size = tuple(tensor.shape[: tensor.rank]), tensor.bits // 8
    steps = tensor.strides[: tensor.rank] if tensor.strides else row_major(shape, 1)
    return DlpackView(
        tensor.data + tensor.offset,
        shape,
        tuple(size * step for step in steps),
        _dtype(tensor),
        (tensor.device, tensor.ordinal),
        bool(getattr(managed, "flags", 0) & READ_ONLY),
        (capsule, value),
    )


def _dtype(tensor: DLTensor) -> np.dtype[Any] | None:
    kind = _NUMPY_KINDS.get(tensor.kind)
    if kind is None or tensor.lanes != 1 or tensor.bits % 8:
        return None
    return numpy_type(f"{kind}{tensor.bits // 8}")
