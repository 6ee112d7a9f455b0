"""Sums of work items that threads share, and the blocks of work items that take long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver
from octants.analysis.control_flow import trip_count_keys
from octants.backends.vulkan import VulkanBackend
from octants.codegen import sorted_work_items
from octants.codegen.spirv.compile import FEW, LONG, PLAIN, SUMMING, compile_module
from octants.codegen.spirv.module_builder import Assembly
from octants.codegen.structured import dispatch_functions
from octants.runtime.vulkan import physical_devices
from octants.target import Capabilities
from octants.types.scalars import DType

AS_A_GPU = "masks,cuts"
"""Features without which Mesa's driver gets the code of GPUs."""
ITEMS, TERMS = 300, 500


def _programs() -> tuple[Any, ...]:
    """Pairs of bodies, whose sums blocks share, and rows of a matrix, whose sums lanes share."""
    random = np.random.default_rng(0)
    x, y = (qd.Vector.field(3, qd.f32, ITEMS, needs_grad=True) for _ in range(2))
    x.from_numpy(random.random((ITEMS, 3), np.float32))
    m = qd.field(qd.f32, (ITEMS, TERMS), needs_grad=True)
    m.from_numpy(random.random((ITEMS, TERMS), np.float32))
    z = qd.field(qd.f32, ITEMS, needs_grad=True)
    for array in (y, z):
        array.grad.fill(1.0)

    @qd.kernel
    def pairs():
        for i in x:
            force = qd.Vector([0.0, 0.0, 0.0])
            for j in range(ITEMS):
                d = x[j] - x[i]
                r2 = d.dot(d) + 0.01
                force += d / (r2 * qd.sqrt(r2))
            y[i] = force * force

    @qd.kernel
    def rows():
        for i in z:
            s = 0.0
            for j in range(TERMS):
                s += qd.sin(m[i, j])
            z[i] = s

    return pairs, rows, (y, z, x.grad, m.grad)


def _results(**options: Any) -> tuple[list[Any], list[str]]:
    qd.init(offline_cache=False, log_level="error", **options)
    pairs, rows, arrays = _programs()
    for kernel in (pairs, rows):
        kernel()
        kernel.grad()
    texts = [kernel.inspect().stages["finish"] for kernel in (pairs, rows)]
    return [array.to_numpy() for array in arrays], texts


def test_threads_share_sums() -> None:
    found, (pairs, rows) = _results(arch=qd.vulkan, vulkan_without=AS_A_GPU)
    wanted, _ = _results(arch=qd.cpu)
    for some, right in zip(found, wanted, strict=True):
        np.testing.assert_allclose(some, right, atol=1e-5 * np.abs(right).max())
    assert "barrier<block>" in pairs
    assert "subgroup<shuffle_xor" in rows


def test_a_cpu_shares_no_sums() -> None:
    _, (pairs, rows) = _results(arch=qd.vulkan)
    if not driver.state.device.hardware.is_cpu:
        pytest.skip("it is about Vulkan drivers that run on the CPU")
    assert "barrier" not in pairs and "subgroup" not in rows


@pytest.mark.parametrize(("sorts", "share"), [(False, 10), (True, 7)])
def test_shared_memory_of_a_block(monkeypatch: pytest.MonkeyPatch, sorts: bool, share: int) -> None:
    """Sums of all work items, a copy of an array, and the order of work items are in it."""
    taken, shared = [], Assembly.shared

    def see(self: Assembly, dtype: DType, count: int) -> int:
        taken.append(dtype.size * count)
        return shared(self, dtype, count)

    monkeypatch.setattr(Assembly, "shared", see)
    monkeypatch.setattr(driver, "_artifacts", {})  # the kernel is compiled
    monkeypatch.setattr(trip_count_keys, "_LONG", 0 if sorts else 1 << 60)
    monkeypatch.setattr(dispatch_functions, "_may_sort", lambda *_: True)
    qd.init(arch=qd.vulkan, offline_cache=False, log_level="error", vulkan_without=AS_A_GPU)
    most = driver.state.device.hardware.target.blocks.shared_bytes
    terms = most * share // 16 // 4
    n, s, z = qd.field(qd.i32, ITEMS), qd.field(qd.i32, 8), qd.field(qd.i32, terms)
    n.fill(5)

    @qd.kernel
    def sums():
        for i in n:
            for j in range(n[i]):
                z[(j * 37 + j * i) % terms] += 1
            for k in qd.static(range(8)):
                s[k] += i

    sums()
    assert z.to_numpy().sum() == 5 * ITEMS and set(s.to_numpy()) == {sum(range(ITEMS))}
    assert sorts <= (sorted_work_items.THREADS * 16 in taken)
    assert sum(taken) <= most


_machine = VulkanBackend.machine


def _splitting_no_sums(*arguments: Any) -> Capabilities:
    return replace(_machine(*arguments), splits=False)


@pytest.mark.parametrize(
    ("items", "length", "threads"),
    [(64, 4, (PLAIN, SUMMING)), (1 << 15, 128, (LONG, LONG)), (64, 128, (FEW, FEW))],
)
def test_long_work_items_are_in_small_blocks(
    items: int, length: int, threads: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    qd.init(arch=qd.vulkan, offline_cache=False, log_level="error", vulkan_without=AS_A_GPU)
    w = qd.field(qd.f32, (length, length), needs_grad=True)
    x, y = qd.field(qd.f32, (items, length)), qd.field(qd.f32, items, needs_grad=True)

    @qd.kernel
    def product():
        for n in y:
            total = 0.0
            for i in range(length):
                s = 0.0
                for j in range(length):
                    s += w[i, j] * x[n, j]
                total += s * s
            y[n] = total

    target = physical_devices.choose(0, AS_A_GPU).target
    assert target.blocks is not None
    target = replace(target, blocks=replace(target.blocks, shared_bytes=1 << 17))
    monkeypatch.setattr(VulkanBackend, "machine", _splitting_no_sums)
    for mode, wanted in zip(("primal", "reverse"), threads, strict=True):
        module = product.inspect(mode=mode)._module
        (dispatch,) = compile_module(module, target).dispatches
        assert dispatch.block == min(wanted, target.blocks.most_items)
