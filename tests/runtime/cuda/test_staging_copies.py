"""Numpy arguments on a GPU that the CPU emulates: small ones go there and back by one copy each."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.runtime.arguments.staging_copies import _JOINED, _MOST_JOINED
from octants.runtime.cuda.fast_launcher import SAME
from tests.codegen.on_emulated_gpu import AddressableCuda, emulated_gpu

SMALL, LARGE = 100, _JOINED // 4  # elements


@pytest.fixture
def fake() -> Iterator[AddressableCuda]:
    with emulated_gpu() as fake:
        qd.init(arch=qd.cuda, log_level="error")
        yield fake


def kernel() -> Any:
    @qd.kernel
    def add(
        a: qd.types.ndarray(qd.f32, 1),
        b: qd.types.ndarray(qd.i16, 1),
        c: qd.types.ndarray(qd.f64, 1),
    ):
        for i in a:
            a[i] += b[i]
            c[i] -= a[i]

    return add


def arrays(count: int, seed: int = 0) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(seed)
    a, c = random.random(count, np.float32), random.random(count)
    return a, random.integers(-9, 9, count).astype(np.int16), c


def check(add: Any, a: Any, b: Any, c: Any) -> None:
    sums, kept = a + b, b.copy()
    rest = c - sums
    add(a, b, c)
    assert np.array_equal(a, sums.astype(np.float32))
    assert np.array_equal(b, kept)
    np.testing.assert_allclose(c, rest, rtol=1e-6)


def copies(fake: AddressableCuda) -> tuple[int, int]:
    """The copies in each direction since the last call."""
    found = fake.calls["cuMemcpyHtoDAsync"], fake.calls["cuMemcpyDtoHAsync"]
    fake.calls.clear()
    return found


def copies_of(fake: AddressableCuda, count: int) -> tuple[int, int]:
    """The copies for the arrays of a launch."""
    add, given = kernel(), arrays(count)
    check(add, *given)
    copies(fake)
    add(*given)
    return copies(fake)


def test_small_arrays_are_sent_together(fake: AddressableCuda) -> None:
    assert copies_of(fake, SMALL) == (1, 1)


def test_large_arrays_are_sent_one_by_one(fake: AddressableCuda) -> None:
    assert copies_of(fake, LARGE) == (3, 2)


def test_other_arrays_of_the_same_form_need_no_memory(fake: AddressableCuda) -> None:
    add = kernel()
    check(add, *arrays(SMALL))
    check(add, *arrays(SMALL, 1))
    live = qd.driver.state.device.live_bytes()
    for seed in range(5):
        check(add, *arrays(SMALL, seed))
    assert qd.driver.state.device.live_bytes() == live


def test_forms_in_turns(fake: AddressableCuda) -> None:
    add = kernel()
    forms = [arrays(count) for count in (SMALL, 7, LARGE, 0, 1)]
    strided = tuple(each[::2] for each in arrays(SMALL))
    swapped = tuple(each.astype(each.dtype.newbyteorder()) for each in arrays(SMALL))
    for _ in range(3):
        for form in (*forms, strided, swapped):
            check(add, *form)
    live = qd.driver.state.device.live_bytes()
    for count in range(1, 3 * _MOST_JOINED):
        check(add, *arrays(count))
    assert qd.driver.state.device.live_bytes() < live + _JOINED


def test_an_array_that_is_passed_twice(fake: AddressableCuda) -> None:
    @qd.kernel
    def add(a: qd.types.ndarray(qd.f32, 1), b: qd.types.ndarray(qd.f32, 1)):
        for i in a:
            a[i] += b[i]

    one, other = np.ones(SMALL, np.float32), np.full(SMALL, 5, np.float32)
    for _ in range(2):
        add(one, one)
        add(one, other)
        add(other, other)
    assert (one == 24).all()  # 1, 2, 7; 14, 24
    assert (other == 20).all()


def test_the_buffer_of_an_interrupted_launch(
    fake: AddressableCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not used again, since the copies may be under way."""
    add, device = kernel(), qd.driver.state.device
    check(add, *arrays(SMALL))
    check(add, *arrays(SMALL))
    before = fake.calls["cuMemAllocHost"]

    def interrupt() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(device, "synchronize", interrupt)
        add(*arrays(SMALL))
    gc.collect()
    check(add, *arrays(SMALL))
    assert fake.calls["cuMemAllocHost"] == before + 1


def test_the_arrays_of_a_launch_that_fails(fake: AddressableCuda) -> None:
    qd.init(arch=qd.cuda, log_level="error", debug=True)

    @qd.kernel
    def double(a: qd.types.ndarray(qd.f32, 1)):
        for i in a:
            a[i] *= 2.0
            assert a[i] < 6.0

    numbers = np.arange(4, dtype=np.float32)
    for _ in range(3):
        before = fake.calls["cuMemAllocHost"]
        numbers[:] = range(4)
        with pytest.raises(qd.OctantsAssertionError):
            double(numbers)
        gc.collect()
    assert numbers.tolist() == [0, 2, 4, 6]
    assert fake.calls["cuMemAllocHost"] == before


def test_pinned_memory_is_reused(fake: AddressableCuda) -> None:
    add = kernel()

    def take_turns() -> int:
        for count in range(1, 3 * _MOST_JOINED):
            check(add, *arrays(count))
        gc.collect()
        return fake.calls["cuMemAllocHost"]

    before = take_turns()
    assert take_turns() == before


def test_launches_that_write_no_array_of_the_host(fake: AddressableCuda) -> None:
    """The host does not wait for them, so that their arrays need memory of their own."""
    total = qd.field(qd.f32, ())

    @qd.kernel
    def add(a: qd.types.ndarray(qd.f32, 1)):
        for i in a:
            total[None] += a[i]

    numbers = np.ones(SMALL, np.float32)
    add(numbers)
    fake.order.clear()
    for value in range(2, 5):
        numbers[:] = value
        add(numbers)
    assert "cuStreamQuery" not in fake.order
    assert total[None] == 10 * SMALL


@qd.kernel
def scaled(a: qd.types.ndarray(qd.f32, 1), b: qd.types.ndarray(qd.f32, 1), factor: qd.f32):
    for i in a:
        a[i] += factor * b[i]


def check_scaled(a: Any, b: Any, factor: float = 2.0) -> None:
    expected, kept = a + np.float32(factor) * b, b.copy()
    scaled(a, b, factor)
    assert np.array_equal(a, expected)
    assert np.array_equal(b, kept)


def replayed(fake: AddressableCuda) -> tuple[Any, Any]:
    """Arrays of a launch that is replayed with its copies."""
    a, b = np.arange(SMALL, dtype=np.float32), np.ones(SMALL, np.float32)
    for _ in range(SAME + 2):
        check_scaled(a, b)
    fake.order.clear()
    b += 1
    check_scaled(a, b)
    queued = {"cuGraphLaunch", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuLaunchKernelEx"}
    assert [each for each in fake.order if each in queued] == ["cuGraphLaunch"]
    return a, b


def test_a_repeated_launch_is_one_graph_with_its_copies(fake: AddressableCuda) -> None:
    a, b = replayed(fake)
    for factor in (2.0, 3.0, 2.0, 2.0):
        a[3] = 7
        check_scaled(a, b, factor)


def test_other_arrays_after_replays(fake: AddressableCuda) -> None:
    a, b = replayed(fake)
    for _ in range(3):
        check_scaled(a.copy(), b + 5)
        check_scaled(a[:7], b[7:14])
        check_scaled(a[::2], b[::2])
        check_scaled(a, b)
    live = qd.ndarray(qd.f32, SMALL)
    live.from_numpy(a)
    scaled(live, b, 2.0)
    assert np.array_equal(live.to_numpy(), a + 2 * b)


def test_streams_after_replays(fake: AddressableCuda) -> None:
    a, b = replayed(fake)
    stream, expected = qd.create_stream(), a + 2 * b
    scaled(a, b, 2.0, qd_stream=stream)
    assert np.array_equal(a, expected)
    check_scaled(a, b)


def test_fields_that_change_between_replays(fake: AddressableCuda) -> None:
    total = qd.field(qd.f32, ())

    @qd.kernel
    def add(a: qd.types.ndarray(qd.f32, 1)):
        for i in a:
            a[i] += total[None]

    numbers = np.zeros(SMALL, np.float32)
    for step in range(SAME + 10):
        total[None] = step
        add(numbers)
    assert (numbers == sum(range(SAME + 10))).all()


def test_random_numbers_are_not_replayed(fake: AddressableCuda) -> None:
    @qd.kernel
    def draw(a: qd.types.ndarray(qd.f32, 1)):
        for i in a:
            a[i] = qd.random()

    numbers = np.zeros(4, np.float32)
    found = set()
    for _ in range(SAME + 10):
        draw(numbers)
        found.add(float(numbers[0]))
    assert len(found) == SAME + 10


@pytest.mark.parametrize("call", ["cuGraphLaunch", "cuMemcpyHtoDAsync"])
def test_arrays_keep_their_values_if_nothing_is_launched(fake: AddressableCuda, call: str) -> None:
    a, b = replayed(fake)
    a[:] = 5
    factor = 2.0 if call == "cuGraphLaunch" else 4.0
    fake.fail(call, 1)
    with pytest.raises(qd.OctantsRuntimeError, match=call):
        scaled(a, b, factor)
    assert (a == 5).all()
    with pytest.raises(qd.OctantsError):
        scaled(a, b, "none")
    assert (a == 5).all()
    check_scaled(a, b)


def test_a_graph_that_is_refused(fake: AddressableCuda) -> None:
    fake.fail("cuGraphAddMemcpyNode", 1)
    a, b = np.arange(SMALL, dtype=np.float32), np.ones(SMALL, np.float32)
    for _ in range(SAME + 10):
        check_scaled(a, b)
