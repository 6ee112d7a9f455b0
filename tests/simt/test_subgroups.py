"""Subgroups: values of other lanes, votes, reductions and scans, against numpy."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from octants.lang.directives import loop_config
from octants.lang.scalar_functions import popcnt
from octants.lang.simt import subgroup, warp
from octants.target import Blocks
from octants.types.matrix_values import Vector
from octants.types.parameter_annotations import NdarrayAnnotation as Array
from octants.types.scalars import i32, u32
from tests.simt.kernels import run

rng = np.random.default_rng(6)
COUNT = 2 * 96 + 45  # work items: whole subgroups, and one of 13 lanes


def parts(x: np.ndarray, lanes: int = 32) -> list[np.ndarray]:
    """The lanes of each subgroup, in blocks of 96 work items."""
    whole = [x[k : k + 96] for k in range(0, len(x), 96)]
    return [part[k : k + lanes] for part in whole for k in range(0, len(part), lanes)]


def by_lanes(function, *columns: np.ndarray, lanes: int = 32) -> np.ndarray:
    """What a function of a subgroup's lanes gives for each work item."""
    found = zip(*(parts(x, lanes) for x in columns), strict=True)
    return np.concatenate([np.asarray(function(*part)) for part in found])


def shuffles(x: Array, to: Array, y: Array):
    loop_config(block_dim=96)
    for i in x:
        y[i, 0] = subgroup.shuffle(x[i], to[i])
        y[i, 1] = subgroup.shuffle_up(x[i], 3)
        y[i, 2] = subgroup.shuffle_down(x[i], u32(5))
        y[i, 3] = subgroup.shuffle_xor(x[i], 6)
        y[i, 4] = subgroup.broadcast(x[i], 7)
        y[i, 5] = subgroup.broadcast_first(x[i])
        pair = subgroup.shuffle_down(Vector([x[i], 2 * x[i]]), 1)
        y[i, 6] = pair.x + pair.y


def pick(sources):
    """Values of other lanes; the own one where there is no such lane."""
    return lambda part, *more: [
        part[source] if 0 <= source < len(part) else part[lane]
        for lane, source in enumerate(sources(np.arange(len(part)), *more))
    ]


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.uint8])
@pytest.mark.parametrize("lanes", [32, 16])
def test_values_of_other_lanes(kind, lanes):
    x = (rng.random(COUNT) * 60).astype(kind)
    to = rng.integers(-3, 36, COUNT).astype(np.int32)
    y = np.zeros((COUNT, 7), kind)
    run(shuffles, x, to, y, blocks=Blocks(subgroup_size=lanes))
    each = functools.partial(by_lanes, lanes=lanes)
    down = each(pick(lambda lane: lane + 1), x)
    expected = [
        each(pick(lambda lane, to: to), x, to),
        each(pick(lambda lane: lane - 3), x),
        each(pick(lambda lane: lane + 5), x),
        each(pick(lambda lane: lane ^ 6), x),
        each(pick(lambda lane: lane * 0 + 7), x),
        each(pick(lambda lane: lane * 0), x),
        (3 * down).astype(kind),
    ]
    for column, wanted in enumerate(expected):
        np.testing.assert_allclose(y[:, column], wanted, rtol=1e-6)


def numbers(y: Array):
    loop_config(block_dim=96)
    for i in range(y.shape[0]):
        y[i, 0] = subgroup.invocation_id()
        y[i, 1] = subgroup.elect()
        y[i, 2] = subgroup.group_size()
        y[i, 3] = subgroup.log2_group_size()
        y[i, 4] = popcnt(subgroup.lanemask_lt(subgroup.invocation_id()))
        y[i, 5] = popcnt(subgroup.lanemask_ge(subgroup.invocation_id()))


def test_numbers_of_lanes():
    y = np.zeros((COUNT, 6), np.int32)
    run(numbers, y)
    lane = np.arange(COUNT) % 96 % 32
    wanted = [lane, lane == 0, lane * 0 + 32, lane * 0 + 5, lane, 32 - lane]
    np.testing.assert_array_equal(y, np.stack(wanted, 1))


def votes(x: Array, y: Array, masks: Array):
    loop_config(block_dim=96)
    for i in x:
        odd = x[i] % 2 == 1
        y[i, 0] = subgroup.any_true(x[i] == 3)
        y[i, 1] = subgroup.all_true(x[i])
        y[i, 2] = subgroup.any_true_tiled(odd, 1)
        y[i, 3] = subgroup.all_true_tiled(odd, 2)
        y[i, 4] = subgroup.all_equal(x[i] // 16)
        y[i, 5] = subgroup.all_equal_tiled(x[i], 1)
        masks[i, 0] = subgroup.ballot(odd)
        masks[i, 1] = subgroup.ballot_first_n(odd, 10)
        subgroup.sync()
        subgroup.mem_fence()


def bits(part) -> list[int]:
    return [sum(1 << k for k, is_odd in enumerate(part) if is_odd)] * len(part)


def test_votes():
    x = rng.integers(0, 16, COUNT).astype(np.int32)
    y, masks = np.zeros((COUNT, 6), np.int32), np.zeros((COUNT, 2), np.uint64)
    run(votes, x, y, masks)
    whole = by_lanes(lambda part: [(part == 3).any()] * len(part), x)
    wanted = [
        whole,
        by_lanes(lambda part: [part.all()] * len(part), x),
        by_lanes(lambda part: [(part % 2 == 1).any()] * len(part), x, lanes=2),
        by_lanes(lambda part: [(part % 2 == 1).all()] * len(part), x, lanes=4),
        np.ones(COUNT),
        by_lanes(lambda part: [len(set(part)) == 1] * len(part), x, lanes=2),
    ]
    np.testing.assert_array_equal(y, np.stack(wanted, 1))
    np.testing.assert_array_equal(masks[:, 0], by_lanes(bits, x % 2 == 1))
    np.testing.assert_array_equal(masks[:, 1], masks[:, 0] & np.uint64(1023))


FUNCTIONS = {
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def combinations(fn, log2_widest=4):
    """A kernel with all reductions and scans by one function, of few lanes, too."""
    reduce, reduce_tiled, inclusive, inclusive_tiled, exclusive, exclusive_tiled = (
        getattr(subgroup, f"{way}_{fn}{tiled}")
        for way in ("reduce", "inclusive", "exclusive")
        for tiled in ("", "_tiled")
    )

    def kernel(x: Array, y: Array):
        loop_config(block_dim=96)
        for i in x:
            y[i, 0] = reduce(x[i])
            y[i, 1] = inclusive(x[i])
            y[i, 2] = exclusive(x[i])
            y[i, 3] = reduce_tiled(x[i], 2)
            y[i, 4] = inclusive_tiled(x[i], 3)
            y[i, 5] = exclusive_tiled(x[i], log2_widest)

    return kernel


def neutral(fn, dtype):
    if fn in ("min", "max"):
        if dtype.kind == "f":
            return np.inf if fn == "min" else -np.inf
        return np.iinfo(dtype).max if fn == "min" else np.iinfo(dtype).min
    if fn == "and":
        return ~dtype.type(0)
    return 1 if fn == "mul" else 0


INTEGERS, FLOATS = (np.int32, np.uint64), (np.float64, np.float32)
CASES = [(fn, kind) for fn in FUNCTIONS for kind in INTEGERS]
CASES += [(fn, kind) for fn in ("add", "mul", "min", "max") for kind in FLOATS]


@pytest.mark.parametrize(("fn", "kind"), CASES)
def test_reductions_and_scans(fn, kind):
    x = rng.integers(1, 4 if fn == "mul" else 1000, COUNT).astype(kind)
    y = np.zeros((COUNT, 6), kind)
    run(combinations(fn), x, y)
    function = FUNCTIONS[fn]
    start = np.array([neutral(fn, np.dtype(kind))]).astype(kind)

    def total(part):
        return np.full(len(part), function.reduce(part))

    def before(part):
        return np.concatenate([start, function.accumulate(part)[:-1]])

    with np.errstate(over="ignore"):
        wanted = [
            by_lanes(total, x),
            by_lanes(function.accumulate, x),
            by_lanes(before, x),
            by_lanes(total, x, lanes=4),
            by_lanes(function.accumulate, x, lanes=8),
            by_lanes(before, x, lanes=16),
        ]
    for column, values in enumerate(wanted):
        np.testing.assert_allclose(y[:, column], values.astype(kind), rtol=1e-5)


def segments(x: Array, heads: Array, y: Array):
    loop_config(block_dim=96)
    for i in x:
        y[i, 0] = subgroup.segmented_reduce_add(x[i], heads[i])
        y[i, 1] = subgroup.segmented_reduce_min_tiled(x[i], heads[i], 3)
        y[i, 2] = subgroup.segmented_reduce_max_tiled(x[i], heads[i], 5)


def segmented(function):
    def scan(part, heads):
        result = list(part)
        for k in range(1, len(part)):
            result[k] = part[k] if heads[k] else function(result[k - 1], part[k])
        return result

    return scan


def test_scans_that_start_again():
    x = rng.random(COUNT)
    heads = (rng.random(COUNT) < 0.2).astype(np.int32)
    y = np.zeros((COUNT, 3))
    run(segments, x, heads, y)
    np.testing.assert_allclose(y[:, 0], by_lanes(segmented(np.add), x, heads))
    np.testing.assert_allclose(y[:, 1], by_lanes(segmented(min), x, heads, lanes=8))
    np.testing.assert_allclose(y[:, 2], by_lanes(segmented(max), x, heads))


def by_warps(x: Array, y: Array):
    loop_config(block_dim=96)
    for i in x:
        whole = 0xFFFFFFFF
        y[i, 0] = warp.shfl_sync_i32(0xFFFFFFFF, x[i], 2)
        y[i, 1] = warp.shfl_up_i32(whole, x[i], 1)
        y[i, 2] = warp.shfl_down_i32(u32(0xFFFFFFFF), x[i], 1)
        y[i, 3] = warp.shfl_xor_i32(0xFFFFFFFF, x[i], 1)
        y[i, 4] = i32(warp.shfl_down_f32(0xFFFFFFFF, x[i], 4))
        y[i, 5] = popcnt(warp.ballot(x[i] > 3))
        y[i, 6] = warp.all_nonzero(0xFFFFFFFF, x[i])
        y[i, 7] = warp.any_nonzero(0xFFFFFFFF, x[i] == 3)
        y[i, 8] = warp.unique(0xFFFFFFFF, x[i] - 20)
        y[i, 9] = popcnt(warp.match_any(0xFFFFFFFF, x[i]))
        y[i, 10] = popcnt(warp.match_all(0xFFFFFFFF, i // 8 * 0))
        y[i, 11] = popcnt(warp.active_mask())
        warp.sync(0xFFFFFFFF)


def test_the_names_of_warps():
    x = rng.integers(0, 8, COUNT).astype(np.int32)
    y = np.zeros((COUNT, 12), np.int32)
    run(by_warps, x, y)
    wanted = [
        by_lanes(pick(lambda lane: lane * 0 + 2), x),
        by_lanes(pick(lambda lane: lane - 1), x),
        by_lanes(pick(lambda lane: lane + 1), x),
        by_lanes(pick(lambda lane: lane ^ 1), x),
        by_lanes(pick(lambda lane: lane + 4), x),
        by_lanes(lambda part: [(part > 3).sum()] * len(part), x),
        by_lanes(lambda part: [part.all()] * len(part), x),
        by_lanes(lambda part: [(part == 3).any()] * len(part), x),
        np.ones(COUNT),
        by_lanes(lambda part: [(part == own).sum() for own in part], x),
        np.full(COUNT, 32),
        by_lanes(lambda part: [len(part)] * len(part), x),
    ]
    np.testing.assert_array_equal(y, np.stack(wanted, 1))


def sort(keys: Array, values: Array, y: Array):
    loop_config(block_dim=96)
    for i in keys:
        y[i, 0], y[i, 1] = subgroup.bitonic_sort_kv(keys[i], values[i])
        y[i, 2], y[i, 3] = subgroup.bitonic_sort_kv_tiled(keys[i], values[i], 2)
        y[i, 4], y[i, 5] = subgroup.bitonic_sort_kv_tiled(keys[i], values[i], 0)


def test_sorting_pairs():
    keys, values = rng.integers(0, 9, 96).astype(np.int32), rng.integers(0, 9, 96).astype(np.int32)
    y = np.zeros((96, 6), np.int32)
    run(sort, keys, values, y)
    for column, lanes in ((0, 32), (2, 4), (4, 1)):
        for k in range(0, 96, lanes):
            part = slice(k, k + lanes)
            pairs = sorted(zip(keys[part], values[part], strict=True))
            assert [tuple(pair) for pair in y[part, column : column + 2]] == pairs
