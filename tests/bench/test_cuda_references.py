"""The references in CUDA are right: run as C++, and compiled for GPUs where there is a compiler."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import octants as qd

REPOSITORY = Path(__file__).parent.parent.parent
SIZES = {
    "recurrence": (300, 32),
    "affine": (300, 32),
    "ode": (40, 16),
    "pairwise": (512, 1),
    "decay": (40, 32),
    "harmonics": (40, 32),
    "springs": (25, 3),
}
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    """The modules of the benchmark, with Octants as the system of fields."""
    patch = pytest.MonkeyPatch()
    patch.setenv("BENCH_SYSTEM", "octants")
    patch.syspath_prepend(str(REPOSITORY / "bench"))
    before = set(sys.modules)
    import nvidia_gpu
    import problems
    from systems import cuda, fields

    class Modules:
        pass

    for module in (nvidia_gpu, problems, cuda, fields):
        setattr(Modules, module.__name__.rpartition(".")[2], module)
    yield Modules
    for name in set(sys.modules) - before:
        if not name.startswith("octants"):
            del sys.modules[name]
    patch.undo()


class Host:
    """A GPU that is a library of C++ and the memory of the host."""

    def __init__(self) -> None:
        self.memory: dict[int, Any] = {}

    def function(self, module: Any, name: str) -> tuple[Any, Any]:
        return module.launch, getattr(module, name)

    def allocate(self, nbytes: int) -> int:
        buffer = ctypes.create_string_buffer(nbytes)
        address = ctypes.addressof(buffer)
        self.memory[address] = buffer
        return address

    def fill(self, address: int, nbytes: int) -> None:
        ctypes.memset(address, 0, nbytes)

    def write(self, address: int, array: Any) -> None:
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def read(self, address: int, array: Any) -> None:
        ctypes.memmove(array.ctypes.data, address, array.nbytes)

    def launcher(self, function: Any, grid: int, block: int, work: Any) -> Callable[[], None]:
        launch, kernel = function
        return lambda: launch(kernel, work, grid, block)


def compiled(folder: Path, source: Path) -> Any:
    """The kernels of a source as functions of the host, in double precision."""
    library = folder / "kernels.so"
    header = Path(__file__).parent / "cuda_on_cpu.h"
    flags = ["-O1", "-std=c++20", "-shared", "-fPIC", "-pthread", "-DREAL=double"]
    command = ["g++", *flags, f'-DKERNELS="{source}"', "-x", "c++", str(header)]
    command += ["-Wno-unknown-pragmas", "-o", str(library)]
    subprocess.run(command, check=True, timeout=120)
    return ctypes.CDLL(str(library))


@needs_compiler
@pytest.mark.parametrize("name", SIZES)
def test_reference_finds_what_octants_finds(bench: Any, tmp_path: Path, name: str) -> None:
    problem = bench.problems.make(name, *SIZES[name])
    module = compiled(tmp_path, bench.cuda.FOLDER / bench.cuda.source_of(name))
    kind = bench.cuda.Springs if name == "springs" else bench.cuda.Program
    theirs = kind(bench.problems.make(name, *SIZES[name]), Host(), module, is_exact=True)
    qd.init(arch=qd.cpu, fast_math=False)
    ours = bench.fields.PROGRAMS[name](problem, "cuda")
    for program in (theirs, ours):
        program.forward()
        program.seed()
        program.backward()
    for found, expected in (
        (theirs.value(), ours.value()),
        (theirs.gradient(), ours.gradient()),
    ):
        assert np.abs(expected).max() > 0
        np.testing.assert_allclose(found, expected, atol=3e-5 * np.abs(expected).max())


@pytest.mark.parametrize("flags", ["FAST", "EXACT"])
@pytest.mark.parametrize("source", ["loops.cu", "ode.cu", "pairwise.cu", "springs.cu"])
def test_references_compile_for_gpus(bench: Any, source: str, flags: str) -> None:
    try:
        bench.nvidia_gpu.compiler()
    except bench.nvidia_gpu.Missing:
        pytest.skip("neither nvcc nor NVRTC")
    cubin = bench.nvidia_gpu.compile_source(
        bench.cuda.FOLDER / source, "sm_90", getattr(bench.nvidia_gpu, flags)
    )
    assert cubin.startswith(b"\x7fELF")
