"""Subgroups that exchange factors of products: the same sums, wherever arrays begin."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from octants.codegen.spirv.compile import compile_module
from octants.ir.core import Module, Space
from octants.passes.loops.unroll_shared_sums import unroll_shared_sums
from octants.target import Target
from tests.codegen.test_nvptx import OUTER_PRODUCTS
from tests.ir.parser import parse
from tests.vulkan import compiled, disassembly
from tests.vulkan.test_vector_loads import Shifted


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_(module: Module, own: Target) -> Any:
        features = own.features.replace("masks", "gathers")
        return compile_module(module, replace(own, features=features), fast_math=True)

    monkeypatch.setattr(compiled, "compile_module", compile_)


@pytest.mark.parametrize(
    ("block", "shifts", "guarded"),
    [(64, (16, 8), True), (128, (0,), False), (256, (0,), True)],
    ids=str,
)
def test_outer_products(block: int, shifts: tuple[int, ...], guarded: bool) -> None:
    """Blocks of at most 128 threads exchange factors, and load four elements at once."""
    module = parse(OUTER_PRODUCTS if guarded else OUTER_PRODUCTS.replace("(%24, ", "(%23, "))
    module.noalias = True
    for array in module.arrays:  # so that none is known to be aligned
        array.exported = array.space is Space.FIELD
    module.tasks[0].options["block_dim"] = block
    unroll_shared_sums(module, exchanges=True)
    kernel = compiled.OnVulkan(module)
    lines = disassembly.to_text(kernel.artifact.code).splitlines()
    exchanges = block <= 128
    assert any("type_array" in line for line in lines) == exchanges
    assert any(" load " in line and line.endswith(" 2 16") for line in lines) == exchanges
    random = np.random.default_rng(0)
    x, v = random.random(99, np.float32), random.random((99, 96), np.float32)
    x[5] = 0.0
    v[7] = 0.0
    if guarded:
        v[5, 11] = np.inf  # beside a zero
    rows = np.stack([x, np.sin(x), np.cos(x), np.exp(x)])
    with np.errstate(invalid="ignore"):
        products = rows[:, :, None] * v
    products[0, 5] = 0.0
    for shift in shifts:
        kernel.owner = functools.partial(Shifted, shift)
        w = np.zeros((4, 960), np.float32)
        kernel.run({"x": x, "v": v, "w": w})
        np.testing.assert_allclose(w[:, :96], products.sum(axis=1), 1e-5)
        assert not w[:, 96:].any()
