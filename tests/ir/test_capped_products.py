"""Products of extents are exact up to 2^62, and never wrap."""

from __future__ import annotations

import random

import pytest

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.capped_products import FAR, build_capped_product, uncapped_product
from octants.ir.core import Value
from octants.types.scalars import i32, i64

_ENDS = (0, 1, 2, 3, 1 << 21, (1 << 31) - 1, 1 << 31, (1 << 32) + 5, FAR - 1, FAR, (1 << 63) - 1)
_NARROW = (1 << 31) - 1


@pytest.mark.parametrize("largest", [_NARROW, (1 << 63) - 1])
def test_is_exact_or_far(largest: int) -> None:
    rng = random.Random(0)
    numbers = [*_ENDS, *(rng.randrange(1 << rng.randrange(1, 64)) for _ in range(60))]
    builder = Builder()
    for total in numbers:
        for extent in [n for n in numbers if n <= largest]:
            values = builder.constant(total, i64), builder.constant(extent, i64)
            made = builder.constant_of(build_capped_product(builder, *values, largest))
            exact = total * extent
            assert made == exact < 1 << 63 or (made == FAR and exact >= FAR), (total, extent)


def test_analyses_find_the_product() -> None:
    builder = Builder()
    total, extent = Value(i64), builder.cast(Value(i32), i64)
    capped = build_capped_product(builder, total, extent, _NARROW)
    definitions = {value: op for op in builder.block.ops for value in op.results}
    product = uncapped_product(definitions[capped], definitions)
    assert product is not None
    found = definitions[product]
    assert isinstance(found, ops.Binary)
    assert (found.fn, found.lhs, found.rhs) == ("mul", total, extent)


def test_analyses_find_no_product_under_another_condition() -> None:
    builder = Builder()
    total, extent = Value(i64), Value(i64)
    product, far = builder.binary("mul", total, extent), builder.constant(FAR, i64)
    for condition in (
        builder.compare("ge", total, builder.constant(1 << 31, i64)),
        builder.compare("ge", product, builder.constant(1 << 31, i64)),
    ):
        chosen = builder.select(condition, far, product)
        definitions = {value: op for op in builder.block.ops for value in op.results}
        assert uncapped_product(definitions[chosen], definitions) is None
