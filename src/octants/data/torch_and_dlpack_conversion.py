"""Arrays to and from other libraries: torch and DLPack."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from octants.data.errors import WrongArray, describe
from octants.data.host_element_access import HostWindow
from octants.diagnostics.optional_dependencies import import_optional
from octants.runtime.device import Device
from octants.runtime.interop.foreign_arrays import view_at
from octants.runtime.memory.array_access import Saved

Array = np.ndarray[Any, Any]

_OF_THE_HOST = (1, 3)  # what DLPack calls the memory of CPUs, plain and pinned


def is_torch_tensor(value: Any) -> bool:
    """Whether this is a tensor of torch, which is not imported for it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def to_torch(values: Array, device: Any) -> Any:
    """A numpy array as a tensor that shares its memory, if ``device`` is the CPU."""
    torch = import_optional("torch", "torch")
    tensor = torch.from_numpy(values)
    return tensor if device is None else tensor.to(device)


class SharedMemory:
    """Memory of a device, for libraries that can share it."""

    def __init__(self, interface: dict[str, Any], owner: Any) -> None:
        self.__cuda_array_interface__ = interface
        self.owner = owner


def torch_of_memory(elements: Array | dict[str, Any], window: HostWindow, device: Device) -> Any:
    """A tensor that shares the memory of a window; of a device there is what tells of it."""
    if isinstance(elements, np.ndarray):
        return to_torch(elements, None)
    torch = import_optional("torch", "torch")
    shared = SharedMemory(elements, device.export_memory(window.storage))
    return torch.as_tensor(shared, device=f"cuda:{device.dlpack_device[1]}")


def writes_of(tensor: Any) -> int:
    """How often torch has written a tensor, or others that share its memory by torch's doing.

    0 for what is no tensor, and for those of which torch does not count the writes.
    """
    try:
        return int(tensor._version)
    except (AttributeError, RuntimeError):
        return 0


def torch_to_numpy(what: str, tensor: Any) -> Array:
    """The elements of a tensor on any device; memory on the CPU is shared."""
    if not is_torch_tensor(tensor):
        advice = "use `from_numpy` for a numpy array" if isinstance(tensor, np.ndarray) else ""
        raise WrongArray(what, describe(tensor), "a torch tensor", advice).at()
    try:
        values: Array = tensor.detach().cpu().resolve_conj().resolve_neg().numpy()
    except (TypeError, RuntimeError):
        given = f"one of {tensor.dtype}, {tensor.layout}"
        advice = "convert it with `.to(torch.float32)` or `.to_dense()`"
        raise WrongArray(what, given, "a dense tensor of numbers", advice).at() from None
    return values


def import_array(device: Device, what: str, source: Any) -> Saved | None:
    """The elements of an array of another library in the memory of a device; None elsewhere."""
    part = device.import_array(source, f"the array that {what} takes")
    if part is None:
        return None
    if part.dtype is None:
        raise WrongArray(what, "one of a type that the language has not", "numbers").at()
    elements = view_at(part.address, part.dtype, part.shape, part.strides)
    return Saved(elements, part.owner, device)


def from_dlpack(what: str, source: Any) -> Array:
    """The elements of an array of another library, shared."""
    if not hasattr(source, "__dlpack__"):
        needed = "an array that offers `__dlpack__`"
        raise WrongArray(what, describe(source), needed).at()
    if source.__dlpack_device__()[0] not in _OF_THE_HOST:
        given = f"one on device {tuple(source.__dlpack_device__())}"
        needed = "an array in the memory of the CPU, or of the device of `init`"
        raise WrongArray(what, given, needed, "copy it there first").at()
    if is_torch_tensor(source):
        return torch_to_numpy(what, source)
    try:
        values: Array = np.from_dlpack(source)
    except BufferError as error:
        advice = f"copy it: {error}"
        raise WrongArray(
            what, describe(source), "memory that DLPack describes", advice
        ).at() from None
    return values
