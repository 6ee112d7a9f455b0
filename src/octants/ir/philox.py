"""Counter-based random bits: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", SC 2011). The definition that every backend's `Random` is held to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from octants.types.scalars import DType, Kind, integer_range

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
_MASK = 0xFFFFFFFF


def _product(word: int, factor: int) -> tuple[int, int]:
    return word * factor >> 32, word * factor & _MASK


def philox(
    counter: tuple[Any, Any, Any, Any],
    key: tuple[Any, Any],
    product: Callable[[Any, int], tuple[Any, Any]] = _product,
) -> tuple[Any, Any, Any, Any]:
    """Ten rounds of Philox4x32; all words are 32 bits: Python integers, or values of code.

    ``product`` gives the high and the low word of a word times a constant.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        (high0, low0), (high1, low1) = product(c0, MULTIPLIERS[0]), product(c2, MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + WEYL[0]) & _MASK, (k1 + WEYL[1]) & _MASK
    return c0, c1, c2, c3


def draw(dtype: DType, seed: int, launch: int, task: int, item: int, draw: int) -> Any:
    """The uniform draw at a position: a float in [0, 1), any integer, or a bool.

    The counter is (draw, item's low word, item's high word xor task, launch's low word), the key is
    the seed xor the launch's high word in its upper half.
    """
    item &= 0xFFFFFFFFFFFFFFFF
    counter = (draw & _MASK, item & _MASK, (item >> 32) ^ (task & _MASK), launch & _MASK)
    w0, w1, _, _ = philox(counter, (seed & _MASK, ((seed ^ launch) >> 32) & _MASK))
    if dtype.kind is Kind.FLOAT:
        return _unit_interval(dtype, w0, w1)
    if dtype.kind is Kind.BOOL:
        return bool(w0 & 1)
    bits = (w0 | w1 << 32) & ((1 << dtype.bits) - 1)
    _, high = integer_range(dtype)
    return bits - (1 << dtype.bits) if bits > high else bits


def digits(dtype: DType) -> int:
    """As many leading bits as the mantissa holds, so that a float is exact and below one."""
    return {64: 53, 32: 24, 16: 11}[dtype.bits]


def _unit_interval(dtype: DType, w0: int, w1: int) -> float:
    if dtype.bits == 64:
        return (w0 << 21 ^ w1 >> 11) * 2.0**-53
    return float(np.float64(w0 >> (32 - digits(dtype))) * 2.0 ** -digits(dtype))
