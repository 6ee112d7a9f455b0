"""Loads of four turns at once: the same values wherever arrays and loops begin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octants.codegen.llvm import nvptx
from octants.codegen.llvm.gpu import compilation
from octants.ir.builder import Builder
from octants.ir.cooperative_tasks import SHARED_LOOPS
from octants.ir.core import Array, Block, Companion, Module, Space, Value
from octants.types.layouts import Layout, Term
from octants.types.scalars import DType, f32, f64, i32, i64, u32
from tests.codegen.compiled import ndarray, parallel, serial
from tests.codegen.threads import Threads

ITEMS, LONGEST = 5, 23


def summing(
    array: Array,
    places: list[tuple[int | None, ...]],
    counter: DType = i32,
    narrow: bool = False,
    items: int = ITEMS,
) -> Module:
    """``y[i]`` is the sum, times 1, 2, ..., of what stands at places; None is the counter there.

    If there is one item, the task is serial.
    """
    y, ends = ndarray("y", array.dtype), ndarray("ends", counter)

    def body(build: Builder, item: Value) -> None:
        first, last = (build.load(ends, [build.constant(n, i32)]) for n in (0, 1))
        inner = Block([Value(counter), Value(array.dtype)])
        with build.into(inner):
            number, total = inner.args
            index = build.cast(number, i32) if narrow else number
            for at, place in enumerate(places):
                where = [index if n is None else build.constant(n, i32) for n in place]
                weight = build.constant(at + 1, array.dtype)
                product = build.binary("mul", build.load(array, where), weight)
                total = build.binary("add", total, product)
            build.yield_([total])
        start = build.cast(item, array.dtype)
        build.store(y, [item], build.for_(first, last, [start], inner).results[0])

    if items == 1:
        task = serial("t", lambda build: body(build, build.constant(0, i32)))
    else:
        task = parallel(
            "t", lambda build: (build.constant(0, i32), build.constant(items, i32)), body
        )
    task.options = {SHARED_LOOPS: True}
    return Module("k", [array, y, ends], None, [task])


def field(
    dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...], exported: bool = True
) -> Array:
    """A field; one that is not exported begins at a multiple of 64 if it has no gaps."""
    terms = tuple(Term(axis, 1, 0, stride) for axis, stride in enumerate(strides))
    layouts = {Companion.PRIMAL: Layout(shape, terms)}
    return Array("x", dtype, len(shape), Space.FIELD, (), layouts, exported=exported)


LOADED = {
    "numbers": (ndarray("x", f32), [(None,)]),
    "integers": (ndarray("x", i32), [(None,)]),
    "unsigned": (ndarray("x", u32), [(None,)]),
    "pairs": (ndarray("x", f32, 1, (2,)), [(None, 1), (None, 0)]),
    "triples": (ndarray("x", f32, 1, (3,)), [(None, 0), (None, 1), (None, 2)]),
    "parts of triples": (ndarray("x", f32, 1, (3,)), [(None, 2)]),
    "quadruples": (ndarray("x", f32, 1, (4,)), [(None, 3), (None, 1), (None, 0)]),
    "matrices": (
        ndarray("x", f32, 1, (2, 3)),
        [(None, row, column) for row in (1, 0) for column in range(3)],
    ),
    "rows of a field": (field(f32, (LONGEST, 3), (12, 4)), [(None, 0), (None, 2)]),
    "columns of a field": (field(f32, (3, 24), (96, 4)), [(0, None), (2, None)]),
}
ALONE = {
    "doubles": (ndarray("x", f64), [(None,)]),
    "columns of an ndarray": (ndarray("x", f32, 2), [(1, None)]),
    "rows of an ndarray": (ndarray("x", f32, 2), [(None, 1)]),
    "odd columns of a field": (field(f32, (3, LONGEST), (4 * LONGEST, 4)), [(1, None)]),
    "long elements": (ndarray("x", f32, 1, (17,)), [(None, 3)]),
}


def values_of(array: Array, shift: int) -> np.ndarray[Any, Any]:
    """Numbers for an array, which begins so many elements after a multiple of 64 bytes."""
    if array.fixed_shape is not None:
        shape = array.fixed_shape
    else:
        shape = (LONGEST,) * array.rank + array.element_shape
    size, dtype = int(np.prod(shape)), np.dtype(_NUMPY[array.dtype])
    memory = np.zeros(size + 64, dtype)
    start = (-memory.ctypes.data // dtype.itemsize) % (64 // dtype.itemsize) + shift
    found = memory[start : start + size].reshape(shape)
    found[...] = np.random.default_rng(1).integers(1, 9, shape)
    return found


def expected(x: Any, places: list[tuple[int | None, ...]], lower: int, upper: int) -> Any:
    total = np.arange(ITEMS).astype(x.dtype)
    for at, place in enumerate(places):
        where = tuple(slice(lower, max(lower, upper)) if n is None else n for n in place)
        total = total + x[where].sum(dtype=x.dtype) * (at + 1)
    return total


_NUMPY = {f32: np.float32, f64: np.float64, i32: np.int32, u32: np.uint32}
CASES = LOADED | ALONE
ENDS = [(0, 0), (0, 3), (0, 4), (0, 17), (4, 15), (1, 22), (3, 4), (2, 18), (20, 23), (9, 2)]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shift", [0, 1, 4])
@pytest.mark.parametrize("counter", [i32, i64], ids=str)
def test_sums(name: str, shift: int, counter: DType) -> None:
    array, places = CASES[name]
    kernel = Threads(summing(array, places, counter, narrow=counter is i64))
    x = values_of(array, shift)
    for lower, upper in ENDS:
        y = np.zeros(ITEMS, x.dtype)
        ends = np.array([lower, upper], np.int32 if counter is i32 else np.int64)
        kernel.run({"x": x, "y": y, "ends": ends})
        assert y.tolist() == expected(x, places, lower, upper).tolist(), (lower, upper)


@pytest.mark.parametrize("name", CASES)
def test_instructions(name: str) -> None:
    text = compilation.compile_module(
        summing(*CASES[name]), nvptx.Nvptx(nvptx.target(80))
    ).code.decode()
    assert ("ld.global.v4" in text) == (name in LOADED)


# -- loops that work items do not share ------------------------------------------------------------


def products(
    array: Array, lower: int, upper: int | None, numbers: DType = f32, items: int = ITEMS
) -> Module:
    """``y[i]`` is the sum of products of row i of an array, or of row i % 3, with numbers.

    Numbers of another type than f32 are converted.
    """
    x, y, ends = ndarray("numbers", numbers), ndarray("y", f32), ndarray("ends", i32)

    def body(build: Builder, item: Value) -> None:
        row = build.binary("mod", item, build.constant(array.fixed_shape[0], i32))  # type: ignore[index]
        last = build.load(ends, [build.constant(0, i32)])
        inner = Block([Value(i32), Value(f32)])
        with build.into(inner):
            number, total = inner.args
            factor = build.load(array, [row, number])
            other = build.cast(build.load(x, [number]), f32)
            product = build.binary("mul", factor, other)
            build.yield_([build.binary("add", total, product)])
        end = last if upper is None else build.constant(upper, i32)
        inits = [build.constant(0, f32)]
        build.store(y, [item], build.for_(build.constant(lower, i32), end, inits, inner).results[0])

    task = parallel("t", lambda build: (build.constant(0, i32), build.constant(items, i32)), body)
    return Module("k", [array, x, y, ends], None, [task])


ROWS = field(f32, (3, 24), (96, 4))


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize(("lower", "upper"), [(0, 24), (0, 23), (0, None), (4, 24)])
@pytest.mark.parametrize("array", [ROWS, field(f32, (3, 23), (92, 4))], ids=["rows", "odd rows"])
def test_rows_of_a_matrix(array: Array, lower: int, upper: int | None, shift: int) -> None:
    width = array.fixed_shape[1]  # type: ignore[index]
    last = min(width, 22 if upper is None else upper)
    kernel = Threads(products(array, lower, None if upper is None else last))
    x, numbers = values_of(array, shift), np.arange(1, width + 1, dtype=np.float32)
    y = np.zeros(ITEMS, np.float32)
    kernel.run({"x": x, "numbers": numbers, "y": y, "ends": np.array([last], np.int32)})
    sums = (x[:, lower:last] * numbers[lower:last]).sum(1)
    assert y.tolist() == sums[np.arange(ITEMS) % 3].tolist()


@pytest.mark.parametrize(
    ("array", "lower", "upper", "is_loaded"),
    [
        (ROWS, 0, 24, True),
        (ROWS, 0, None, True),
        (ROWS, 4, 24, False),
        (ROWS, 0, 16, False),
    ],
)
def test_which_rows_are_loaded(
    array: Array, lower: int, upper: int | None, is_loaded: bool
) -> None:
    module = products(array, lower, upper)
    text = compilation.compile_module(module, nvptx.Nvptx(nvptx.target(80))).code.decode()
    assert ("ld.global.v4" in text) == is_loaded


@pytest.mark.parametrize(
    ("row", "exported", "is_known"), [(96, False, True), (96, True, False), (112, False, False)]
)
def test_alignment_of_fields_without_gaps_is_known(
    row: int, exported: bool, is_known: bool
) -> None:
    module = products(field(f32, (3, 24), (row, 4), exported), 0, 24, f64)
    text = compilation.llvm_text(module, nvptx.Nvptx(nvptx.target(80)))
    assert "load <4 x float>" in text
    assert ("ptrtoint" not in text) == is_known


def test_rows_of_a_field_that_is_known_to_be_aligned() -> None:
    array = field(f32, (3, 24), (96, 4), exported=False)
    for upper in (24, 23, None):
        kernel = Threads(products(array, 0, upper))
        last = 22 if upper is None else upper
        x, numbers = values_of(array, 0), np.arange(1, 25, dtype=np.float32)
        y = np.zeros(ITEMS, np.float32)
        kernel.run({"x": x, "numbers": numbers, "y": y, "ends": np.array([last], np.int32)})
        sums = (x[:, :last] * numbers[:last]).sum(1)
        assert y.tolist() == sums[np.arange(ITEMS) % 3].tolist()


ODD_ROWS = field(f32, (3, 79), (4 * 79, 4))


@pytest.mark.parametrize(
    ("upper", "items", "count"),
    [(65, ITEMS, 16), (None, ITEMS, 16), (79, 1 << 15, 4), (16, ITEMS, 0)],
)
def test_loops_over_odd_rows_are_unrolled(upper: int | None, items: int, count: int) -> None:
    """The loads of several iterations are there at a time: of few where there are many threads."""
    module = products(ODD_ROWS, 0, upper, f64, items)
    text = compilation.llvm_text(module, nvptx.Nvptx(nvptx.target(80)))
    assert (f'"llvm.loop.unroll.count", i32 {count}' in text) == (count > 0)
    assert ("unroll.count" in text) == (count > 0)


@pytest.mark.parametrize(("shift", "upper"), [(0, 65), (1, 79), (2, None)])
def test_odd_rows(shift: int, upper: int | None) -> None:
    kernel = Threads(products(ODD_ROWS, 0, upper, f64))
    last = 70 if upper is None else upper
    x, numbers = values_of(ODD_ROWS, shift), np.arange(1.0, 80.0)
    y = np.zeros(ITEMS, np.float32)
    kernel.run({"x": x, "numbers": numbers, "y": y, "ends": np.array([last], np.int32)})
    sums = (x[:, :last] * numbers[:last]).sum(1)
    assert y.tolist() == sums[np.arange(ITEMS) % 3].tolist()
