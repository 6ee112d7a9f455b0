"""Vectors merged by a mask: LLVM takes the bits of the wrong one with AVX-512."""

from __future__ import annotations

import re

import numpy as np
import pytest

import octants as qd
from octants.codegen.llvm import llvmlite_driver, opaque_merges
from octants.target import Target
from tests.devices import on_cpu

AVX512 = Target(
    "cpu", "x86_64-unknown-linux-gnu", "skylake-avx512", "+avx512f,+avx512vl,+avx512dq,+avx512bw"
)
MERGES = {
    "or": """
  %keep = and <8 x i32> %old, splat (i32 -4)
  %take = and <8 x i32> %other, splat (i32 3)
  %new = or <8 x i32> %keep, %take""",
    "xor": """
  %differ = xor <8 x i32> %old, %other
  %take = and <8 x i32> %differ, splat (i32 3)
  %new = xor <8 x i32> %take, %old""",
    "copysign": """
  %size = bitcast <8 x i32> %old to <8 x float>
  %sign = bitcast <8 x i32> %other to <8 x float>
  %both = call <8 x float> @llvm.copysign.v8f32(<8 x float> %size, <8 x float> %sign)
  %new = bitcast <8 x float> %both to <8 x i32>""",
}


def text(merge: str) -> str:
    """A function that stores merged vectors where a condition holds."""
    return f"""
declare <8 x float> @llvm.copysign.v8f32(<8 x float>, <8 x float>)

define void @f(ptr noalias %p, ptr noalias %q, <8 x i32> %c) {{
  %in = load <8 x i32>, ptr %p
  %old = mul <8 x i32> %in, splat (i32 7)
  %other = load <8 x i32>, ptr %q
  %k = icmp slt <8 x i32> %c, splat (i32 40)
  {merge}
  %r = select <8 x i1> %k, <8 x i32> %new, <8 x i32> %old
  store <8 x i32> %r, ptr %p
  ret void
}}
"""


def _merges_lanes(module: object, machine: object) -> bool:
    assembly = machine.emit_assembly(module)  # type: ignore[attr-defined]
    return re.search(r"vpternlog.*\{%k", assembly) is not None


@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("level", [1, 2, 3])
def test_merged_bits_are_not_merged_with_lanes(
    merge: str, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = llvmlite_driver.optimised(text(MERGES[merge]), AVX512, level)
    assert not _merges_lanes(*compiled)
    monkeypatch.setattr(opaque_merges, "may_merge", lambda _: False)
    assert _merges_lanes(*llvmlite_driver.optimised(text(MERGES[merge]), AVX512, level))


def test_other_code_stays_as_it_is() -> None:
    plain = text("%new = and <8 x i32> %other, splat (i32 3)")
    assert opaque_merges.hide(plain) is plain
    assert not opaque_merges.may_merge(plain.replace("copysign", "maxnum"))


@on_cpu
def test_bits_come_from_the_right_vector() -> None:
    qd.init(arch=qd.cpu, log_level="error")
    x = qd.field(qd.u32, 64)
    low = qd.u32(3)

    @qd.kernel
    def replace(n: qd.i32):
        for i in x:
            value = x[i] * qd.u32(7)
            if i % 2 == 0 and n == 0:
                value = (value & ~low) | (qd.u32(i) & low)
            x[i] = value

    given = np.arange(64, dtype=np.uint32) * 5
    index, value = np.arange(64, dtype=np.uint32), given * 7
    x.from_numpy(given)
    replace(0)
    expected = np.where(index % 2 == 0, (value & ~np.uint32(3)) | (index & 3), value)
    assert x.to_numpy().tolist() == expected.tolist()
