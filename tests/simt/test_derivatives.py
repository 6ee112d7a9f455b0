"""Derivatives of kernels whose work items work together, against central differences in f64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import interpreter
from octants.autodiff.forward import forward
from octants.autodiff.reverse import reverse
from octants.ir.core import Companion, Module
from octants.ir.verifier import verify
from octants.target import Blocks
from tests.autodiff.reversing import differentiate
from tests.simt.kernels import compile_kernel, lowered

block, subgroup = qd.simt.block, qd.simt.subgroup
rng = np.random.default_rng(8)
COUNT = 19  # work items: two blocks of 8, and one of 3


def through_shared_memory(x: qd.types.ndarray, y: qd.types.ndarray):
    qd.loop_config(block_dim=8)
    for i in x:
        pad = block.SharedArray(8, qd.f64)
        thread, count = block.thread_idx(), block.size()
        pad[thread] = x[i] * x[i]
        block.sync()
        value = qd.sin(pad[(thread + 1) % count]) * pad[thread]
        for k in range(3):
            block.sync()
            pad[thread] = value + 0.1 * k
            block.sync()
            value = value * 0.5 + pad[count - 1 - thread] * x[i]
        y[i] = value


def sums_in_shared_memory(x: qd.types.ndarray, y: qd.types.ndarray):
    qd.loop_config(block_dim=8)
    for i in x:
        pad = block.SharedArray(2, qd.f64)
        thread = block.thread_idx()
        if thread < 2:
            pad[thread] = 0.0
        block.sync()
        pad[thread % 2] += qd.exp(x[i])
        block.sync()
        y[i] = pad[0] * pad[1] + x[i]


def of_lanes(x: qd.types.ndarray, y: qd.types.ndarray):
    qd.loop_config(block_dim=16)
    for i in x:
        lane = subgroup.invocation_id()
        value = subgroup.shuffle(x[i] * x[i], 3 - lane)
        value *= subgroup.shuffle_up(qd.sin(x[i]), 1) + subgroup.shuffle_down(x[i], 2)
        value += subgroup.broadcast(value, 1) * subgroup.shuffle_xor(x[i], 1)
        for _ in range(2):
            value = value * 0.5 + subgroup.reduce_add(value * x[i])
        y[i] = value + subgroup.inclusive_add(x[i] * x[i]) * subgroup.exclusive_add_tiled(x[i], 2)


def scans(x: qd.types.ndarray, y: qd.types.ndarray):
    qd.loop_config(block_dim=8)
    for i in x:
        total = block.reduce_add(x[i] * x[i], 8, qd.f64)
        y[i] = block.inclusive_add(qd.cos(x[i]), 8, qd.f64) * total


def sums_over_lanes(x: qd.types.ndarray, y: qd.types.ndarray):
    """What reverse mode knows, too: each lane comes once to each of them."""
    qd.loop_config(block_dim=16)
    for i in x:
        value = x[i]
        for k in range(3):
            value = value * 0.7 + qd.sin(x[i] * k)
        total = subgroup.reduce_add(value * value)
        part = subgroup.reduce_add_tiled(value * total, 1)
        other = subgroup.shuffle_xor(part * x[i], 2)
        even = subgroup.ballot(i % 2 == 0)
        for _ in range(qd.popcnt(even) % 3):
            other = other * 0.9 + total
        y[i] = other * part


# -- what reverse mode knows of shared arrays ------------------------------------------------------


def pairs_in_a_tile(x: qd.types.ndarray, y: qd.types.ndarray):
    qd.loop_config(block_dim=8)
    for i in x:
        pad = block.SharedArray(8, qd.f64)
        thread, count = block.thread_idx(), block.size()
        pad[thread] = qd.sin(x[i])
        block.sync()
        total = 0.0
        for k in range(count):
            total += pad[k] * pad[(k + thread) % count] * x[i]
        y[i] = total * pad[count - 1 - thread]


def rows_of_a_tile(x: qd.types.ndarray, y: qd.types.ndarray):
    """Each work item stores several elements, and one that changes nothing."""
    qd.loop_config(block_dim=8)
    for i in x:
        pad = block.SharedArray((8, 4), qd.f64)
        signs = block.SharedArray(8, qd.i32)
        thread, count = block.thread_idx(), block.size()
        for k in range(4):
            pad[thread, k] = 7.0
            pad[thread, k] = qd.sin(x[i] * k)
        signs[thread] = 1 - i % 3
        block.sync()
        total = 1.0
        for k in range(4):
            for j in range(count):
                total += pad[j, k] * pad[(j + thread) % count, 3 - k] * signs[j]
        y[i] = total * x[i]


def tree_of_products(x: qd.types.ndarray, y: qd.types.ndarray):
    """What is read is overwritten behind the next barrier."""
    qd.loop_config(block_dim=8)
    for i in x:
        pad = block.SharedArray(8, qd.f64)
        thread, count = block.thread_idx(), block.size()
        pad[thread] = x[i] * x[i]
        block.sync()
        for k in qd.static(range(3)):
            if thread % (2 << k) == 0 and thread + (1 << k) < count:
                pad[thread] = pad[thread] * pad[thread + (1 << k)]
            block.sync()
        y[i] = pad[0] * x[i]


def tiles_in_a_loop(x: qd.types.ndarray, y: qd.types.ndarray):
    """A pass over all of x, a block at a time."""
    qd.loop_config(block_dim=8)
    for i in x:
        pad = block.SharedArray(8, qd.f64)
        own = block.SharedArray(8, qd.f64)
        thread, count = block.thread_idx(), block.size()
        total, at = 0.0, x[i] * 0.7
        for tile in range(3):
            block.sync()
            pad[thread] = x[(tile * 8 + thread) % x.shape[0]] * qd.cos(at)
            own[count - 1 - thread] = at * tile
            block.sync()
            for k in range(count):
                distance = pad[k] - at
                total += qd.exp(-distance * distance) * own[k]
        y[i] = total * at


def tiles_with_barriers_behind(x: qd.types.ndarray, y: qd.types.ndarray):
    qd.loop_config(block_dim=8)
    for i in x:
        pad = block.SharedArray(8, qd.f64)
        thread, count = block.thread_idx(), block.size()
        total = x[i]
        for tile in range(3):
            pad[thread] = x[i] * tile + qd.sin(x[i])
            block.sync()
            total += pad[(thread + 1) % count] * pad[(thread + tile) % count]
            block.sync()
        y[i] = total * total


def shifts_and_choices(x: qd.types.ndarray, y: qd.types.ndarray):
    """Some lanes read of lanes that are not there, and keep what they have."""
    qd.loop_config(block_dim=16)
    for i in x:
        value = subgroup.shuffle_up(x[i] * x[i], 1) + subgroup.shuffle_down(qd.sin(x[i]), 2)
        value *= subgroup.broadcast(value, 3) * subgroup.shuffle(x[i], 13)
        value += subgroup.shuffle_up(value, 0) * subgroup.shuffle_down(x[i], 15)
        y[i] = value * subgroup.broadcast_first(x[i])


def scans_of_lanes(x: qd.types.ndarray, y: qd.types.ndarray):
    qd.loop_config(block_dim=16)
    for i in x:
        value = subgroup.inclusive_add(x[i] * x[i]) * subgroup.exclusive_add_tiled(x[i], 2)
        value *= subgroup.inclusive_add_tiled(value, 1)
        y[i] = value + subgroup.exclusive_add(qd.sin(value))


def stored_by_all_lanes(x: qd.types.ndarray, y: qd.types.ndarray):
    """All work items of a block store one value: one of them takes the adjoint."""
    qd.loop_config(block_dim=8)
    for i in x:
        pad, both = block.SharedArray(8, qd.f64), block.SharedArray(1, qd.f64)
        pad[block.thread_idx()] = x[i] * x[i]
        block.sync()
        total = 0.0
        for k in range(block.size()):
            total += pad[k]
        both[0] = total * total
        block.sync()
        y[i // 8] = both[0] + total * pad[0]


SHARED = (
    stored_by_all_lanes,
    shifts_and_choices,
    scans_of_lanes,
    scans,
    sums_in_shared_memory,
    pairs_in_a_tile,
    rows_of_a_tile,
    tree_of_products,
    tiles_in_a_loop,
    tiles_with_barriers_behind,
)


def recorded_tiles(x: qd.types.ndarray, y: qd.types.ndarray):
    qd.loop_config(block_dim=8)
    for i in x:
        pad = block.SharedArray(8, qd.f64)
        thread, count = block.thread_idx(), block.size()
        value = x[i]
        for _ in range(3):
            pad[thread] = value * value
            block.sync()
            value = value * 0.5 + pad[(thread + 1) % count]
            block.sync()
        y[i] = value


def tiles_with_old_elements(x: qd.types.ndarray, y: qd.types.ndarray):
    qd.loop_config(block_dim=8)
    for i in x:
        pad = block.SharedArray(8, qd.f64)
        total = 0.0
        for tile in range(3):
            if block.thread_idx() == tile:
                pad[tile] = x[i]
            block.sync()
            total += pad[0] * x[i]
            block.sync()
        y[i] = total


def a_tile_that_moves(x: qd.types.ndarray, y: qd.types.ndarray):
    qd.loop_config(block_dim=8)
    for i in x:
        pad = block.SharedArray(16, qd.f64)
        total = 0.0
        for tile in range(3):
            pad[block.thread_idx() + tile] = x[i]
            block.sync()
            total += pad[block.thread_idx()] * x[i]
            block.sync()
        y[i] = total


def what_a_loop_left(x: qd.types.ndarray, y: qd.types.ndarray):
    qd.loop_config(block_dim=8)
    for i in x:
        pad = block.SharedArray(8, qd.f64)
        for tile in range(3):
            pad[block.thread_idx()] = x[i] * tile
            block.sync()
        y[i] = pad[0] * x[i]


def overwritten_later(x: qd.types.ndarray, y: qd.types.ndarray):
    qd.loop_config(block_dim=8)
    for i in x:
        pad = block.SharedArray(8, qd.f64)
        thread, count = block.thread_idx(), block.size()
        pad[thread] = x[i]
        block.sync()
        total = 1.0
        for k in range(count):
            total += pad[k] * pad[k]
        block.sync()
        pad[thread] = total
        block.sync()
        y[i] = pad[count - 1 - thread] * x[i]


def products_in_shared_memory(x: qd.types.ndarray, y: qd.types.ndarray):
    for i in x:
        pad = block.SharedArray(1, qd.f64)
        pad[0] = 1.0
        block.sync()
        qd.atomic_mul(pad[0], x[i])
        block.sync()
        y[i] = pad[0]


def through_memory(x: qd.types.ndarray, y: qd.types.ndarray):
    """An array of the kernel is written, and read behind a barrier."""
    qd.loop_config(block_dim=8)
    for i in x:
        y[i] = x[i]
        block.sync()
        value = y[i // 8 * 8]
        block.sync()
        y[i] = value * value


def in_a_branch(x: qd.types.ndarray, y: qd.types.ndarray):
    for i in x:
        if x[0] > 0.0:
            block.sync()
        y[i] = x[i]


# -- derivatives -----------------------------------------------------------------------------------


def slope(module: Module, x: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """How `y` changes along a direction of `x`, by central differences."""

    def value(at: np.ndarray) -> np.ndarray:
        y = np.zeros_like(x)
        interpreter.run(module, {"x": at, "y": y})
        return y

    step = 1e-6
    return (value(x + step * direction) - value(x - step * direction)) / (2 * step)


def jacobian(module: Module, x: np.ndarray) -> np.ndarray:
    """By central differences."""
    return np.stack([slope(module, x, one) for one in np.eye(len(x))], 1)


def tangent(module: Module, x: np.ndarray, direction: np.ndarray) -> np.ndarray:
    given = {"x": x, "y": np.zeros_like(x), ("x", Companion.TANGENT): direction}
    result = np.zeros_like(x)
    interpreter.run(forward(module), {**given, ("y", Companion.TANGENT): result})
    return result


@pytest.mark.parametrize("kernel", [through_shared_memory, of_lanes, sums_over_lanes, *SHARED])
def test_forward_mode(kernel: Callable[..., Any]) -> None:
    x, direction = rng.uniform(0.2, 0.9, COUNT), rng.normal(size=COUNT)
    module = lowered(compile_kernel(kernel, x, x))
    verify(forward(module))
    wanted = slope(module, x, direction)
    lost = 1e-7 + 1e-8 * np.abs(wanted).max()  # what cancels in differences
    np.testing.assert_allclose(tangent(module, x, direction), wanted, rtol=1e-7, atol=lost)


def gradient(module: Module, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    result = differentiate(module)
    assert not result.hazards
    verify(result.module)
    given = {"x": x, "y": np.zeros_like(x), ("y", Companion.ADJOINT): weights.copy()}
    found = np.zeros_like(x)
    interpreter.run(result.module, {**given, ("x", Companion.ADJOINT): found})
    return found


@pytest.mark.parametrize("kernel", [sums_over_lanes, *SHARED])
def test_reverse_mode(kernel: Callable[..., Any]) -> None:
    x, weights = rng.uniform(0.2, 0.9, COUNT), rng.normal(size=COUNT)
    module = lowered(compile_kernel(kernel, x, x))
    wanted = weights @ jacobian(module, x)
    slack = 1e-8 * np.abs(wanted).max()  # differences are as exact as the largest of their values
    np.testing.assert_allclose(gradient(module, x, weights), wanted, rtol=1e-7, atol=slack)


def by_a_lane_of_its_own(x: qd.types.ndarray, y: qd.types.ndarray):
    for i in x:
        y[i] = subgroup.shuffle_up(x[i], i % 3)


def beyond_all_lanes(x: qd.types.ndarray, y: qd.types.ndarray):
    for i in x:
        y[i] = subgroup.shuffle_down(x[i], -1)


def test_reverse_mode_of_several_subgroups() -> None:
    x, weights = rng.uniform(0.2, 0.9, COUNT), rng.normal(size=COUNT)
    for kernel in (scans, shifts_and_choices):
        module = lowered(compile_kernel(kernel, x, x, blocks=Blocks(subgroup_size=4)))
        wanted = weights @ jacobian(module, x)
        np.testing.assert_allclose(gradient(module, x, weights), wanted, rtol=1e-7, atol=1e-7)


REFUSED = {
    through_shared_memory: "what a loop with barriers does to",
    of_lanes: "shuffle` of a subgroup",
    by_a_lane_of_its_own: "shuffle_up` of a subgroup",
    beyond_all_lanes: "shuffle_down` of a subgroup",
    tiles_with_old_elements: "what a loop with barriers does to",
    a_tile_that_moves: "what a loop with barriers does to",
    what_a_loop_left: "what a loop with barriers left in",
    overwritten_later: "which is stored to after this",
    products_in_shared_memory: "the shared array",
    in_a_branch: "a barrier of a block",
}


@pytest.mark.parametrize("kernel", REFUSED)
def test_what_reverse_mode_does_not_know(kernel: Callable[..., Any]) -> None:
    x = np.zeros(COUNT)
    module = lowered(compile_kernel(kernel, x, x))
    with pytest.raises(qd.OctantsCompilationError, match=REFUSED[kernel]) as raised:
        differentiate(module)
    assert raised.value.diagnostic is not None
    assert raised.value.diagnostic.code == "OCT302"
    (label,) = raised.value.diagnostic.labels
    assert label.span.function in (kernel.__name__, "_reduce", "_scan")


def in_a_loop(x: qd.types.ndarray, y: qd.types.ndarray):
    qd.loop_config(block_dim=16)
    for i in x:
        value = x[i]
        for _ in range(3):
            value = subgroup.reduce_add(value * x[i])
        y[i] = value


def of_integers_in_a_branch(x: qd.types.ndarray, y: qd.types.ndarray):
    qd.loop_config(block_dim=16)
    for i in x:
        number = 0
        if x[0] > -1.0:
            number = subgroup.reduce_max(i)
        y[i] = x[i] * number


def beside_a_record(x: qd.types.ndarray, y: qd.types.ndarray):
    for i in x:
        value = x[i]
        for _ in range(100):
            value = qd.sin(value)
        y[i] = subgroup.reduce_add(value)


def by_the_greatest(x: qd.types.ndarray, y: qd.types.ndarray):
    for i in x:
        y[i] = subgroup.reduce_max(x[i])


def by_a_mask_of_each_lane(x: qd.types.ndarray, y: qd.types.ndarray):
    for i in x:
        y[i] = subgroup.shuffle_xor(x[i], i % 2)


def behind_a_fence(x: qd.types.ndarray, y: qd.types.ndarray):
    for i in x:
        y[i] = x[i]
        qd.simt.grid.mem_fence()


@pytest.mark.parametrize(
    "kernel",
    [
        in_a_loop,
        of_integers_in_a_branch,
        beside_a_record,
        by_the_greatest,
        by_a_mask_of_each_lane,
        behind_a_fence,
        recorded_tiles,
    ],
)
def test_places_where_reverse_mode_is_refused(kernel: Callable[..., Any]) -> None:
    x = np.zeros(COUNT)
    with pytest.raises(qd.OctantsCompilationError, match="OCT302"):
        differentiate(lowered(compile_kernel(kernel, x, x)))


def test_forward_mode_refuses_what_is_not_linear() -> None:
    x = np.zeros(COUNT)
    with pytest.raises(qd.OctantsCompilationError, match="`max` of a subgroup"):
        forward(lowered(compile_kernel(by_the_greatest, x, x)))


# -- whole programs --------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.python, default_fp=qd.f64, log_level="error", offline_cache=False)
    yield
    qd.reset()


@qd.kernel
def order_and_gather():
    """The first loop sorts out integers in blocks; the second one has a derivative."""
    qd.loop_config(block_dim=8)
    for i in keys:
        place = block.exclusive_add(keys[i] % 2, 8, qd.i32)
        count = block.reduce_add(keys[i] % 2, 8, qd.i32)
        slot = i // 8 * 8 + (place if keys[i] % 2 else count + i % 8 - place)
        positions[slot] = i
    for i in x:
        y[None] += qd.sin(x[positions[i]]) * i


def make_fields() -> None:
    global keys, positions, x, y
    keys, positions = qd.field(qd.i32, 24), qd.field(qd.i32, 24)
    x, y = (qd.field(qd.f64, shape, needs_grad=True, needs_dual=True) for shape in (24, ()))
    keys.from_numpy(rng.integers(0, 9, 24).astype(np.int32))
    x.from_numpy(rng.uniform(0, 1, 24))


def test_a_loop_of_integers_before_one_with_a_derivative() -> None:
    make_fields()
    with qd.ad.Tape(loss=y):
        order_and_gather()
    order = positions.to_numpy()
    assert sorted(order) == list(range(24))
    wanted = np.zeros(24)
    wanted[order] = np.cos(x.to_numpy()[order]) * np.arange(24)
    np.testing.assert_allclose(x.grad.to_numpy(), wanted)


def test_a_bare_gradient_of_it() -> None:
    make_fields()
    order_and_gather()
    y.grad[None] = 1.0
    order_and_gather.grad()
    order = positions.to_numpy()
    wanted = np.zeros(24)
    wanted[order] = np.cos(x.to_numpy()[order]) * np.arange(24)
    np.testing.assert_allclose(x.grad.to_numpy(), wanted)


@qd.kernel
def count_and_scale():
    """A variable of the kernel is summed up in blocks, and used by a loop with a derivative."""
    total = 0
    qd.loop_config(block_dim=8)
    for i in keys:
        pad = block.SharedArray(8, qd.i32)
        pad[block.thread_idx()] = keys[i]
        block.sync()
        total += pad[block.size() - 1 - block.thread_idx()] * (i % 3)
    for i in x:
        y[None] += x[i] * x[i] * total


@pytest.mark.parametrize("tape", [False, True])
def test_a_variable_that_blocks_have_summed_up(tape: bool) -> None:
    make_fields()
    if tape:
        with qd.ad.Tape(loss=y):
            count_and_scale()
    else:
        count_and_scale()
        y.grad[None] = 1.0
        count_and_scale.grad()
    number = np.arange(24)
    mirrored = number // 8 * 8 + 7 - number % 8
    total = (keys.to_numpy()[mirrored] * (number % 3)).sum()
    np.testing.assert_allclose(x.grad.to_numpy(), 2 * x.to_numpy() * total)


def test_what_is_overwritten_between_barriers() -> None:
    """A hazard as long as the memory is that from after the run; no tape can help."""
    x = np.zeros(COUNT)
    module = lowered(compile_kernel(through_memory, x, x))
    with pytest.raises(qd.OctantsCompilationError, match="a barrier in a loop that overwrites"):
        differentiate(module)
    assert reverse(module).hazards


@qd.kernel
def fence_in_the_way():
    for i in x:
        qd.simt.grid.mem_fence()
        y[None] += x[i]


def test_the_error_of_a_tape() -> None:
    make_fields()
    with pytest.raises(qd.OctantsCompilationError, match="a fence of a device"):
        with qd.ad.Tape(loss=y):
            fence_in_the_way()
    fence_in_the_way()


@qd.kernel
def mirrored():
    qd.loop_config(block_dim=8)
    for i in x:
        pad = block.SharedArray(8, qd.f64)
        pad[block.thread_idx()] = x[i]
        block.sync()
        y[None] += pad[block.size() - 1 - block.thread_idx()] * qd.sin(x[i]) * i


def test_a_tape_with_shared_arrays() -> None:
    make_fields()
    with qd.ad.Tape(loss=y):
        mirrored()
    v, number = x.to_numpy(), np.arange(24)
    other = number // 8 * 8 + 7 - number % 8
    wanted = v[other] * np.cos(v) * number + np.sin(v[other]) * other
    np.testing.assert_allclose(x.grad.to_numpy(), wanted)


@qd.kernel
def products():
    for i in x:
        block.sync()
        qd.atomic_mul(y[None], x[i])


def test_a_tape_that_needs_an_order() -> None:
    make_fields()
    with pytest.raises(qd.OctantsError, match="OCT245|OCT302"):
        with qd.ad.Tape(loss=y):
            products()


def test_forward_mode_of_a_program() -> None:
    make_fields()

    @qd.kernel
    def squares():
        qd.loop_config(block_dim=8)
        for i in x:
            total = block.reduce_add(x[i] * x[i], 8, qd.f64)
            if block.thread_idx() == 0:
                y[None] += total

    with qd.ad.FwdMode(loss=y, param=x, seed=np.arange(24.0).tolist()):
        squares()
    np.testing.assert_allclose(y.dual[None], (2 * x.to_numpy() * np.arange(24)).sum())
