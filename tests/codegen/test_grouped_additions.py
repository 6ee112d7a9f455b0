"""Additions of lanes to several elements together: results, and what is emitted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from octants.codegen.llvm import cpu
from octants.codegen.llvm.lanes.vector_capabilities import lanes_of_target
from octants.ir.builder import Builder
from octants.ir.core import Array, Companion, Module, Space, Value
from octants.runtime.cpu import CpuDevice
from octants.types.layouts import Layout, Term
from octants.types.scalars import DType, f32, f64, i32, i64
from tests.codegen.compiled import TARGET, Compiled, argument, for_, if_, ndarray, parallel
from tests.seeds import each_once

pytestmark = pytest.mark.skipif(
    not lanes_of_target(TARGET), reason="the vectors of this CPU are none to rely on"
)

COUNTS = (1, 16, 83)  # work items
SIZE, BASE, STEP, STEPS = 200, 20, 40, 3
ROW = (0, 1, 2, 3)
PLACES = {
    "a row": ROW,
    "a row, last to first": (3, 2, 1, 0),
    "two": (5, 6),
    "three": (1, 0, 2),
    "one more than a row": (-1, 7, 6, 8, 9),
    "far apart": (0, 12, -5, 3, 30),
    "four rows, and more than a group has": (*range(16), 3, -2),
    "an element twice": (0, 1, 1, 2),
}


def kernel(
    offsets: Sequence[int],
    dtype: DType,
    lanes: int,
    *,
    masked: bool = False,
    w: Array | None = None,
) -> Module:
    """Each work item adds its number times 1, 2, 3, ... to elements from some bases on."""
    target = w or ndarray("w", dtype)
    n, base = argument("n", i32), argument("base", i32)

    def body(b: Builder, i: Value) -> None:
        odd = b.compare("ne", b.binary("and", i, b.index(1)), b.index(0))

        def add(b: Builder, step: Value) -> Sequence[Value]:
            moved = b.binary("mul", step, b.index(STEP))
            start = b.binary("add", b.load(base, []), moved)
            for number, offset in enumerate(offsets, 1):
                index = b.binary("add", start, b.index(offset))
                scaled = b.binary("mul", b.cast(i, dtype), b.constant(number, dtype))
                b.atomic("add", target, [index], scaled)
            return ()

        def steps(b: Builder) -> Sequence[Value]:
            for_(b, b.index(0), b.index(STEPS), [], lambda b, step, _: add(b, step))
            return ()

        if masked:
            if_(b, odd, steps)
        else:
            steps(b)

    task = parallel("sums_0", lambda b: (b.index(0), b.load(n, [])), body)
    task.options["simd"] = lanes
    return Module("sums", [target, n, base], tasks=[task])


def wanted(
    offsets: Sequence[int], dtype: DType, count: int, size: int, *, masked: bool = False
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    found = np.zeros(size, dtype.numpy)
    total = sum(range(1, count, 2) if masked else range(count))
    for step in range(STEPS):
        for number, offset in enumerate(offsets, 1):
            found[BASE + step * STEP + offset] += number * total
    return found


def check(module: Module, expected: list[tuple[int, object]], size: int, threads: int) -> None:
    compiled = Compiled(module, CpuDevice(threads))
    dtype = module.arrays[0].dtype
    for count, result in expected:
        w = np.zeros(size, dtype.numpy)
        given = {"w": w, "n": np.array(count, np.int32), "base": np.array(BASE, np.int32)}
        compiled.run(given)
        np.testing.assert_array_equal(w, result)


@pytest.mark.parametrize(
    ("dtype", "lanes"), each_once([f32, f64, i32, i64], [2, 4, 16, 64]), ids=str
)
def test_sums(dtype: DType, lanes: int) -> None:
    for offsets in PLACES.values():
        expected = [(count, wanted(offsets, dtype, count, SIZE)) for count in COUNTS]
        check(kernel(offsets, dtype, lanes), expected, SIZE, threads=1)


@pytest.mark.parametrize("place", PLACES)
def test_sums_of_some_lanes(place: str) -> None:
    offsets = PLACES[place]
    expected = [(count, wanted(offsets, f32, count, SIZE, masked=True)) for count in COUNTS]
    check(kernel(offsets, f32, 16, masked=True), expected, SIZE, threads=1)


@pytest.mark.parametrize("place", PLACES)
def test_sums_of_workers_that_share_a_target(place: str) -> None:
    """A target too large for a copy of each worker: additions are atomic."""
    offsets, count, size = PLACES[place], 10_000, 10_000_000
    check(kernel(offsets, f64, 8), [(count, wanted(offsets, f64, count, size))], size, threads=4)


def text_of(module: Module) -> str:
    return cpu.llvm_text(module, TARGET, simd="always")


def test_neighbours_are_added_to_at_once() -> None:
    assert "octants.add.totals.row4.f32" in text_of(kernel(ROW, f32, 16))
    assert "octants.add.totals.row2.f64" in text_of(kernel(ROW, f64, 8))
    assert "octants.add.totals.each4.f32" in text_of(kernel((0, 2, 4, 6), f32, 16))
    assert "octants.add.totals.each3.f32" in text_of(kernel((0, 1, 2), f32, 16))
    assert ".totals." not in text_of(kernel((0,), f32, 16))
    assert ".totals." not in text_of(kernel(ROW, f32, 2))


def test_neighbours_of_a_layout() -> None:
    """Elements of a field are neighbours if its layout says so."""
    row, blocked = (Term(0, 1, 0, 4),), (Term(0, 4, 0, 16), Term(0, 1, 4, 4))
    for terms, kind in ((row, "row4"), (blocked, "each4")):
        layouts = {Companion.PRIMAL: Layout((SIZE,), terms)}
        w = Array("w", f32, 1, Space.FIELD, layouts=layouts)
        assert f"octants.add.totals.{kind}.f32" in text_of(kernel(ROW, f32, 16, w=w))
