"""Loads of four iterations at once: the same values wherever arrays and loops begin."""

from __future__ import annotations

import types
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from octants.codegen.spirv.compile import compile_module
from octants.codegen.spirv.opcodes import Op
from octants.codegen.structured import vector_loads
from octants.ir.core import Module
from octants.target import Target
from octants.types.scalars import DType, i32, i64
from tests.codegen.test_vector_loads import (
    CASES,
    ENDS,
    ITEMS,
    LOADED,
    expected,
    summing,
    values_of,
)
from tests.vulkan import compiled, disassembly
from tests.vulkan.test_atomic_sums import count


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_(module: Module, own: Target) -> Any:
        return compile_module(module, replace(own, features=own.features.replace("masks", "")))

    monkeypatch.setattr(compiled, "compile_module", compile_)


class Shifted:
    """The device, whose allocations begin so many bytes later."""

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._device = compiled.device()

    def allocate(self, nbytes: int) -> Any:
        whole = self._device.allocate(nbytes + self._nbytes)
        return types.SimpleNamespace(address=whole.address + self._nbytes, whole=whole)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)


@pytest.mark.parametrize("items", [ITEMS, 1], ids=["parallel", "serial"])
def test_loads_of_eight_iterations_begin_a_loop_that_loads_few(
    items: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each piece of 16 bytes is an instruction, and one for each of its four words."""
    extracts = []
    array, places = CASES["numbers"]
    for nbytes in (32, 0):
        monkeypatch.setattr(vector_loads, "_FEW_BYTES", nbytes)
        kernel = compiled.OnVulkan(summing(array, places, items=items))
        extracts.append(count(kernel.artifact.code, Op.COMPOSITE_EXTRACT))
        x, y = values_of(array, 0), np.zeros(ITEMS, np.float32)
        kernel.run({"x": x, "y": y, "ends": np.array([1, 22], np.int32)})
        assert y[0] == expected(x, places, 1, 22)[0]
    assert extracts[0] - extracts[1] == 4


@pytest.mark.parametrize("most", [32, 0])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("counter", [i32, i64], ids=str)
def test_sums(name: str, counter: DType, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_loads, "_FEW_BYTES", most)
    array, places = CASES[name]
    kernel = compiled.OnVulkan(summing(array, places, counter, narrow=counter is i64))
    lines = disassembly.to_text(kernel.artifact.code).splitlines()
    has_vectors = any(line.endswith(" 4") for line in lines if "type_vector" in line)
    assert has_vectors == (name in LOADED and counter is i32)  # a narrow counter might wrap
    x = values_of(array, 0)
    for shift in (0, 8, 16):
        kernel.owner = lambda shift=shift: Shifted(shift)
        for lower, upper in ENDS:
            y = np.zeros(ITEMS, x.dtype)
            ends = np.array([lower, upper], np.int32 if counter is i32 else np.int64)
            kernel.run({"x": x, "y": y, "ends": ends})
            assert y.tolist() == expected(x, places, lower, upper).tolist(), (shift, lower, upper)
