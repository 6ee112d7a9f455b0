"""The layouts of the elements of arrays in memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from octants.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """One summand of an address: ``(index[axis] // divisor % modulus) * stride`` bytes.

    A modulus of 0 means that nothing is cut off.
    """

    axis: int
    divisor: int
    modulus: int
    stride: int


@dataclass(frozen=True, slots=True)
class Strided:
    """The layout of an array argument whose strides, in bytes, are parameters of the launch."""


STRIDED = Strided()


@dataclass(frozen=True, slots=True)
class Layout:
    """The byte offset of an element of a field, relative to its first one.

    `shape` has one extent per index, without those of the element; `element_strides` has one
    stride in bytes per index of the element. The address of the first element is a launch
    parameter, so that fields with equal layouts share their kernels.
    """

    shape: tuple[int, ...]
    terms: tuple[Term, ...]
    element_strides: tuple[int, ...] = ()

    def spanned_bytes(self, element_shape: Sequence[int], size: int) -> int:
        """The bytes from the first element to the end of the last one, of ``size`` bytes."""
        for term in self.terms:
            last = (self.shape[term.axis] - 1) // term.divisor
            size += term.stride * (min(last, term.modulus - 1) if term.modulus else last)
        for extent, stride in zip(element_shape, self.element_strides, strict=True):
            size += stride * (extent - 1)
        return size


def one_axis(count: int, size: int) -> Layout:
    """The layout of ``count`` elements of ``size`` bytes without gaps."""
    return Layout((count,), (Term(0, 1, 0, size),))


def row_major(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """The strides of a row-major array of elements of ``size`` bytes."""
    return _row_major(tuple(shape), size)


@functools.lru_cache(1024)
def _row_major(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    return tuple(size * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
