"""The GPUs that kernels of the tests are compiled for, without having one.

`generate` gives the text that a target's backend makes of a module; `finish` makes code of such
texts at a level of optimisation, and checks it: LLVM ends the process on what it cannot lower. To
add a target, add a row to `TARGETS`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from octants.backends import amdgpu as amdgpu_backend
from octants.backends.base import Backend
from octants.backends.table import backend_of
from octants.codegen.llvm import llvmlite_driver as llvm
from octants.codegen.llvm.amdgpu import code_objects
from octants.codegen.llvm.amdgpu.amdgcn import Amdgpu
from octants.codegen.llvm.amdgpu.targets import target as amd_target
from octants.ir.core import Module
from octants.options import Options
from octants.runtime.metal import context
from tests.metal.checked import check_address_spaces, problems
from tests.metal.cpp import clang
from tests.metal.fake_metal import FakeMetal
from tests.runtime.amdgpu.code_reader import metadata_of, read_code
from tests.runtime.amdgpu.fake_hip import FakeHip


@dataclass(frozen=True)
class CompiledFor:
    """A GPU that kernels are compiled for.

    ``pretend`` lets a backend answer as on a machine with that GPU. ``refusals`` are the codes of
    the errors by which the backend may refuse a kernel. Where there is no f64 (`has_f64`), f32
    takes its place. ``check_all`` checks many texts at once, by name, and gives what is wrong with
    some of them.
    """

    arch: str
    pretend: Callable[[pytest.MonkeyPatch], None]
    generate: Callable[[Backend, Module, Options], str]
    finish: Callable[[str, int], None]
    refusals: tuple[str, ...]
    has_f64: bool = True
    check_all: Callable[[dict[str, str]], dict[str, str]] | None = None

    @contextlib.contextmanager
    def backend(self) -> Iterator[Backend]:
        """The backend, while it takes the machine for one with that GPU."""
        with pytest.MonkeyPatch.context() as patch:
            self.pretend(patch)
            yield backend_of(self.arch)


_NO_ORDER = "OCT245"
"""`deterministic` asks for an order, which work items that work together have on CPUs only."""
_MISSING_FEATURE = "OCT450"


@functools.cache
def _library(processor: str) -> Any:
    return FakeHip(processor=processor.encode(), total=1 << 30).library()


def _amdgpu(processor: str) -> CompiledFor:
    def pretend(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(amdgpu_backend, "driver_library", lambda: _library(processor))

    return CompiledFor(
        "amdgpu",
        pretend,
        lambda backend, module, chosen: backend.llvm_text(module, chosen),
        functools.partial(_code_object, processor),
        (_NO_ORDER,),
    )


def _code_object(processor: str, text: str, level: int) -> None:
    """Make a code object of LLVM IR, and check it."""
    optimised, machine = llvm.optimised(text, amd_target(processor), max(level, Amdgpu.least_level))
    code = code_objects.link(machine.emit_object(optimised))
    read, metadata = read_code(code), metadata_of(code)
    assert metadata["amdhsa.target"] == f"amdgcn-amd-amdhsa--{processor}"
    for kernel in metadata["amdhsa.kernels"]:
        name = kernel[".name"]
        assert read.symbols[f"{name}.kd"] % 64 == 0
        assert read.symbols[name] % 256 == 0
        assert kernel[".group_segment_fixed_size"] <= 1 << 16


@functools.cache
def _metal_library() -> Any:
    return FakeMetal().library()


def _pretend_metal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(context, "library", _metal_library)


def _metal_text(backend: Backend, module: Module, chosen: Options) -> str:
    return backend.compile(module, chosen).code.decode()


def _check_metal_text(text: str, _: int) -> None:
    """Check the text of a library of Metal; there is no compiler of it here."""
    assert problems(text) == []


def _check_spaces(texts: dict[str, str]) -> dict[str, str]:
    """What clang says of address spaces; texts that are wrong are sought by halves."""
    if clang() is None:
        return {}
    try:
        check_address_spaces(list(texts.values()))
    except AssertionError as error:
        names = list(texts)
        if len(names) == 1:
            return {names[0]: str(error)}
        half = len(names) // 2
        parts = names[:half], names[half:]
        return {
            k: v for part in parts for k, v in _check_spaces({n: texts[n] for n in part}).items()
        }
    return {}


TARGETS: dict[str, CompiledFor] = {
    **{name: _amdgpu(name) for name in ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")},
    "metal": CompiledFor(
        "metal",
        _pretend_metal,
        _metal_text,
        _check_metal_text,
        (_NO_ORDER, _MISSING_FEATURE),
        has_f64=False,
        check_all=_check_spaces,
    ),
}
