"""Debug mode: an index out of range is an error before the access, on the user's line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.golden_files import check_golden


@pytest.fixture(autouse=True, params=["debug", "check_out_of_bound"])
def runtime(request: Any) -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error", **{request.param: True})
    yield
    qd.reset()


@qd.kernel
def read(x: qd.types.ndarray(), i: qd.i32) -> qd.f32:
    return x[i]


@qd.kernel
def write(x: qd.types.ndarray(ndim=2), i: qd.i32, j: qd.i32):
    x[i, j] = 1.0


@qd.kernel
def add(x: qd.types.ndarray(ndim=1)):
    for i in range(5):
        x[i] += 1.0


def error(function: Any, *arguments: Any) -> str:
    with pytest.raises(qd.QuadrantsAssertionError) as caught:
        function(*arguments)
    return str(caught.value).replace(__file__, "test.py")


def test_what_is_in_range_passes() -> None:
    x = np.arange(4, dtype=np.float32)
    assert [read(x, i) for i in range(4)] == [0, 1, 2, 3]
    write(np.zeros((2, 3), np.float32), 1, 2)


@pytest.mark.parametrize("index", [-1, 4, 2**31 - 1, -(2**31)])
def test_reads(index: int) -> None:
    assert f"index {index} is out of bounds" in error(read, np.zeros(4, np.float32), index)


def test_an_unsigned_index_beyond_the_signed_ones() -> None:
    @qd.kernel
    def read_at(x: qd.types.ndarray(), i: qd.u64) -> qd.f32:
        return x[i]

    index = 2**63 + 5
    assert f"index {index} is out of bounds" in error(read_at, np.zeros(4, np.float32), index)


def test_the_message_names_array_index_axis_and_extent() -> None:
    text = error(write, np.zeros((2, 3), np.float32), 1, 3)
    assert "index 3 is out of bounds for axis 1 of `x`, whose extent is 3" in text
    check_golden("errors/bounds", text)


def test_nothing_is_written_out_of_range() -> None:
    memory = np.zeros(8, np.float32)
    error(add, memory[:4])
    assert memory[4:].tolist() == [0, 0, 0, 0]
    add(memory[:5])


def test_fields_vectors_and_offsets() -> None:
    x = qd.Vector.field(2, qd.f32, shape=3)
    shifted = qd.field(qd.f32, shape=4, offset=-2)

    @qd.kernel
    def get(i: qd.i32, k: qd.i32) -> qd.f32:
        return x[i][k]

    @qd.kernel
    def get_shifted(i: qd.i32) -> qd.f32:
        return shifted[i]

    assert get(2, 1) == 0
    assert "axis 0 of `x`" in error(get, 3, 0)
    assert get_shifted(-2) == get_shifted(1) == 0
    error(get_shifted, 2)
    error(get_shifted, -3)


def test_gradients_of_checked_kernels() -> None:
    x = qd.field(qd.f32, 3, needs_grad=True)
    loss = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def f():
        for i in range(3):
            loss[None] += x[i] * x[i]

    x.fill(2)
    with qd.ad.Tape(loss=loss):
        f()
    assert x.grad.to_numpy().tolist() == [4, 4, 4]


def test_the_process_goes_on() -> None:
    for _ in range(20):
        error(read, np.zeros(2, np.float32), 2)
    assert read(np.ones(2, np.float32), 1) == 1
