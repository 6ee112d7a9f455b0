"""Splits an array into runs: pieces of memory without gaps, in address order."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from octants.lazy_dataclass import dataclass
from octants.runtime.memory.host import address_of

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class RunAxis:
    """An axis of runs: `extent` of them, `step` bytes spaced.

    Copies of the runs in contiguous memory are `packed` bytes spaced.
    """

    extent: int
    step: int
    packed: int


@dataclass(frozen=True, slots=True)
class AddressRuns:
    """Runs at equal distances: `count` of them, the first at `address`, `step` bytes spaced.

    `offset` and `packed_step` describe their copies in contiguous memory.
    """

    count: int
    address: int
    step: int
    offset: int
    packed_step: int


class Runs:
    """The runs of an array without negative strides.

    A run has `nbytes`. The first is at `address`, the others follow along `axes`, outermost first.
    `span` is the number of bytes from the first to the last.
    """

    __slots__ = ("address", "axes", "nbytes", "span")

    def __init__(self, array: Array) -> None:
        self.address = address_of(array)
        merged = _merged(array)
        self.nbytes = array.itemsize
        while merged and merged[-1][1] == self.nbytes:
            self.nbytes *= merged.pop()[0]
        self.axes = tuple(
            RunAxis(*axis, self.nbytes * math.prod(extent for extent, _ in merged[number + 1 :]))
            for number, axis in enumerate(merged)
        )
        self.span = self.nbytes + sum((axis.extent - 1) * axis.step for axis in self.axes)

    def rows(self) -> Iterator[AddressRuns]:
        """The runs, grouped along their longest axis."""
        spaced = [axis for axis in self.axes if axis.step >= self.nbytes]
        longest = max(spaced, key=lambda axis: axis.extent, default=RunAxis(1, 0, 0))
        others = [axis for axis in self.axes if axis is not longest]
        for index in np.ndindex(*(axis.extent for axis in others)):
            pairs = list(zip(index, others, strict=True))
            address = self.address + sum(k * axis.step for k, axis in pairs)
            offset = sum(k * axis.packed for k, axis in pairs)
            yield AddressRuns(longest.extent, address, longest.step, offset, longest.packed)


def packed_strides(array: Array) -> list[int]:
    """The strides, in bytes, of a contiguous copy in the order of an array's addresses."""
    strides, size = [array.itemsize] * array.ndim, array.itemsize
    for axis in reversed(order_of(array)):
        strides[axis] = size
        size *= array.shape[axis]
    return strides


def order_of(array: Array) -> list[int]:
    """The axes of more than one element, largest stride first."""
    axes = [axis for axis in range(array.ndim) if array.shape[axis] != 1]
    return sorted(axes, key=lambda axis: -array.strides[axis])


def _merged(array: Array) -> list[tuple[int, int]]:
    """The extents and strides of the axes, merged where neighbours have no gap between them."""
    merged: list[tuple[int, int]] = []
    for axis in order_of(array):
        extent, stride = array.shape[axis], array.strides[axis]
        if merged and merged[-1][1] == extent * stride:
            extent *= merged.pop()[0]
        merged.append((extent, stride))
    return merged
