"""Code objects for AMD's GPUs: LLVM makes them, they are linked, and LLVM's tools read them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from octants.codegen.llvm import llvmlite_driver
from octants.codegen.llvm.amdgpu import amdgcn, code_objects
from octants.codegen.llvm.amdgpu.targets import WAVES, target
from octants.codegen.llvm.gpu import compilation
from octants.diagnostics.exceptions import InternalError
from octants.ir.core import Module
from octants.types import scalars
from octants.types.scalars import f32, f64
from tests.autodiff.reversing import differentiate
from tests.autodiff.test_checkpoints import LongLoops
from tests.codegen.compiled import ndarray, parallel
from tests.codegen.representative import (
    module_of_atomics,
    module_of_operations,
    random_modules,
    words_of_the_language,
)
from tests.ir.parser import parse
from tests.runtime.amdgpu.code_reader import read_code

PROCESSORS = ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")


def _slow(value: Any) -> Any:
    return pytest.param(value, marks=pytest.mark.slow)


SOME = [p if p in ("gfx942", "gfx1100") else _slow(p) for p in PROCESSORS]
"""The same, but by default only one for each size of waves."""


def _tool(name: str) -> str | None:
    """A tool of an LLVM that knows all of the processors."""
    return next(filter(None, (shutil.which(f"{name}-{each}") for each in (22, 21, 20, 19))), None)


def checked(module: Module, processor: str, folder: Path, **options: Any) -> str:
    """The instructions of a module's code object, where a tool can read it; checks the object."""
    artifact = compilation.compile_module(module, amdgcn.Amdgpu(target(processor)), **options)
    read = read_code(artifact.code)
    for dispatch in artifact.dispatches:
        assert read.symbols[f"{dispatch.entry}.kd"] % 64 == 0
        assert read.symbols[dispatch.entry] % 256 == 0
    reader, disassembler = _tool("llvm-readelf"), _tool("llvm-objdump")
    if reader is None or disassembler is None:
        return ""
    path = folder / "code.hsaco"
    path.write_bytes(artifact.code)
    command = [reader, "--all", str(path)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "warning" not in said.stderr
    assert f"amdgcn-amd-amdhsa--{processor}" in said.stdout
    for dispatch in artifact.dispatches:
        assert f".symbol:         {dispatch.entry}.kd" in said.stdout
    command = [disassembler, "-d", str(path)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "<unknown>" not in said.stdout
    return said.stdout


@pytest.mark.parametrize("processor", SOME)
def test_every_word_of_the_language(
    processor: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in words_of_the_language(monkeypatch, fast_math=processor == "gfx942"):
        checked(module, processor, tmp_path, fast_math=processor == "gfx942")


@pytest.mark.parametrize("seed", [_slow(310), _slow(311), _slow(312), 313])
def test_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for number, module in enumerate(random_modules(seed, monkeypatch)):
        checked(module, PROCESSORS[(seed + number) % 5], tmp_path, opt_level=1)


@pytest.mark.parametrize("dtype", scalars.ALL, ids=str)
def test_every_operation(dtype: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """LLVM ends the process where it cannot lower something."""
    module = module_of_operations(dtype, monkeypatch)
    checked(module, ("gfx90a", "gfx1030")[scalars.ALL.index(dtype) % 2], tmp_path)


@pytest.mark.parametrize("processor", SOME)
def test_atomics_of_every_type(processor: str, tmp_path: Path) -> None:
    for dtype in scalars.ALL:
        checked(module_of_atomics(dtype), processor, tmp_path)


def _sums(dtype: Any) -> Module:
    at, x = ndarray("at", scalars.i32), ndarray("x", dtype)

    def body(build: Any, i: Any) -> None:
        build.atomic("add", x, [build.load(at, [i])], build.constant(1, dtype))

    task = parallel("t", lambda build: (build.index(0), build.shape(at, 0)), body)
    return Module("sums", [at, x], tasks=[task])


@pytest.mark.skipif(_tool("llvm-objdump") is None, reason="there is no llvm-objdump of LLVM 19")
def test_sums_of_floats_are_instructions_where_there_are_any(tmp_path: Path) -> None:
    for processor in PROCESSORS:
        text = checked(_sums(f32), processor, tmp_path)
        assert ("global_atomic_add_f32" in text) == (processor != "gfx1030")
        assert ("cmpswap" in text) == (processor == "gfx1030")
        text = checked(_sums(f64), processor, tmp_path)
        assert ("global_atomic_add_f64" in text) == (processor in ("gfx90a", "gfx942"))


@pytest.mark.skipif(_tool("llvm-objdump") is None, reason="there is no llvm-objdump of LLVM 19")
def test_floats_are_rounded_after_each_operation(tmp_path: Path) -> None:
    for dtype in (f32, f64):
        x = ndarray("x", dtype)

        def body(build: Any, i: Any, x: Any = x) -> None:
            v = build.load(x, [i])
            build.store(x, [i], build.binary("add", build.binary("mul", v, v), v))

        task = parallel("t", lambda build, x=x: (build.index(0), build.shape(x, 0)), body)
        module = Module("rounding", [x], tasks=[task])
        for processor in PROCESSORS:
            text = checked(module, processor, tmp_path, fast_math=True)
            assert "fma" not in text
            assert "mac" not in text


@pytest.mark.parametrize("seed", [_slow(0), 1, _slow(2), 3, _slow(4)])
def test_gradients_in_blocks(seed: int, tmp_path: Path) -> None:
    result = differentiate(LongLoops(seed).simplified(), whole_record_bytes=40)
    if not result.hazards:
        checked(result.module, PROCESSORS[seed], tmp_path)


@pytest.mark.parametrize("processor", sorted(WAVES))
def test_every_processor_that_is_named(processor: str, tmp_path: Path) -> None:
    checked(_sums(f32), processor, tmp_path)
    assert target(processor).cpu == processor


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("processor", PROCESSORS)
def test_the_upper_half_of_a_number(processor: str, level: int, tmp_path: Path) -> None:
    """LLVM ended the process at level 0 on this kernel for gfx1100."""
    module = parse("""\
kernel @upper
array @return_0: f32, 0, return, () [primal]
array @x: u32, 0, argument, () [primal]
serial @upper_0 {
  %0: u32 = load<@x, primal>()
  %1: u32 = constant<16>()
  %2: u32 = binary<ushr>(%0, %1)
  %3: f32 = cast(%2)
  store<@return_0, primal>(%3)
  yield()
}
""")
    checked(module, processor, tmp_path, opt_level=level)


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "u16", "i32", "u64"])
def test_a_quotient_and_a_remainder(dtype: str, level: int, tmp_path: Path) -> None:
    """LLVM ended the process at level 0 where both were of the same integers of 8 or 16 bits."""
    module = parse(f"""\
kernel @both
array @return_0: {dtype}, 0, return, () [primal]
array @return_1: {dtype}, 0, return, () [primal]
array @x: {dtype}, 0, argument, () [primal]
array @y: {dtype}, 0, argument, () [primal]
serial @both_0 {{
  %0: {dtype} = load<@x, primal>()
  %1: {dtype} = load<@y, primal>()
  %2: {dtype} = binary<quotient>(%0, %1)
  %3: {dtype} = binary<remainder>(%0, %1)
  store<@return_0, primal>(%2)
  store<@return_1, primal>(%3)
  yield()
}}
""")
    for processor in PROCESSORS:
        checked(module, processor, tmp_path, opt_level=level)


def test_the_linker_refuses_what_it_does_not_know() -> None:
    kernel = "define amdgpu_kernel void @k() { call void @nowhere() ret void }"
    text = f"declare void @nowhere()\n{kernel}"
    optimised, machine = llvmlite_driver.optimised(text, target("gfx1100"), 1)
    with pytest.raises(InternalError, match="`nowhere`, which is nowhere"):
        code_objects.link(machine.emit_object(optimised))
