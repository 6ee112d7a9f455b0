"""Fills of fields on a fake GPU: little goes there from the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver
from octants.runtime.cuda import repeated_copies
from octants.runtime.cuda.graphs import clear_kernel
from tests.runtime.cuda.whole import Gpu, gpu

__all__ = ["gpu"]


COPIES = ("cuMemcpyHtoDAsync", "cuMemcpyDtoDAsync")
FILLS = ("cuMemsetD8Async", "cuMemsetD16Async", "cuMemsetD32Async")


@pytest.mark.parametrize("value", [0.0, -0.0, 2.5])
@pytest.mark.parametrize("dtype", [qd.f16, qd.f32, qd.f64])
def test_a_fill_is_done_by_the_gpu(gpu: Gpu, dtype: Any, value: float) -> None:
    gpu.init()
    x = qd.Vector.field(3, dtype, 100_000)
    x.fill(1.0)
    gpu.fake.calls.clear()
    x.fill(value)
    sent, copied = (gpu.fake.calls[name] for name in COPIES)
    has_word = dtype is not qd.f64 or not np.signbit(value) and value == 0
    assert (sent, copied) == ((0, 0) if has_word else (1, 6))
    assert sum(gpu.fake.calls[name] for name in FILLS) == has_word
    found = x.to_numpy()
    assert (found == value).all()
    assert (np.signbit(found) == np.signbit(value)).all()


@pytest.mark.parametrize("shape", [(), 1, 5, (2, 3)])
@pytest.mark.parametrize(
    ("dtype", "value"),
    [(qd.u1, True), (qd.i8, -3), (qd.i16, -300), (qd.u32, 2**32 - 1), (qd.i64, -(2**33)),
     (qd.i64, -1), (qd.f16, 0.1), (qd.f32, -0.1), (qd.f32, 1e300), (qd.f64, 0.1), (qd.f64, 0.0)],
)  # fmt: skip
def test_a_number_is_written_by_fills(gpu: Gpu, dtype: Any, value: Any, shape: Any) -> None:
    gpu.init()
    x = qd.field(dtype, shape)
    count = int(np.prod(shape))
    with np.errstate(over="ignore"):
        expected = np.full(shape, value, dtype.numpy)
        x.fill(value)
    assert np.array_equal(x.to_numpy(), expected)
    x.fill(1)
    last = tuple(extent - 1 for extent in np.shape(expected)) or None
    gpu.fake.calls.clear()
    with np.errstate(over="ignore"):
        x[last] = value
    assert gpu.fake.calls["cuMemcpyHtoDAsync"] == 0
    found = x.to_numpy().reshape(-1)
    assert found[-1] == expected.reshape(-1)[-1]
    assert (found[: count - 1] == 1).all()


def test_a_fill_in_a_graph(gpu: Gpu) -> None:
    gpu.init()
    x, y, z = qd.field(qd.f32, 5), qd.field(qd.f64, ()), qd.field(qd.i16, 3)
    with qd.graph.capture() as graph:
        x.fill(2.5)
        y[None] = 0.1
        z[1] = -7
    for field in (x, y, z):
        field.fill(1)
    gpu.fake.calls.clear()
    graph.replay()
    assert sum(gpu.fake.calls[name] for name in (*COPIES, *FILLS)) == 0
    assert (x.to_numpy() == 2.5).all()
    assert y[None] == 0.1
    assert list(z.to_numpy()) == [1, -7, 1]


def test_numbers_in_structs_and_blocks(gpu: Gpu) -> None:
    gpu.init()
    cell = qd.Struct.field({"a": qd.i8, "b": qd.f64, "c": qd.f32}, shape=4)
    cell.a[2], cell.b[1], cell.c[3] = 5, 0.1, 2.5
    cell.c.fill(1.5)
    cell.c[0] = -1
    assert list(cell.a.to_numpy()) == [0, 0, 5, 0]
    assert list(cell.b.to_numpy()) == [0, 0.1, 0, 0]
    assert list(cell.c.to_numpy()) == [-1, 1.5, 1.5, 1.5]
    x = qd.field(qd.f32)
    qd.root.dense(qd.ij, (2, 3)).dense(qd.ij, (2, 2)).place(x)
    x[3, 4] = 9
    x[0, 5] = 8
    expected = np.zeros((4, 6))
    expected[3, 4], expected[0, 5] = 9, 8
    assert (x.to_numpy() == expected).all()


def test_a_fill_with_a_vector_or_of_a_part(gpu: Gpu) -> None:
    gpu.init()
    x = qd.Vector.field(2, qd.f64, (3, 4))
    x.fill(7.0)
    x.fill(qd.Vector([1.0, 2.0]))
    x[1, 2] = qd.Vector([0.0, 5.0])
    expected = np.tile(np.array([1.0, 2.0]), (3, 4, 1))
    expected[1, 2] = 0, 5
    assert (x.to_numpy() == expected).all()


def test_gradients_are_cleared_by_one_call_each(gpu: Gpu) -> None:
    gpu.init()
    fields = [qd.field(qd.f32, (5, 7), needs_grad=True) for _ in range(3)]
    for x in fields:
        x.grad.fill(3.0)
    gpu.fake.calls.clear()
    qd.ad.clear_all_gradients()
    assert gpu.fake.calls["cuMemsetD8Async"] == 3
    assert all((x.grad.to_numpy() == 0).all() for x in fields)


def test_gradients_that_are_often_cleared_are_cleared_by_one_graph(gpu: Gpu) -> None:
    gpu.init()
    arrays = [qd.field(qd.f32, 5, needs_grad=True) for _ in range(3)]

    def clear() -> tuple[int, int]:
        for array in arrays:
            array.fill(2.0)
            array.grad.fill(3.0)
        gpu.fake.calls.clear()
        qd.ad.clear_all_gradients()
        for array in arrays:
            assert array.to_numpy().tolist() == [2.0] * 5
            assert array.grad.to_numpy().tolist() == [0.0] * 5
        return sum(gpu.fake.calls[name] for name in FILLS), gpu.fake.calls["cuGraphLaunch"]

    assert {clear() for _ in range(15)} == {(3, 0)}
    assert {clear() for _ in range(15)} == {(0, 1)}
    arrays.append(qd.ndarray(qd.f32, 5, needs_grad=True))
    assert clear() == (4, 0)
    del arrays[-1]
    assert clear() == (0, 1)


def test_a_loss_is_cleared_with_the_gradients(gpu: Gpu) -> None:
    gpu.init()
    loss = qd.field(qd.f32, (), needs_grad=True)
    for _ in range(20):
        loss[None] = 4.0
        gpu.fake.calls.clear()
        with qd.ad.Tape(loss=loss):
            assert loss[None] == 0.0
        assert loss.grad[None] == 1.0
    assert gpu.fake.calls["cuGraphLaunch"] == 1


def test_ranges_of_all_sizes_are_cleared_by_a_graph(gpu: Gpu) -> None:
    gpu.init()
    kinds = [(qd.f16, 3), (qd.f32, 1), (qd.f64, 7), (qd.f32, clear_kernel.MOST_BYTES // 4 + 1)]
    kinds += [(qd.f32, 5)] * (clear_kernel.MOST_RANGES + 2)
    arrays = [qd.ndarray(dtype, count, needs_grad=True) for dtype, count in kinds]
    for _ in range(20):
        for array in arrays:
            array.fill(2.0)
            array.grad.fill(3.0)
        gpu.fake.calls.clear()
        gpu.fake.launches.clear()
        qd.ad.clear_all_gradients()
        for array in arrays:
            assert (array.to_numpy() == 2.0).all()
            assert not array.grad.to_numpy().any()
    assert sum(gpu.fake.calls[name] for name in FILLS) == 0
    assert [call.grid for call in gpu.fake.launches] == [4, clear_kernel.MOST_RANGES]


def test_copies_of_several_pieces_become_one_launch(gpu: Gpu) -> None:
    """Unless they are of other than whole words, or too large."""
    gpu.init()
    device, most = driver.device(), repeated_copies.MOST_BYTES
    memory = device.allocate(6 * most, "both")
    source, target = memory.address, memory.address + 3 * most
    device.write(source, np.arange(3 * most // 4, dtype=np.uint32).view(np.uint8))
    words = tuple((target + 400 * k, source + 8 * k, 4 * k) for k in range(1, 12))
    odd, large = (target, source + 1, 8), (target, source, most + 4)

    def check(pieces: Any) -> list[str]:
        device.clear(target, 3 * most)
        device.synchronize()
        gpu.fake.launches.clear()
        device.copy_each(pieces)
        for to, of, nbytes in pieces:
            found, expected = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
            device.read(to, found)
            device.read(of, expected)
            assert expected.any()
            assert (found == expected).all()
        return [call.entry for call in gpu.fake.launches]

    assert check(words) == []
    for _ in range(repeated_copies._REPEATED):
        device.copy_each(words)
    assert check(words) == ["octants_copy_each"] * 2
    assert check(words[:3]) == check(((target, source, 1 << 14),)) == ["octants_copy_each"]
    assert check((words[8], odd)) == check((large,)) == []


def test_ranges_are_cleared_by_fills_if_the_driver_compiles_nothing(gpu: Gpu) -> None:
    gpu.init()
    arrays = [qd.field(qd.f32, 5, needs_grad=True) for _ in range(3)]
    gpu.fake.fail("cuModuleLoadDataEx", 222)
    for _ in range(20):
        for array in arrays:
            array.grad.fill(3.0)
        gpu.fake.calls.clear()
        qd.ad.clear_all_gradients()
        assert not any(array.grad.to_numpy().any() for array in arrays)
    assert sum(gpu.fake.calls[name] for name in FILLS) == 3
