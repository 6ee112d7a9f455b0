"""Minima and maxima of 16 bits in PTX."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import octants as qd
from octants.codegen.llvm import nvptx
from octants.codegen.llvm.gpu import wide_extrema as module
from octants.codegen.llvm.gpu.wide_extrema import widen_extrema
from tests.codegen.test_nvptx import assemble
from tests.ir.parser import parse

_NARROW = re.compile(r"\b(?:min|max)\.[su]16\b")
RANGE = """
kernel @k
array @n: f32, 1, ndarray, () [primal]
array @y: i32, 1, ndarray, () [primal]
serial @k_0 {
  %0: i32 = constant<0>()
  %1: i32 = constant<1>()
  %2: f32 = load<@n, primal>(%0)
  %3: i8 = cast(%2)
  %4: i32 = cast(%3)
  %5: i32 = binary<add>(%4, %1)
  %6: i32 = binary<max>(%0, %5)
  %7: i64 = constant<0>()
  %8: i64 = cast(%6)
  for(%7, %8) { (%9: i64):
    %10: i32 = cast(%9)
    store<@y, primal>(%10, %10)
    yield()
  }
  yield()
}
"""


def test_the_picture() -> None:
    before, after = re.findall(r"::\n\n((?:    .*\n)+)", module.__doc__ or "")
    assert widen_extrema(before).split() == after.split()


@pytest.mark.parametrize(
    ("name", "operand", "wanted"),
    [
        ("max.s16", "-2", "mov.b32 %other, -2;\n\tmax.s32"),
        ("max.s16", "65534", "mov.b32 %other, -2;\n\tmax.s32"),
        ("min.u16", "-2", "mov.b32 %other, 65534;\n\tmin.u32"),
        ("min.u16", "%rs7", "cvt.u32.u16 %other, %rs7;\n\tmin.u32"),
        ("max.s32", "-2", None),
        ("max.f16", "%rs7", None),
        ("red.global.max.s16", "-2", None),
    ],
)
def test_extrema(name: str, operand: str, wanted: str | None) -> None:
    text = f"{name} \t%rs3, %rs2, {operand};"
    assert (wanted or text) in widen_extrema(text)


@pytest.mark.parametrize("capability", [75, 90, 120])
def test_the_end_of_a_range_is_no_narrow_maximum(
    capability: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not _NARROW.search(assemble(parse(RANGE), capability, tmp_path))
    monkeypatch.setattr(nvptx, "widen_extrema", lambda text: text)
    assert _NARROW.search(assemble(parse(RANGE), capability, tmp_path))


def test_gradients_of_ranges_of_small_integers() -> None:
    """The reversed loop counts in i64, and its end is at least zero."""
    qd.init(arch=qd.cpu)
    x, ends = (qd.field(qd.f32, shape=6, needs_grad=k) for k in (True, False))
    y = qd.field(qd.f32, shape=(6, 8), needs_grad=True)
    ends.from_numpy(np.array([-3, -2, -1, 0, 1, 4], np.float32))

    @qd.kernel
    def repeat() -> None:
        for i in x:
            for k in range(1 + qd.cast(ends[i], qd.i8)):
                y[i, k] = x[i]

    x.fill(1.0)
    repeat()
    y.grad.fill(1.0)
    repeat.grad()
    wanted = [0, 0, 0, 1, 2, 5]
    assert y.to_numpy().sum(axis=1).tolist() == wanted
    assert x.grad.to_numpy().tolist() == wanted


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "u16"])
@pytest.mark.parametrize("bound", [0, 1, 5, 100])
def test_extrema_are_equal_to_an_operand_where_they_should_be(dtype: str, bound: int) -> None:
    qd.init(arch=qd.cpu)
    kind = getattr(qd, dtype)
    width = np.dtype(dtype[0] + str(int(dtype[1:]) // 8))
    info = np.iinfo(width)
    values = [info.min, *range(max(info.min, -3), 8), 99, 100, 101, info.max]
    x = qd.field(kind, shape=len(values))
    y = qd.field(qd.i32, shape=(len(values), 4))
    x.from_numpy(np.array(values, width))

    @qd.kernel
    def compare() -> None:
        for i in x:
            least, most = qd.min(x[i], kind(bound)), qd.max(x[i], kind(bound))
            if least == kind(bound):
                y[i, 0] = least + 1
            if most == kind(bound):
                y[i, 1] = most + 1
            if least == x[i]:
                y[i, 2] = least + 1
            if most == x[i]:
                y[i, 3] = most + 1

    compare()
    for value, found in zip(values, y.to_numpy().tolist(), strict=True):
        is_most, is_least = value >= bound, value <= bound
        wanted = [is_most * (bound + 1), is_least * (bound + 1)]
        assert found == [*wanted, is_least * (value + 1), is_most * (value + 1)]
