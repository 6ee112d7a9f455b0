"""What the runtime asks of Metal, on a fake one: objects, batches, failures, memory."""

from __future__ import annotations

import gc
import inspect
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver
from octants.backends.table import obstacle_to
from octants.diagnostics import metal_errors as errors
from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import OctantsMemoryError, OctantsRuntimeError
from octants.runtime.gpu import batches
from octants.runtime.metal import context
from octants.runtime.metal.library import check_version
from tests.golden_files import check_golden
from tests.metal.cpp import need_compiler
from tests.metal.emulated import emulated_metal
from tests.metal.fake_metal import FakeMetal


@pytest.fixture
def fake() -> Iterator[FakeMetal]:
    need_compiler()
    with emulated_metal() as made:
        qd.init(arch=qd.metal, log_level="error")
        yield made


@qd.kernel
def increment(a: qd.types.NDArray[qd.f32, 1]):
    for i in a:
        a[i] += 1.0


@qd.kernel
def double(a: qd.types.NDArray[qd.f32, 1]):
    for i in a:
        a[i] *= 2.0


# -- launches -------------------------------------------------------------------------------------


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let batches wait for as long as a slow machine may take."""
    monkeypatch.setattr(batches, "PATIENCE", 60.0)


@pytest.mark.usefixtures("patient")
def test_launches_share_command_buffers_and_encoders(fake: FakeMetal) -> None:
    a = qd.ndarray(qd.f32, shape=100)
    increment(a)
    assert a.to_numpy().tolist() == [1.0] * 100
    before = fake.calls.copy()
    for _ in range(10):
        increment(a)
        double(a)
    assert a.to_numpy().tolist() == [(1.0 + 2.0) * 1024.0 - 2.0] * 100
    made = fake.calls - before
    kernels = "dispatchThreadgroups:threadsPerThreadgroup:"
    assert made[kernels] == 20
    # The first launch of an idle device is submitted at once, and the others go together.
    assert made["commandBuffer"] == made["commit"] <= 4
    assert made["computeCommandEncoder"] == made["endEncoding"] == made["commandBuffer"]
    assert made["memoryBarrierWithScope:"] == 20 - made["computeCommandEncoder"]


@pytest.mark.usefixtures("patient")
def test_a_warm_launch_sends_few_messages(fake: FakeMetal) -> None:
    a = qd.ndarray(qd.f32, shape=100)
    for _ in range(3):
        increment(a)
    before = fake.calls.copy()
    increment(a)
    assert sum((fake.calls - before).values()) <= 3  # a barrier, its bytes, itself
    assert a.to_numpy()[0] == 4.0


def test_copies_are_in_the_order_of_launches(fake: FakeMetal) -> None:
    a, b = qd.ndarray(qd.f32, shape=64), qd.ndarray(qd.f32, shape=64)
    increment(a)
    b.copy_from(a)
    increment(a)
    a[3] = 10.0
    double(a)
    assert a.to_numpy()[:4].tolist() == [4.0, 4.0, 4.0, 20.0]
    assert b.to_numpy().tolist() == [1.0] * 64


def test_bytes_that_are_no_words_are_copied_by_the_host(fake: FakeMetal) -> None:
    x = qd.field(qd.u8, shape=7)

    @qd.kernel
    def fill():
        for i in x:
            x[i] = i

    fill()
    x[5] = 77
    assert x.to_numpy().tolist() == [0, 1, 2, 3, 4, 77, 6]
    x.fill(9)
    assert x.to_numpy().tolist() == [9] * 7


def test_objects_are_released(fake: FakeMetal) -> None:
    def run() -> None:
        a = qd.ndarray(qd.f32, shape=100)
        for _ in range(200):
            increment(a)
            a[3] = 1.0
        qd.sync()

    run()
    gc.collect()
    counts = fake.count()
    run()
    gc.collect()
    assert fake.count() == counts
    lasting = {"MTLDevice", "MTLCommandQueue", "MTLSharedEvent", "MTLBuffer"}
    lasting |= {"MTLComputePipelineState"}
    assert {kind for kind in counts if not kind.startswith("class ")} == lasting


def test_pipelines_are_released(fake: FakeMetal) -> None:
    def run() -> None:
        @qd.kernel
        def square(a: qd.types.NDArray[qd.f32, 1]):
            for i in a:
                a[i] *= a[i]

        square(qd.ndarray(qd.f32, shape=3))

    for number in range(3):
        qd.init(arch=qd.metal, log_level="error")
        run()
        assert fake.compiled == ["task_0"] * (number + 1)
        qd.reset()
        driver._artifacts.clear()
        gc.collect()
        assert fake.alive("MTLComputePipelineState") == 0


def test_what_is_queued_when_the_device_is_lost_is_released(fake: FakeMetal) -> None:
    a = qd.ndarray(qd.f32, shape=10)
    increment(a)
    qd.sync()
    fake.faults.add("task_0")
    with pytest.raises(OctantsRuntimeError, match="OCT472"):
        for _ in range(1000):
            increment(a)
        qd.sync()
    fake.run_all()
    assert fake.alive("MTLCommandBuffer") == 0


def test_threads_that_wait_at_the_same_time(fake: FakeMetal) -> None:
    arrays = [qd.ndarray(qd.f32, shape=10) for _ in range(3)]
    problems: list[BaseException] = []

    def work(a: Any) -> None:
        try:
            for _ in range(60):
                increment(a)
                qd.sync()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(a,)) for a in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert [a.to_numpy().tolist() for a in arrays] == [[60.0] * 10] * 3


def test_subgroups_of_another_size_are_refused() -> None:
    need_compiler()
    with emulated_metal(FakeMetal(width=16)):
        qd.init(arch=qd.metal, log_level="error")
        x, total = qd.field(qd.f32, shape=1000), qd.field(qd.f32, shape=())

        @qd.kernel
        def add_up():
            for i in x:
                total[None] += x[i]

        with pytest.raises(OctantsRuntimeError, match="OCT471.*subgroups have 16 threads, not 32"):
            add_up()


def test_a_large_buffer_is_given_back(fake: FakeMetal) -> None:
    a = qd.ndarray(qd.f32, shape=10_000_000)
    increment(a)
    qd.sync()
    count = fake.alive("MTLBuffer")
    del a
    gc.collect()
    b = qd.ndarray(qd.f32, shape=100)
    for _ in range(2):  # memory is taken back when some is wanted, after what is queued then
        increment(b)
        qd.sync()
        qd.ndarray(qd.f32, shape=100)
    assert fake.alive("MTLBuffer") < count


# -- what fails -----------------------------------------------------------------------------------


def test_a_lost_device_says_so_and_init_makes_another_one(fake: FakeMetal) -> None:
    a = qd.ndarray(qd.f32, shape=10)
    increment(a)
    qd.sync()
    fake.faults.add("task_0")
    increment(a)
    with pytest.raises(OctantsRuntimeError, match="OCT472.*GPU Address Fault") as caught:
        qd.sync()
    assert "`increment`" in str(caught.value)
    with pytest.raises(OctantsRuntimeError, match="OCT472"):
        increment(a)
    fake.faults.clear()
    qd.init(arch=qd.metal, log_level="error")
    b = qd.ndarray(qd.f32, shape=10)
    increment(b)
    assert b.to_numpy().tolist() == [1.0] * 10


def test_memory_that_is_refused() -> None:
    need_compiler()
    with emulated_metal(FakeMetal(total=1 << 26, limit=1 << 25)):
        qd.init(arch=qd.metal, log_level="error")
        with pytest.raises(OctantsMemoryError, match="`Apple M0` cannot allocate 76.3 MiB"):
            qd.ndarray(qd.f32, shape=20_000_000)
        kept = [qd.ndarray(qd.f32, shape=1_000_000) for _ in range(8)]
        with pytest.raises(OctantsMemoryError, match="times 3.8 MiB"):
            kept += [qd.ndarray(qd.f32, shape=1_000_000) for _ in range(20)]
        kept.clear()
        gc.collect()
        a = qd.ndarray(qd.f32, shape=1_000_000)
        increment(a)
        assert a.to_numpy()[-1] == 1.0


def test_blocks_that_have_too_many_threads() -> None:
    need_compiler()
    with emulated_metal(FakeMetal(most_threads=32)):
        qd.init(arch=qd.metal, log_level="error")
        with pytest.raises(OctantsRuntimeError, match="OCT475.*increment.*64 threads"):
            increment(qd.ndarray(qd.f32, shape=10))


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        ({"version": (14, 6)}, "macOS 14.6 has no Metal 3.2"),
        ({"families": ()}, "`Apple M0` is no GPU"),
    ],
)
def test_a_mac_that_will_not_do(
    facts: dict[str, Any], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = FakeMetal(**facts).library()
    monkeypatch.setattr(context, "library", lambda: check_version(library))
    assert problem in obstacle_to("metal")
    with pytest.raises(OctantsRuntimeError, match="OCT404"):
        qd.init(arch=qd.metal)


def test_without_atomic_sums_of_f32_there_are_exchanges() -> None:
    need_compiler()
    with emulated_metal(FakeMetal(families=(1007,))) as fake:
        qd.init(arch=qd.metal, log_level="error")
        assert "add32" not in qd.driver.state.device.hardware.features  # type: ignore[attr-defined]
        x = qd.field(qd.f32, shape=7)

        @qd.kernel
        def add():
            for i in range(1000):
                x[i % 7] += 0.5

        add()
        assert x.to_numpy().sum() == 500.0
        assert fake.launches


# -- programs -------------------------------------------------------------------------------------


def programs(arch: Any) -> list[Any]:
    """A gradient through loops with a record buffer that grows, overwritten arrays, and a sum."""
    qd.init(arch=arch, log_level="error", ad_stack_size=0)
    x = qd.field(qd.f32, shape=200, needs_grad=True)
    steps = qd.field(qd.i32, shape=200)
    loss = qd.field(qd.f32, shape=(), needs_grad=True)

    @qd.kernel
    def run(rate: qd.f32):
        for i in x:
            v = x[i]
            for t in range(steps[i]):
                if v > 0.5:
                    v -= rate * v * v
                while v < 0.2:
                    v = v * 1.5 + 0.01
                v = qd.sin(v) * 0.95 + 0.001 * t
            loss[None] += v * v

    x.from_numpy(np.linspace(0.01, 2.0, 200).astype(np.float32))
    found = []
    for most in (23, 400):
        steps.from_numpy((np.arange(200) * 7 % most).astype(np.int32))
        loss[None] = 0.0
        loss.grad[None] = 1.0
        x.grad.fill(0.0)
        run(0.3)
        run.grad(0.3)
        found += [loss[None], x.grad.to_numpy()]
    return found


def test_gradients_are_those_of_the_cpu(fake: FakeMetal) -> None:
    found = programs(qd.metal)
    qd.reset()
    for one, other in zip(found, programs(qd.cpu), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-6)
    assert np.abs(found[1]).max() > 0.1


def weighted(arch: Any) -> Any:
    """A gradient through a loop in blocks, whose records hold truth values and integers."""
    qd.init(arch=arch, log_level="error", ad_stack_budget_bytes=1)
    x = qd.field(qd.f32, shape=40, needs_grad=True)
    y = qd.field(qd.f32, shape=40, needs_grad=True)

    @qd.kernel
    def run(n: qd.i32):
        for i in x:
            v, odd, a = x[i], True, qd.i8(3)
            for _ in range(n):
                weight = qd.f32(a) / 128.0
                if odd:
                    v = qd.sin(v * (1.0 + weight))
                else:
                    v = v * 1.25
                odd = a > 0
                a = qd.i8(a * qd.i8(5) + qd.i8(1))
            y[i] = v

    x.from_numpy(np.linspace(0.1, 0.9, 40).astype(np.float32))
    y.grad.fill(1.0)
    run(300)
    run.grad(300)
    return x.grad.to_numpy()


def test_truth_values_in_local_records(fake: FakeMetal) -> None:
    found = weighted(qd.metal)
    qd.reset()
    wanted = weighted(qd.cpu)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-30)
    assert np.isfinite(wanted).all() and np.abs(wanted).max() > 0


def solved(arch: Any) -> Any:
    """A gradient through loops that update a local vector in place."""
    qd.init(arch=arch, log_level="error")
    size = 17
    u = qd.field(qd.f32, shape=(size, size), needs_grad=True)
    y = qd.field(qd.f32, shape=(3, size), needs_grad=True)

    @qd.kernel
    def solve():
        for n in range(3):
            v = qd.Vector.zero(qd.f32, size)
            for a in range(size):
                v[a] = y[n, a]
            for a in range(1, size):
                for b in range(a):
                    v[a] -= u[a, b] * v[b]
            for a in range(size):
                y[n, a] = v[a]

    rng = np.random.default_rng(1)
    u.from_numpy(rng.uniform(-0.3, 0.3, (size, size)).astype(np.float32))
    y.from_numpy(rng.uniform(-1, 1, (3, size)).astype(np.float32))
    with qd.ad.Tape():
        solve()
        y.grad.fill(1.0)
    return u.grad.to_numpy()


def test_loops_over_local_vectors(fake: FakeMetal) -> None:
    """Their blocks are computed without f64."""
    found = solved(qd.metal)
    qd.reset()
    np.testing.assert_allclose(found, solved(qd.cpu), rtol=1e-4, atol=1e-6)
    assert np.abs(found).max() > 0.1


def test_a_failed_assertion_is_reported(fake: FakeMetal) -> None:
    qd.init(arch=qd.metal, debug=True, log_level="error")
    x = qd.field(qd.f32, shape=200)

    @qd.kernel
    def check(n: qd.i32):
        for i in x:
            assert i < n, f"{i} is too many"

    check(200)
    qd.sync()
    check(150)
    with pytest.raises(qd.OctantsAssertionError, match="150 is too many"):
        qd.sync()


# -- texts ----------------------------------------------------------------------------------------

TEXTS: dict[str, UserError] = {
    "missing_metal": errors.MissingMetal("it is a part of macOS only"),
    "metal_failed": errors.MetalFailed("newFunctionWithName:", "no reason is given"),
    "metal_device_lost": errors.MetalDeviceLost(
        "Apple M0", "Caused GPU Hang Error", "launched since the last synchronisation: `f`"
    ),
    "out_of_metal_memory": errors.OutOfMetalMemory(
        "Apple M0", "3 GB", "of 4 GB, Octants uses 2 GB"
    ),
    "forked_from_metal": errors.ForkedMetal(),
    "too_many_threads": errors.TooManyThreads("k", 512, 384),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text(name: str) -> None:
    error = TEXTS[name]
    check_golden(f"errors/{error.code}_{name}", str(error.at()))


def test_every_error_has_a_text() -> None:
    kinds = {
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, UserError) and kind is not UserError
    }
    assert kinds == {type(error) for error in TEXTS.values()}
