"""The random stream of a work item, as `ir.random_draws` defines it."""

from __future__ import annotations

from octants.ir.random_draws import philox
from octants.mathlib.ir_number import Number
from octants.types.scalars import u32, u64


def random_stream(item: Number, task: Number, seed: Number, launch: Number) -> Number:
    """The first two words of Philox as a u64, the first one in its low half; all are u64."""
    counter = item.to(u32), _high(item), task.to(u32), launch.to(u32)
    low, high, _, _ = philox(counter, (seed.to(u32), _high(seed ^ launch)), _product)
    words: list[Number] = [low.to(u64), high.to(u64)]
    return (words[1] << 32) | words[0]


def _high(x: Number) -> Number:
    return x.apply("ushr", 32).to(u32)


def _product(word: Number, factor: int) -> tuple[Number, Number]:
    both = word.to(u64) * factor
    return _high(both), both.to(u32)
