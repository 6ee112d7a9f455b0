"""Counter-based random draws: the definition that all backends and the interpreter are held to.

Each work item of a task of a launch has a stream, which is a number of 64 bits: two words of
Philox (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) of the seed, the
launch, the task and the work item. Its draws are the outputs of SplitMix64 (Steele, Lea, Flood:
"Fast splittable pseudorandom number generators", OOPSLA 2014) that starts there. So a draw depends
on its position alone, needs no state, and costs two or three products; the rounds of Philox are
computed once for a work item.

Two of n streams share some of their first k draws with a probability of about n * n * k / 2**64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from octants.ir import ops
from octants.ir.core import Module
from octants.types.scalars import DType, Kind, integer_range

ROUNDS = 7
"""Of Philox: the fewest that pass the tests of its authors, since SplitMix64 mixes once more."""

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)

GAMMA = 0x9E3779B97F4A7C15
"""The number that SplitMix64 adds from draw to draw."""

MIXING = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
LAST_SHIFT = 31

_MASK = 0xFFFFFFFF
_LONG_MASK = 0xFFFFFFFFFFFFFFFF


def has_draws(module: Module) -> bool:
    """Whether a module draws random numbers, so that its result depends on the launch."""
    return any(isinstance(op, (ops.Random, ops.RandomStream)) for op in module.walk())


def _product(word: int, factor: int) -> tuple[int, int]:
    return word * factor >> 32, word * factor & _MASK


def philox(
    counter: tuple[Any, Any, Any, Any],
    key: tuple[Any, Any],
    product: Callable[[Any, int], tuple[Any, Any]] = _product,
    rounds: int = ROUNDS,
) -> tuple[Any, Any, Any, Any]:
    """Philox4x32; all words are 32 bits: Python integers, or values of code.

    ``product`` gives the high and the low word of a word times a constant.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(rounds):
        (high0, low0), (high1, low1) = product(c0, MULTIPLIERS[0]), product(c2, MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + WEYL[0]) & _MASK, (k1 + WEYL[1]) & _MASK
    return c0, c1, c2, c3


def stream(seed: int, launch: int, task: int, item: int) -> int:
    """The 64 bits with which the draws of a work item begin.

    The counter is (item's low word, its high word, task, launch's low word), the key is the seed
    xor the launch's high word in its upper half.
    """
    counter = (item & _MASK, item >> 32 & _MASK, task & _MASK, launch & _MASK)
    low, high, _, _ = philox(counter, (seed & _MASK, ((seed ^ launch) >> 32) & _MASK))
    words: int = low | high << 32
    return words


def bits(stream: int, draw: int) -> int:
    """The 64 random bits of a draw, which are numbered from 0."""
    mixed = stream + (draw & _MASK) * GAMMA & _LONG_MASK
    for shift, factor in MIXING:
        mixed = (mixed ^ mixed >> shift) * factor & _LONG_MASK
    return mixed ^ mixed >> LAST_SHIFT


def drawn(dtype: DType, stream: int, draw: int) -> Any:
    """The uniform draw of a stream: a float in [0, 1), any integer, or a bool.

    The low word leads: its highest bits are the first digits of a float.
    """
    found = bits(stream, draw)
    if dtype.kind is Kind.FLOAT:
        return _unit_interval(dtype, found & _MASK, found >> 32)
    if dtype.kind is Kind.BOOL:
        return bool(found & 1)
    found &= (1 << dtype.bits) - 1
    _, high = integer_range(dtype)
    return found - (1 << dtype.bits) if found > high else found


def digits(dtype: DType) -> int:
    """As many leading bits as the mantissa holds, so that a float is exact and below one."""
    return {64: 53, 32: 24, 16: 11}[dtype.bits]


def _unit_interval(dtype: DType, low: int, high: int) -> float:
    if dtype.bits == 64:
        return (low << 21 ^ high >> 11) * 2.0**-53
    return float(np.float64(low >> (32 - digits(dtype))) * 2.0 ** -digits(dtype))
