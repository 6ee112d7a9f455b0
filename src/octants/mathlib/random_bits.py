"""Random bits at a position, as `ir.philox` defines them."""

from __future__ import annotations

from octants.ir.philox import philox
from octants.mathlib.number import Number
from octants.types.scalars import u32, u64


def random_bits(draw: Number, item: Number, task: Number, seed: Number, launch: Number) -> Number:
    """The first two words of the ten rounds as a u64, the first one in its low half.

    Of a draw and a task (u32), and a work item, a seed and the number of a launch (u64).
    """
    mixed = seed ^ launch
    counter = draw, item.to(u32), _high(item) ^ task, launch.to(u32)
    low, high, _, _ = philox(counter, (seed.to(u32), _high(mixed)), _product)
    words: list[Number] = [low.to(u64), high.to(u64)]
    return (words[1] << 32) | words[0]


def _high(x: Number) -> Number:
    return x.apply("ushr", 32).to(u32)


def _product(word: Number, factor: int) -> tuple[Number, Number]:
    both = word.to(u64) * factor
    return _high(both), both.to(u32)
