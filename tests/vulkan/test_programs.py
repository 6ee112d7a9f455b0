"""Whole programs through the public names, and random ones against the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.vulkan import compiled


@pytest.fixture(autouse=True)
def vulkan() -> Iterator[None]:
    compiled.device()
    yield
    qd.reset()


def oscillate(arch: Any) -> tuple[Any, ...]:
    """A loss and its gradient, through a loop that ends by itself and one over a number."""
    qd.init(arch=arch, default_fp=qd.f64, offline_cache=False)
    x = qd.field(qd.f64, shape=200, needs_grad=True)
    steps = qd.field(qd.i32, shape=200)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def run(rate: qd.f64) -> qd.i32:
        longest = 0
        for i in x:
            v = x[i]
            for t in range(steps[i]):
                if v > 0.5:
                    v -= rate * v * v
                while v < 0.2:
                    v = v * 1.5 + 0.01
                v = qd.sin(v) * 0.95 + 0.01 * t
            qd.atomic_max(longest, steps[i])
            loss[None] += v * v
        return longest

    x.from_numpy(np.linspace(0.01, 2.0, 200))
    steps.from_numpy((np.arange(200) * 7 % 23).astype(np.int32))
    longest = run(0.3)
    value = loss[None]
    loss.grad[None] = 1.0
    run.grad(0.3)
    return value, longest, x.grad.to_numpy()


def test_a_program_gives_what_it_gives_on_the_cpu() -> None:
    found, wanted = oscillate(qd.vulkan), oscillate(qd.cpu)
    assert found[1] == wanted[1] == 22
    assert found[0] == pytest.approx(wanted[0], rel=1e-12)
    np.testing.assert_allclose(found[2], wanted[2], rtol=1e-9, atol=1e-12)
    assert np.abs(wanted[2]).max() > 0.1


def test_a_failure_is_told_by_the_next_read_and_once() -> None:
    qd.init(arch=qd.vulkan, offline_cache=False, debug=True)
    x = qd.field(qd.f32, shape=8)

    @qd.kernel
    def fill(n: qd.i32):
        for i in x:
            assert i < n, "too many"
            x[i] = i

    fill(3)
    with pytest.raises(qd.OctantsAssertionError, match="too many"):
        x.to_numpy()
    assert x.to_numpy()[:3].tolist() == [0, 1, 2]
    fill(8)
    assert x.to_numpy().tolist() == list(range(8))


def test_a_bound_that_only_the_device_knows() -> None:
    qd.init(arch=qd.vulkan, offline_cache=False)
    count, x = qd.field(qd.i32, shape=()), qd.field(qd.i32, shape=1000)

    @qd.kernel
    def fill():
        for i in range(count[None]):
            x[i] = i + 1

    for n in (0, 7, 1000):
        x.fill(0)
        count[None] = n
        fill()
        assert x.to_numpy().tolist() == [i + 1 if i < n else 0 for i in range(1000)]


def test_work_items_that_work_together() -> None:
    qd.init(arch=qd.vulkan, offline_cache=False)
    lanes = compiled.device().hardware.blocks.subgroup_size
    x = qd.field(qd.i32, shape=4 * lanes)
    y = qd.field(qd.i32, shape=(4 * lanes, 3))

    @qd.kernel
    def run():
        qd.loop_config(block_dim=2 * qd.simt.subgroup.group_size())
        for i in x:
            pad = qd.simt.block.SharedArray(2 * qd.simt.subgroup.group_size(), qd.i32)
            thread = qd.simt.block.thread_idx()
            pad[thread] = i
            qd.simt.block.sync()
            y[i, 0] = pad[qd.simt.block.size() - 1 - thread]
            y[i, 1] = qd.simt.subgroup.reduce_add(i)
            y[i, 2] = qd.simt.subgroup.group_size()

    run()
    number = np.arange(4 * lanes)
    found = y.to_numpy()
    assert (found[:, 0].reshape(2, -1)[:, ::-1].ravel() == number).all()
    assert (found[:, 1] == np.repeat(number.reshape(-1, lanes).sum(1), lanes)).all()
    assert (found[:, 2] == lanes).all()


def test_sums_of_blocks_where_lanes_exchange_nothing() -> None:
    """A subgroup is one work item then."""
    qd.init(arch=qd.vulkan, offline_cache=False, vulkan_without="lanes")
    x, y = qd.field(qd.i32, shape=50), qd.field(qd.i32, shape=(50, 4))

    @qd.kernel
    def run():
        qd.loop_config(block_dim=16)
        for i in x:
            y[i, 0] = qd.simt.block.reduce_add(i, 16, qd.i32)
            y[i, 1] = qd.simt.block.exclusive_add(i, 16, qd.i32)
            y[i, 2] = qd.simt.subgroup.shuffle_down(i, 1) + qd.simt.subgroup.group_size()
            y[i, 3] = qd.i32(qd.simt.subgroup.ballot(i % 2))

    run()
    number = np.arange(50)
    parts = [number[k : k + 16] for k in range(0, 50, 16)]
    before = [np.cumsum(part) - part for part in parts]
    wanted = [np.concatenate([np.full(len(part), part.sum()) for part in parts])]
    wanted += [np.concatenate(before), number + 1, number % 2]
    np.testing.assert_array_equal(y.to_numpy(), np.stack(wanted, 1))


def test_numbers_of_lanes_that_the_device_does_not_have() -> None:
    qd.init(arch=qd.vulkan, offline_cache=False)
    lanes = compiled.device().hardware.blocks.subgroup_size
    x = qd.field(qd.i32, shape=64)

    @qd.kernel
    def too_many(log2_size: qd.template()):
        for i in x:
            x[i] = qd.simt.subgroup.reduce_add_tiled(i, log2_size)

    too_many(lanes.bit_length() - 1)
    with pytest.raises(qd.OctantsError, match=f"OCT243.*a subgroup has {lanes} lanes"):
        too_many(lanes.bit_length())

    @qd.kernel
    def of_warps():
        for i in x:
            x[i] = qd.simt.warp.shfl_down_i32(0xFFFFFFFF, i, 1)

    if lanes == 32:
        of_warps()
    else:
        with pytest.raises(qd.OctantsError, match=r"simt\.warp is for subgroups of 32 lanes"):
            of_warps()


@pytest.mark.parametrize("budget", [0, 4096])
def test_blocks_of_records_in_local_memory(budget: int) -> None:
    """With a small budget blocks of a loop are run again, and recorded in a thread's memory."""
    found = []
    for arch in (qd.vulkan, qd.cpu):
        qd.init(arch=arch, default_fp=qd.f64, offline_cache=False, ad_stack_budget_bytes=budget)
        x = qd.field(qd.f64, shape=40, needs_grad=True)
        loss = qd.field(qd.f64, shape=(), needs_grad=True)

        @qd.kernel
        def run():
            for i in x:
                v, up, n = x[i], True, qd.i8(3)  # noqa: B023
                for k in range(700):
                    if v > 0.9:
                        up = not up
                    v += 0.002 * qd.sin(5.0 * v + (0.1 if up else -0.2))
                    n += qd.i8(k)
                    if n > 90:
                        v *= 0.999
                loss[None] += v * v  # noqa: B023

        x.from_numpy(np.linspace(0.1, 2.0, 40))
        loss.grad[None] = 1.0
        run.grad()
        found.append(x.grad.to_numpy())
    assert np.abs(found[1]).max() > 1e-3
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "computed"])
def test_gradients_of_very_many_work_items(is_known: bool) -> None:
    """They are more than a driver lets one thread count, and need what an argument says."""
    qd.init(arch=qd.vulkan, offline_cache=False)
    count = 150_000
    x, loss = qd.field(qd.f32, count, needs_grad=True), qd.field(qd.f32, (), needs_grad=True)
    items = qd.field(qd.i32, ())
    items[None] = count

    @qd.kernel
    def known(turns: qd.i32):
        for i in x:
            v = x[i]
            for _ in range(turns):
                v = v * v + 0.1
            loss[None] += v

    @qd.kernel
    def computed(turns: qd.i32):
        for i in range(items[None]):
            v = x[i]
            for _ in range(turns):
                v = v * v + 0.1
            loss[None] += v

    x.fill(0.5)
    run = known if is_known else computed
    for turns in (300, 5):
        value, slope = 0.5, 1.0
        for _ in range(turns):
            value, slope = value * value + 0.1, slope * 2.0 * value
        with qd.ad.Tape(loss=loss):
            run(turns)
        np.testing.assert_allclose(x.grad.to_numpy(), slope, rtol=1e-4, atol=1e-30)
