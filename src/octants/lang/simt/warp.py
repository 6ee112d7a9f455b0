"""The functions of `subgroup` by the names that they have for warps of 32 lanes.

Args:
    mask: the constant 0xFFFFFFFF: the whole warp.
    predicate: an integer or a boolean; 0 is false.
    value: the value of the work item, a scalar.
    val: the same.
    offset: the number of a lane, a difference of such numbers, or the bits to flip in one.
"""

from __future__ import annotations

from typing import Any

from octants.lang.directives import static_assert
from octants.lang.library_function_marks import library_function, named
from octants.lang.simt import subgroup
from octants.types.parameter_annotations import CompileTime
from octants.types.scalars import f32, i32, u32, u64

WHOLE = 0xFFFFFFFF


@library_function
def _check(mask: CompileTime) -> None:
    static_assert(
        mask == WHOLE,
        "the mask of simt.warp is the constant 0xFFFFFFFF (leave lanes out by what they pass in)",
    )
    static_assert(subgroup.group_size() == 32, "simt.warp is for subgroups of 32 lanes")


@library_function
def sync(mask: CompileTime) -> None:
    """Wait for all lanes of the warp."""
    _check(mask)
    subgroup.sync()


@library_function
def active_mask() -> Any:
    """A u32 with the bits of the lanes that have a work item."""
    return u32(subgroup.ballot(1))


@library_function
def ballot(predicate: Any) -> Any:
    """A u32 with the bits of the lanes whose predicate is not 0."""
    return u32(subgroup.ballot(predicate))


@library_function
def all_nonzero(mask: CompileTime, predicate: Any) -> Any:
    """1 if the predicates of all lanes are not 0, else 0."""
    _check(mask)
    return subgroup.all_true(predicate)


@library_function
def any_nonzero(mask: CompileTime, predicate: Any) -> Any:
    """1 if the predicate of some lane is not 0, else 0."""
    _check(mask)
    return subgroup.any_true(predicate)


@library_function
def unique(mask: CompileTime, predicate: Any) -> Any:
    """1 if the predicates are 0 in all lanes, or in none, else 0."""
    _check(mask)
    return subgroup.all_equal(i32(predicate != 0))


@library_function
def match_any(mask: CompileTime, value: Any) -> Any:
    """A u32 with the bits of the lanes that have the same value."""
    _check(mask)
    result = u32(0)
    for lane in range(32):
        equal = subgroup.ballot(value == subgroup.broadcast(value, lane))
        if subgroup.invocation_id() == lane:
            result = u32(equal)
    return result


@library_function
def match_all(mask: CompileTime, val: Any) -> Any:
    """0xFFFFFFFF if all lanes have the same value, else 0."""
    _check(mask)
    return u32(u64(0) - u64(subgroup.all_equal(val)))


def _shuffle(name: str, shuffle: CompileTime, dtype: CompileTime, lane: str) -> Any:
    """A function that gives the value of another lane, as a number of a type."""

    @library_function
    def shuffled(mask: CompileTime, val: Any, offset: Any) -> Any:
        _check(mask)
        return shuffle(dtype(val), offset)

    return named(shuffled, name, f"The value of {lane}.")


_BEFORE = "the lane `offset` before the own one; the own value if there is none"
_AFTER = "the lane `offset` after the own one; the own value if there is none"
shfl_sync_i32 = _shuffle("shfl_sync_i32", subgroup.shuffle, i32, "lane `offset`")
shfl_sync_f32 = _shuffle("shfl_sync_f32", subgroup.shuffle, f32, "lane `offset`")
shfl_up_i32 = _shuffle("shfl_up_i32", subgroup.shuffle_up, i32, _BEFORE)
shfl_up_f32 = _shuffle("shfl_up_f32", subgroup.shuffle_up, f32, _BEFORE)
shfl_down_i32 = _shuffle("shfl_down_i32", subgroup.shuffle_down, i32, _AFTER)
shfl_down_f32 = _shuffle("shfl_down_f32", subgroup.shuffle_down, f32, _AFTER)
shfl_xor_i32 = _shuffle(
    "shfl_xor_i32",
    subgroup.shuffle_xor,
    i32,
    "the lane whose number differs in the bits `offset`",
)
