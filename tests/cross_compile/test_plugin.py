"""The plug-in that compiles the kernels of the tests for other GPUs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import octants as qd
from octants.diagnostics.exceptions import InternalError
from tests.cross_compile import targets
from tests.cross_compile.child import compile_all
from tests.cross_compile.plugin import Recorder
from tests.metal.cpp import clang

_KERNEL = """\
declare double @llvm.{name}.f64(double)
define amdgpu_kernel void @k(ptr addrspace(1) %x) {{
  %a = load double, ptr addrspace(1) %x
  %b = call double @llvm.{name}.f64(double %a)
  store double %b, ptr addrspace(1) %x
  ret void
}}
!llvm.module.flags = !{{!0}}
!0 = !{{i32 1, !"amdhsa_code_object_version", i32 500}}
"""


def test_a_kernel_and_its_gradient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    qd.init(arch=qd.cpu)
    recorder = Recorder(["gfx942", "gfx1100"], tmp_path)
    recorder.test = "this test"
    recorder.install(monkeypatch)
    x, loss = qd.field(qd.f32, 40, needs_grad=True), qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def squares():
        for i in x:
            loss[None] += x[i] * x[i]

    x.fill(3)
    with qd.ad.Tape(loss):
        squares()
    assert set(x.grad.to_numpy()) == {6}
    texts = [len(list((tmp_path / name).glob("*.text"))) for name in ("gfx942", "gfx1100")]
    assert texts[0] == texts[1] >= 2
    found = compile_all(tmp_path, "gfx942")
    assert found.compiled == texts[0]
    assert not found.failures


@pytest.mark.skipif(clang() is None, reason="no clang++ here, which checks texts of Metal")
def test_texts_of_metal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    qd.init(arch=qd.cpu)
    recorder = Recorder(["metal"], tmp_path)
    recorder.install(monkeypatch)
    x, y = qd.field(qd.f32, 40), qd.field(qd.f64, 40)

    @qd.kernel
    def fill(n: qd.i32):
        for i in x:
            for _ in range(n):
                x[i] += qd.sin(x[i])

    @qd.kernel
    def widen():
        for i in x:
            y[i] = x[i] * 0.5

    fill(3)
    widen()
    good, bad = tmp_path / "metal" / "a.text", tmp_path / "metal" / "b.text"
    good.write_text("#include <metal_stdlib>\nvoid f(device uint* x)\n{\n    x[0] = 3u;\n}\n")
    bad.write_text(good.read_text().replace("x[0]", "*(threadgroup uint*)(x)"))
    found = compile_all(tmp_path, "metal")
    assert (found.compiled, found.refused) == (2, 1)
    (failure,) = found.failures
    assert failure.startswith(str(bad)) and "address_space" in failure


def test_what_ends_the_compiler_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "gfx1100"
    folder.mkdir()
    for number, name in enumerate(("sqrt", "tanh", "fabs")):
        (folder / f"{number}.text").write_text(_KERNEL.format(name=name))
        (folder / f"{number}.test").write_text(f"the test of {name}")
    found = compile_all(tmp_path, "gfx1100")
    assert found.compiled == 2
    (failure,) = found.failures
    assert failure.startswith(f"{folder}/1.text of the test of tanh\nthe compiler ended with 1: ")


def test_what_has_no_text_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(backend: object, module: object, chosen: object) -> str:
        raise InternalError("no")

    qd.init(arch=qd.cpu)
    broken = dataclasses.replace(targets.TARGETS["gfx1100"], generate=refuse)
    monkeypatch.setitem(targets.TARGETS, "gfx1100", broken)
    Recorder(["gfx1100"], tmp_path).install(monkeypatch)
    x = qd.field(qd.f32, ())

    @qd.kernel
    def fill():
        x[None] = 1

    fill()
    assert x[None] == 1
    found = compile_all(tmp_path, "gfx1100")
    assert found.compiled == 0
    assert "InternalError: no" in found.failures[0]
