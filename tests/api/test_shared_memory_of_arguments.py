"""Kernels whose arrays share memory in some launches: passed twice, views, exported, captured.

A kernel is compiled for arrays that share none if that is faster. Launches on other arrays must
find out, and give the same results as numpy, which runs the statements in order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.runtime.arguments.overlap_test import OverlapTest
from tests.devices import DISCRETE, shares_memory

SIZE, LENGTH = 64, 48


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


def updates(dtype: Any) -> Any:
    """A kernel of two updates, of which either may come first where elements are the same."""
    array = qd.types.ndarray(dtype, 1)

    @qd.kernel
    def add(v: array, q: array, n: qd.i32):
        for i in range(n):
            v[i] += 2
            q[i] += 3 + i % 2

    return add


def expected(values: Any, first: int, second: int) -> Any:
    """The memory after `updates` of the parts that begin at these elements."""
    result = values.copy()
    result[first : first + LENGTH] += 2
    result[second : second + LENGTH] += 3 + np.arange(LENGTH, dtype=values.dtype) % 2
    return result


def runs_on_aliases(kernel: Any) -> bool:
    """Whether a kernel was compiled for arrays that share memory."""
    (found,) = kernel._specialisations.values()
    return ("primal", "aliased") in found.derived


DTYPES = {
    "f16": (qd.f16, np.float16),
    "f32": (qd.f32, np.float32),
    "f64": (qd.f64, np.float64),
    "i8": (qd.i8, np.int8),
    "i32": (qd.i32, np.int32),
    "u16": (qd.u16, np.uint16),
    "i64": (qd.i64, np.int64),
}
OFFSETS = (0, 0), (0, 1), (5, 2), (0, LENGTH - 1)
"""Where two parts begin that share elements."""


def imported_parts(dtype: Any, values: Any) -> tuple[Callable[[int], Any], Callable[[], Any]]:
    """Parts that are ndarrays of Octants in the memory of numpy."""
    base = values.copy()
    return lambda first: qd.from_dlpack(base[first : first + LENGTH]), lambda: base


def numpy_parts(_: Any, values: Any) -> tuple[Callable[[int], Any], Callable[[], Any]]:
    base = values.copy()
    return lambda first: base[first : first + LENGTH], lambda: base


def torch_parts(_: Any, values: Any) -> tuple[Callable[[int], Any], Callable[[], Any]]:
    torch = pytest.importorskip("torch")
    base = torch.from_numpy(values.copy())
    return lambda first: base[first : first + LENGTH], lambda: base.numpy()


def strided_parts(_: Any, values: Any) -> tuple[Callable[[int], Any], Callable[[], Any]]:
    """Parts with gaps between their elements, in which nothing changes."""
    base = np.repeat(values, 3)
    return lambda first: base[3 * first : 3 * (first + LENGTH) : 3], lambda: base[::3]


PARTS = {
    "imported": imported_parts,
    "numpy": numpy_parts,
    "torch": torch_parts,
    "strided": strided_parts,
}


@shares_memory
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("name", DTYPES)
def test_parts_of_one_memory(parts: str, name: str) -> None:
    dtype, numpy_dtype = DTYPES[name]
    kernel = updates(dtype)
    values = (np.arange(SIZE + LENGTH) % 7).astype(numpy_dtype)
    for number, (first, second) in enumerate([(0, LENGTH), *OFFSETS, (LENGTH, 0)]):
        part, read = PARTS[parts](dtype, values)
        kernel(part(first), part(second), LENGTH)
        np.testing.assert_array_equal(read(), expected(values, first, second))
        assert runs_on_aliases(kernel) == (number > 0)


@pytest.mark.parametrize("name", DTYPES)
def test_an_ndarray_that_is_passed_twice(name: str) -> None:
    dtype, numpy_dtype = DTYPES[name]
    kernel = updates(dtype)
    x, y = (qd.ndarray(dtype, LENGTH) for _ in range(2))
    zeros, both = np.zeros(LENGTH, numpy_dtype), expected(np.zeros(LENGTH, numpy_dtype), 0, 0)
    kernel(x, y, LENGTH)
    assert not runs_on_aliases(kernel)
    np.testing.assert_array_equal(x.to_numpy(), zeros + 2)
    np.testing.assert_array_equal(y.to_numpy(), both - 2)
    kernel(x, x, LENGTH)
    assert runs_on_aliases(kernel)
    np.testing.assert_array_equal(x.to_numpy(), both + 2)
    kernel(y, x, LENGTH)
    np.testing.assert_array_equal(y.to_numpy(), both)
    np.testing.assert_array_equal(x.to_numpy(), 2 * both)


def test_a_numpy_array_that_is_passed_twice() -> None:
    kernel = updates(qd.i32)
    swapped = np.zeros(LENGTH, np.dtype(np.int32).newbyteorder())  # launches get a copy
    for x in (np.zeros(LENGTH, np.int32), swapped):
        kernel(x, x, LENGTH)
        np.testing.assert_array_equal(x, expected(np.zeros(LENGTH, np.int32), 0, 0))


def test_memory_of_an_exported_field() -> None:
    field = qd.field(qd.i32, LENGTH)

    @qd.kernel
    def add(v: qd.types.ndarray(qd.i32, 1)):
        for i in range(LENGTH):
            field[i] += 2
            v[i] += 3 + i % 2

    other = qd.ndarray(qd.i32, LENGTH)
    add(other)
    field.fill(0)
    if not DISCRETE:
        add(np.from_dlpack(field))
        expected_sum = expected(np.zeros(LENGTH, np.int32), 0, 0)
        np.testing.assert_array_equal(field.to_numpy(), expected_sum)
    add(other)
    np.testing.assert_array_equal(other.to_numpy(), 2 * (3 + np.arange(LENGTH) % 2))


def test_a_captured_ndarray_that_is_passed() -> None:
    captured, other = (qd.ndarray(qd.i32, LENGTH) for _ in range(2))

    @qd.kernel
    def add(v: qd.types.ndarray(qd.i32, 1)):
        for i in range(LENGTH):
            captured[i] += 2
            v[i] += 3 + i % 2

    add(other)
    assert not runs_on_aliases(add)
    add(captured)
    assert runs_on_aliases(add)
    both = expected(np.zeros(LENGTH, np.int32), 0, 0)
    np.testing.assert_array_equal(captured.to_numpy(), both + 2)
    np.testing.assert_array_equal(other.to_numpy(), both - 2)


@shares_memory
def test_captured_ndarrays_that_overlap() -> None:
    base = np.zeros(LENGTH + 1, np.int32)
    one, other = qd.from_dlpack(base[:-1]), qd.from_dlpack(base[1:])

    @qd.kernel
    def add():
        for i in range(LENGTH):
            one[i] += 2
            other[i] += 3 + i % 2

    add()
    sums = np.zeros(LENGTH + 1, np.int32)
    sums[:-1] += 2
    sums[1:] += 3 + np.arange(LENGTH, dtype=np.int32) % 2
    np.testing.assert_array_equal(base, sums)


@pytest.mark.parametrize("frozen", [False, True])
def test_members_of_structs(frozen: bool) -> None:
    @dataclasses.dataclass(frozen=frozen)  # type: ignore[literal-required]
    class State:
        v: qd.types.ndarray(qd.i32, 1)
        q: qd.types.ndarray(qd.i32, 1)

    @qd.kernel
    def add(state: State, f: qd.types.ndarray(qd.i32, 1)):
        for i in range(LENGTH):
            state.v[i] += 2 * f[i]
            state.q[i] += 3

    v, q, f = (qd.ndarray(qd.i32, LENGTH) for _ in range(3))
    f.fill(1)
    state = State(v, q)
    for _ in range(3):
        add(state, f)
    assert not runs_on_aliases(add)
    assert (v[5], q[5]) == (6, 9)
    add(State(v, v), f)
    assert v[5] == 11
    add(state, v)
    assert (v[5], q[5]) == (33, 12)
    add(state, f)
    assert (v[5], q[5]) == (35, 15)
    assert runs_on_aliases(add)


def test_loops_whose_sums_are_read_meanwhile() -> None:
    array = qd.types.ndarray(qd.i32, 1)

    @qd.kernel
    def accumulate(total: array, x: array):
        qd.loop_config(serialize=True)
        for _ in range(1):
            for i in range(4):
                total[0] += x[i]

    x, y = (qd.ndarray(qd.i32, 4) for _ in range(2))
    x.from_numpy(np.array([1, 2, 3, 4]))
    accumulate(y, x)
    assert y[0] == 10
    accumulate(x, x)
    assert x[0] == 1 + 1 + 2 + 3 + 4


def test_sums_by_index_into_what_is_read() -> None:
    array = qd.types.ndarray(qd.i32, 1)

    @qd.kernel
    def count(counts: array, rows: array):
        for i in range(LENGTH):
            counts[rows[i] % 2] += 1

    rows, counts = (qd.ndarray(qd.i32, LENGTH) for _ in range(2))
    count(counts, rows)
    assert counts[0] == LENGTH
    rows.fill(3)
    rows[1] = 1
    for _ in range(5):
        before = rows.to_numpy()
        count(rows, rows)  # an even number of counts, of which each changes what others read
        assert rows.to_numpy().sum() == before.sum() + LENGTH


def test_a_graph_of_launches_of_either_kind() -> None:
    kernel = updates(qd.i32)
    x, y = (qd.ndarray(qd.i32, LENGTH) for _ in range(2))
    kernel(x, y, LENGTH)
    kernel(x, x, LENGTH)
    x.fill(0)
    y.fill(0)
    with qd.graph.capture() as graph:
        kernel(x, y, LENGTH)
        kernel(y, y, LENGTH)
    x.fill(0)
    y.fill(0)
    graph.replay()
    both = expected(np.zeros(LENGTH, np.int32), 0, 0)
    np.testing.assert_array_equal(x.to_numpy(), np.full(LENGTH, 2))
    np.testing.assert_array_equal(y.to_numpy(), 2 * both - 2)


def test_tapes_of_launches_of_either_kind() -> None:
    array = qd.types.ndarray(qd.f64, 1)

    @qd.kernel
    def step(v: array, q: array):
        for i in range(4):
            v[i] += 2.0
            q[i] += v[i] * v[i]

    x, y = (qd.ndarray(qd.f64, 4, needs_grad=True) for _ in range(2))
    x.fill(1.0)
    with qd.ad.Tape():
        step(x, y)
        step(x, x)
        x.grad.fill(1.0)
        y.grad.fill(1.0)
    # x: 1, 3, 5 + 25; y: 9
    assert (x[0], y[0]) == (30.0, 9.0)
    assert (x.grad[0], y.grad[0]) == (2 * 5 + 1 + 2 * 3, 1.0)


def random_view(random: Any, base: Any) -> Any:
    """A view of a matrix: some rows and columns, perhaps in steps, backwards, or none."""
    slices = []
    for extent in base.shape:
        first, length = int(random.integers(extent)), int(random.integers(extent // 2))
        step = int(random.choice([1, 1, 1, 2, -1]))
        end = first + length * step
        slices.append(slice(first, end if end >= 0 else None, step))
    return base[tuple(slices)]


@shares_memory
def test_no_shared_memory_is_overlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever two views have in common, a launch on them uses the code for shared memory."""
    verdicts: list[bool] = []

    def overlaps(self: OverlapTest, view: Any) -> bool:
        verdicts.append(original(self, view))
        return verdicts[-1]

    original = OverlapTest.overlaps
    monkeypatch.setattr(OverlapTest, "overlaps", overlaps)
    array = qd.types.ndarray(qd.i16, 2)

    @qd.kernel
    def add(v: array, q: array):
        for i, j in qd.ndrange(1, 1):
            if v.shape[0] * v.shape[1] * q.shape[0] * q.shape[1] > 0:
                v[i, j] += 1
                q[i, j] += 1

    random, counts = np.random.default_rng(0), [0, 0]
    for _ in range(300):
        base = np.zeros((8, 6), np.int16)
        one, other = random_view(random, base), random_view(random, base)
        verdicts.clear()
        add(one, other)
        found = any(verdicts)
        counts[found] += 1
        assert found or not np.shares_memory(one, other)
        assert not found or np.may_share_memory(one, other) or one.size * other.size == 0
    assert min(counts) > 20


def test_kernels_from_the_cache(tmp_path: Any) -> None:
    for _ in range(3):
        qd.init(
            arch=qd.cpu,
            log_level="error",
            offline_cache=True,
            offline_cache_file_path=str(tmp_path),
        )
        kernel = updates(qd.i32)
        x, y = (qd.ndarray(qd.i32, LENGTH) for _ in range(2))
        kernel(x, y, LENGTH)
        assert not runs_on_aliases(kernel)
        kernel(x, x, LENGTH)
        assert (x[3], y[3]) == (2 + 2 + 4, 4)


def test_inspection_shows_the_usual_code() -> None:
    kernel = updates(qd.f32)
    x, y = (qd.ndarray(qd.f32, LENGTH) for _ in range(2))
    assert "atomic" in kernel.inspect(x, y, 4).stages["simplify"]
    assert "atomic" not in kernel.inspect(x, y, 4).stages["finish"]


SENSITIVE = {
    "two updates": ("v[i] += 1.0", "q[i] += 1.0"),
    "an update and a store": ("v[i] += 1.0", "q[i] = 1.0"),
    "a sum in a loop": ("for j in range(3):", "    v[i] += q[j]"),
    "a sum by an index that is loaded": ("v[int(q[i])] += 1.0",),
}
INSENSITIVE = {
    "an update": ("v[i] += q[i]",),
    "a reduction": ("v[0] += q[i]",),
    "two stores": ("v[i] = 1.0", "q[i] = v[i]"),
    "reads": ("if v[i] > q[i]:", "    print(v[i])"),
}


@pytest.mark.parametrize("case", [*SENSITIVE, *INSENSITIVE])
def test_only_kernels_that_gain_test_for_shared_memory(case: str, tmp_path: Any) -> None:
    lines = [f"        {line}" for line in {**SENSITIVE, **INSENSITIVE}[case]]
    text = "\n".join(["def kernel(v: ARRAY, q: ARRAY):", "    for i in range(4):", *lines, ""])
    path = tmp_path / "kernel.py"
    path.write_text(text)
    scope: dict[str, Any] = {"ARRAY": qd.types.ndarray(qd.f32, 1)}
    exec(compile(text, str(path), "exec"), scope)
    kernel = qd.kernel(scope["kernel"])
    x, y = (qd.ndarray(qd.f32, 4) for _ in range(2))
    kernel(x, y)
    kernel(x, x)
    assert runs_on_aliases(kernel) == (case in SENSITIVE)
