"""Code objects run instruction by instruction, by tinygrad's emulator of RDNA3, RDNA4 and CDNA3.

`OCTANTS_TINYGRAD` names a checkout of tinygrad's repository, and ``CC`` a clang, such as clang-22.
The emulator compiles each instruction that it meets first: a kernel takes from seconds to minutes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.codegen.llvm.amdgpu.amdgcn import Amdgpu
from octants.fuzz.backends import PackageBackend
from octants.fuzz.compare import Status, check
from octants.fuzz.generator.build import generate
from tests.runtime.amdgpu.emulator import ARCHITECTURES, CHECKOUT
from tests.runtime.amdgpu.fake_hip import FakeHip
from tests.runtime.amdgpu.on_amdgpu import emulated_processor

pytestmark = [
    pytest.mark.skipif(CHECKOUT not in os.environ, reason=f"{CHECKOUT} names no checkout"),
    pytest.mark.slow,
]

PROGRAMS = int(os.environ.get("OCTANTS_EMULATED_PROGRAMS", "0"))
"""How many random programs are run on each processor: none unless asked for, since each takes
about a minute.
"""


@pytest.fixture(params=sorted(ARCHITECTURES))
def processor(request: pytest.FixtureRequest) -> Iterator[FakeHip]:
    with emulated_processor(processor=request.param.encode(), total=1 << 28) as fake:
        qd.init(arch=qd.amdgpu)
        yield fake
        assert not fake.problems


@pytest.mark.usefixtures("processor")
def test_a_gradient_through_loops() -> None:
    x, n = qd.field(qd.f32, 40, needs_grad=True), qd.field(qd.i32, 40)
    loss = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def grow():
        for i in x:
            v = x[i]
            for _ in range(n[i]):
                v = qd.sin(v) * 1.5 + v * v * 0.1
            loss[None] += v

    start, trips = np.linspace(0, 1, 40), np.arange(40) % 4
    x.from_numpy(start.astype(np.float32))
    n.from_numpy(trips.astype(np.int32))
    with qd.ad.Tape(loss):
        grow()
    value, slope = start.copy(), np.ones(40)
    for turn in range(4):
        runs = turn < trips
        slope = np.where(runs, slope * (1.5 * np.cos(value) + 0.2 * value), slope)
        value = np.where(runs, 1.5 * np.sin(value) + 0.1 * value**2, value)
    assert np.isclose(loss[None], value.sum(), rtol=1e-6)
    assert np.allclose(x.grad.to_numpy(), slope, rtol=1e-5)


@pytest.mark.usefixtures("processor")
def test_blocks_and_subgroups() -> None:
    x, y, z = (qd.field(qd.i32, 128) for _ in "xyz")

    @qd.kernel
    def work():
        qd.loop_config(block_dim=128)
        for i in range(128):
            shared = qd.simt.block.SharedArray((128,), qd.i32)
            shared[i] = i * i
            qd.simt.block.sync()
            x[i] = shared[127 - i]
            y[i] = qd.simt.subgroup.shuffle_down(i, 3)
            z[i] = qd.simt.subgroup.inclusive_add(1)

    work()
    i = np.arange(128)
    assert np.array_equal(x.to_numpy(), (127 - i) ** 2)
    assert np.array_equal(y.to_numpy(), np.where(i % 32 < 29, i + 3, i))
    assert np.array_equal(z.to_numpy(), i % 32 + 1)


@pytest.mark.usefixtures("processor")
def test_sums_at_places_and_of_all() -> None:
    bins, total, top = qd.field(qd.i32, 7), qd.field(qd.f32, ()), qd.field(qd.i32, ())

    @qd.kernel
    def add():
        for i in range(300):
            bins[i % 7] += 1
            total[None] += 0.5
            qd.atomic_max(top[None], i)

    add()
    assert bins.to_numpy().tolist() == [43] * 6 + [42]
    assert total[None] == 150.0
    assert top[None] == 299


@pytest.mark.parametrize("dtype", [qd.i32, qd.i64, qd.f32, qd.f64], ids=str)
@pytest.mark.usefixtures("processor")
def test_what_updates_return(dtype: Any) -> None:
    total, before, top = qd.field(dtype, ()), qd.field(dtype, 70), qd.field(dtype, ())

    @qd.kernel
    def count():
        for i in range(70):
            before[i] = qd.atomic_add(total[None], 2)
            qd.atomic_max(top[None], i)

    count()
    assert total[None] == 140
    assert top[None] == 69
    assert sorted(before.to_numpy()) == list(range(0, 140, 2))


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.usefixtures("processor")
def test_updates_in_loops_that_threads_leave_one_by_one(
    together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Amdgpu, "shares_updates", together)
    trips, total, found = qd.field(qd.i32, 40), qd.field(qd.f32, ()), qd.field(qd.f32, 2)

    @qd.kernel
    def add():
        for i in trips:
            k = 0
            while True:
                k += 1
                if k > 5 or k > trips[i]:
                    break
                found[k % 2] += 1.0
            total[None] += k

    counts = np.arange(40) % 7
    trips.from_numpy(counts.astype(np.int32))
    add()
    done = np.minimum(counts, 5)
    assert total[None] == (done + 1).sum()
    assert found.to_numpy().tolist() == [(done // 2).sum(), ((done + 1) // 2).sum()]


@pytest.mark.parametrize("seed", range(800, 800 + PROGRAMS))
@pytest.mark.usefixtures("processor")
def test_random_programs(seed: int) -> None:
    program = generate(seed, ("f32", "f64")[seed % 2])
    (verdict,) = check([program], PackageBackend("amdgpu", "amdgpu"))
    assert verdict.status in (Status.AGREES, Status.SET_ASIDE), verdict
