"""What a warm call costs the host: calls of Python functions, and calls of a GPU's driver.

The numbers are bounds that a change may lower. What it raises, each launch of every user pays. On
CUDA the driver is a fake one, whose kernels do nothing.
"""

from __future__ import annotations

import gc
import sys
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.page_paths import all_calls_of
from tests.runtime.cuda.whole import Gpu
from tests.runtime.cuda.whole import gpu as gpu

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="code has no qualified names")
WARM = 80  # calls after which a repeated launch is a graph of the driver
SHORT, LONG = 8, 24  # launches of two chains
COPY_IN, COPY_OUT = "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync"
COPY_WITHIN = "cuMemcpyDtoDAsync"
REPLAY = "cuGraphLaunch"
CHEAP = {"cuCtxGetCurrent", "cuStreamQuery"}
"""Calls that take well under a microsecond; waiting repeats the second."""

Calls = dict[str, Callable[[], Any]]


def calls() -> Calls:
    """Calls of kernels and copies that do next to nothing."""
    a, b = (qd.field(qd.f32, 4, needs_grad=True) for _ in range(2))
    v = qd.Vector.field(3, qd.f32, 4)
    loss = qd.field(qd.f32, (), needs_grad=True)
    n = qd.field(qd.i32, 4)
    n.fill(3)
    numbers = [np.zeros(64, np.float32) for _ in range(2)]
    array, other = (qd.ndarray(qd.f32, 64) for _ in range(2))

    @qd.kernel
    def double():
        for i in a:
            b[i] = a[i] * 2.0

    @qd.kernel
    def squares():
        for i in a:
            loss[None] += a[i] * a[i]

    @qd.kernel
    def looped():
        for i in a:
            v = a[i]
            for _ in range(n[i]):
                v = qd.sin(v) * 0.9
            b[i] = v

    @qd.kernel
    def add(p: qd.types.ndarray(qd.f32, 1), q: qd.types.ndarray(qd.f32, 1)):
        for i in p:
            p[i] += q[i]

    def tape() -> None:
        with qd.ad.Tape(loss=loss):
            squares()

    return {
        "a launch": double,
        "a gradient": double.grad,
        "a gradient that records": looped.grad,
        "a tape around one kernel": tape,
        "a kernel of two numpy arrays": lambda: add(*numbers),
        "an array from numpy": lambda: array.from_numpy(numbers[0]),
        "an array to numpy": array.to_numpy,
        "a copy of an array": lambda: other.copy_from(array),
        "a copy of a field": lambda: b.copy_from(a),
        "a fill": lambda: array.fill(1.0),
        "an element": lambda: a[2],
        "an element that is written": lambda: a.__setitem__(2, 1.0),
        "a vector that is written": lambda: v.__setitem__(2, [1.0, 2.0, 3.0]),
        "a component": lambda: v[2][1],
        "a component that is written": lambda: v[2].__setitem__(1, 1.0),
    }


def chains() -> tuple[Calls, Calls]:
    """Chains of launches by their names, short ones and long ones."""
    x = qd.field(qd.f32, (LONG + 1, 4), needs_grad=True)
    loss = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def step(t: qd.i32):
        for i in range(4):
            x[t + 1, i] = x[t, i] * x[t, i]

    def launches(count: int) -> None:
        for t in range(count):
            step(t)

    def tape(count: int) -> None:
        with qd.ad.Tape(loss=loss):
            launches(count)

    def chain(count: int) -> Calls:
        return {
            "a launch of a chain": lambda: launches(count),
            "a launch on a tape, and its reverse": lambda: tape(count),
        }

    return chain(SHORT), chain(LONG)


def warm(call: Callable[[], Any]) -> list[str]:
    """The calls of functions of Octants by a warm call.

    Arrays of other tests that are collected during it would be work for it.
    """
    gc.collect()
    for _ in range(WARM):
        call()
    qd.sync()
    found = all_calls_of(call)
    qd.sync()
    return found


def per_launch(name: str) -> float:
    """The functions of Octants that each further launch of a chain calls."""
    short, long = (len(warm(each[name])) for each in chains())
    return (long - short) / (LONG - SHORT)


ON_CPU = {
    "a launch": 4,
    "a gradient": 7,
    "a gradient that records": 7,
    "a tape around one kernel": 50,
    "a kernel of two numpy arrays": 6,
    "an array from numpy": 12,
    "an array to numpy": 10,
    "a copy of an array": 31,
    "a copy of a field": 33,
    "a fill": 7,
    "an element": 7,
    "an element that is written": 9,
    "a vector that is written": 16,
    "a component": 15,
    "a component that is written": 20,
}
CHAINS_ON_CPU = {"a launch of a chain": 4, "a launch on a tape, and its reverse": 6}
ON_CUDA: dict[str, tuple[int, list[str]]] = {
    "a launch": (5, [REPLAY]),
    "a gradient": (8, [REPLAY]),
    "a gradient that records": (19, [REPLAY]),
    "a tape around one kernel": (59, [REPLAY] * 3),
    "a kernel of two numpy arrays": (32, [REPLAY]),
    "an array from numpy": (23, [COPY_IN]),
    "an array to numpy": (29, [COPY_OUT]),
    "a copy of an array": (34, [COPY_WITHIN]),
    "a copy of a field": (36, [COPY_WITHIN]),
}
CHAINS_ON_CUDA = {"a launch of a chain": 6, "a launch on a tape, and its reverse": 8}


@pytest.mark.parametrize("name", ON_CPU)
def test_calls_on_the_cpu(name: str) -> None:
    qd.init(arch=qd.cpu, offline_cache=False, log_level="error")
    found = warm(calls()[name])
    assert len(found) <= ON_CPU[name], found


@pytest.mark.parametrize("name", CHAINS_ON_CPU)
def test_chains_on_the_cpu(name: str) -> None:
    qd.init(arch=qd.cpu, offline_cache=False, log_level="error")
    assert per_launch(name) <= CHAINS_ON_CPU[name]


@pytest.fixture
def idle(gpu: Gpu) -> Gpu:
    """A fake GPU whose kernels do nothing, but those of the driver's graphs."""
    gpu.fake.kernels = defaultdict(lambda: lambda call: None, gpu.fake.kernels)
    gpu.init()
    return gpu


@pytest.mark.parametrize("name", ON_CUDA)
def test_calls_on_cuda(idle: Gpu, name: str) -> None:
    call = calls()[name]
    found = warm(call)
    assert len(found) <= ON_CUDA[name][0], found
    idle.fake.order.clear()
    call()
    assert [each for each in idle.fake.order if each not in CHEAP] == ON_CUDA[name][1]


@pytest.mark.parametrize("name", CHAINS_ON_CUDA)
def test_chains_on_cuda(idle: Gpu, name: str) -> None:
    assert per_launch(name) <= CHAINS_ON_CUDA[name]
