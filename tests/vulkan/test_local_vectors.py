"""Loops over local vectors, and over rows that are not loaded by 16 bytes, as GPUs run them."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.codegen.spirv.compile import compile_module
from octants.codegen.spirv.instruction_writer import SpirvCode
from octants.codegen.structured import vector_loads
from octants.runtime.vulkan import physical_devices
from tests.vulkan.disassembly import to_text
from tests.vulkan.validation import check

AS_A_GPU = "masks,cuts"
ITEMS, ROWS = 6, 3


def _products(length: int, shift: int) -> tuple[Any, Any, Any, Any, Any]:
    """A kernel that multiplies a difference of two rows by a local vector; its arrays."""
    qd.init(arch=qd.vulkan, vulkan_without=AS_A_GPU, offline_cache=False, log_level="error")
    w, row = qd.field(qd.f32, (ROWS, length + shift)), qd.field(qd.i32, ())
    x, y = qd.field(qd.f32, (ITEMS, length)), qd.field(qd.f32, ITEMS)

    @qd.kernel
    def multiply() -> None:
        for n in range(ITEMS):
            h = qd.Vector.zero(qd.f32, length)
            for j in range(length):
                h[(j + n) % length] = x[n, j]
            i, s = row[None], 0.0
            for j in range(length):
                s += (w[i, j + shift] - 2.0 * w[i + 2, j + shift]) * h[j]
            y[n] = s

    return multiply, w, x, y, row


@pytest.mark.parametrize(("length", "shift", "few_bytes"), [(20, 0, 0), (23, 0, 32), (19, 1, 0)])
def test_products(length: int, shift: int, few_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of 20 elements are loaded by 16 bytes, those of 23 eight iterations at a time."""
    monkeypatch.setattr(vector_loads, "_FEW_BYTES", few_bytes)
    multiply, w, x, y, row = _products(length, shift)
    random = np.random.default_rng(length)
    for array in (w, x):
        array.from_numpy(random.integers(-4, 5, array.shape).astype(np.float32))
    row[None] = 0
    multiply()
    weights = w.to_numpy()[0, shift:] - 2.0 * w.to_numpy()[2, shift:]
    rolled = [np.roll(values, n) for n, values in enumerate(x.to_numpy())]
    np.testing.assert_array_equal(y.to_numpy(), rolled @ weights)


def test_four_elements_of_a_local_vector_are_one_load() -> None:
    """Those of 16 iterations, of which eight are a chunk, and of the seven that are left."""
    text = _text(_products(23, 0)[0])
    (four,) = re.findall(r"(\d+) = type_vector \d+ 4", text)
    (pointer,) = re.findall(rf"(\d+) = type_pointer function {four}\b", text)
    assert len(re.findall(rf"= access_chain {pointer} ", text)) == 2 + 2


@pytest.mark.parametrize(("few_items", "crowds"), [(ITEMS, True), (ITEMS, False), (1, True)])
def test_few_work_items_load_before_they_add(
    few_items: int, crowds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A barrier keeps the driver from moving loads; each chunk has one."""
    monkeypatch.setattr(vector_loads, "_FEW_ITEMS", few_items)
    text = _text(_products(23, 0)[0], "crowds" * crowds)
    assert text.count("\nmemory_barrier ") == 2 * (crowds and few_items == ITEMS)


@pytest.mark.parametrize("most_local", [1 << 10, 0])
def test_loops_beside_sums_of_products_are_free(
    most_local: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads of such blocks have the registers, if their local vectors are in the cache."""
    monkeypatch.setattr(vector_loads, "_MOST_LOCAL", most_local)
    qd.init(arch=qd.vulkan, vulkan_without=AS_A_GPU, offline_cache=False, log_level="error")
    w, x = (qd.field(qd.f32, shape, needs_grad=True) for shape in ((20, 20), (ITEMS, 20)))

    @qd.kernel
    def multiply() -> None:
        for n in range(ITEMS):
            h = qd.Vector.zero(qd.f32, 20)
            for i in range(20):
                s = 0.0
                for j in range(20):
                    s += w[i, j] * x[n, j]
                h[i] = qd.tanh(s)
            for i in range(20):
                s = 0.0
                for j in range(20):
                    s += w[i, j] * h[j]
                x[n, i] = s

    free, ordered = (
        _text(multiply, more, mode="reverse").count("\nmemory_barrier ") for more in ("", "crowds")
    )
    assert (free == ordered) == (most_local > 0)


def test_loops_with_slow_paths_have_each_once() -> None:
    qd.init(arch=qd.vulkan, vulkan_without=AS_A_GPU, offline_cache=False, log_level="error")
    w, x = qd.field(qd.f32, (ROWS, 32)), qd.field(qd.f32, ITEMS)

    @qd.kernel
    def add() -> None:
        for n in range(ITEMS):
            s = 0.0
            for j in range(32):
                s += qd.sin(w[n % ROWS, j])
            x[n] = s

    w.from_numpy(np.random.default_rng(0).normal(size=w.shape).astype(np.float32))
    add()
    sums = np.sin(w.to_numpy().astype(np.float64)).sum(1)
    np.testing.assert_allclose(x.to_numpy(), sums[np.arange(ITEMS) % ROWS], rtol=1e-5, atol=1e-5)
    # Lanes of a GPU may share the loop, which then is written twice; a chunk has 8 iterations.
    assert 1 <= _text(add).count(" function_call ") <= 2


def test_neighbours_share_what_varies_of_their_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants are taken out of indices, which may be less than these."""
    qd.init(arch=qd.vulkan, vulkan_without=AS_A_GPU, offline_cache=False, log_level="error")
    x, y = qd.field(qd.i32, (40, 5)), qd.field(qd.i32, 8)
    values = np.arange(200, dtype=np.int32).reshape(40, 5)
    x.from_numpy(values)

    @qd.kernel
    def add() -> None:
        for n in range(8):
            i = 3 * n + 9
            y[n] = x[i - 9, 1] + 2 * x[i + 7, 2] - x[i, 0]

    add()
    i = 3 * np.arange(8) + 9
    found = values[i - 9, 1] + 2 * values[i + 7, 2] - values[i, 0]
    np.testing.assert_array_equal(y.to_numpy(), found)
    shared = _text(add).count(" i_mul ")
    monkeypatch.setattr(SpirvCode, "split_sum", lambda _, number: (number, 0))
    assert _text(add).count(" i_mul ") == shared + 2


def _text(kernel: Any, more: str = "", mode: str = "primal") -> str:
    own = physical_devices.choose(0, AS_A_GPU).target
    features = [each for each in own.features.split(",") if each != "crowds"]  # NVIDIA's has it
    target = dataclasses.replace(own, features=",".join([*features, more]))
    artifact = compile_module(kernel.inspect(mode=mode)._module, target, fast_math=True)
    check(artifact)
    return to_text(artifact.code)
