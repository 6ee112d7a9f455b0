"""Which instructions kernels for GPUs consist of, and that results stay what they are."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

import octants as qd
from octants.codegen.spirv.compile import compile_module
from octants.codegen.spirv.opcodes import Ext, Op
from octants.runtime.vulkan import physical_devices
from tests.vulkan.disassembly import to_text

AS_A_GPU = "masks,cuts"


def _text(kernel: Callable[..., Any], without: str, *, fast_math: bool = True) -> str:
    module = kernel.inspect()._module  # type: ignore[attr-defined]
    target = physical_devices.choose(0, without).target
    return to_text(compile_module(module, target, fast_math=fast_math).code)


def _extended(text: str, which: Ext) -> int:
    """How many instructions of GLSL.std.450 there are of a kind."""
    return len(re.findall(rf"= {Op.EXT_INST.name.lower()} \d+ \d+ {int(which)} ", text))


def test_reciprocal_roots() -> None:
    """With fast_math a GPU takes its instruction, which a CPU may not have."""
    qd.init(arch=qd.vulkan, offline_cache=False, log_level="error", vulkan_without=AS_A_GPU)
    x, y = qd.field(qd.f32, 100), qd.field(qd.f32, 100)
    values = np.linspace(0.01, 40.0, 100, dtype=np.float32)
    x.from_numpy(values)

    @qd.kernel
    def roots():
        for i in x:
            y[i] = 1.0 / qd.sqrt(x[i])

    assert _extended(_text(roots, AS_A_GPU), Ext.INVERSE_SQRT) == 1
    assert _extended(_text(roots, AS_A_GPU, fast_math=False), Ext.INVERSE_SQRT) == 0
    assert _extended(_text(roots, ""), Ext.INVERSE_SQRT) == 0
    roots()
    np.testing.assert_allclose(y.to_numpy(), values**-0.5, rtol=1e-6)
