"""Code for GPUs and their runtime together, on a fake GPU whose threads the CPU runs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import abi
from octants.diagnostics.exceptions import OctantsAssertionError, OctantsMemoryError
from octants.fuzz.backends import PackageBackend
from octants.fuzz.compare import Status, check
from octants.fuzz.generator.build import generate
from octants.ir.core import Companion, Module
from octants.types.scalars import i32
from tests.autodiff.random_ir import inputs
from tests.autodiff.reversing import differentiate
from tests.autodiff.test_checkpoints import LongLoops
from tests.codegen import test_records
from tests.codegen.compiled import Compiled, ndarray, parallel
from tests.codegen.on_emulated_gpu import OnEmulatedGpu, emulated_gpu
from tests.seeds import counts

ADJOINT = Companion.ADJOINT


def test_record_buffers_grow_in_few_launches() -> None:
    kernel = OnEmulatedGpu(test_records.reversal(by_while=True))
    for most in (40, 3000, 7):
        n = np.random.default_rng(3).integers(0, most, 60).astype(np.int32)
        data = {"n": n, "out": np.zeros(60)}
        kernel.run(data)
        assert data["out"].tolist() == test_records.wanted(n)
    assert len(kernel.fake.launches) <= 20


def test_memory_that_is_refused_ends_the_launch() -> None:
    kernel = OnEmulatedGpu(test_records.reversal(True), record_buffer_limit=1 << 20)
    n = np.full(40, 100, np.int32)
    n[[17, 30]] = 2_000_000
    for _ in range(2):
        with pytest.raises(OctantsMemoryError) as caught:
            kernel.run({"n": n, "out": np.zeros(40)})
        text = str(caught.value)
        assert "kernel `reversal`" in text and "work item 17;" in text
        assert "program.py:7" in text
        data = {"n": n[-5:], "out": np.zeros(5)}
        kernel.run(data)
        assert data["out"].tolist() == test_records.wanted(n[-5:])


@pytest.mark.parametrize("count", counts(10, 40))
def test_gradients_of_random_modules_with_little_memory(count: int) -> None:
    found: Counter[str] = Counter()
    for seed in range(count):
        module = LongLoops(seed).simplified()
        result = differentiate(module, whole_record_bytes=(0, 40)[seed % 2])
        if result.hazards:
            continue
        state = {**inputs(seed), "t": np.zeros(())}
        if result.state == "after":
            Compiled(module).run(state)
        both: dict[Any, Any] = {**state, ("t", ADJOINT): np.zeros(())}
        both |= {(name, ADJOINT): value for name, value in inputs(seed + 1).items()}
        wanted = {key: value.copy() for key, value in both.items()}
        Compiled(result.module).run(wanted)
        kernel = OnEmulatedGpu(result.module, record_budget=1 << (6 + seed % 8))
        kernel.run(both)
        found["stores"] += any(not each.can_retry for each in kernel.artifact.dispatches)
        found["again"] += any(call.launch[abi.LAUNCH_RETRY // 8] for call in kernel.fake.launches)
        found["gradients"] += 1
        for key, expected in wanted.items():
            np.testing.assert_allclose(both[key], expected, rtol=1e-9, atol=1e-12)
        assert not kernel.fake.problems
    assert found["gradients"] >= count // 4
    assert found["again"] >= count // 13
    assert found["stores"] >= count // 20, (
        "tasks that cannot run again, and were given plenty at once"
    )


def test_a_failure_while_bounds_are_computed() -> None:
    x, out = ndarray("x", i32), ndarray("out", i32)

    def upper(build: Any) -> Any:
        count = build.load(x, [build.index(0)])
        build.assert_("assertion", "{} items", build.compare("lt", count, build.index(5)), [count])
        return count

    def body(build: Any, i: Any) -> None:
        build.store(out, [i], build.index(1))

    task = parallel("t", lambda build: (build.index(0), upper(build)), body)
    kernel = OnEmulatedGpu(Module("bounds", [x, out], tasks=[task]))
    for count in (3, 5, 2):
        data = {"x": np.full(1, count, np.int32), "out": np.zeros(8, np.int32)}
        if count < 5:
            kernel.run(data)
            assert data["out"].sum() == count
            continue
        with pytest.raises(OctantsAssertionError, match="5 items"):
            kernel.run(data)
        assert not data["out"].any()


PROFILES = ("core", "sums", "blocks", "reductions", "vectors", "ragged", "pairs", "shared")
OFTEN = ((4, "core"), (4, "sums"), (6, "blocks"), (5, "reductions"))


@pytest.mark.parametrize(
    ("seed", "profile"),
    [
        *OFTEN,
        *(
            pytest.param(seed, profile, marks=pytest.mark.slow)
            for profile in PROFILES
            for seed in range(10, 20)
        ),
    ],
)
def test_random_programs(seed: int, profile: str) -> None:
    """From the source to the launch, with the data layer over memory that is not shared."""
    with emulated_gpu(total=1 << 28) as fake:
        program = generate(seed, ("f32", "f64")[seed % 2], profile)
        (verdict,) = check([program], PackageBackend("cuda", "cuda"))
    assert verdict.status in (Status.AGREES, Status.SET_ASIDE), verdict.problems
    assert fake.launches or verdict.status is Status.SET_ASIDE
    assert not fake.problems


def test_a_program() -> None:
    with emulated_gpu() as fake:
        qd.init(arch=qd.cuda)
        x = qd.field(qd.f32, shape=1000, needs_grad=True)
        loss = qd.field(qd.f32, shape=(), needs_grad=True)

        @qd.kernel
        def wave(n: qd.i32):
            for i in x:
                v = x[i]
                for _ in range(n):
                    v = qd.sin(v)
                loss[None] += v

        x.from_numpy(np.linspace(-1, 1, 1000, dtype=np.float32))
        with qd.ad.Tape(loss):
            wave(3)
        assert fake.used >= 8000
        v, slope = np.linspace(-1, 1, 1000), np.ones(1000)
        for _ in range(3):
            v, slope = np.sin(v), slope * np.cos(v)
        np.testing.assert_allclose(x.grad.to_numpy(), slope, rtol=1e-5)
        np.testing.assert_allclose(loss[None], v.sum(), atol=1e-3)
    assert not fake.problems


def test_what_a_gradient_in_blocks_is_said_to_take() -> None:
    with emulated_gpu(total=1 << 28):
        qd.init(arch=qd.cuda)
        x, y = (qd.field(qd.f32, shape=3, needs_grad=True) for _ in "xy")

        @qd.kernel
        def wave(n: qd.i32):
            for i in x:
                v = x[i]
                for _ in range(n):
                    v = qd.sin(v) * v
                y[i] = v

        (one_by_one,) = wave.grad.explain(5).loops
        (in_blocks,) = wave.grad.explain(100).loops
    assert (one_by_one.trips, one_by_one.capacity, one_by_one.runs) == (15, 5, 2.0)
    assert (in_blocks.trips, in_blocks.capacity, in_blocks.checkpoints) == (300, 16 + 4, 5)
    assert in_blocks.runs == 2 + 96 / 100
