"""What the vectors of a target can do, as data: analyses choose by it which loops run in lanes."""

from __future__ import annotations

import functools

from octants.target import MOST_VECTORS, LaneCosts, Target, Vectors

_FEATURES = (("+avx512vl", 16), ("+avx2", 8), ("+neon", 4))
"""Of a target with so many lanes of 32 bits in a vector."""

OPERATIONS = (
    *("constant", "unary", "binary", "fma", "compare", "select", "cast", "bitcast"),
    *("float_to_int", "call", "random", "random_stream", "launch_state", "shape"),
    *("for", "while", "if", "yield"),
    *("load", "store", "atomic", "compare_exchange"),
    *("record_push", "record_pop", "record_end", "record_room", "record_reserve", "longest"),
)
"""The operations of `ir` that `lanes.operations` has handlers for, by their names in the text
form. That module is not asked, since it is imported only where code is generated."""

_COSTS = LaneCosts(call=4, new_tile=12, gathered=3.0, scattered=4.0, added=1.5, product_of_64=3)


def lanes_of_target(target: Target) -> int:
    """The lanes of a vector of 32 bits each; 0 where the target's vectors are none to rely on."""
    features = target.features.split(",")
    for feature, lanes in _FEATURES:
        if feature in features:
            return lanes
    return 0


@functools.cache
def vectors_of(target: Target, simd: str) -> Vectors:
    """The vectors of a target; ``simd`` is one of `AUTO`, `ALWAYS` and `NEVER`."""
    return Vectors(lanes_of_target(target), simd, OPERATIONS, _COSTS)


def most_lanes(target: Target) -> int:
    """The lanes of the widest tiles."""
    return lanes_of_target(target) * MOST_VECTORS
