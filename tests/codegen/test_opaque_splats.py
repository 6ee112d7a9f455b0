"""Choices between two numbers that fill a vector: LLVM aborts where the choice is known late."""

from __future__ import annotations

import pytest

from octants.codegen.llvm import llvmlite_driver, opaque_splats
from octants.target import Target

AVX2 = Target("cpu", "x86_64-unknown-linux-gnu", "haswell", "+avx2,+f16c,+fma,+avx,+sse4.2")
KNOWN = "%rest = srem i32 %x, -1\n  %test = icmp sgt i32 %rest, 2"  # no remainder is above 0
OPEN = "%rest = and i32 %x, 3\n  %test = icmp ugt i32 %rest, 1"
CHOICES = {
    "select": "%one = select i1 %test, {type} -0.5, {type} 0.75",
    "sum": "%part = select i1 %test, {type} 1.0, {type} 0.0\n  %one = fadd {type} %part, 5.5",
    "truth": "%part = uitofp i1 %test to {type}\n  %one = fadd {type} %part, 5.5",
}


def text(test: str, choice: str, type: str) -> str:
    """A function that multiplies vectors by a choice and by numbers."""
    wide, narrow = (8, 4) if type == "float" else (4, 2)
    numbers = ", ".join(f"{type} {number}.5" for number in range(1, narrow + 1))
    return f"""
define void @f(ptr %p, ptr %q, i32 %x, <{wide} x {type}> %v, <{narrow} x {type}> %w) {{
  {test}
  {CHOICES[choice].format(type=type)}
  %first = insertelement <{wide} x {type}> poison, {type} %one, i32 0
  %all = shufflevector <{wide} x {type}> %first, <{wide} x {type}> poison,
                       <{wide} x i32> zeroinitializer
  %m = fmul <{wide} x {type}> %all, %v
  store <{wide} x {type}> %m, ptr %p
  %n = fmul <{narrow} x {type}> %w, <{numbers}>
  store <{narrow} x {type}> %n, ptr %q
  ret void
}}
"""


@pytest.mark.parametrize("type", ["float", "double"])
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("level", [0, 1, 2])
def test_choices_that_are_known_late_compile(level: int, choice: str, type: str) -> None:
    for test in (KNOWN, OPEN):
        module, machine = llvmlite_driver.optimised(text(test, choice, type), AVX2, level)
        assert len(machine.emit_object(module)) > 500


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("level", [0, 1, 2])
def test_choices_that_stay_are_hidden(
    level: int, choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opaque_splats, "MENDED", 1000)
    found = str(llvmlite_driver.optimised(text(OPEN, choice, "double"), AVX2, level)[0])
    assert "double @llvm.arithmetic.fence.f64(double" in found


def test_other_code_stays_as_it_is() -> None:
    plain = text(OPEN, "select", "double").replace("-0.5", "%y").replace("i32 %x", "double %y")
    assert opaque_splats.hide_choices(plain) is plain
    assert not opaque_splats.may_have_choices(plain)


def test_sources_of_choices_are_found() -> None:
    for line in (
        "  %1 = select i1 %c, float 0x3FE0000000000000, float 1.0",
        "  %1 = select nsz i1 %c, double -1.0, double 2.0, !prof !1",
        "  %1 = phi double [ 1.0, %a ], [ 2.0, %b ]",
        "  %1 = uitofp i1 %c to float",
    ):
        assert opaque_splats.may_have_choices(f"{line}\n  ret void")
    for line in (
        "  %1 = select i1 %c, float %x, float 1.0",
        "  %1 = select i1 %c, i32 1, i32 2",
        "  %1 = phi double [ %x, %a ], [ 2.0, %b ]",
    ):
        assert not opaque_splats.may_have_choices(f"{line}\n  ret void")


def test_registers_with_numbers() -> None:
    """LLVM gives its own registers numbers, which no other name may begin with."""
    spread = (
        "define void @spread(ptr %p, double %x) {\n  %1 = load i1, ptr %p\n  br label %2\n\n2:\n"
    )
    spread += "  %3 = select i1 %1, double 1.0, double 2.0\n"
    spread += "  %4 = insertelement <4 x double> poison, double %3, i32 0\n"
    spread += "  store <4 x double> %4, ptr %p\n  ret void\n}\n"
    for hidden in (opaque_splats.hide_all(spread), opaque_splats.hide_choices(spread)):
        assert hidden.count("call double") == 1
        module = llvmlite_driver.parse(hidden, AVX2, llvmlite_driver._machine(AVX2, 0))
        assert len(llvmlite_driver._machine(AVX2, 0).emit_object(module)) > 300
