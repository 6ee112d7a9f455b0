"""As much of torch's CPU tensors as launches touch, for machines without torch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Device(NamedTuple):
    """What a tensor's `device` tells."""

    type: str
    index: int | None = None


class Tensor:
    """A tensor over numpy memory."""

    is_leaf = True
    is_cuda = False

    def __init__(self, array: Any, requires_grad: bool = False, device: str = "cpu") -> None:
        self.array = np.asarray(array)
        self.requires_grad = requires_grad
        self.grad: Tensor | None = None
        self.device = Device(device)

    @property
    def dtype(self) -> str:
        return f"torch.{self.array.dtype.name}"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def numel(self) -> int:
        return self.array.size

    def dim(self) -> int:
        return self.array.ndim

    def data_ptr(self) -> int:
        return self.array.__array_interface__["data"][0]

    def is_contiguous(self) -> bool:
        return self.array.flags.c_contiguous

    is_nested = False

    def is_neg(self) -> bool:
        return False

    layout = "torch.strided"

    def stride(self) -> tuple[int, ...]:
        return tuple(stride // self.array.itemsize for stride in self.array.strides)

    def element_size(self) -> int:
        return self.array.itemsize

    def contiguous(self) -> Tensor:
        return Tensor(np.ascontiguousarray(self.array))

    def detach(self) -> Tensor:
        return Tensor(self.array)

    def numpy(self) -> Any:
        return self.array

    def new_zeros(self, shape: tuple[int, ...]) -> Tensor:
        return Tensor(np.zeros(shape, self.array.dtype))


def tensor(values: Any, **options: Any) -> Tensor:
    return Tensor(np.array(values, np.float32), **options)
