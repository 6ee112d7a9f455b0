"""Arrays of other libraries in place of ndarrays, and the memory around them.

Contiguous arrays lie between signalling NaNs, which become quiet if a program adds anything to
them, even a zero of either sign, and show in results that read them. So it is noticed if code for
lanes accesses elements that it should have masked.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from octants.fuzz.program import FloatArray

_SIGNALLING = {2: 0x7D01, 4: 0x7FA0_0001, 8: 0x7FF4_0000_0000_0001}
"""The bits of signalling NaNs, by their number of bytes."""
_AROUND = 64
"""How many elements lie before an array, and as many behind it: arrays are aligned as before."""


class Surroundings:
    """The memory around the arrays of a program."""

    def __init__(self) -> None:
        self._memories: list[tuple[str, FloatArray, bytes]] = []

    def foreign(self, name: str, kind: str, array: Any, has_grad: bool) -> Any:
        """An array of numpy or a tensor, with a gradient, like an ndarray of ours."""
        values = array.to_numpy()
        if kind == "strided":
            return strided(values)
        if kind == "numpy":
            return self.zeros(name, values)
        torch = importlib.import_module("torch")
        if not hasattr(torch, values.dtype.name):
            return array
        tensor = torch.from_numpy(self.zeros(name, values))
        if has_grad:
            tensor.grad = torch.from_numpy(self.zeros(f"{name}.grad", values))
        return tensor

    def zeros(self, name: str, values: FloatArray) -> FloatArray:
        """Zeros of the same shape and type, between other elements."""
        memory = np.zeros(values.size + 2 * _AROUND, values.dtype)
        if values.dtype.kind == "f":
            memory.view(f"u{memory.itemsize}")[...] = _SIGNALLING[memory.itemsize]
        inside: FloatArray = memory[_AROUND : memory.size - _AROUND].reshape(values.shape)
        inside[...] = 0
        self._memories.append((name, memory, _around(memory)))
        return inside

    def check(self) -> None:
        """Raise an error if an element around an array has changed."""
        for name, memory, before in self._memories:
            if _around(memory) != before:
                raise AssertionError(f"memory outside of `{name}` was written")


def _around(memory: FloatArray) -> bytes:
    return memory[:_AROUND].tobytes() + memory[memory.size - _AROUND :].tobytes()


def strided(values: FloatArray) -> FloatArray:
    """An array of the same shape: reversed, column by column, or every third of other elements."""
    kind = values.size % 3
    if kind == 0:
        return np.zeros_like(values)[::-1]
    if kind == 1 and values.ndim > 1:
        return np.zeros_like(values, order="F")
    wide: FloatArray = np.zeros((*values.shape[:-1], 3 * values.shape[-1]), values.dtype)
    return wide[..., 1::3]


def like(array: Any, values: FloatArray) -> Any:
    """Values as what an array can be assigned."""
    if isinstance(array, np.ndarray):
        return values
    return importlib.import_module("torch").as_tensor(np.array(values)).to(array.dtype)
