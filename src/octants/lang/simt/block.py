"""The work items of a block: barriers, arrays that they share, sums and scans over all of them.

A parallel loop that uses any of this runs in blocks of ``loop_config(block_dim=...)`` work items,
in their order; the last one may have fewer. All work items of a block have to come to each barrier,
and to each function that has one in it: all but the numbers, the fence and the array itself.
"""

from __future__ import annotations

from typing import Any

from octants.lang.directives import static, static_assert
from octants.lang.library_function_marks import kernel_only, library_function
from octants.lang.scalar_functions import max as larger
from octants.lang.scalar_functions import min as smaller
from octants.lang.scalar_functions import zero
from octants.lang.simt import subgroup
from octants.types.parameter_annotations import CompileTime

# -- numbers ---------------------------------------------------------------------------------------


@kernel_only
def thread_idx() -> Any:
    """The number of the work item in its block, an i32."""


@kernel_only
def global_thread_idx() -> Any:
    """The number of the work item in its loop, an i32: 0 for the first one."""


@kernel_only
def dim() -> Any:
    """The `block_dim` of the loop, known when the kernel is compiled."""


@kernel_only
def size() -> Any:
    """How many work items the block has, an i32: fewer than `block_dim` in the last one, maybe."""


# -- barriers and memory ---------------------------------------------------------------------------


@kernel_only
def sync() -> None:
    """Wait for all work items of the block, and see what they have written."""


@kernel_only
def mem_fence() -> None:
    """Order memory: the block sees earlier writes before later ones. No work item waits."""


mem_sync = sync


@kernel_only
def SharedArray(shape: Any, dtype: Any) -> Any:  # noqa: N802 - a word of the language
    """An array of which each block has its own: indexed as a field, undefined at first.

    `shape` is an extent or a tuple of extents that are known when the kernel is compiled, `dtype` a
    scalar, vector or matrix type. `+=` on an element is atomic. Example::

        @qd.kernel
        def reverse_blocks(x: qd.types.ndarray(qd.f32, 1)):
            qd.loop_config(block_dim=64)
            for i in x:
                shared = qd.simt.block.SharedArray(64, qd.f32)
                k = qd.simt.block.thread_idx()
                shared[k] = x[i]
                qd.simt.block.sync()
                x[i] = shared[63 - k]
    """


@library_function
def sync_count_nonzero(predicate: Any) -> Any:
    """Wait for the block; gives how many of its work items have a predicate that is not 0."""
    return _reduce(int(predicate != 0), _add, int)


@library_function
def sync_any_nonzero(predicate: Any) -> Any:
    """Wait for the block; 1 if the predicate of some work item is not 0, else 0."""
    return _reduce(int(predicate != 0), _max, int)


@library_function
def sync_all_nonzero(predicate: Any) -> Any:
    """Wait for the block; 1 if the predicate of no work item is 0, else 0."""
    return _reduce(int(predicate != 0), _min, int)


# -- reductions ------------------------------------------------------------------------------------


@library_function
def reduce(value: Any, block_dim: CompileTime, op: CompileTime, dtype: CompileTime) -> Any:
    """Combine the values of all work items of a block by a function of two that is associative.

    All work items of the block get the result.

    Args:
        value: the value of the work item.
        block_dim: that of the loop.
        op: a `qd.func` of two values; it is passed neighbours in their order.
        dtype: the type of the values.
    """
    static_assert(block_dim == dim(), f"`block_dim` must be that of the loop, which is {dim()}")
    return _reduce(value, op, dtype)


reduce_all = reduce


@library_function
def reduce_add(value: Any, block_dim: CompileTime, dtype: CompileTime) -> Any:
    """The sum of the values of the block; see `reduce`."""
    return reduce(value, block_dim, _add, dtype)


@library_function
def reduce_min(value: Any, block_dim: CompileTime, dtype: CompileTime) -> Any:
    """The least of the values of the block; see `reduce`."""
    return reduce(value, block_dim, _min, dtype)


@library_function
def reduce_max(value: Any, block_dim: CompileTime, dtype: CompileTime) -> Any:
    """The largest of the values of the block; see `reduce`."""
    return reduce(value, block_dim, _max, dtype)


reduce_all_add, reduce_all_min, reduce_all_max = reduce_add, reduce_min, reduce_max


@library_function
def _reduce(value: Any, op: CompileTime, dtype: CompileTime) -> Any:
    """Each subgroup by itself; what they make is put together by each work item."""
    lanes = static(subgroup.group_size())
    thread, count = thread_idx(), size()
    result = value
    for k in static(range(subgroup.log2_group_size())):
        other = subgroup.shuffle_down(result, 1 << k)
        if thread % (2 << k) == 0 and thread + (1 << k) < count:
            result = op(result, other)
    partial = SharedArray((dim() + lanes - 1) // lanes, dtype)
    if thread % lanes == 0:
        partial[thread // lanes] = result
    sync()
    total = partial[0]
    for number in range(1, (count + lanes - 1) // lanes):
        total = op(total, partial[number])
    sync()
    return total


# -- scans -----------------------------------------------------------------------------------------


@library_function
def inclusive_scan(value: Any, block_dim: CompileTime, op: CompileTime, dtype: CompileTime) -> Any:
    """Combine the values of the work items up to the own one, by a function that is associative.

    The arguments are those of `reduce`.
    """
    static_assert(block_dim == dim(), f"`block_dim` must be that of the loop, which is {dim()}")
    before, has_before, own = _scan(value, op, dtype)
    result = own
    if has_before:
        result = op(before, own)
    return result


@library_function
def exclusive_scan(
    value: Any, block_dim: CompileTime, op: CompileTime, identity: Any, dtype: CompileTime
) -> Any:
    """Combine the values of the work items before the own one, by a function that is associative.

    Args:
        identity: the result of the first work item of a block. The other arguments are those
            of `reduce`.
    """
    static_assert(block_dim == dim(), f"`block_dim` must be that of the loop, which is {dim()}")
    before, has_before, own = _scan(value, op, dtype)
    previous = subgroup.shuffle_up(own, 1)
    result = before
    if thread_idx() == 0:
        result = identity
    elif subgroup.invocation_id() > 0:
        result = previous
        if has_before:
            result = op(before, previous)
    return result


@library_function
def inclusive_add(value: Any, block_dim: CompileTime, dtype: CompileTime) -> Any:
    """The sum of the values up to the work item's own; see `reduce`."""
    return inclusive_scan(value, block_dim, _add, dtype)


@library_function
def inclusive_min(value: Any, block_dim: CompileTime, dtype: CompileTime) -> Any:
    """The least of the values up to the work item's own; see `reduce`."""
    return inclusive_scan(value, block_dim, _min, dtype)


@library_function
def inclusive_max(value: Any, block_dim: CompileTime, dtype: CompileTime) -> Any:
    """The largest of the values up to the work item's own; see `reduce`."""
    return inclusive_scan(value, block_dim, _max, dtype)


@library_function
def exclusive_add(value: Any, block_dim: CompileTime, dtype: CompileTime) -> Any:
    """The sum of the values before the work item's own, 0 for the first; see `reduce`."""
    return exclusive_scan(value, block_dim, _add, zero(value), dtype)


@library_function
def exclusive_min(value: Any, block_dim: CompileTime, dtype: CompileTime) -> Any:
    """The least value before the work item's own; see `reduce`.

    For the first one it is the largest number of the type.
    """
    return exclusive_scan(value, block_dim, _min, subgroup.identity("min", value), dtype)


@library_function
def exclusive_max(value: Any, block_dim: CompileTime, dtype: CompileTime) -> Any:
    """The largest value before the work item's own; see `reduce`.

    For the first one it is the least number of the type.
    """
    return exclusive_scan(value, block_dim, _max, subgroup.identity("max", value), dtype)


@library_function
def _scan(value: Any, op: CompileTime, dtype: CompileTime) -> Any:
    """The total of the subgroups before, whether there are any, the own subgroup's up to here."""
    lanes = static(subgroup.group_size())
    thread, lane, count = thread_idx(), subgroup.invocation_id(), size()
    own = value
    for k in static(range(subgroup.log2_group_size())):
        other = subgroup.shuffle_up(own, 1 << k)
        if lane >= (1 << k):
            own = op(other, own)
    partial = SharedArray((dim() + lanes - 1) // lanes, dtype)
    if lane == lanes - 1 or thread == count - 1:
        partial[thread // lanes] = own
    sync()
    before = partial[0]
    for number in range(1, thread // lanes):
        before = op(before, partial[number])
    sync()
    return before, thread >= lanes, own


@kernel_only
def radix_rank_match_atomic_or(*arguments: Any, **named: Any) -> Any:
    """Not supported: scan the counts of each digit by `exclusive_add`."""


# -- functions of two ------------------------------------------------------------------------------


@library_function
def _add(a: Any, b: Any) -> Any:
    return a + b


@library_function
def _min(a: Any, b: Any) -> Any:
    return smaller(a, b)


@library_function
def _max(a: Any, b: Any) -> Any:
    return larger(a, b)
