"""The work items of a subgroup: neighbours in a block that run in step, one in each lane.

All lanes of a subgroup have to come to each of these functions, but for those that only tell
numbers. A subgroup at the end of a loop may have fewer work items than lanes; lanes without one
have no part. Functions that end in ``_tiled`` are for aligned groups of ``2 ** log2_size`` lanes,
at most a subgroup. Floats are added and multiplied in an order that is the machine's.
"""

from __future__ import annotations

from typing import Any

from octants.lang.function_marks import kernel_only, library_function
from octants.lang.scalar_functions import clz
from octants.lang.scalar_functions import max as larger
from octants.lang.scalar_functions import min as smaller
from octants.lang.simt.reductions_and_scans import exclusive_add as exclusive_add
from octants.lang.simt.reductions_and_scans import exclusive_add_tiled as exclusive_add_tiled
from octants.lang.simt.reductions_and_scans import exclusive_and as exclusive_and
from octants.lang.simt.reductions_and_scans import exclusive_and_tiled as exclusive_and_tiled
from octants.lang.simt.reductions_and_scans import exclusive_max as exclusive_max
from octants.lang.simt.reductions_and_scans import exclusive_max_tiled as exclusive_max_tiled
from octants.lang.simt.reductions_and_scans import exclusive_min as exclusive_min
from octants.lang.simt.reductions_and_scans import exclusive_min_tiled as exclusive_min_tiled
from octants.lang.simt.reductions_and_scans import exclusive_mul as exclusive_mul
from octants.lang.simt.reductions_and_scans import exclusive_mul_tiled as exclusive_mul_tiled
from octants.lang.simt.reductions_and_scans import exclusive_or as exclusive_or
from octants.lang.simt.reductions_and_scans import exclusive_or_tiled as exclusive_or_tiled
from octants.lang.simt.reductions_and_scans import exclusive_xor as exclusive_xor
from octants.lang.simt.reductions_and_scans import exclusive_xor_tiled as exclusive_xor_tiled
from octants.lang.simt.reductions_and_scans import inclusive_add as inclusive_add
from octants.lang.simt.reductions_and_scans import inclusive_add_tiled as inclusive_add_tiled
from octants.lang.simt.reductions_and_scans import inclusive_and as inclusive_and
from octants.lang.simt.reductions_and_scans import inclusive_and_tiled as inclusive_and_tiled
from octants.lang.simt.reductions_and_scans import inclusive_max as inclusive_max
from octants.lang.simt.reductions_and_scans import inclusive_max_tiled as inclusive_max_tiled
from octants.lang.simt.reductions_and_scans import inclusive_min as inclusive_min
from octants.lang.simt.reductions_and_scans import inclusive_min_tiled as inclusive_min_tiled
from octants.lang.simt.reductions_and_scans import inclusive_mul as inclusive_mul
from octants.lang.simt.reductions_and_scans import inclusive_mul_tiled as inclusive_mul_tiled
from octants.lang.simt.reductions_and_scans import inclusive_or as inclusive_or
from octants.lang.simt.reductions_and_scans import inclusive_or_tiled as inclusive_or_tiled
from octants.lang.simt.reductions_and_scans import inclusive_xor as inclusive_xor
from octants.lang.simt.reductions_and_scans import inclusive_xor_tiled as inclusive_xor_tiled
from octants.lang.simt.reductions_and_scans import reduce_add as reduce_add
from octants.lang.simt.reductions_and_scans import reduce_add_tiled as reduce_add_tiled
from octants.lang.simt.reductions_and_scans import reduce_and as reduce_and
from octants.lang.simt.reductions_and_scans import reduce_and_tiled as reduce_and_tiled
from octants.lang.simt.reductions_and_scans import reduce_max as reduce_max
from octants.lang.simt.reductions_and_scans import reduce_max_tiled as reduce_max_tiled
from octants.lang.simt.reductions_and_scans import reduce_min as reduce_min
from octants.lang.simt.reductions_and_scans import reduce_min_tiled as reduce_min_tiled
from octants.lang.simt.reductions_and_scans import reduce_mul as reduce_mul
from octants.lang.simt.reductions_and_scans import reduce_mul_tiled as reduce_mul_tiled
from octants.lang.simt.reductions_and_scans import reduce_or as reduce_or
from octants.lang.simt.reductions_and_scans import reduce_or_tiled as reduce_or_tiled
from octants.lang.simt.reductions_and_scans import reduce_xor as reduce_xor
from octants.lang.simt.reductions_and_scans import reduce_xor_tiled as reduce_xor_tiled
from octants.lang.syntax import static
from octants.types.annotations import CompileTime
from octants.types.scalars import i32, u32, u64

# -- numbers ---------------------------------------------------------------------------------------


@kernel_only
def group_size() -> Any:
    """How many lanes a subgroup has; known when the kernel is compiled."""


@kernel_only
def log2_group_size() -> Any:
    """The logarithm of `group_size`, to base 2."""


@kernel_only
def invocation_id() -> Any:
    """The number of the work item's lane, an i32."""


@library_function
def elect() -> Any:
    """1 in the first lane, 0 in the others."""
    return i32(invocation_id() == 0)


@library_function
def lanemask_eq(lane_id: Any) -> Any:
    """A u32 with the bit of a lane."""
    return u32(1) << u32(lane_id)


@library_function
def lanemask_lt(lane_id: Any) -> Any:
    """A u32 with the bits of all lanes before one."""
    return lanemask_eq(lane_id) - u32(1)


@library_function
def lanemask_le(lane_id: Any) -> Any:
    """A u32 with the bits of a lane and all before it."""
    return lanemask_lt(lane_id) | lanemask_eq(lane_id)


@library_function
def lanemask_gt(lane_id: Any) -> Any:
    """A u32 with the bits of all lanes behind one."""
    return ~lanemask_le(lane_id)


@library_function
def lanemask_ge(lane_id: Any) -> Any:
    """A u32 with the bits of a lane and all behind it."""
    return ~lanemask_lt(lane_id)


# -- barriers --------------------------------------------------------------------------------------


@kernel_only
def sync() -> None:
    """Wait for all lanes of the subgroup, and see what they have written."""


@kernel_only
def mem_fence() -> None:
    """Order memory: the subgroup sees earlier writes before later ones. No work item waits."""


barrier = sync
memory_barrier = mem_fence

# -- values of other lanes -------------------------------------------------------------------------


@kernel_only
def shuffle(value: Any, index: Any) -> Any:
    """The value of a lane; the own one where there is no such lane."""


@kernel_only
def shuffle_up(value: Any, offset: Any) -> Any:
    """The value of the lane so many before; the own one where there is no such lane."""


@kernel_only
def shuffle_down(value: Any, offset: Any) -> Any:
    """The value of the lane so many behind; the own one where there is no such lane."""


@kernel_only
def shuffle_xor(value: Any, mask: Any) -> Any:
    """The value of the lane whose number differs in these bits; the own one if there is none."""


@kernel_only
def broadcast(value: Any, index: Any) -> Any:
    """The value of a lane, whose number all lanes agree on."""


@library_function
def broadcast_first(value: Any) -> Any:
    """The value of the first lane."""
    return broadcast(value, 0)


# -- votes -----------------------------------------------------------------------------------------


@kernel_only
def ballot(predicate: Any) -> Any:
    """A u64 with the bits of the lanes whose predicate is not 0."""


@library_function
def ballot_first_n(predicate: Any, n: CompileTime) -> Any:
    """A u32 with the bits of those of the first n lanes, at most 32, whose predicate is not 0."""
    return u32(ballot(predicate) & static((1 << n) - 1))


ballot_full_subgroup = ballot


@kernel_only
def any_true(predicate: Any) -> Any:
    """1 in all lanes if the predicate of some lane is not 0, else 0; i32."""


@kernel_only
def any_true_tiled(predicate: Any, log2_size: int) -> Any:
    """The same among ``2 ** log2_size`` lanes, an aligned group of them."""


@kernel_only
def all_true(predicate: Any) -> Any:
    """1 in all lanes if the predicate of all lanes is not 0, else 0; i32."""


@kernel_only
def all_true_tiled(predicate: Any, log2_size: int) -> Any:
    """The same among ``2 ** log2_size`` lanes, an aligned group of them."""


@kernel_only
def all_equal(value: Any) -> Any:
    """1 in all lanes if all have equal values, else 0; i32. A NaN equals nothing."""


@kernel_only
def all_equal_tiled(value: Any, log2_size: int) -> Any:
    """The same among ``2 ** log2_size`` lanes, an aligned group of them."""


# -- reductions and scans --------------------------------------------------------------------------

reduce_all_add, reduce_all_add_tiled = reduce_add, reduce_add_tiled
reduce_all_min, reduce_all_min_tiled = reduce_min, reduce_min_tiled
reduce_all_max, reduce_all_max_tiled = reduce_max, reduce_max_tiled


@kernel_only
def identity(fn: str, value: Any) -> Any:
    """What the function ``fn`` ("add", "mul", "min", ...) changes nothing with, as `value` is."""


# -- scans that start again ------------------------------------------------------------------------


@library_function
def segmented_reduce_add(value: Any, head_flag: Any) -> Any:
    """The sum of the values from the last lane on, up to the own, whose `head_flag` is not 0."""
    return _segmented(value, head_flag, _add, log2_group_size())


@library_function
def segmented_reduce_add_tiled(value: Any, head_flag: Any, log2_size: CompileTime) -> Any:
    """The same among ``2 ** log2_size`` lanes, an aligned group of them, which starts one, too."""
    return _segmented(value, head_flag, _add, log2_size)


@library_function
def segmented_reduce_min(value: Any, head_flag: Any) -> Any:
    """The least of the values from the last lane on, up to the own, whose flag is not 0."""
    return _segmented(value, head_flag, smaller, log2_group_size())


@library_function
def segmented_reduce_min_tiled(value: Any, head_flag: Any, log2_size: CompileTime) -> Any:
    """The same among ``2 ** log2_size`` lanes, an aligned group of them, which starts one, too."""
    return _segmented(value, head_flag, smaller, log2_size)


@library_function
def segmented_reduce_max(value: Any, head_flag: Any) -> Any:
    """The largest of the values from the last lane on, up to the own, whose flag is not 0."""
    return _segmented(value, head_flag, larger, log2_group_size())


@library_function
def segmented_reduce_max_tiled(value: Any, head_flag: Any, log2_size: CompileTime) -> Any:
    """The same among ``2 ** log2_size`` lanes, an aligned group of them, which starts one, too."""
    return _segmented(value, head_flag, larger, log2_size)


@library_function
def _segmented(value: Any, head_flag: Any, op: CompileTime, log2_size: CompileTime) -> Any:
    """Each lane takes in what the one 1, 2, 4, ... before it has, if that is of its segment."""
    lane = invocation_id()
    inside = lane % (1 << log2_size)
    heads = ballot(head_flag != 0) << u64(63 - lane)
    distance = smaller(inside, i32(clz(heads)))
    result = value
    for k in static(range(log2_size)):
        other = shuffle_up(result, 1 << k)
        if distance >= (1 << k):
            result = op(other, result)
    return result


# -- sorting ---------------------------------------------------------------------------------------


@library_function
def bitonic_sort_kv(key: Any, value: Any) -> Any:
    """The pairs of all lanes in ascending order, by value where keys are equal: (key, value).

    Each lane must have a work item, as in a whole subgroup, and no key or value be a NaN.
    """
    return bitonic_sort_kv_tiled(key, value, log2_group_size())


@library_function
def bitonic_sort_kv_tiled(key: Any, value: Any, log2_size: CompileTime) -> Any:
    """The same among ``2 ** log2_size`` lanes, an aligned group of them."""
    lane, k, v = invocation_id(), key, value
    for stage in static(range(1, log2_size + 1)):
        for step in static(range(stage - 1, -1, -1)):
            other_k, other_v = shuffle_xor(k, 1 << step), shuffle_xor(v, 1 << step)
            is_first = lane & (1 << step) == 0
            ascends = stage == log2_size or (lane >> stage) & 1 == 0
            precedes = other_k < k or (other_k == k and other_v < v)
            follows = other_k > k or (other_k == k and other_v > v)
            if (is_first == ascends and precedes) or (is_first != ascends and follows):
                k, v = other_k, other_v
    return k, v


@library_function
def _add(a: Any, b: Any) -> Any:
    return a + b
