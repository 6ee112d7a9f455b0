"""Devices that lack what most have: memory is bound, and 64 bits are two numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import octants as qd
from octants.diagnostics.exceptions import OctantsAssertionError, OctantsError, OctantsMemoryError
from octants.ir.core import Companion
from tests.vulkan import compiled

NAMES = ["addresses", "int64", "int64,atomic64,add32", "float64,int64"]


@pytest.fixture(params=NAMES)
def vulkan(request: pytest.FixtureRequest) -> Iterator[str]:
    compiled.device()  # or skip
    qd.init(arch=qd.vulkan, offline_cache=False, vulkan_without=request.param)
    device = qd.driver.state.device
    assert device is not None
    assert device.hardware.is_bound  # type: ignore[attr-defined]
    yield request.param
    qd.reset()


@pytest.mark.usefixtures("vulkan")
def test_a_gradient_through_loops_whose_tape_grows() -> None:
    x, loss = qd.field(qd.f32, shape=50, needs_grad=True), qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def run(n: qd.i32):
        for i in x:
            v = x[i]
            k = 0
            while k < n + i * 40:
                v = v * 0.999 + 0.001 * qd.sin(v)
                k += 1
            loss[None] += v * v

    def value(at: np.ndarray) -> np.ndarray:
        v = at.astype(np.float64)
        for k in range(7 + 49 * 40):
            going = k < 7 + np.arange(50) * 40
            v = np.where(going, v * 0.999 + 0.001 * np.sin(v), v)
        return v * v

    start = np.linspace(0.5, 1.5, 50, dtype=np.float32)
    x.from_numpy(start)
    for _ in range(2):
        with qd.ad.Tape(loss=loss):
            run(7)
        step = 1e-6
        wanted = (value(start + step) - value(start - step)) / ((start + step) - (start - step))
        wanted = (value(start.astype(np.float64) + step) - value(start - np.float64(step))) / 2e-6
        np.testing.assert_allclose(x.grad.to_numpy(), wanted, rtol=3e-4)


def test_the_host_writes_to_no_memory_that_is_still_read(vulkan: str) -> None:
    """Copies that a tape drops while launches are queued are not parameters of the next ones."""

    def gradient() -> list[float]:
        x, v = (qd.field(qd.f32, shape=4, needs_grad=True) for _ in range(2))
        loss = qd.field(qd.f32, shape=(), needs_grad=True)

        @qd.kernel
        def accelerate(dt: qd.f32):
            for i in x:
                v[i] -= dt * x[i] * x[i] * v[i] * v[i]

        @qd.kernel
        def move(dt: qd.f32):
            for i in x:
                x[i] += dt * v[i]

        @qd.kernel
        def total():
            for i in x:
                loss[None] += x[i] * x[i]

        x.from_numpy(np.linspace(0.4, 1.3, 4, dtype=np.float32))
        v.from_numpy(np.linspace(0.9, -0.7, 4, dtype=np.float32))
        with qd.ad.Tape(loss=loss):
            for step in range(40):
                accelerate(0.01 + 0.001 * step)
                move(0.02)
            total()
        return [*x.grad.to_numpy().tolist(), *v.grad.to_numpy().tolist()]

    found = gradient()
    qd.init(arch=qd.cpu, offline_cache=False)
    np.testing.assert_allclose(found, gradient(), rtol=1e-4, err_msg=vulkan)


def test_message_buffers_that_fill_their_memory(vulkan: str) -> None:
    x = qd.field(qd.i32, shape=8)

    @qd.kernel
    def speak(n: qd.i32):
        for i in range(n):
            if x[i] < 0:
                print("below", i)
            x[i] += 1

    for _ in range(200):
        speak(8)
    assert x.to_numpy().tolist() == [200] * 8, vulkan


def test_one_batch_is_enough(vulkan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where messages leave no memory for the parameters of more launches, the host waits."""
    x = qd.field(qd.i32, shape=8)
    queue, refused = qd.driver.state.device.queue, list[bool]()  # type: ignore[union-attr]

    def refuse() -> None:
        refused.append(True)
        raise OctantsMemoryError("there is no more")

    @qd.kernel
    def add(k: qd.i32):
        for i in x:
            x[i] += k

    add(0)
    qd.sync()
    while len(queue._flying) > 1:
        queue._flying.pop()
    monkeypatch.setattr(queue, "_make_batch", refuse)
    monkeypatch.setattr(queue, "_spare_batch", lambda nbytes: refuse())
    for k in range(200):
        add(k)
    for _ in range(40):  # a launch that is worth recording
        add(1)
        qd.sync()
    assert x.to_numpy().tolist() == [199 * 100 + 40] * 8, vulkan
    assert refused


def test_prints_and_failures(vulkan: str, capfd: pytest.CaptureFixture[str]) -> None:
    qd.init(arch=qd.vulkan, offline_cache=False, vulkan_without=vulkan, debug=True)

    @qd.kernel
    def speak(n: qd.i32):
        for i in range(n):
            print("item", i, 0.5 * i)
            assert i < 3, "too far"

    speak(3)
    qd.sync()
    assert sorted(capfd.readouterr().out.splitlines()) == [
        "item 0 0.0",
        "item 1 0.5",
        "item 2 1.0",
    ]
    with pytest.raises(OctantsAssertionError, match="too far"):
        speak(9)
        qd.sync()


@pytest.mark.usefixtures("vulkan")
def test_random_draws_are_those_of_the_cpu() -> None:
    def draw() -> list[float]:
        x = qd.field(qd.f32, shape=10)

        @qd.kernel
        def fill():
            for i in x:
                x[i] = qd.random(qd.f32)

        fill()
        return x.to_numpy().tolist()

    found = draw()
    qd.init(arch=qd.cpu, offline_cache=False)
    assert draw() == found


def test_integers_of_64_bits(vulkan: str) -> None:
    a, f = qd.ndarray(qd.i64, 6), qd.ndarray(qd.f32, 6)

    @qd.kernel
    def run(a: qd.types.NDArray[qd.i64, 1], f: qd.types.NDArray[qd.f32, 1], n: qd.i64):
        for i in a:
            v = a[i] * n + (a[i] >> 3) - (a[i] << 33)
            f[i] = qd.cast(v, qd.f32)
            a[i] = v // 12345678912 + v % 1000 + qd.cast(f[i] * 3.0, qd.i64)

    numbers = [3, -5, 1 << 40, -(1 << 41) - 7, 123456789123, 0]
    a.from_numpy(np.array(numbers, np.int64))
    run(a, f, 77_777_777_777)
    values = [
        (x * 77_777_777_777 + (x >> 3) - (x << 33) + (1 << 63)) % (1 << 64) - (1 << 63)
        for x in numbers
    ]
    floats = [np.float32(v) for v in values]
    assert f.to_numpy().tolist() == floats
    casts = [int(float(np.float32(x * np.float32(3.0)))) for x in floats]
    low, high = -(1 << 63), (1 << 63) - 1
    wanted = [
        v // 12345678912 + v % 1000 + min(max(c, low), high)
        for v, c in zip(values, casts, strict=True)
    ]
    found = a.to_numpy()
    for value, right, cast in zip(found.tolist(), wanted, casts, strict=True):
        assert low < cast < high, "the test means what can be cast"
        assert value == (right + (1 << 63)) % (1 << 64) - (1 << 63), vulkan


def test_updates_of_64_bits(vulkan: str) -> None:
    total = qd.field(qd.i64, shape=())

    @qd.kernel
    def count():
        for i in range(100):
            total[None] += i

    if "int64" not in vulkan:
        count()
        assert total[None] == 4950
        return
    needs = "OCT450: kernel `count` needs atomic operations on 64 bits"
    with pytest.raises(OctantsError, match=needs) as caught:
        count()
    assert "total[None] += i" in str(caught.value)
    assert "let work items update numbers of 32 bits" in str(caught.value)


def test_sums_of_f64_need_atomic_operations(vulkan: str) -> None:
    total = qd.field(qd.f64, shape=())

    @qd.kernel
    def add():
        for i in range(100):
            total[None] += i

    features = qd.driver.state.device.hardware.features  # type: ignore[union-attr]
    if "int64" not in vulkan or {"float64", "add64"} <= features:
        add()
        assert total[None] == 4950
        return
    feature = "f64" if "float64" in vulkan else "atomic operations on 64 bits"
    with pytest.raises(OctantsError, match=f"OCT450: kernel `add` needs {feature}"):
        add()


def test_launches_are_checked_for_races_where_the_device_can(vulkan: str) -> None:
    x, y = (qd.field(qd.f32, shape=6, needs_grad=True) for _ in range(2))
    loss, a = qd.field(qd.f32, shape=(), needs_grad=True), qd.field(qd.i32, shape=6)

    @qd.kernel
    def scatter():
        for i in x:
            y[a[i]] = x[i] * x[i]

    @qd.kernel
    def total():
        for i in y:
            loss[None] += (i + 1) * y[i]

    def gradient(*elements: int, validation: bool) -> list[float]:
        a.from_numpy(np.array(elements, np.int32))
        x.from_numpy(np.arange(1, 7, dtype=np.float32))
        with qd.ad.Tape(loss=loss, validation=validation):
            scatter()
            total()
        return x.grad.to_numpy().tolist()

    right = [12.0, 20.0, 24.0, 24.0, 20.0, 12.0]
    assert gradient(5, 4, 3, 2, 1, 0, validation=False) == right
    if "int64" not in vulkan:
        assert gradient(5, 4, 3, 2, 1, 0, validation=True) == right
        with pytest.raises(OctantsAssertionError, match="OCT304"):
            gradient(5, 4, 3, 2, 1, 5, validation=True)
        return
    for elements in ((5, 4, 3, 2, 1, 0), (5, 4, 3, 2, 1, 5)):
        with pytest.raises(OctantsError, match="OCT306: launches of kernel `scatter`") as caught:
            gradient(*elements, validation=True)
        assert "shaderBufferInt64Atomics, shaderInt64" in str(caught.value)
        assert "y[a[i]] = x[i] * x[i]" in str(caught.value)


def test_debug_mode_runs_what_cannot_be_checked_for_races(vulkan: str) -> None:
    qd.init(arch=qd.vulkan, offline_cache=False, vulkan_without=vulkan, debug=True)
    y, a = qd.field(qd.i32, shape=6), qd.field(qd.i32, shape=6)
    a.from_numpy(np.arange(6, dtype=np.int32)[::-1].copy())

    @qd.kernel
    def scatter():
        for i in y:
            y[a[i]] = i

    scatter()
    assert y.to_numpy().tolist() == [5, 4, 3, 2, 1, 0]


@pytest.mark.usefixtures("vulkan")
def test_memory_is_what_can_be_bound() -> None:
    reach = qd.driver.capabilities(qd.options.current()).memory_bytes
    with pytest.raises(OctantsMemoryError, match="OCT506"):
        qd.ndarray(qd.i8, (reach // 2**20, 2**20))
    most = qd.ndarray(qd.i32, reach // 64)

    @qd.kernel
    def mark(a: qd.types.NDArray[qd.i32, 1]):
        for i in a:
            a[i] = i

    mark(most)
    assert (most.to_numpy() == np.arange(reach // 64)).all()


@pytest.mark.usefixtures("vulkan")
def test_an_index_of_64_bits_reaches_the_end() -> None:
    x = qd.field(qd.i32, shape=(300, 300))

    @qd.kernel
    def fill(n: qd.i64):
        for i in range(n):
            x[i // 300, i % 300] = qd.cast(i, qd.i32)

    fill(90_000)
    assert (x.to_numpy().ravel() == np.arange(90_000)).all()


@pytest.mark.usefixtures("vulkan")
def test_memory_that_the_host_reads_slowly_is_copied_first(monkeypatch: pytest.MonkeyPatch) -> None:
    x = qd.ndarray(qd.i32, 1000)

    @qd.kernel
    def fill(a: qd.types.NDArray[qd.i32, 1]):
        for i in a:
            a[i] = i

    fill(x)
    transfers = qd.driver.state.device.transfers  # type: ignore[union-attr]
    buffer, _ = transfers.buffer_of(x.address(Companion.PRIMAL), 4000)
    copies: list[int] = []
    copy = transfers.queue.copy
    monkeypatch.setattr(buffer, "reads_well", False)
    monkeypatch.setattr(
        transfers.queue, "copy", lambda *given: (copies.append(given[2]), copy(*given))
    )
    assert (x.to_numpy() == np.arange(1000)).all()
    assert copies == [4000]
