"""``init(arch=amdgpu)`` on a fake GPU: its threads run on the CPU, or in tinygrad's emulator."""

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
from octants.codegen.llvm.gpu import compilation
from octants.ir.core import Module
from octants.options import Options
from tests.codegen import emulated_target
from tests.codegen.compiled import TARGET
from tests.codegen.on_emulated_gpu import EmulatedCode
from tests.machines import pretend
from tests.runtime.amdgpu.fake_hip import FakeHip


@contextlib.contextmanager
def fake_gpu(**facts: Any) -> Iterator[FakeHip]:
    """A fake GPU that runs what the CPU's code generation makes; nothing is cached meanwhile."""
    with _gpu(FakeHip(**facts)) as fake, pytest.MonkeyPatch.context() as patch:
        code = EmulatedCode(fake)

        def compile_(_: AmdgpuBackend, module: Module, chosen: Options) -> Artifact:
            options = {"fast_math": chosen.fast_math, "opt_level": chosen.opt_level}
            return code.adopt(
                compilation.compile_module(module, emulated_target.Emulated(TARGET), **options)
            )

        patch.setattr(AmdgpuBackend, "compile", compile_)
        pretend(patch, AmdgpuBackend, splits=False)  # a thread has no others to work with
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
