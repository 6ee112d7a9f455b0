"""Compiles modules built by hand for Metal, and runs them on a fake one."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from octants.codegen.metal.compile import compile_module
from octants.diagnostics.exceptions import OctantsRuntimeError
from octants.ir.core import Module
from octants.ir.verifier import verify
from octants.runtime.metal import context
from octants.runtime.metal.device import MetalDevice
from octants.target import Target
from tests.metal.cpp import need_compiler
from tests.metal.fake_metal import FakeMetal
from tests.vulkan.compiled import OnVulkan

FAKE = FakeMetal()


@functools.cache
def device() -> MetalDevice:
    """A device of a fake Metal that all tests use."""
    need_compiler()
    with pytest.MonkeyPatch.context() as patch:
        library = FAKE.library()
        patch.setattr(context, "library", lambda: library)
        return MetalDevice()


class OnMetal(OnVulkan):
    """A kernel on a fake Metal; the test is skipped where that lacks what the kernel needs."""

    owner = staticmethod(device)

    def __init__(self, module: Module, target: Target | None = None, **options: Any) -> None:
        verify(module)
        self.module = module
        hardware = device().hardware
        try:
            self.artifact = compile_module(module, hardware.target)
        except OctantsRuntimeError as error:
            if "OCT450" not in str(error):
                raise
            pytest.skip(str(error).splitlines()[0])
        self.kernel = device().load(self.artifact)  # type: ignore[assignment]


def run(module: Module, arrays: Any, **options: Any) -> dict[str, Any]:
    """Compile and launch once."""
    return OnMetal(module).run(arrays, **options)
