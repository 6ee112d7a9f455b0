"""The inputs that decide the size of record buffers, and when the host need not read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import abi
from octants.artifact import Dispatch
from octants.runtime.gpu.record_buffer_growth import Recording
from tests.ad import test_found_by_the_fuzzer as found_by_the_fuzzer
from tests.codegen.on_emulated_gpu import AddressableCuda, emulated_gpu

SIZE = 40
Kernel = Callable[..., Any]


class World:
    """Kernels whose loops run for reasons of all sorts."""

    def __init__(self) -> None:
        self.x = qd.field(qd.f32, SIZE, needs_grad=True)
        self.y = qd.field(qd.f32, SIZE, needs_grad=True)
        self.n = qd.field(qd.i32, SIZE)
        self.x.from_numpy(np.linspace(0.1, 1, SIZE, dtype=np.float32))
        self.n.fill(7)

    @qd.kernel
    def constant(self, k: qd.i32):
        for i in self.x:
            v = self.x[i]
            for _ in range(1000):
                v = qd.sin(v) * 0.95
            self.y[i] = v

    @qd.kernel
    def argument(self, k: qd.i32):
        for i in self.x:
            v = self.x[i]
            for _ in range(100 * k):
                v = qd.sin(v) * 0.95
            self.y[i] = v

    @qd.kernel
    def nest(self, k: qd.i32):
        for i in self.x:
            v = self.x[i]
            for a in range(20 * k):
                for _ in range(a):
                    v = qd.sin(v) * 0.95 + 0.1
                v *= v
            self.y[i] = v

    @qd.kernel
    def while_loop(self, k: qd.i32):
        for i in self.x:
            v, j = self.x[i], 0
            while j < 100 * k:
                v = qd.sin(v) * 0.95
                j += 3
            self.y[i] = v

    @qd.kernel
    def local_array(self, k: qd.i32):
        for i in self.x:
            v = self.x[i]
            trips = qd.Vector([10, 20 * k])
            for j in range(2):
                for _ in range(trips[j]):
                    v = qd.sin(v) * 0.95
            self.y[i] = v

    @qd.kernel
    def item(self, k: qd.i32):
        for i in self.x:
            v = self.x[i]
            for _ in range(i * k):
                v = qd.sin(v) * 0.95
            self.y[i] = v

    @qd.kernel
    def memory(self, k: qd.i32):
        for i in self.x:
            v = self.x[i]
            for _ in range(self.n[i] * k):
                v = qd.sin(v) * 0.95
            self.y[i] = v

    @qd.kernel
    def condition(self, k: qd.i32):
        for i in self.x:
            v = self.x[i]
            if v > 0.5:
                for _ in range(100 * k):
                    v = qd.sin(v) * 0.95
            self.y[i] = v

    @qd.kernel
    def convergence(self, k: qd.i32):
        for i in self.x:
            v = self.x[i]
            while v > 0.1:
                v = qd.sin(v) * 0.95
            self.y[i] = v

    @qd.kernel
    def chance(self, k: qd.i32):
        for i in self.x:
            v = self.x[i]
            for _ in range(qd.cast(qd.random() * 100, qd.i32)):
                v = qd.sin(v) * 0.95
            self.y[i] = v

    @qd.kernel
    def early_exit(self, k: qd.i32):
        for i in self.x:
            v = self.x[i]
            for _ in range(100 * k):
                if v < 0.2:
                    break
                v = qd.sin(v) * 0.95
            self.y[i] = v


@pytest.fixture
def fake() -> Iterator[AddressableCuda]:
    with emulated_gpu(total=1 << 28) as fake:
        qd.init(arch=qd.cuda)
        yield fake
        assert not fake.problems


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Dispatch]:
    """The dispatches that record, as they are loaded."""
    found: list[Dispatch] = []
    begin = Recording.__init__

    def spy(self: Any, artifact: Any, dispatch: Dispatch, *rest: Any, **more: Any) -> None:
        found.append(dispatch)
        begin(self, artifact, dispatch, *rest, **more)

    monkeypatch.setattr(Recording, "__init__", spy)
    return found


def test_loops_that_record_have_the_buffers_for_themselves(
    fake: AddressableCuda, recorded: list[Dispatch]
) -> None:
    """They are not concurrent, although the blocks that they are in may be."""
    x, y, u, v = (qd.field(qd.f32, SIZE, needs_grad=True) for _ in range(4))

    @qd.kernel
    def concurrent():
        with qd.stream_parallel():
            for i in x:
                a = x[i]
                while a > 0.1:
                    a = qd.sin(a) * 0.95
                u[i] = a
        with qd.stream_parallel():
            for i in y:
                a = y[i]
                while a > 0.1:
                    a = qd.sin(a) * 0.9
                v[i] = a

    concurrent.grad()
    assert [each.group for each in recorded] == [0, 0]


OF_MEMORY = {"memory": 1, "condition": 1, "convergence": 1, "early_exit": 1}
"""How many arrays have a say."""
KNOWN = {
    "constant": (0, False),
    "argument": (1, False),
    "nest": (1, False),
    "while_loop": (1, False),
    "item": (1, True),
    "local_array": (1, False),
}


@pytest.mark.parametrize("name", [name for name, value in vars(World).items() if name[0] != "_"])
def test_what_decides(fake: AddressableCuda, recorded: list[Dispatch], name: str) -> None:
    world = World()
    kernel = getattr(world, name)
    kernel(1)
    kernel.grad(1)
    needs = [dispatch.needs for dispatch in recorded]
    assert all(dispatch.waves == 1 for dispatch in recorded)
    if name == "chance":
        assert None in needs
    elif name in OF_MEMORY:
        assert [len(each.memory) for each in needs if each] == [OF_MEMORY[name]]
    else:
        assert not any(each.memory for each in needs if each)
        assert [(len(each.slots), each.by_item) for each in needs if each] == [KNOWN[name]]


@pytest.mark.parametrize("name", KNOWN)
def test_the_host_synchronises_once(fake: AddressableCuda, name: str) -> None:
    world = World()
    kernel = getattr(world, name)
    rng = np.random.default_rng(3)
    seen: set[int] = set()
    for k in (1, 2, 1, 3, 2, 1, 3):
        world.x.from_numpy(rng.uniform(0.1, 1, SIZE).astype(np.float32))
        world.n.fill(int(rng.integers(1, 50)))
        kernel(k)
        world.y.grad.fill(1)
        qd.sync()
        fake.calls.clear()
        kernel.grad(k)
        assert k not in seen or fake.calls["cuMemcpyDtoHAsync"] == 0
        seen.add(k)
        qd.sync()
        _check_that_none_was_refused(fake)


def _check_that_none_was_refused(fake: AddressableCuda) -> None:
    """What the host did not read would be in memory."""
    for call in fake.launches:
        refused = call.launch[abi.LAUNCH_FAILURES // 8]
        assert not refused or not call.words(refused, 2).any()
    fake.launches.clear()


def test_gradients_are_the_same_without_synchronisation(fake: AddressableCuda) -> None:
    world = World()
    found = []
    for _ in range(3):
        world.nest(2)
        world.y.grad.fill(1)
        world.x.grad.fill(0)
        world.nest.grad(2)
        found.append(world.x.grad.to_numpy().tolist())
    assert found[0] == found[1] == found[2]


def test_numbers_of_work_items_from_another_part(fake: AddressableCuda) -> None:
    """A tape runs the tasks of a kernel one by one: bounds come from a task of another module."""
    found_by_the_fuzzer.test_a_number_of_work_items_that_changes_on_a_tape()
