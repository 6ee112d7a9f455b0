"""Counter-based random bits: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", SC 2011). The definition that every backend's `Random` is held to.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from octants.types.scalars import DType, Kind, integer_range

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
_MASK = 0xFFFFFFFF


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Ten rounds of Philox4x32; all words are 32 bits."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        first, second = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (second >> 32) ^ c1 ^ k0,
            second & _MASK,
            (first >> 32) ^ c3 ^ k1,
            first & _MASK,
        )
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


def _unit_interval(dtype: DType, w0: int, w1: int) -> float:
    """As many leading bits as the mantissa holds, so that the result is exact and below one."""
    if dtype.bits == 64:
        return (w0 << 21 ^ w1 >> 11) * 2.0**-53
    digits = 24 if dtype.bits == 32 else 11
    return float(np.float64(w0 >> (32 - digits)) * 2.0**-digits)
