"""Arrays to and from other libraries: torch and DLPack."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from octants.data.errors import CannotShare, WrongArray, describe
from octants.diagnostics.extras import import_optional

Array = np.ndarray[Any, Any]

CPU = (1, 0)
"""The device of CPU memory in DLPack: kDLCPU, number 0."""


def is_torch_tensor(value: Any) -> bool:
    """Whether this is a tensor of torch, which is not imported for it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def to_torch(values: Array, device: Any) -> Any:
    """A numpy array as a tensor that shares its memory, if ``device`` is the CPU."""
    torch = import_optional("torch", "torch")
    tensor = torch.from_numpy(values)
    return tensor if device is None else tensor.to(device)


class Shared:
    """Memory of a device, for libraries that can share it."""

    def __init__(self, interface: dict[str, Any], owner: Any) -> None:
        self.__cuda_array_interface__ = interface
        self.owner = owner


def torch_of_memory(elements: Array | dict[str, Any], owner: Any) -> Any:
    """A tensor that shares memory, and keeps ``owner`` alive; of a device what tells of it."""
    if isinstance(elements, np.ndarray):
        return to_torch(elements, None)
    torch = import_optional("torch", "torch")
    return torch.as_tensor(Shared(elements, owner), device="cuda")


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
        raise WrongArray(what, describe(tensor), "a torch tensor", advice).at(None)
    try:
        values: Array = tensor.detach().cpu().resolve_conj().resolve_neg().numpy()
    except (TypeError, RuntimeError):
        given = f"one of {tensor.dtype}, {tensor.layout}"
        advice = "convert it with `.to(torch.float32)` or `.to_dense()`"
        raise WrongArray(what, given, "a dense tensor of numbers", advice).at(None) from None
    return values


def to_dlpack(values: Array, versioned: bool) -> Any:
    """A capsule that shares the memory of a numpy array and keeps it alive."""
    if not versioned:
        return values.__dlpack__()
    try:
        return values.__dlpack__(max_version=(1, 0))
    except TypeError:
        problem = f"numpy {np.__version__} has no versioned capsules"
        raise CannotShare("to_dlpack()", problem, "leave out `versioned=True`").at(None) from None


def from_dlpack(what: str, source: Any) -> Array:
    """The elements of an array of another library, shared."""
    if not hasattr(source, "__dlpack__"):
        needed = "an array that offers `__dlpack__`"
        raise WrongArray(what, describe(source), needed).at(None)
    if source.__dlpack_device__()[0] != CPU[0]:
        given = f"one on device {tuple(source.__dlpack_device__())}"
        raise WrongArray(what, given, "an array in CPU memory", "copy it there first").at(None)
    if is_torch_tensor(source):
        return torch_to_numpy(what, source)
    values: Array = np.from_dlpack(source)
    return values
