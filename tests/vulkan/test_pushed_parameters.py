"""Slots of the parameter block that launches push, and those that kernels load from it."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import abi
from octants.artifact import SYSTEM
from octants.codegen.spirv.compile import compile_module
from octants.runtime.vulkan import physical_devices
from tests.vulkan import compiled
from tests.vulkan.disassembly import to_text
from tests.vulkan.validation import check

SIZE, COUNT = 50, 16
Weights = qd.types.vector(COUNT, qd.f32)


@pytest.fixture(autouse=True)
def _start() -> None:
    compiled.device()  # or skip
    qd.init(arch=qd.vulkan, offline_cache=False, log_level="error")


@qd.kernel
def weighted(
    x: qd.types.NDArray[qd.f64, 1],
    y: qd.types.NDArray[qd.f64, 1],
    small: qd.i8,
    half: qd.f16,
    wide: qd.u64,
    exact: qd.f64,
    index: qd.i32,
    w: Weights,
):
    for i in x:
        s = y[i] * exact + small + half + wide % 1000
        for k in qd.static(range(COUNT)):
            s += w[k] * (k + 1)
        x[i] = s + w[index % COUNT]


def arguments(seed: int) -> tuple[list[Any], np.ndarray[Any, Any]]:
    """Arguments but for the first array, and what that is to hold."""
    rng = np.random.default_rng(seed)
    y, w = rng.normal(size=SIZE), rng.integers(-8, 8, COUNT).astype(np.float32)
    small, wide, index = -5 - seed, (1 << 63) + 12_345 * seed, 7 + seed
    given = [y, small, 0.25 * seed, wide, 1.5 + seed, index, w.tolist()]
    constant = small + 0.25 * seed + wide % 1000 + w @ np.arange(1, COUNT + 1) + w[index % COUNT]
    return given, y * (1.5 + seed) + constant


def loads(*, is_large: bool) -> int:
    """How often the kernel loads from memory, on a device with or without space for many slots."""
    given, _ = arguments(1)
    target = physical_devices.choose(0).target
    features = target.names() - {"push256"} | ({"push256"} if is_large else set())
    kernel: Any = weighted
    module = kernel.inspect(np.zeros(SIZE), *given)._module
    artifact = compile_module(module, dataclasses.replace(target, features=",".join(features)))
    check(artifact)
    assert len(artifact.parameters.slots) - len(SYSTEM) > abi.MANY_PUSHED_SLOTS
    text = to_text(artifact.code)
    return len(re.findall(r"= load \d+ \d+ 2 ", text))  # those with an alignment


def test_slots_that_are_pushed_are_not_loaded() -> None:
    """Those with fewer than 32 bits are, and those whose number depends on another one."""
    assert loads(is_large=False) - loads(is_large=True) >= 12


def test_every_kind_of_argument() -> None:
    for seed in (1, 2, 3):
        given, wanted = arguments(seed)
        x = np.zeros(SIZE)
        weighted(x, *given)
        np.testing.assert_allclose(x, wanted, rtol=1e-12)


def test_a_graph_keeps_what_was_pushed() -> None:
    x, y, z = (qd.ndarray(qd.f64, SIZE) for _ in range(3))
    given, wanted = arguments(4)
    y.from_numpy(given[0])
    with qd.graph.capture() as graph:
        weighted(x, y, *given[1:])
    others, _ = arguments(5)
    weighted(z, y, *others[1:])
    x.fill(0.0)
    graph()
    np.testing.assert_allclose(x.to_numpy(), wanted, rtol=1e-12)


def test_launches_push_what_their_kernels_read(monkeypatch: pytest.MonkeyPatch) -> None:
    queue: Any = qd.driver.state.device.queue  # type: ignore[union-attr]
    dispatch, pushed = queue.dispatch, []

    def note(*given: Any) -> None:
        pushed.append(given[4][0])
        dispatch(*given)

    monkeypatch.setattr(queue, "dispatch", note)
    x = qd.ndarray(qd.f32, SIZE)

    @qd.kernel
    def increment(x: qd.types.NDArray[qd.f32, 1]):
        for i in x:
            x[i] += 1.0

    increment(x)
    qd.sync()
    assert pushed == [80 + 16]  # with its address and its shape
    assert (x.to_numpy() == 1.0).all()
