"""The host reads the state of record buffers only if an input of its size may have changed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver
from octants.artifact import MemoryRange
from octants.diagnostics.exceptions import OctantsRuntimeError
from octants.runtime.gpu import record_buffer_growth
from octants.runtime.gpu.record_buffers import DeviceRecordBuffers
from octants.runtime.memory.versions import Versions
from octants.runtime.vulkan import physical_devices
from tests.codegen.on_emulated_gpu import emulated_gpu
from tests.seeds import seeds

SIZE = 40


def _has_vulkan() -> bool:
    try:
        physical_devices.choose(None)
    except OctantsRuntimeError:
        return False
    return True


@pytest.fixture(params=["cuda", "vulkan"])
def checks(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the host has read, on a GPU that the CPU stands for."""
    found: list[str] = []
    read_failures, read_bounds = DeviceRecordBuffers.read_failures, DeviceRecordBuffers.read_bounds

    def watch_failures(self: DeviceRecordBuffers) -> tuple[int, int]:
        found.append("refused")
        return read_failures(self)

    def watch_bounds(self: DeviceRecordBuffers, address: int) -> tuple[int, int]:
        found.append("bounds")
        return read_bounds(self, address)

    monkeypatch.setattr(DeviceRecordBuffers, "read_failures", watch_failures)
    monkeypatch.setattr(DeviceRecordBuffers, "read_bounds", watch_bounds)
    with contextlib.ExitStack() as stack:
        if request.param == "cuda":
            stack.enter_context(emulated_gpu(total=1 << 28))
        elif not _has_vulkan():
            pytest.skip("there is no Vulkan")
        # Gradients here are of memory as it is, since what they read is changed on purpose.
        qd.init(arch=getattr(qd, request.param), on_overwrite="trust")
        yield found


class World:
    """Loops whose lengths stand in arrays of all sorts."""

    def __init__(self) -> None:
        self.x = qd.field(qd.f32, SIZE, needs_grad=True)
        self.y = qd.field(qd.f32, SIZE, needs_grad=True)
        self.n = qd.field(qd.i32, SIZE)
        self.other = qd.field(qd.i32, SIZE)
        pair = qd.types.struct(a=qd.i32, b=qd.i32)
        self.pairs = pair.field(shape=SIZE)
        self.count = qd.field(qd.i32, ())
        self.x.from_numpy(np.linspace(0.2, 0.9, SIZE, dtype=np.float32))
        self.n.fill(30)
        self.pairs.a.fill(30)
        self.count[None] = SIZE

    @qd.kernel
    def of_field(self):
        for i in self.x:
            v = self.x[i]
            for _ in range(self.n[i]):
                v = qd.sin(v) * 1.1
            self.y[i] = v

    @qd.kernel
    def of_members(self):
        for i in self.x:
            v = self.x[i]
            for _ in range(self.pairs[i].a):
                v = qd.sin(v) * 1.1
            self.y[i] = v

    @qd.kernel
    def of_argument(self, n: qd.types.NDArray[qd.i32, 1]):
        for i in self.x:
            v = self.x[i]
            for _ in range(n[i]):
                v = qd.sin(v) * 1.1
            self.y[i] = v

    @qd.kernel
    def of_count(self, k: qd.i32):
        for i in range(self.count[None]):
            v = self.x[i]
            for _ in range(k):
                v = qd.sin(v) * 1.1
            self.y[i] = v

    @qd.kernel
    def until(self):
        for i in self.x:
            v = self.x[i]
            while v < 30.0:
                v = v + qd.sin(v) * 0.2 + 0.3
            self.y[i] = v

    @qd.kernel
    def write(self, a: qd.template(), k: qd.i32):
        for i in a:
            a[i] = k

    @qd.kernel
    def write_b(self, k: qd.i32):
        for i in self.pairs:
            self.pairs[i].b = k

    def gradient(self) -> Any:
        """That of all `x`, computed by the reverse kernels since the last call of `clear`."""
        return self.x.grad.to_numpy()

    def check(self, lengths: Any) -> None:
        expected = []
        starts = self.x.to_numpy().astype(float)
        for v, n in zip(starts, np.broadcast_to(lengths, SIZE), strict=True):
            slope = 1.0
            for _ in range(n):
                v, slope = np.sin(v) * 1.1, slope * np.cos(v) * 1.1
            expected.append(slope)
        np.testing.assert_allclose(self.gradient(), expected, rtol=1e-4, atol=1e-6)


def count_checks(checks: list[str], differentiate: Callable[[], None], world: World) -> int:
    """How often the host has read the state of record buffers during a gradient."""
    world.x.grad.fill(0)
    world.y.grad.fill(1)
    checks.clear()
    differentiate()
    return len(checks)


def test_a_field(checks: list[str]) -> None:
    world = World()
    run = world.of_field.grad
    assert count_checks(checks, run, world) > 0
    for _ in range(3):
        assert count_checks(checks, run, world) == 0
    world.write(world.other, 5)
    world.other.fill(6)
    world.x.fill(0.4)
    world.of_field()
    assert count_checks(checks, run, world) == 0
    world.check(30)
    changes: list[tuple[Callable[[], None], int]] = [
        (lambda: world.write(world.n, 700), 700),
        (lambda: world.n.fill(20), 20),
        (lambda: world.n.from_numpy(np.full(SIZE, 3000, np.int32)), 3000),
        (lambda: world.n.copy_from(world.other), 6),
    ]
    for change, length in changes:
        change()
        assert count_checks(checks, run, world) > 0
        world.check(length)
        assert count_checks(checks, run, world) == 0
        world.check(length)
    world.n[7] = 5000
    assert count_checks(checks, run, world) > 0
    world.check(np.where(np.arange(SIZE) == 7, 5000, 6))


def test_members_that_stand_between_each_other(checks: list[str]) -> None:
    world = World()
    run = world.of_members.grad
    count_checks(checks, run, world)
    assert count_checks(checks, run, world) == 0
    world.write_b(3)  # which is in the same piece of memory
    assert count_checks(checks, run, world) > 0
    world.pairs.a.fill(900)
    assert count_checks(checks, run, world) > 0
    world.check(900)


def test_arguments(checks: list[str]) -> None:
    world = World()
    arrays = [qd.ndarray(qd.i32, SIZE) for _ in range(2)]
    arrays[0].fill(10)
    arrays[1].fill(400)

    def run(k: int) -> int:
        return count_checks(checks, lambda: world.of_argument.grad(arrays[k]), world)

    assert run(0) > 0
    assert run(1) > 0
    for k, length in ((0, 10), (1, 400), (0, 10)):
        run(k)
        world.check(length)
    arrays[1].fill(2000)
    assert run(1) > 0
    world.check(2000)
    assert run(1) == 0
    arrays.pop()
    arrays.append(qd.ndarray(qd.i32, SIZE))  # another one, which may take its memory
    arrays[1].fill(5000)
    assert run(1) > 0
    world.check(5000)


def test_the_host_writes_the_array_that_decides_each_time(checks: list[str]) -> None:
    world = World()
    for length in (10, 400, 10, 2000):
        n = np.full(SIZE, length, np.int32)
        assert count_checks(checks, lambda n=n: world.of_argument.grad(n), world) > 0
        world.check(length)


def test_bounds_that_the_device_computes(checks: list[str]) -> None:
    world = World()
    run = lambda: world.of_count.grad(50)  # noqa: E731
    assert count_checks(checks, run, world) == 2
    assert count_checks(checks, run, world) == 0
    world.check(50)
    world.count[None] = 7
    assert count_checks(checks, run, world) == 1  # at the bounds, but what items need is known
    assert (world.gradient() != 0).sum() == 7
    assert count_checks(checks, run, world) == 0
    assert (world.gradient() != 0).sum() == 7
    assert count_checks(checks, lambda: world.of_count.grad(900), world) == 1
    assert (world.gradient() != 0).sum() == 7
    world.count[None] = 0
    count_checks(checks, run, world)
    assert not world.gradient().any()
    world.count[None] = SIZE
    count_checks(checks, run, world)
    world.check(50)


def test_a_condition_on_what_changes(checks: list[str]) -> None:
    world = World()
    assert count_checks(checks, world.until.grad, world) > 0
    first = world.gradient()
    assert count_checks(checks, world.until.grad, world) == 0
    np.testing.assert_array_equal(world.gradient(), first)
    world.x.fill(0.001)
    assert count_checks(checks, world.until.grad, world) > 0


def test_a_tape(checks: list[str]) -> None:
    world = World()
    loss = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def total():
        for i in world.y:
            loss[None] += world.y[i]

    for k in range(4):
        checks.clear()
        with qd.ad.Tape(loss=loss):
            world.of_field()
            total()
        assert bool(checks) == (k == 0)
        world.check(30)


def test_untracked_writes(checks: list[str]) -> None:
    world = World()
    count_checks(checks, world.of_field.grad, world)
    qd.sync()
    versions = driver.device().versions  # type: ignore[attr-defined]
    wrote, versions.wrote = versions.wrote, lambda *_: None
    world.n.fill(20_000)
    versions.wrote = wrote
    assert count_checks(checks, world.of_field.grad, world) == 0
    with pytest.raises(OctantsRuntimeError, match="OCT425"):
        qd.sync()
    qd.sync()
    world.n.fill(100)
    count_checks(checks, world.of_field.grad, world)
    world.check(100)


class Mixture(World):
    """Lengths that depend on several arrays, through indices, branches and nests."""

    def __init__(self) -> None:
        super().__init__()
        self.place = qd.field(qd.i32, SIZE)
        self.array = qd.ndarray(qd.i32, SIZE)
        self.spare = qd.ndarray(qd.i32, SIZE)

    @qd.kernel
    def through_a_place(self, k: qd.i32):
        for i in self.x:
            v = self.x[i]
            for _ in range(self.n[self.place[i]] + k):
                v = qd.sin(v) * 1.05
            self.y[i] = v

    @qd.kernel
    def in_a_nest(self, a: qd.types.NDArray[qd.i32, 1]):
        for i in self.x:
            v = self.x[i]
            if self.n[i] > 20:
                for j in range(a[i] % 7):
                    for _ in range(self.other[(i + j) % SIZE] % 50):
                        v = qd.sin(v) * 1.05
                    v = v * v * 0.9
            self.y[i] = v

    @qd.kernel
    def counted(self, k: qd.i32):
        most = qd.min(self.count[None], SIZE)
        for i in range(most):
            v = self.x[i]
            for j in range(self.pairs[i].a):
                if v < 0.01 * k or j > self.other[0]:
                    break
                v = qd.sin(v) * 0.98
            self.y[i] = v

    @qd.kernel
    def of_both(self, a: qd.types.NDArray[qd.i32, 1], b: qd.types.NDArray[qd.i32, 1]):
        for i in self.x:
            v = self.x[i]
            for _ in range(a[i]):
                v = qd.sin(v) * 1.02
            self.y[i] = v
            b[i] += 7

    def runs(self, rng: Any) -> Callable[[], None]:
        """A gradient."""
        k = int(rng.integers(0, 4))
        a, b = (self.array, self.spare) if rng.random() < 0.5 else (self.spare, self.array)
        return (
            lambda: self.through_a_place.grad(k),
            lambda: self.in_a_nest.grad(a),
            lambda: self.counted.grad(k),
            lambda: self.of_both.grad(a, b),
            self.until.grad,
        )[int(rng.integers(0, 5))]

    def change(self, rng: Any) -> None:
        """Write to something."""
        k, size = int(rng.integers(0, 300)), int(rng.integers(0, SIZE))
        numbers = rng.integers(0, 300, SIZE).astype(np.int32)
        target = (self.n, self.other, self.pairs.a, self.array, self.spare)[int(rng.integers(0, 5))]
        changes: list[Callable[[], object]] = [
            lambda: target.fill(k),
            lambda: target.from_numpy(numbers),
            lambda: target.__setitem__(size, 4 * k),
            lambda: target.copy_from(self.n) if target is not self.n else None,
            lambda: self.write(self.n, k),
            lambda: self.write_b(k),
            lambda: self.place.from_numpy(numbers % SIZE),
            lambda: self.count.__setitem__(None, size),
            lambda: self.x.from_numpy(rng.uniform(0.1, 1, SIZE).astype(np.float32)),
            lambda: self.of_both(self.array, self.spare),
        ]
        changes[int(rng.integers(0, len(changes)))]()


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_random_changes(checks: list[str], monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(record_buffer_growth, "_FIRST_CAPACITY", 16)
    rng, world = np.random.default_rng(seed), Mixture()
    spared = 0
    for _ in range(60):
        if rng.random() < 0.5:
            world.change(rng)
        run = world.runs(rng)
        spared += count_checks(checks, run, world) == 0
        found = world.gradient()  # raises if what was trusted is wrong
        with monkeypatch.context() as patch:
            patch.setattr(Versions, "of", lambda *_: None)
            count_checks(checks, run, world)
        np.testing.assert_array_equal(found, world.gradient())
    assert 5 < spared < 55


# -- versions by themselves -----------------------------------------------------------------------


def make() -> tuple[Versions, Callable[..., Any]]:
    allocations = [(1000, 2000), (3000, 4000)]
    versions = Versions(lambda at: next((r for r in allocations if r[0] <= at < r[1]), None))

    def of(*places: tuple[int, int]) -> Any:
        made = [MemoryRange(k, nbytes) for k, (_, nbytes) in enumerate(places)]
        return versions.of(made, [address for address, _ in places])

    return versions, of


def test_what_changes_a_version() -> None:
    versions, of = make()
    first = of((1100, 50), (3000, 0))
    versions.wrote(1000, 100)
    versions.wrote(1150, 10)
    versions.wrote(2500, 10)
    assert of((1100, 50), (3000, 0)) == first
    for address, nbytes, changed in (
        (1000, 101, 0), (1149, 1, 0), (1900, 0, 0), (3999, 1, 1), (1120, 4, 0), (0, 10_000, 2),
    ):  # fmt: skip
        versions.wrote(address, nbytes)
        then = of((1100, 50), (3000, 0))
        differs = [one != other for one, other in zip(first, then, strict=True)]
        assert differs == ([True, True] if changed == 2 else [changed == 0, changed == 1])
        first = then


def test_memory_without_a_version() -> None:
    versions, of = make()
    assert of((2500, 4)) is None
    assert of((1000, 4)) is not None
    versions.exported(1500)
    assert of((1000, 4)) is None
    assert of((3000, 4), (1200, 0)) is None
    versions.freed(1000, 1000)
    assert of((1000, 4)) is not None


def test_memory_that_is_freed_has_another_version() -> None:
    versions, of = make()
    first = of((1000, 4))
    versions.freed(1000, 1000)
    assert not versions.watches
    assert of((1000, 4)) != first
