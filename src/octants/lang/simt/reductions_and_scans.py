"""Reductions and scans over the lanes of a subgroup: a part of `subgroup`.

Each function has a counterpart that ends in ``_tiled``, which does the same within each aligned
group of ``2 ** log2_size`` lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octants.lang.library_function_marks import kernel_only, named

_OfLanes = Callable[[Any], Any]
_OfTiles = Callable[[Any, int], Any]


def _combining(name: str, result: str, lanes: str) -> tuple[_OfLanes, _OfTiles]:
    """A function that combines the values of some lanes, and its counterpart."""

    def combine(value: Any) -> Any: ...
    def combine_tiled(value: Any, log2_size: int) -> Any: ...

    within = f"`{name}` within each aligned group of ``2 ** log2_size`` lanes."
    return (
        kernel_only(named(combine, name, f"{result} of the values of {lanes}.")),
        kernel_only(named(combine_tiled, f"{name}_tiled", within)),
    )


_ALL = "all lanes, in each of them"
reduce_add, reduce_add_tiled = _combining("reduce_add", "The sum", _ALL)
reduce_mul, reduce_mul_tiled = _combining("reduce_mul", "The product", _ALL)
reduce_min, reduce_min_tiled = _combining("reduce_min", "The least", _ALL)
reduce_max, reduce_max_tiled = _combining("reduce_max", "The largest", _ALL)
reduce_and, reduce_and_tiled = _combining("reduce_and", "The bitwise and", _ALL)
reduce_or, reduce_or_tiled = _combining("reduce_or", "The bitwise or", _ALL)
reduce_xor, reduce_xor_tiled = _combining("reduce_xor", "The bitwise exclusive or", _ALL)

_UP_TO = "the lanes up to the own one"
inclusive_add, inclusive_add_tiled = _combining("inclusive_add", "The sum", _UP_TO)
inclusive_mul, inclusive_mul_tiled = _combining("inclusive_mul", "The product", _UP_TO)
inclusive_min, inclusive_min_tiled = _combining("inclusive_min", "The least", _UP_TO)
inclusive_max, inclusive_max_tiled = _combining("inclusive_max", "The largest", _UP_TO)
inclusive_and, inclusive_and_tiled = _combining("inclusive_and", "The bitwise and", _UP_TO)
inclusive_or, inclusive_or_tiled = _combining("inclusive_or", "The bitwise or", _UP_TO)
inclusive_xor, inclusive_xor_tiled = _combining("inclusive_xor", "The bitwise exclusive or", _UP_TO)

_BEFORE = "the lanes before the own one"
exclusive_add, exclusive_add_tiled = _combining("exclusive_add", "The sum", _BEFORE)
exclusive_mul, exclusive_mul_tiled = _combining("exclusive_mul", "The product", _BEFORE)
exclusive_min, exclusive_min_tiled = _combining("exclusive_min", "The least", _BEFORE)
exclusive_max, exclusive_max_tiled = _combining("exclusive_max", "The largest", _BEFORE)
exclusive_and, exclusive_and_tiled = _combining("exclusive_and", "The bitwise and", _BEFORE)
exclusive_or, exclusive_or_tiled = _combining("exclusive_or", "The bitwise or", _BEFORE)
exclusive_xor, exclusive_xor_tiled = _combining(
    "exclusive_xor", "The bitwise exclusive or", _BEFORE
)

# -- other names -----------------------------------------------------------------------------------

reduce_all_add, reduce_all_add_tiled = reduce_add, reduce_add_tiled
reduce_all_min, reduce_all_min_tiled = reduce_min, reduce_min_tiled
reduce_all_max, reduce_all_max_tiled = reduce_max, reduce_max_tiled
