"""The machine code that NVIDIA's assembler makes of kernels: that it is free of known faults.

No GPU is needed, but the assembler and the disassembler are. `codegen.llvm.gpu.wide_extrema`
describes the fault of extrema of 16 bits: one predicate gets the results of both halves.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from octants.codegen.llvm import nvptx
from octants.codegen.llvm.gpu import compilation
from octants.ir.core import Module
from octants.types.scalars import i8, i16, u8, u16
from tests.codegen.nvidia_tools import needs_assembler, needs_disassembler, tool
from tests.codegen.representative import module_of_operations, random_modules
from tests.codegen.test_wide_extrema import RANGE
from tests.ir.parser import parse
from tests.seeds import seeds

_RESULTS_IN_ONE_PREDICATE = re.compile(r"\b\w+(?:\.\w+)*\s+(?:U?R\w+,\s*)?(U?P\d),\s*\1,.*")
"""An instruction whose two predicates, which are results, are the same register."""


def faults(code: str) -> list[str]:
    """The instructions of machine code that are known to be wrong."""
    return [found[0] for found in _RESULTS_IN_ONE_PREDICATE.finditer(code)]


def machine_code(module: Module, folder: Path, capability: int = 90) -> str:
    """The machine code of a module, as text."""
    made = compilation.compile_module(module, nvptx.Nvptx(nvptx.target(capability)))
    source, binary = folder / "kernel.ptx", folder / "kernel.cubin"
    source.write_bytes(made.code)
    assemble = [str(tool("ptxas")), f"-arch=sm_{capability}", str(source), "-o", str(binary)]
    for command in (assemble, [str(tool("nvdisasm")), "-c", str(binary)]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("instruction", "is_wrong"),
    [
        ("VIMNMX.S16x2 R4, P0, P0, R4, 0xffff, !PT ;", True),
        ("VIMNMX.U16x2 R4, P2, P1, R4, R9, PT ;", False),
        ("VIMNMX R4, R4, -0x1, !PT ;", False),
        ("ISETP.NE.U32.AND.EX P0, PT, RZ, UR5, PT, P0 ;", False),
        ("@P0 EXIT P1 ;", False),
    ],
)
def test_faults_are_recognised(instruction: str, is_wrong: bool) -> None:
    assert bool(faults(f"        /*0170*/                   {instruction}\n")) == is_wrong


@needs_assembler
@needs_disassembler
@pytest.mark.parametrize("capability", [90, 100])
def test_the_assembler_has_the_fault(
    capability: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `widen_extrema`; where newer assemblers do not have it, the pass can go."""
    assert not faults(machine_code(parse(RANGE), tmp_path, capability))
    monkeypatch.setattr(nvptx, "widen_extrema", lambda text: text)
    assert faults(machine_code(parse(RANGE), tmp_path, capability))


@needs_assembler
@needs_disassembler
@pytest.mark.parametrize("dtype", [i8, u8, i16, u16], ids=str)
def test_operations_on_narrow_integers(
    dtype: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not faults(machine_code(module_of_operations(dtype, monkeypatch), tmp_path))


@needs_assembler
@needs_disassembler
@pytest.mark.parametrize("profile", ["core", "types", "bits", "quantised"])
@pytest.mark.parametrize("seed", seeds(1, 40, 300_100))
def test_random_programs(
    seed: int, profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in random_modules(seed, monkeypatch, profile):
        assert not faults(machine_code(module, tmp_path))
