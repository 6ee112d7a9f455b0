"""``init(arch=amdgpu)`` on a fake GPU, which runs CUDA's code, or AMD's in tinygrad's emulator."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

import octants as qd
from octants import driver
from octants.artifact import Artifact
from octants.backends import amdgpu
from octants.backends.amdgpu import AmdgpuBackend
from octants.backends.llvm_gpu import choices
from octants.codegen.llvm.gpu import compilation
from octants.ir.core import Module
from octants.options import Options
from tests.codegen.on_emulated_gpu import EmulatedCode
from tests.codegen.warps import Warps
from tests.runtime.amdgpu.fake_hip import FakeHip


class _Waves(Warps):
    by_value = -1  # kernels take the address of the parameter block


@contextlib.contextmanager
def fake_gpu(**facts: Any) -> Iterator[FakeHip]:
    """A fake GPU that runs CUDA's code on the CPU; nothing is cached meanwhile."""
    with _gpu(FakeHip(**facts)) as fake, pytest.MonkeyPatch.context() as patch:
        code = EmulatedCode(fake)

        def compile_(_: AmdgpuBackend, module: Module, chosen: Options) -> Artifact:
            return code.adopt(compilation.compile_module(module, _Waves(), **choices(chosen)))

        patch.setattr(AmdgpuBackend, "compile", compile_)
        yield fake


@contextlib.contextmanager
def emulated_processor(**facts: Any) -> Iterator[FakeHip]:
    """A fake GPU that runs code objects, in tinygrad's emulator."""
    with _gpu(FakeHip(emulates=True, **facts)) as fake:
        yield fake


@contextlib.contextmanager
def _gpu(fake: FakeHip) -> Iterator[FakeHip]:
    library = fake.library()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(amdgpu, "driver_library", lambda: library)
        patch.setattr(driver, "_artifacts", {})
        patch.setenv("OCTANTS_OFFLINE_CACHE", "0")
        try:
            yield fake
        finally:
            qd.reset()
