"""Prefix sums, reductions, selection and `parallel_sort` against numpy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import algorithms
from octants.algorithms import chunks
from octants.compile_profile import profiled
from octants.types import ndarray
from tests.devices import ARCH

SIZES = (0, 1, 31, 32, 33, 1023, 1024, 1025, 2100)
OTHERS = ("i8", "u16", "u32", "u64", "i64", "f16", "f32", "f64")
MANY = 100_000
MOST = max(SIZES)


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


def numbers(name: str, count: int) -> np.ndarray[Any, Any]:
    """Small integers of a type, some of them negative if it has a sign."""
    dtype = getattr(qd, name).numpy
    low = 0 if np.dtype(dtype).kind == "u" else -5
    return np.random.default_rng(count).integers(low, 9, count).astype(dtype)


def ndarray_of(values: np.ndarray[Any, Any]) -> Any:
    made = qd.ndarray(values.dtype, values.shape)
    made.from_numpy(values)
    return made


@qd.kernel
def scans(
    arr: ndarray, sums: ndarray, least: ndarray, greatest: ndarray, n: qd.i32, dtype: qd.template()
):
    algorithms.exclusive_scan_min(arr, least, least, n, dtype)
    algorithms.exclusive_scan_max(arr, greatest, greatest, n, dtype, log256_max_n=2)
    algorithms.exclusive_scan_add(arr, sums, sums, n, dtype)
    algorithms.exclusive_scan_add(arr, arr, sums, n, dtype)  # in place


@qd.kernel
def reductions(
    arr: ndarray, sums: ndarray, least: ndarray, greatest: ndarray, n: qd.i32, dtype: qd.template()
):
    algorithms.reduce_add(arr, sums, sums, n, dtype)
    algorithms.reduce_min(arr, least, least, n, dtype, log256_max_n=2)
    algorithms.reduce_max(arr, greatest, greatest, n, dtype)


def limits(dtype: Any) -> tuple[Any, Any]:
    if dtype.kind == "f":
        return -np.inf, np.inf
    return np.iinfo(dtype).min, np.iinfo(dtype).max


def check_scans(values: np.ndarray[Any, Any], sizes: Any) -> None:
    dtype = values.dtype
    low, high = (np.array([each], dtype) for each in limits(dtype))
    for n in sizes:
        given = ndarray_of(values)
        outs = [qd.ndarray(dtype, values.shape) for _ in range(3)]
        for out in outs:
            out.fill(7)
        scans(given, *outs, n, given.dtype)
        head, rest = values[:n], np.full(len(values) - n, 7, dtype)
        zero = np.zeros(1, dtype)
        wanted = np.concatenate([zero, np.cumsum(head, dtype=dtype)])[:n]
        assert np.array_equal(outs[0].to_numpy(), np.concatenate([wanted, rest]))
        assert np.array_equal(given.to_numpy(), np.concatenate([wanted, values[n:]]))
        for out, first, function in ((outs[1], high, np.fmin), (outs[2], low, np.fmax)):
            wanted = function.accumulate(np.concatenate([first, head]))[:n]
            assert np.array_equal(out.to_numpy(), np.concatenate([wanted, rest]))


def check_reductions(values: np.ndarray[Any, Any], sizes: Any) -> None:
    dtype = values.dtype
    low, high = limits(dtype)
    for n in sizes:
        given = ndarray_of(values)
        outs = [qd.ndarray(dtype, 1) for _ in range(3)]
        reductions(given, *outs, n, given.dtype)
        found = [out.to_numpy()[0] for out in outs]
        head = values[:n]
        assert found == [head.sum(dtype=dtype), head.min(initial=high), head.max(initial=low)]


@pytest.mark.parametrize(
    "name", ["i32", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def test_scans_and_reductions(name: str) -> None:
    values = numbers(name, MOST)
    if name in ("i8", "f16"):  # whose sums are exact
        values[40:] = 0
    check_scans(values, SIZES if name == "i32" else (33, MOST))
    check_reductions(values, SIZES if name == "i32" else (0, MOST))


@pytest.mark.slow
@pytest.mark.skipif(ARCH == "python", reason="Python would take minutes")
def test_many_elements() -> None:
    values = numbers("i32", MANY)
    check_scans(values, (MANY,))
    check_reductions(values, (MANY,))
    keys = qd.field(qd.f32, MANY)
    given = np.random.default_rng(0).standard_normal(MANY).astype(np.float32)
    keys.from_numpy(given)
    algorithms.parallel_sort(keys)
    assert np.array_equal(keys.to_numpy(), np.sort(given))


def test_chunks_that_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_LEAST", 4)
    monkeypatch.setattr(chunks, "_MOST", 5)
    check_scans(numbers("i32", 60), (19, 20, 21, 59, 60))
    check_runs(np.sort(numbers("i32", 60)), 60)


def test_nan_is_ignored() -> None:
    values = np.array([np.nan, 3.0, np.nan, -1.0, 2.0], np.float32)
    given, outs = ndarray_of(values), [qd.ndarray(qd.f32, 5) for _ in range(3)]
    reductions(given, *outs, 5, qd.f32)
    assert np.isnan(outs[0][0])
    assert (outs[1][0], outs[2][0]) == (-1.0, 3.0)
    reductions(given, *outs, 1, qd.f32)
    assert (outs[1][0], outs[2][0]) == (np.inf, -np.inf)
    scans(given, *outs, 5, qd.f32)
    assert outs[1].to_numpy().tolist() == [np.inf, np.inf, 3, 3, -1]
    assert outs[2].to_numpy().tolist() == [-np.inf, -np.inf, 3, 3, 3]


# -- selection, runs -------------------------------------------------------------------------------


@qd.kernel
def chosen(arr: ndarray, flags: ndarray, out: ndarray, count: ndarray, scratch: ndarray, n: qd.i32):
    assert scratch.shape[0] >= algorithms.select_scratch_slots(n)
    algorithms.select(arr, flags, out, count, scratch, n, log256_max_n=2)


def check_selected(values: np.ndarray[Any, Any], n: int) -> None:
    flags = np.random.default_rng(n).integers(-1, 2, len(values), dtype=np.int32)
    out, count = qd.ndarray(values.dtype, len(values)), qd.ndarray(qd.i32, 1)
    out.fill(99)
    scratch = qd.ndarray(qd.u32, algorithms.select_scratch_slots(n))
    chosen(ndarray_of(values), ndarray_of(flags), out, count, scratch, n)
    wanted = values[:n][flags[:n] != 0]
    assert count[0] == len(wanted)
    assert np.array_equal(out.to_numpy()[: len(wanted)], wanted)
    assert (out.to_numpy()[len(wanted) :] == 99).all()


def test_selection() -> None:
    values = numbers("f64", MOST)
    for n in SIZES:
        check_selected(values, n)


def test_selected_structs() -> None:
    pair = qd.types.struct(a=qd.i32, b=qd.math.vec2)
    x, y = pair.field(shape=50), pair.field(shape=50)
    flags, count = qd.field(qd.i32, 50), qd.field(qd.i32, 1)
    scratch = qd.field(qd.u32, algorithms.select_scratch_slots(50))

    @qd.kernel
    def choose():
        for i in x:
            x[i] = pair(a=i, b=qd.math.vec2(i, -i))
            flags[i] = i % 7 == 3
        algorithms.select(x, flags, y, count, scratch, x.shape[0])

    choose()
    assert count[0] == 7
    assert y.a.to_numpy()[:7].tolist() == list(range(3, 50, 7))
    assert y.b.to_numpy()[6].tolist() == [45, -45]


@qd.kernel
def runs(
    keys: ndarray,
    values: ndarray,
    keys_out: ndarray,
    values_out: ndarray,
    count: ndarray,
    scratch: ndarray,
    n: qd.i32,
):
    algorithms.reduce_by_key_add(
        keys, values, keys_out, values_out, count, scratch, n, qd.f64, log256_max_n=2
    )


def check_runs(keys: np.ndarray[Any, Any], n: int) -> int:
    values = np.random.default_rng(n).integers(0, 100, len(keys)).astype(np.float64)
    keys_out, values_out = qd.ndarray(keys.dtype, len(keys)), qd.ndarray(qd.f64, len(keys))
    values_out.fill(-1.0)
    count, scratch = qd.ndarray(qd.i32, 1), qd.ndarray(qd.u32, 9)
    assert algorithms.reduce_by_key_scratch_slots(n) <= 9
    runs(ndarray_of(keys), ndarray_of(values), keys_out, values_out, count, scratch, n)
    head = keys[:n]
    heads = np.flatnonzero(np.concatenate([[True], head[1:] != head[:-1]])[:n])
    assert count[0] == len(heads)
    assert np.array_equal(keys_out.to_numpy()[: len(heads)], keys[heads], equal_nan=True)
    sums = np.add.reduceat(values[:n], heads) if n else []
    assert values_out.to_numpy()[: len(heads)].tolist() == list(sums)
    assert (values_out.to_numpy()[len(heads) :] == -1.0).all()
    return len(heads)


def test_runs_of_keys() -> None:
    keys = np.random.default_rng(1).integers(0, 3, MOST, dtype=np.int32)
    for n in SIZES:
        check_runs(keys, n)
        check_runs(keys // 5, n)  # one run
    assert check_runs(np.array([1.0, 1, np.nan, np.nan, 0, -0.0]), 6) == 4


# -- on the host -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (qd.field, "f16"),
        (qd.ndarray, "f64"),
        pytest.param(qd.ndarray, "f32", marks=pytest.mark.slow),
    ],
)
def test_parallel_sort(make: Any, name: str) -> None:
    dtype = getattr(qd, name)
    for count in (1, 33, 1500):
        keys, values = make(dtype, count), make(qd.types.vector(2, qd.i32), count)
        given = np.random.default_rng(count).integers(-9, 9, count).astype(dtype.numpy)
        given[::7] = np.nan
        given[1::9] = -0.0
        given[2::9] = 0.0
        given[3::11] = -np.inf
        keys.from_numpy(given)
        order = np.argsort(given, kind="stable")
        values.from_numpy(np.stack([np.arange(count), -np.arange(count)], 1).astype(np.int32))
        algorithms.parallel_sort(keys, values)
        assert keys.to_numpy().tobytes() == given[order].tobytes()
        assert values.to_numpy()[:, 1].tolist() == (-order).tolist()


def test_keys_of_64_bits() -> None:
    """All bits decide, and a kernel that sorts by 16 of them serves all."""
    rng = np.random.default_rng(5)
    given = rng.integers(-(2**63), 2**63 - 1, 3000)
    given[::3] >>= rng.integers(0, 60, 1000)
    keys, start = qd.field(qd.i64, 3000), qd.field(qd.f32, 3000, needs_grad=True)
    values = qd.field(qd.f32, 3000, needs_grad=True)
    keys.from_numpy(given)
    start.from_numpy(np.arange(3000, dtype=np.float32))
    with profiled() as profile, qd.ad.Tape(loss=values, seed=np.arange(3000.0)):
        values.copy_from(start)
        algorithms.parallel_sort(keys, values)
    order = np.argsort(given, kind="stable")
    assert keys.to_numpy().tolist() == given[order].tolist()
    assert values.to_numpy().tolist() == order.tolist()
    wanted = np.zeros(3000)
    wanted[order] = np.arange(3000)
    assert start.grad.to_numpy().tolist() == wanted.tolist()
    assert "part11" in str(profile.kernels)  # a kernel has the tasks of two passes, not of eight
    assert "part12" not in str(profile.kernels)


@pytest.mark.parametrize("name", ["u8", pytest.param("i16", marks=pytest.mark.slow)])
def test_small_keys(name: str) -> None:
    dtype = getattr(qd, name).numpy
    given = np.random.default_rng(3).integers(0, 100, 300).astype(dtype) * 2
    for count in (0, 300):
        keys = ndarray_of(given[:count])
        algorithms.parallel_sort(keys)
        assert keys.to_numpy().tolist() == np.sort(given[:count]).tolist()


@pytest.mark.parametrize("dtype", [qd.i32, qd.f32])
def test_prefix_sums_in_place(dtype: Any) -> None:
    for count in (1, 1024, 2100):
        x, given = qd.field(dtype, count), numbers("i32", count)
        x.from_numpy(given)
        algorithms.PrefixSumExecutor(count).run(x)
        assert x.to_numpy().tolist() == np.cumsum(given).tolist()


def test_what_they_refuse() -> None:
    executor = algorithms.PrefixSumExecutor(4)
    for call in (
        lambda: executor.run(qd.field(qd.i32, 5)),
        lambda: executor.run(qd.field(qd.i32, (2, 2))),
        lambda: algorithms.parallel_sort(np.zeros(3)),
        lambda: algorithms.parallel_sort(qd.field(qd.math.vec2, 3)),
        lambda: algorithms.parallel_sort(qd.field(qd.u1, 3)),
        lambda: algorithms.parallel_sort(qd.field(qd.i32, 3), qd.field(qd.i32, 4)),
    ):
        with pytest.raises(qd.OctantsRuntimeTypeError, match="OCT247"):
            call()


# -- gradients -------------------------------------------------------------------------------------


class Weighted:
    """The sum of an array, weighted, as a loss."""

    def __init__(self) -> None:
        self.given, self.weights = np.random.default_rng(5).random((2, 40)).astype(np.float32)
        self.x, self.y = (qd.field(qd.f32, 40, needs_grad=True) for _ in range(2))
        self.loss = qd.field(qd.f32, (), needs_grad=True)
        self.w = qd.field(qd.f32, 40)
        self.w.from_numpy(self.weights)
        self.x.from_numpy(self.given)

    @qd.kernel
    def copy(self):
        for i in self.x:
            self.y[i] = self.x[i]

    @qd.kernel
    def measure(self):
        for i in self.y:
            self.loss[None] += self.y[i] * self.w[i]


def test_gradients_of_prefix_sums() -> None:
    world = Weighted()

    @qd.kernel
    def scan():
        algorithms.exclusive_scan_add(world.x, world.y, world.y, 40, qd.f32)

    with qd.ad.Tape(loss=world.loss):
        scan()
        world.measure()
    wanted = np.cumsum(world.weights[::-1])[::-1] - world.weights
    np.testing.assert_allclose(world.x.grad.to_numpy(), wanted, atol=1e-5)


@pytest.mark.slow
def test_gradients_of_a_sort_and_a_maximum() -> None:
    world = Weighted()
    one = qd.field(qd.f32, 1, needs_grad=True)

    @qd.kernel
    def greatest():
        algorithms.reduce_max(world.x, one, one, 40, qd.f32)
        world.loss[None] += one[0]

    with qd.ad.Tape(loss=world.loss):
        world.copy()
        algorithms.parallel_sort(world.y)
        world.measure()
        greatest()
    wanted = np.zeros(40, np.float32)
    wanted[np.argsort(world.given)] = world.weights
    wanted[world.given.argmax()] += 1
    np.testing.assert_allclose(world.x.grad.to_numpy(), wanted, atol=1e-5)
