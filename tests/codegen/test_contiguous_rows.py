"""Loops over matrices in lanes: tiles end with rows, whose elements are neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.analysis.lanes.choose_loops import choose
from octants.analysis.lanes.row_major_loops import find_rows
from octants.codegen.llvm.lanes.vector_capabilities import vectors_of
from octants.ir.core import Module, Task
from octants.target import ALWAYS, AUTO, Target
from tests.ir.parser import parse

AVX512 = Target("cpu", "x86_64-unknown-linux-gnu", "skylake-avx512", "+avx512vl")
SHAPES = [(7, 33), (5, 3), (3, 100), (1, 64), (200, 1), (16, 16), (6, 40)]
OFTEN = ((5, 3), (3, 100))


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    qd.reset()


Shapes = Sequence[tuple[int, int]]


def run(simd: str, shapes: Shapes, *, fields: bool, threads: int = 2) -> list[list[Any]]:
    """A kernel that looks at neighbours, rows, columns, and its place: values and gradients.

    One kernel serves ndarrays of all shapes.
    """
    qd.init(arch=qd.cpu, simd=simd, cpu_max_num_threads=threads, log_level="error")
    make = qd.field if fields else qd.ndarray
    kind: Any = qd.template() if fields else qd.types.ndarray()

    @qd.kernel
    def look(x: kind, y: kind, counts: kind):
        for i, j in x:
            v = x[i, j] + 0.5 * x[i, 0]
            if j > 0:
                v += x[i, j - 1] * x[0, j]
            for k in range(counts[i]):
                v = qd.sin(v) + 0.1 * k
            if i % 2 == 1:
                v = v * j - i
            y[i, j] = v

    found = []
    for shape in shapes:
        x, y = (make(qd.f32, shape=shape, needs_grad=True) for _ in range(2))
        counts = make(qd.i32, shape=shape[0])
        x.from_numpy(np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32))
        counts.from_numpy((np.arange(shape[0]) % 5).astype(np.int32))
        look(x, y, counts)
        y.grad.from_numpy(np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32))
        look.grad(x, y, counts)
        found.append([y.to_numpy(), x.grad.to_numpy()])
    return found


def check_rows(shapes: Shapes, *, fields: bool) -> None:
    """Values to the bit; in gradients several work items add to one element."""
    expected = run("never", shapes, fields=fields)
    for simd in ("auto", "always"):
        for shape, found, wanted in zip(
            shapes, run(simd, shapes, fields=fields), expected, strict=True
        ):
            bits, wanted_bits = found[0].view(np.uint32), wanted[0].view(np.uint32)
            np.testing.assert_array_equal(bits, wanted_bits, err_msg=str(shape))
            np.testing.assert_allclose(found[1], wanted[1], rtol=1e-4, atol=1e-5)


def test_rows_of_all_lengths_in_ndarrays() -> None:
    check_rows(SHAPES, fields=False)


@pytest.mark.parametrize(
    "shape",
    [pytest.param(s, marks=() if s in OFTEN else pytest.mark.slow) for s in SHAPES],
    ids=str,
)
def test_rows_of_all_lengths_in_fields(shape: tuple[int, int]) -> None:
    check_rows([shape], fields=True)


def test_large_matrices_on_several_threads() -> None:
    shapes = ((300, 37), (40, 5000))
    expected = run("never", shapes, fields=False)
    for threads in (1, 3):
        for found, wanted in zip(
            run("always", shapes, fields=False, threads=threads), expected, strict=True
        ):
            np.testing.assert_array_equal(found[0], wanted[0])


def test_a_window_of_a_grid() -> None:
    """Lower bounds that are not zero, three axes, an integer array."""

    def result(simd: str) -> Any:
        qd.init(arch=qd.cpu, simd=simd, log_level="error")
        x = qd.field(qd.i32, (5, 6, 50))

        @qd.kernel
        def number():
            for i, j, k in qd.ndrange((1, 4), (2, 6), (3, 47)):
                x[i, j, k] += 10000 * i + 100 * j + k

        number()
        return x.to_numpy()

    i, j, k = np.indices((5, 6, 50))
    inside = (i >= 1) & (i < 4) & (j >= 2) & (k >= 3) & (k < 47)
    for simd in ("auto", "always"):
        np.testing.assert_array_equal(result(simd), inside * (10000 * i + 100 * j + k))


TEXT = """\
kernel @shift
array @x: f32, 2, ndarray, () [primal]
parallel @shift_0 {{
  %0: i32 = constant<{lower}>()
  %1: i32 = constant<2000>()
  yield(%0, %1)
}} {{ (%2: i32):
  %3: i32 = constant<{length}>()
  %4: i32 = binary<mod>(%2, %3)
  %5: i32 = binary<floordiv>(%2, %3)
  %6: f32 = load<@x, primal>(%5, %4)
  %7: f32 = unary<sin>(%6)
  store<@x, primal>(%7, %5, %4)
  yield()
}}
"""


def task_of(length: int, lower: int = 0) -> Task:
    module: Module = parse(TEXT.format(length=length, lower=lower))
    return module.tasks[0]


def test_which_loops_have_rows() -> None:
    rows = find_rows(task_of(200))
    assert rows is not None
    assert (rows.length, len(rows.numbers), len(rows.columns)) == (200, 1, 1)
    assert find_rows(task_of(200, lower=-8)) is None


def test_short_rows_are_no_tiles() -> None:
    """Where most lanes would be empty, tiles go on over the ends of rows."""
    assert choose(task_of(200), vectors_of(AVX512, AUTO)).rows is not None
    assert choose(task_of(16), vectors_of(AVX512, AUTO)).rows is not None
    assert choose(task_of(3), vectors_of(AVX512, ALWAYS)).rows is None


@pytest.mark.parametrize(
    ("first", "width", "is_even"), [(0, 64, True), (64, 64, True), (8, 64, False), (0, 72, False)]
)
def test_rows_of_whole_tiles_need_no_masks(first: int, width: int, is_even: bool) -> None:
    qd.init(arch=qd.cpu, simd="always", cpu_max_num_threads=2, log_level="error")
    x, y = (qd.field(qd.f32, (40, width)) for _ in range(2))
    last = first + 16 * (2 * width)

    @qd.kernel
    def shift():
        for k in range(first, last):
            i, j = k // width, k % width
            y[i, j] = x[i, j] + i * x[i, width - 1 - j]

    values = np.arange(40 * width, dtype=np.float32).reshape(40, width)
    x.from_numpy(values)
    shift()
    expected = values + np.arange(40)[:, None] * values[:, ::-1]
    inside = (np.arange(40 * width) >= first) & (np.arange(40 * width) < last)
    np.testing.assert_array_equal(y.to_numpy().ravel(), np.where(inside, expected.ravel(), 0))
    (task,) = parse(shift.inspect().stages["finish"]).tasks
    assert choose(task, vectors_of(AVX512, ALWAYS)).even is is_even
