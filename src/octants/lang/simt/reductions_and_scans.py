"""Reductions and scans over the lanes of a subgroup: a part of `subgroup`."""

from __future__ import annotations

from typing import Any

from octants.lang.library_function_marks import kernel_only

# -- reductions ------------------------------------------------------------------------------------


@kernel_only
def reduce_add(value: Any) -> Any:
    """The sum of the values of all lanes, in each of them."""


@kernel_only
def reduce_add_tiled(value: Any, log2_size: int) -> Any:
    """`reduce_add` within each aligned group of ``2 ** log2_size`` lanes."""


@kernel_only
def reduce_mul(value: Any) -> Any:
    """The product of the values of all lanes, in each of them."""


@kernel_only
def reduce_mul_tiled(value: Any, log2_size: int) -> Any:
    """`reduce_mul` within each aligned group of ``2 ** log2_size`` lanes."""


@kernel_only
def reduce_min(value: Any) -> Any:
    """The least of the values of all lanes, in each of them."""


@kernel_only
def reduce_min_tiled(value: Any, log2_size: int) -> Any:
    """`reduce_min` within each aligned group of ``2 ** log2_size`` lanes."""


@kernel_only
def reduce_max(value: Any) -> Any:
    """The largest of the values of all lanes, in each of them."""


@kernel_only
def reduce_max_tiled(value: Any, log2_size: int) -> Any:
    """`reduce_max` within each aligned group of ``2 ** log2_size`` lanes."""


@kernel_only
def reduce_and(value: Any) -> Any:
    """The bitwise and of the values of all lanes, in each of them."""


@kernel_only
def reduce_and_tiled(value: Any, log2_size: int) -> Any:
    """`reduce_and` within each aligned group of ``2 ** log2_size`` lanes."""


@kernel_only
def reduce_or(value: Any) -> Any:
    """The bitwise or of the values of all lanes, in each of them."""


@kernel_only
def reduce_or_tiled(value: Any, log2_size: int) -> Any:
    """`reduce_or` within each aligned group of ``2 ** log2_size`` lanes."""


@kernel_only
def reduce_xor(value: Any) -> Any:
    """The bitwise exclusive or of the values of all lanes, in each of them."""


@kernel_only
def reduce_xor_tiled(value: Any, log2_size: int) -> Any:
    """`reduce_xor` within each aligned group of ``2 ** log2_size`` lanes."""


# -- scans -----------------------------------------------------------------------------------------


@kernel_only
def inclusive_add(value: Any) -> Any:
    """The sum of the values of the lanes up to the own one."""


@kernel_only
def inclusive_add_tiled(value: Any, log2_size: int) -> Any:
    """`inclusive_add` within each aligned group of ``2 ** log2_size`` lanes."""


@kernel_only
def inclusive_mul(value: Any) -> Any:
    """The product of the values of the lanes up to the own one."""


@kernel_only
def inclusive_mul_tiled(value: Any, log2_size: int) -> Any:
    """`inclusive_mul` within each aligned group of ``2 ** log2_size`` lanes."""


@kernel_only
def inclusive_min(value: Any) -> Any:
    """The least of the values of the lanes up to the own one."""


@kernel_only
def inclusive_min_tiled(value: Any, log2_size: int) -> Any:
    """`inclusive_min` within each aligned group of ``2 ** log2_size`` lanes."""


@kernel_only
def inclusive_max(value: Any) -> Any:
    """The largest of the values of the lanes up to the own one."""


@kernel_only
def inclusive_max_tiled(value: Any, log2_size: int) -> Any:
    """`inclusive_max` within each aligned group of ``2 ** log2_size`` lanes."""


@kernel_only
def inclusive_and(value: Any) -> Any:
    """The bitwise and of the values of the lanes up to the own one."""


@kernel_only
def inclusive_and_tiled(value: Any, log2_size: int) -> Any:
    """`inclusive_and` within each aligned group of ``2 ** log2_size`` lanes."""


@kernel_only
def inclusive_or(value: Any) -> Any:
    """The bitwise or of the values of the lanes up to the own one."""


@kernel_only
def inclusive_or_tiled(value: Any, log2_size: int) -> Any:
    """`inclusive_or` within each aligned group of ``2 ** log2_size`` lanes."""


@kernel_only
def inclusive_xor(value: Any) -> Any:
    """The bitwise exclusive or of the values of the lanes up to the own one."""


@kernel_only
def inclusive_xor_tiled(value: Any, log2_size: int) -> Any:
    """`inclusive_xor` within each aligned group of ``2 ** log2_size`` lanes."""


@kernel_only
def exclusive_add(value: Any) -> Any:
    """The sum of the values of the lanes before the own one."""


@kernel_only
def exclusive_add_tiled(value: Any, log2_size: int) -> Any:
    """`exclusive_add` within each aligned group of ``2 ** log2_size`` lanes."""


@kernel_only
def exclusive_mul(value: Any) -> Any:
    """The product of the values of the lanes before the own one."""


@kernel_only
def exclusive_mul_tiled(value: Any, log2_size: int) -> Any:
    """`exclusive_mul` within each aligned group of ``2 ** log2_size`` lanes."""


@kernel_only
def exclusive_min(value: Any) -> Any:
    """The least of the values of the lanes before the own one."""


@kernel_only
def exclusive_min_tiled(value: Any, log2_size: int) -> Any:
    """`exclusive_min` within each aligned group of ``2 ** log2_size`` lanes."""


@kernel_only
def exclusive_max(value: Any) -> Any:
    """The largest of the values of the lanes before the own one."""


@kernel_only
def exclusive_max_tiled(value: Any, log2_size: int) -> Any:
    """`exclusive_max` within each aligned group of ``2 ** log2_size`` lanes."""


@kernel_only
def exclusive_and(value: Any) -> Any:
    """The bitwise and of the values of the lanes before the own one."""


@kernel_only
def exclusive_and_tiled(value: Any, log2_size: int) -> Any:
    """`exclusive_and` within each aligned group of ``2 ** log2_size`` lanes."""


@kernel_only
def exclusive_or(value: Any) -> Any:
    """The bitwise or of the values of the lanes before the own one."""


@kernel_only
def exclusive_or_tiled(value: Any, log2_size: int) -> Any:
    """`exclusive_or` within each aligned group of ``2 ** log2_size`` lanes."""


@kernel_only
def exclusive_xor(value: Any) -> Any:
    """The bitwise exclusive or of the values of the lanes before the own one."""


@kernel_only
def exclusive_xor_tiled(value: Any, log2_size: int) -> Any:
    """`exclusive_xor` within each aligned group of ``2 ** log2_size`` lanes."""


# -- other names -----------------------------------------------------------------------------------

reduce_all_add, reduce_all_add_tiled = reduce_add, reduce_add_tiled
reduce_all_min, reduce_all_min_tiled = reduce_min, reduce_min_tiled
reduce_all_max, reduce_all_max_tiled = reduce_max, reduce_max_tiled
