"""Which instructions kernels for GPUs consist of, and that results stay what they are."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.artifact import Artifact
from octants.codegen import memory
from octants.codegen.spirv.compile import compile_module
from octants.codegen.spirv.instruction_writer import FEW_ELEMENTS, LEAST_ELEMENTS
from octants.codegen.spirv.opcodes import Ext, Op
from octants.ir.core import Array, Companion, Module, Space
from octants.runtime.vulkan import physical_devices
from octants.types.layouts import Layout, Term
from octants.types.scalars import f32
from tests.codegen.compiled import ndarray, parallel
from tests.vulkan.disassembly import to_text
from tests.vulkan.validation import check

AS_A_GPU = "masks,cuts"


def _compiled(kernel: Callable[..., Any], without: str = "", *, fast_math: bool = True) -> Artifact:
    module = kernel.inspect()._module  # type: ignore[attr-defined]
    target = physical_devices.choose(0, without).target
    return compile_module(module, target, fast_math=fast_math)


def _text(kernel: Callable[..., Any], without: str, *, fast_math: bool = True) -> str:
    return to_text(_compiled(kernel, without, fast_math=fast_math).code)


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
    is_cpu = "masks" in physical_devices.choose(0).features
    assert _extended(_text(roots, ""), Ext.INVERSE_SQRT) == (0 if is_cpu else 1)
    roots()
    np.testing.assert_allclose(y.to_numpy(), values**-0.5, rtol=1e-6)


def test_offsets_in_short_fields_are_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those in longer fields are i64, but on a driver that computes lane by lane."""
    qd.init(arch=qd.vulkan, offline_cache=False, log_level="error")
    x, n = qd.field(qd.f32, (10, 37)), qd.field(qd.i32, ())

    @qd.kernel
    def copy():
        for i in range(10):
            x[i, n[None]] = x[i, n[None] + 1] + 1.0

    def wide_products() -> int:
        text = _text(copy, "lanewise")
        (wide,) = re.findall(r"(\d+) = type_int 64 0", text)
        return len(re.findall(rf"= i_mul {wide} ", text))

    narrow = wide_products()
    monkeypatch.setattr(memory, "_SHORT", 1000)
    assert wide_products() == narrow + 3  # of `i` once


def test_narrow_offsets_find_the_elements() -> None:
    qd.init(arch=qd.vulkan, offline_cache=False, log_level="error")
    x, at = qd.Vector.field(3, qd.f32, (7, 5)), qd.field(qd.i64, 7)
    x.from_numpy(values := np.arange(105, dtype=np.float32).reshape(7, 5, 3))
    at.from_numpy(np.arange(6, -1, -1))
    y = qd.Vector.field(3, qd.f32, (7, 5))

    @qd.kernel
    def reverse():
        for i, j in y:
            for k in qd.static(range(3)):
                y[i, j][k] = x[at[i], 4 - j][2 - k]

    reverse()
    assert np.array_equal(y.to_numpy(), values[::-1, ::-1, ::-1])


def test_equal_instructions_are_written_once_where_they_dominate() -> None:
    """Those of a branch or a loop are not used behind it."""
    qd.init(arch=qd.vulkan, offline_cache=False, log_level="error")
    x, bound = qd.Vector.field(3, qd.f32, 16), qd.field(qd.i32, ())
    x.from_numpy(values := np.arange(48, dtype=np.float32).reshape(16, 3))

    @qd.kernel
    def once():
        for i in range(16):
            x[i][0] = x[i][1] + x[i][2]

    @qd.kernel
    def branches():
        for i in range(16):
            n = bound[None]
            if i < n:
                x[i + n][1] = 1.0
            else:
                x[i - n][2] = 2.0
            for _ in range(n - i):
                x[i * n][0] += 3.0
            x[i - n + 8][2] = x[i + n - 8][1] + x[(i * n) % 16][0]

    check(artifact := _compiled(once))
    text = to_text(artifact.code)
    strides = re.findall(r"(\d+) = constant \d+ 12\b", text)
    assert sum(len(re.findall(rf"= i_mul \d+ \d+ {each}\b", text)) for each in strides) == 1
    check(_compiled(branches))
    once()
    values[:, 0] = values[:, 1] + values[:, 2]
    assert np.array_equal(x.to_numpy(), values)


@pytest.mark.parametrize("elements", [4, FEW_ELEMENTS, FEW_ELEMENTS + 1, 40, 80])
@pytest.mark.parametrize(("selects", "varies"), [(False, True), (True, True), (True, False)])
def test_local_arrays_are_long_where_short_ones_become_registers(
    selects: bool, varies: bool, elements: int
) -> None:
    """Unless all indices are constants: then they had better."""
    x = ndarray("x", f32)
    layout = {Companion.PRIMAL: Layout((elements,), (Term(0, 1, 0, 4),))}
    local = Array("v", f32, 1, Space.LOCAL, (), layout)

    def body(build: Any, i: Any) -> None:
        build.store(local, [build.index(2)], build.load(x, [i]))
        index = build.binary("and", i, build.index(3)) if varies else build.index(2)
        build.store(x, [i], build.load(local, [index]))

    task = parallel("t", lambda build: (build.index(0), build.shape(x, 0)), body)
    module, own = Module("k", [x, local], tasks=[task]), physical_devices.choose(0).target
    features = {*own.features.split(",")} - {"selects"} | ({"selects"} if selects else set())
    own = dataclasses.replace(own, features=",".join(sorted(features)))
    check(artifact := compile_module(module, own))
    text = to_text(artifact.code)
    ((kind, length),) = re.findall(r"(\d+) = type_array \d+ (\d+)", text)
    (count,) = re.findall(rf"{length} = constant \d+ (\d+)", text)
    is_longer = selects and varies and elements > FEW_ELEMENTS
    expected = max(elements, LEAST_ELEMENTS) if is_longer else elements
    assert int(count) == expected
    assert re.search(rf"= type_pointer function {kind}\b", text)


def test_sums_with_a_negated_number_are_differences() -> None:
    """NVIDIA's compiler takes an instruction for a negation."""
    qd.init(arch=qd.vulkan, offline_cache=False, log_level="error")
    x, y = qd.field(qd.f32, (3, 100)), qd.field(qd.f32, (3, 100))
    values = np.random.default_rng(1).normal(size=(3, 100)).astype(np.float32)
    x.from_numpy(values)

    @qd.kernel
    def sums():
        for i in range(100):
            a, b = x[0, i], x[1, i]
            y[0, i] = a + -b
            y[1, i] = -a + b
            y[2, i] = -a + -b

    text = _text(sums, "", fast_math=False)
    assert len(re.findall(rf"= {Op.F_SUB.name.lower()} ", text)) == 3
    assert not re.search(rf"= {Op.F_ADD.name.lower()} ", text)
    sums()
    a, b = values[:2]
    np.testing.assert_array_equal(y.to_numpy(), np.stack([a - b, b - a, -a - b]))
