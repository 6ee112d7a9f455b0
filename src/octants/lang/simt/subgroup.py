"""The work items of a subgroup: neighbours in a block that run in step, one in each lane.

All lanes of a subgroup must reach each call of these functions, except calls of those that only
return numbers of lanes. A subgroup at the end of a loop may have fewer work items than lanes; lanes
without a work item take no part. Functions that end in ``_tiled`` do the same within each aligned
group of ``2 ** log2_size`` lanes, at most a subgroup. The machine chooses the order in which floats
are added and multiplied.

Args:
    value: the value of the work item, a scalar.
    predicate: an integer or a boolean; 0 is false.
    log2_size: the logarithm of the size of the groups to base 2, known when the kernel is compiled.
    head_flag: not 0 in the first lane of each segment.
    index: the number of a lane, an i32.
    offset: a difference between numbers of lanes.
"""

from __future__ import annotations

from typing import Any

from octants.lang.directives import static
from octants.lang.library_function_marks import kernel_only, library_function, named
from octants.lang.scalar_functions import clz
from octants.lang.scalar_functions import max as larger
from octants.lang.scalar_functions import min as smaller
from octants.lang.simt.reductions_and_scans import *  # noqa: F403
from octants.types.parameter_annotations import CompileTime
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
    """A u32 in which the bit of lane `lane_id` is 1."""
    return u32(1) << u32(lane_id)


@library_function
def lanemask_lt(lane_id: Any) -> Any:
    """A u32 in which the bits of all lanes before `lane_id` are 1."""
    return lanemask_eq(lane_id) - u32(1)


@library_function
def lanemask_le(lane_id: Any) -> Any:
    """A u32 in which the bits of lane `lane_id` and of all before it are 1."""
    return lanemask_lt(lane_id) | lanemask_eq(lane_id)


@library_function
def lanemask_gt(lane_id: Any) -> Any:
    """A u32 in which the bits of all lanes after `lane_id` are 1."""
    return ~lanemask_le(lane_id)


@library_function
def lanemask_ge(lane_id: Any) -> Any:
    """A u32 in which the bits of lane `lane_id` and of all after it are 1."""
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
    """The value of lane `index`; the own one if there is no such lane."""


@kernel_only
def shuffle_up(value: Any, offset: Any) -> Any:
    """The value of the lane `offset` before the own one; the own value if there is none."""


@kernel_only
def shuffle_down(value: Any, offset: Any) -> Any:
    """The value of the lane `offset` after the own one; the own value if there is none."""


@kernel_only
def shuffle_xor(value: Any, mask: Any) -> Any:
    """The value of the lane whose number differs in the bits `mask`; the own one if none does."""


@kernel_only
def broadcast(value: Any, index: Any) -> Any:
    """The value of lane `index`, which must be the same number in all lanes."""


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
    """A u32 with the bits of those of the first `n` lanes, at most 32, whose predicate is not 0."""
    return u32(ballot(predicate) & static((1 << n) - 1))


ballot_full_subgroup = ballot


@kernel_only
def any_true(predicate: Any) -> Any:
    """1 in all lanes if the predicate of some lane is not 0, else 0; i32."""


@kernel_only
def any_true_tiled(predicate: Any, log2_size: int) -> Any:
    """`any_true` within each aligned group of ``2 ** log2_size`` lanes."""


@kernel_only
def all_true(predicate: Any) -> Any:
    """1 in all lanes if the predicate of all lanes is not 0, else 0; i32."""


@kernel_only
def all_true_tiled(predicate: Any, log2_size: int) -> Any:
    """`all_true` within each aligned group of ``2 ** log2_size`` lanes."""


@kernel_only
def all_equal(value: Any) -> Any:
    """1 in all lanes if all have equal values, else 0; i32. A NaN equals nothing."""


@kernel_only
def all_equal_tiled(value: Any, log2_size: int) -> Any:
    """`all_equal` within each aligned group of ``2 ** log2_size`` lanes."""


# -- scans that start again ------------------------------------------------------------------------


@kernel_only
def identity(fn: str, value: Any) -> Any:
    """The number that changes no value by the function `fn`: 0 for "add", 1 for "mul", ...

    It has the type of `value`; `fn` is "add", "mul", "min", "max", "and", "or" or "xor".
    """


@library_function
def _add(a: Any, b: Any) -> Any:
    return a + b


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


def _segmented_reduce(fn: str, op: CompileTime, result: str) -> tuple[Any, Any]:
    """A function that combines the values of a segment, and its counterpart within groups."""
    name = f"segmented_reduce_{fn}"

    @library_function
    def reduce(value: Any, head_flag: Any) -> Any:
        return _segmented(value, head_flag, op, log2_group_size())

    @library_function
    def reduce_tiled(value: Any, head_flag: Any, log2_size: CompileTime) -> Any:
        return _segmented(value, head_flag, op, log2_size)

    text = f"""{result} of the values of the own segment, up to the own lane.

    A segment begins at each lane whose `head_flag` is not 0, and at the first lane.
    """
    within = f"`{name}` within each aligned group of ``2 ** log2_size`` lanes."
    return named(reduce, name, text), named(reduce_tiled, f"{name}_tiled", within)


segmented_reduce_add, segmented_reduce_add_tiled = _segmented_reduce("add", _add, "The sum")
segmented_reduce_min, segmented_reduce_min_tiled = _segmented_reduce("min", smaller, "The least")
segmented_reduce_max, segmented_reduce_max_tiled = _segmented_reduce("max", larger, "The largest")


# -- sorting ---------------------------------------------------------------------------------------


@library_function
def bitonic_sort_kv(key: Any, value: Any) -> Any:
    """The pairs (`key`, `value`) of all lanes in ascending order, by value where keys are equal.

    Each lane must have a work item, as in a whole subgroup, and no key or value be a NaN.
    """
    return bitonic_sort_kv_tiled(key, value, log2_group_size())


@library_function
def bitonic_sort_kv_tiled(key: Any, value: Any, log2_size: CompileTime) -> Any:
    """Sort the pairs (`key`, `value`) within each aligned group of ``2 ** log2_size`` lanes."""
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
