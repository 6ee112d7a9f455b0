"""The capabilities of a target's vectors, as data for the analyses that choose loops for lanes."""

from __future__ import annotations

import functools

from octants.target import MOST_VECTORS, LaneCosts, Target, Vectors

_FEATURES = (("+avx512vl", 16), ("+avx2", 8), ("+neon", 4))
"""Target features, and the 32-bit lanes of their vectors."""

OPERATIONS = (
    *("constant", "unary", "binary", "fma", "compare", "select", "cast", "bitcast", "extract"),
    *("float_to_int", "call", "random", "random_stream", "launch_constant", "shape"),
    *("for", "while", "if", "yield"),
    *("load", "store", "atomic", "compare_exchange"),
    *("record_push", "record_pop", "record_end", "record_capacity", "record_reserve", "longest"),
)
"""The operations of `ir` with handlers in `lanes.operations`, by their names in the text form.

That module is imported only to generate code, so the names are listed here.
"""

_COSTS = LaneCosts(call=4, new_tile=12, gathered=3.0, scattered=4.0, added=1.5, product_of_64=3)


def lanes_of_target(target: Target) -> int:
    """Return the 32-bit lanes of a vector; 0 if the target guarantees no vectors."""
    features = target.features.split(",")
    for feature, lanes in _FEATURES:
        if feature in features:
            return lanes
    return 0


@functools.cache
def vectors_of(target: Target, simd: str) -> Vectors:
    """Return the vectors of a target; ``simd`` is one of `AUTO`, `ALWAYS` and `NEVER`."""
    return Vectors(lanes_of_target(target), simd, OPERATIONS, _COSTS)


def most_lanes(target: Target) -> int:
    """Return the lanes of the widest tiles."""
    return lanes_of_target(target) * MOST_VECTORS
