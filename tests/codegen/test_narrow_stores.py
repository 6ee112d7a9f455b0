"""Stores of parts of registers in PTX."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from octants.codegen.llvm.gpu import narrow_stores as module
from octants.codegen.llvm.gpu.narrow_stores import narrow_stores
from octants.ir.core import Module
from octants.types.scalars import f32, f64, i8, i16, i32, i64, u8
from tests.codegen import test_nvptx, test_records
from tests.codegen.compiled import ndarray, parallel


def test_the_picture() -> None:
    before, after = re.findall(r"::\n\n((?:    .*\n)+)", module.__doc__ or "")
    assert narrow_stores(before).split() == after.split()


WORD = "{ .reg .b32 %part0; cvt.u32.u64 %part0, %rd2; "


@pytest.mark.parametrize(
    ("store", "wanted"),
    [
        ("st.global.b32 [%rd1], %r2;", None),
        ("st.global.b64 [%rd1], %rd2;", None),
        ("st.global.b16 [%rd1], %rs2;", None),
        ("st.global.v2.b32 [%rd1], {%r2, %r3};", None),
        (
            "st.global.b16 [%rd1+8], %r2;",
            "{ .reg .b16 %part0; cvt.u16.u32 %part0, %r2; st.global.b16 [%rd1+8], %part0; }",
        ),
        (
            "@%p1 st.relaxed.gpu.global.b32 [%rd1], %rd2;",
            WORD + "@%p1 st.relaxed.gpu.global.b32 [%rd1], %part0; }",
        ),
        (
            "st.global.b8 [%rd1], %rs2;",
            "{ .reg .b32 %part0; cvt.u32.u16 %part0, %rs2; st.global.b8 [%rd1], %part0; }",
        ),
        (
            "st.global.v2.b32 [%rd1], {%rd2, %r3};",
            WORD + "st.global.v2.b32 [%rd1], {%part0, %r3}; }",
        ),
    ],
)
def test_stores(store: str, wanted: str | None) -> None:
    assert narrow_stores(store).strip() == (wanted or store)


def _wide_stores(text: str) -> list[str]:
    return re.findall(r"st[.\w:]*\.b32\s+\[[^\]]*\], .*%rd\d+;", text)


@pytest.mark.parametrize("by_while", [False, True])
def test_a_tape_stores_no_part_of_a_float(by_while: bool, tmp_path: Path) -> None:
    text = test_nvptx.assemble(test_records.reversal(by_while), 90, tmp_path)
    assert "%part0" in text
    assert not _wide_stores(text)


def test_parts_of_all_types_are_assembled(tmp_path: Path) -> None:
    wide, single = ndarray("wide", f64), ndarray("single", f32)
    targets = [ndarray(f"to_{dtype}", dtype) for dtype in (i8, u8, i16, i32)]

    def body(build: Any, i: Any) -> None:
        value = build.binary("add", build.load(wide, [i]), build.constant(0.5, f64))
        half = build.binary("add", build.load(single, [i]), build.constant(0.5, f32))
        for number, bits in enumerate((build.bitcast(value, i64), build.bitcast(half, i32))):
            place = build.binary("add", i, build.index(100 * number))
            for target in targets:
                build.store(target, [place], build.cast(bits, target.dtype))

    task = parallel("t", lambda build: (build.index(0), build.shape(wide, 0)), body)
    made = Module("parts", [wide, single, *targets], tasks=[task])
    for capability in (75, 90, 120):
        text = test_nvptx.assemble(made, capability, tmp_path)
        assert "cvt.u32.u64 %part0" in text
        assert not _wide_stores(text)
