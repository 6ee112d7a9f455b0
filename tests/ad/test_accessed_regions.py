"""Which elements a launch accesses: what is said covers what the interpreter does."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.analysis.indices.index_ranges import Accessed, ArrayRegion, intersect, tidy, unite
from octants.interpreter import run
from octants.ir.core import Space
from octants.launch.gradients.taped_memory import TapedMemory
from tests.seeds import seeds

N = 8


class Recorder:
    """An array that remembers which elements are read and written."""

    def __init__(self, data: np.ndarray[Any, Any]) -> None:
        self.data = data
        self.shape = data.shape
        self.read: set[tuple[int, ...]] = set()
        self.written: set[tuple[int, ...]] = set()

    def __getitem__(self, position: tuple[int, ...]) -> Any:
        self.read.add(position)
        return self.data[position]

    def __setitem__(self, position: tuple[int, ...], value: Any) -> None:
        self.written.add(position)
        self.data[position] = value


@qd.kernel
def row(x: qd.types.ndarray(ndim=2), t: qd.i32, n: qd.i32):
    for j in range(N):
        x[t + 1, j] = x[t, j] * 2


@qd.kernel
def triangle(x: qd.types.ndarray(ndim=2), t: qd.i32, n: qd.i32):
    for i in range(t):
        for j in range(i, n):
            x[i, j] += x[j, i]


@qd.kernel
def reversed_and_scaled(x: qd.types.ndarray(ndim=2), t: qd.i32, n: qd.i32):
    for i in range(n // 2):
        x[n - 1 - i, 2 * i] = x[i, (i + t) % N]


@qd.kernel
def ranges(x: qd.types.ndarray(ndim=2), t: qd.i32, n: qd.i32):
    for i, j in qd.ndrange((t, n), (1, N - 1)):
        x[i, j] = x[i, j - 1] + x[i, j + 1]


@qd.kernel
def chosen(x: qd.types.ndarray(ndim=2), t: qd.i32, n: qd.i32):
    for i in range(3):
        k = t if n > 4 else 0
        x[qd.min(k + i, n), qd.max(i - 1, 0)] = 1.0


@qd.kernel
def data_dependent(x: qd.types.ndarray(ndim=2), t: qd.i32, n: qd.i32):
    for i in range(n):
        k = qd.cast(x[t, i], qd.i32) % N
        x[k, t] += 1.0


@qd.kernel
def with_loops(x: qd.types.ndarray(ndim=2), t: qd.i32, n: qd.i32):
    for i in range(n):
        k = 0
        while k < t:
            x[i, k] = 1.0
            k += 1
        for m in range(n):
            if m > t:
                break
            x[m, i] += 1.0


@qd.kernel
def narrow(x: qd.types.ndarray(ndim=2), t: qd.i32, n: qd.i32):
    for i in range(n):
        k = qd.cast(qd.cast(t, qd.i8) * qd.i8(100), qd.i32) % N
        x[k, i] = 1.0


@qd.kernel
def wide(x: qd.types.ndarray(ndim=2), t: qd.i32, n: qd.i32):
    for i in range(n):
        k = (t * 1103515245 + 12345) % N
        x[k, qd.cast(qd.cast(i, qd.i64) * 3 // 4, qd.i32)] = 1.0


@qd.kernel
def struct_for(x: qd.types.ndarray(ndim=2), t: qd.i32, n: qd.i32):
    for i, j in x:
        x[i, j] += x[t, j]


@qd.kernel
def constant_rows(x: qd.types.ndarray(ndim=2), t: qd.i32, n: qd.i32):
    for j in range(4):
        x[2, j] = x[0, j] + x[1, j]


@qd.kernel
def many_constants(x: qd.types.ndarray(ndim=2), t: qd.i32, n: qd.i32):
    for _ in range(1):
        for j in qd.static(range(N)):
            x[t + 1, j] = x[t, N - 1 - j]


@qd.kernel
def scattered_constants(x: qd.types.ndarray(ndim=2), t: qd.i32, n: qd.i32):
    for _ in range(1):
        for k in qd.static(range(12)):
            x[(5 * k) % N, (3 * k) % 7] += x[t, (3 * k) % N] + x[k % 3, n]


@qd.kernel
def many_rows(x: qd.types.ndarray(ndim=2), t: qd.i32, n: qd.i32):
    for i in range(n):
        for k in qd.static(range(N)):
            x[(t * (k + 1) + n) % N, i] = x[(n + 3 * k) % N, k] + x[(t + k) // 2, i]


@qd.kernel
def branches(x: qd.types.ndarray(ndim=2), t: qd.i32, n: qd.i32):
    for i in range(n):
        k = t
        if x[t, i] > 3:
            k = n
            if i > 2:
                k = 0
        x[k, i] += x[t, k]


@qd.kernel
def cut_off(x: qd.types.ndarray(ndim=2), t: qd.i32, n: qd.i32):
    for i in range(n):
        k = qd.i32(qd.select(t > 3, qd.i64(2**32 + 3), qd.i64(5)))
        x[k, i] += x[t, k]


KERNELS = [
    cut_off,
    many_constants,
    scattered_constants,
    many_rows,
    branches,
    row,
    triangle,
    reversed_and_scaled,
    ranges,
    chosen,
    data_dependent,
    with_loops,
    narrow,
    wide,
    struct_for,
    constant_rows,
]


def accesses(kernel: Any, t: int, n: int) -> tuple[Accessed, Recorder]:
    data = np.arange(N * N, dtype=np.float32).reshape(N, N)
    specialisation = kernel.specialise((data, t, n))
    module = specialisation.module
    position = next(k for k, a in enumerate(module.arrays) if a.space is Space.NDARRAY)
    recorder = Recorder(data)
    given: dict[Any, Any] = {module.arrays[position].name: recorder}
    scalars = {"t": t, "n": n}
    for array in module.arrays:
        if array.space is Space.ARGUMENT:
            given[array.name] = np.array(scalars[array.name], np.int32)
    run(module, given)
    said = specialisation.make_regions(module)(data, t, n)[position]
    return said, recorder


def covers(region: ArrayRegion, positions: set[tuple[int, ...]]) -> bool:
    return all(intersect(region, (tuple((k, k) for k in position),)) for position in positions)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_what_is_said_covers_what_is_done(kernel: Any) -> None:
    for t in range(N - 1):
        for n in (0, 1, 5, N - 1):
            said, done = accesses(kernel, t, n)
            assert covers(said.read, done.read)
            assert covers(said.written, done.written)


def test_rows_are_told_apart() -> None:
    said, _ = accesses(row, 3, 0)
    assert said == Accessed((((3, 3), (0, N - 1)),), (((4, 4), (0, N - 1)),))
    said, _ = accesses(constant_rows, 0, 0)
    assert said.written == (((2, 2), (0, 3)),)


def test_many_constant_indices_are_an_interval() -> None:
    said, _ = accesses(many_constants, 3, 0)
    assert said == Accessed((((3, 3), (0, N - 1)),), (((4, 4), (0, N - 1)),))


def test_an_array_is_in_few_boxes_however_many_its_indices_are() -> None:
    for kernel in (scattered_constants, many_rows):
        said, done = accesses(kernel, 3, 5)
        for region, positions in ((said.read, done.read), (said.written, done.written)):
            assert region is not None
            assert len(region) < 8
            assert covers(region, positions)


def test_an_index_that_a_branch_chooses_is_between_its_values() -> None:
    said, _ = accesses(branches, 3, 5)
    assert said.written == (((0, 5), (0, 4)),)


def test_only_reads_that_are_named_count() -> None:
    specialisation = row.specialise((np.zeros((N, N), np.float32), 1, 1))
    regions = specialisation.make_regions(specialisation.module, [])
    (said,) = regions(np.zeros((N, N), np.float32), 3, 0).values()
    assert said == Accessed((), (((4, 4), (0, N - 1)),))


def test_an_argument_that_overflows_means_everything() -> None:
    kernel = row.specialise((np.zeros((N, N), np.float32), 1, 1))
    regions = kernel.make_regions(kernel.module)
    (said,) = regions(np.zeros((N, N), np.float32), 2**31 - 1, 0).values()
    assert said == Accessed(None, None)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint16, np.int64])
def test_integers_of_numpy_do_not_wrap(kind: Any) -> None:
    kernel = row.specialise((np.zeros((N, N), np.float32), 1, 1))
    regions = kernel.make_regions(kernel.module)
    number = int(min(np.iinfo(kind).max, 1 << 20))
    given = np.zeros((N, N), np.float32)
    assert regions(given, kind(number), kind(0)) == regions(given, number, 0)


def test_regions() -> None:
    row, column = (((1, 1), (0, 5)),), (((0, 5), (2, 2)),)
    assert intersect(row, column)
    assert intersect(None, row)
    assert not intersect((), None)
    assert not intersect(row, (((2, 4), (0, 5)),))
    assert not intersect((((3, 2), (0, 5)),), (((0, 9), (0, 9)),))
    assert unite(row, column) == (*row, *column)
    assert unite(row, None) is None


def test_regions_become_fewer_boxes_of_the_same_elements() -> None:
    generator = random.Random(3)

    def elements(region: ArrayRegion) -> set[tuple[int, ...]]:
        assert region is not None
        return {
            (i, j)
            for (low, high), (other_low, other_high) in region
            for i in range(low, high + 1)
            for j in range(other_low, other_high + 1)
        }

    def interval() -> tuple[int, int]:
        low = generator.randrange(4)
        return low, low + generator.randrange(-1, 4)

    for _ in range(2000):
        region = tuple((interval(), interval()) for _ in range(generator.randrange(1, 6)))
        tidied = tidy(region)
        assert tidied is not None
        assert elements(tidied) == elements(region)
        assert len(tidied) <= len(set(region))
    assert tidy((((2, 2), (0, 5)), ((2, 2), (2, 7)))) == (((2, 2), (0, 7)),)
    assert tidy((((2, 2), (0, 5)), ((3, 3), (0, 5)), ((2, 3), (6, 7)))) == (((2, 3), (0, 7)),)


# -- what follows for the tape --------------------------------------------------------------------


@pytest.fixture
def snapshots(monkeypatch: pytest.MonkeyPatch) -> list[ArrayRegion]:
    taken: list[ArrayRegion] = []
    plain = TapedMemory.snapshot

    def snapshot(self: TapedMemory, region: ArrayRegion = None) -> Any:
        taken.append(region)
        return plain(self, region)

    monkeypatch.setattr(TapedMemory, "snapshot", snapshot)
    return taken


def test_stepping_through_time_copies_nothing(snapshots: list[ArrayRegion]) -> None:
    x = qd.field(qd.f64, (50, 4), needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def step(t: qd.i32):
        for i in range(4):
            x[t + 1, i] = qd.sin(x[t, i]) + x[t, (i + 1) % 4]

    @qd.kernel
    def total():
        for i in range(4):
            loss[None] += x[49, i]

    x.fill(0.5)
    with qd.ad.Tape(loss=loss):
        for t in range(49):
            step(t)
        total()
    assert snapshots == []
    assert x.grad[0, 0] == pytest.approx(np.prod(1 + np.cos(x.to_numpy()[:-1, 0])))


def test_only_what_is_overwritten_is_copied(snapshots: list[ArrayRegion]) -> None:
    x = qd.field(qd.f64, (50, 4), needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def square(t: qd.i32):
        for i in range(4):
            loss[None] += x[t, i] ** 2

    x.fill(3)
    with qd.ad.Tape(loss=loss):
        square(1)
        square(2)
        x[2, 0] = 5
        x[7, 0] = 5
        square(2)
        recorded = list(snapshots)
    assert recorded == [(((2, 2), (0, 0)),)]
    assert x.grad.to_numpy()[1].tolist() == [6, 6, 6, 6]
    assert x.grad.to_numpy()[2].tolist() == [6, 12, 12, 12]


@pytest.mark.parametrize("kind", [int, np.uint8, np.int16])
def test_a_row_that_an_integer_of_numpy_selects_is_saved(kind: Any) -> None:
    """As of an array of labels; 200 + 100 is 44 in one byte."""
    x, w, y = (qd.field(qd.f64, shape, needs_grad=True) for shape in ((400, 3), 3, 3))

    @qd.kernel
    def square(t: qd.i32):
        for i in range(3):
            y[i] = x[t + 100, i] * x[t + 100, i]

    @qd.kernel
    def replace(t: qd.i32):
        for i in range(3):
            x[t, i] = w[i]

    for _ in range(3):
        x.fill(2.0)
        w.fill(5.0)
        with qd.ad.Tape():
            square(kind(200))
            replace(300)
            y.grad.fill(1.0)
        assert x.grad.to_numpy()[300].tolist() == [4.0] * 3


def program(generator: random.Random) -> list[tuple[str, tuple[Any, ...]]]:
    steps: list[tuple[str, tuple[Any, ...]]] = []
    for _ in range(generator.randrange(1, 9)):
        s, t = generator.randrange(4), generator.randrange(4)
        kind = generator.choice(("move", "move", "square", "add", "host", "mix"))
        steps.append((kind, (t, s, generator.uniform(0.3, 1.2))))
    return steps


def reference(kind: str, x: np.ndarray[Any, Any], t: int, s: int, value: float) -> None:
    if kind == "move":
        x[t] = np.sin(x[s]) * value
    elif kind == "square":
        x[t] = x[t] * x[t]
    elif kind == "add":
        x[t] += x[s] * x[s]
    elif kind == "host":
        x[t, s % 3] = value
    else:
        x[:, 0] = x[:, 1] * x[:, 2]


@pytest.mark.parametrize("seed", seeds(12, 100))
def test_random_rows(seed: int) -> None:
    generator = random.Random(seed)
    x = qd.field(qd.f64, (4, 3), needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def move(t: qd.i32, s: qd.i32, value: qd.f64):
        for i in range(3):
            x[t, i] = qd.sin(x[s, i]) * value

    @qd.kernel
    def square(t: qd.i32, s: qd.i32, value: qd.f64):
        for i in range(3):
            x[t, i] = x[t, i] * x[t, i]

    @qd.kernel
    def add(t: qd.i32, s: qd.i32, value: qd.f64):
        for i in range(3):
            x[t, i] += x[s, i] * x[s, i]

    @qd.kernel
    def mix(t: qd.i32, s: qd.i32, value: qd.f64):
        for i in range(4):
            x[i, 0] = x[i, 1] * x[i, 2]

    @qd.kernel
    def total():
        for i, j in x:
            loss[None] += x[i, j] * (i + 2 * j + 1)

    def host(t: int, s: int, value: float) -> None:
        x[t, s % 3] = value

    ours: dict[str, Callable[..., Any]] = {
        "move": move,
        "square": square,
        "add": add,
        "mix": mix,
        "host": host,
    }
    steps = [("square", (0, 0, 0.0)), *program(generator)]
    start = np.array([[generator.uniform(0.3, 1.2) for _ in range(3)] for _ in range(4)])
    weights = np.arange(4)[:, None] + 2 * np.arange(3) + 1

    def value(given: np.ndarray[Any, Any]) -> float:
        state = given.copy()
        for kind, arguments in steps:
            reference(kind, state, *arguments)
        return float((state * weights).sum())

    x.from_numpy(start)
    with qd.ad.Tape(loss=loss):
        for kind, arguments in steps:
            ours[kind](*arguments)
        total()
        end = x.to_numpy()
    assert (x.to_numpy() == end).all()
    assert loss[None] == pytest.approx(value(start), rel=1e-12)
    if abs(end).max() > 100:
        pytest.skip("too steep for differences")
    for index in np.ndindex(4, 3):
        moved = np.zeros((4, 3))
        moved[index] = 1e-6
        difference = (value(start + moved) - value(start - moved)) / 2e-6
        assert x.grad.to_numpy()[index] == pytest.approx(difference, rel=1e-5, abs=1e-6)
