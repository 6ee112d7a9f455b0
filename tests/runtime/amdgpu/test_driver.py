"""GPUs of AMD through a fake HIP runtime, whose threads the CPU runs."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.backends import amdgpu
from octants.backends.table import obstacle_to
from octants.codegen.llvm.amdgpu import amdgcn
from octants.codegen.llvm.amdgpu.targets import WAVES, target
from octants.codegen.llvm.gpu import compilation
from octants.diagnostics.exceptions import (
    OctantsAssertionError,
    OctantsError,
    OctantsRuntimeError,
    OctantsWarning,
)
from octants.runtime.cuda.library import SIGNATURES
from octants.runtime.gpu import record_buffer_growth
from octants.runtime.hip import errors, library
from octants.runtime.hip.device import HipDevice
from octants.runtime.hip.library import FUNCTIONS, HipLibrary
from octants.types.scalars import f32
from tests.codegen.representative import module_of_atomics
from tests.golden_files import check_golden, codes_of
from tests.graphs import test_graphs, test_growing_records
from tests.runtime.amdgpu.fake_hip import FakeHip
from tests.runtime.amdgpu.on_amdgpu import fake_gpu

pytestmark = pytest.mark.filterwarnings("ignore:arch `amdgpu` is experimental")

SIZE = 40


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHip]:
    monkeypatch.setattr(qd, "cpu", qd.amdgpu)
    monkeypatch.setattr(test_graphs, "DISCRETE", True)
    monkeypatch.setattr(record_buffer_growth, "_FIRST_CAPACITY", 16)
    with fake_gpu(total=1 << 28) as fake:
        qd.init(arch=qd.amdgpu)
        yield fake
        assert not fake.problems


@pytest.mark.usefixtures("fake")
def test_a_gradient_through_loops_whose_length_memory_decides() -> None:
    x, n = qd.field(qd.f64, SIZE, needs_grad=True), qd.field(qd.i32, SIZE)
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def grow():
        for i in x:
            v = x[i]
            for _ in range(n[i]):
                v = v * v * 0.5 + 0.1
            loss[None] += v

    start = np.linspace(0.1, 0.9, SIZE)
    n.from_numpy(np.arange(SIZE, dtype=np.int32) * 3 % 17)
    x.from_numpy(start)
    with qd.ad.Tape(loss):
        grow()
    value, slope = start.copy(), np.ones(SIZE)
    for turn in range(17):
        runs = turn < n.to_numpy()
        slope = np.where(runs, slope * value, slope)
        value = np.where(runs, value * value * 0.5 + 0.1, value)
    assert np.isclose(loss[None], value.sum())
    assert np.allclose(x.grad.to_numpy(), slope, rtol=1e-12)


@pytest.mark.usefixtures("fake")
def test_streams_wait_for_events() -> None:
    x, y = qd.field(qd.f32, SIZE), qd.field(qd.f32, SIZE)

    @qd.kernel
    def fill():
        for i in x:
            x[i] = i

    @qd.kernel
    def double():
        for i in x:
            y[i] = 2 * x[i]

    first, second, event = qd.create_stream(), qd.create_stream(), qd.create_event()
    fill(qd_stream=first)
    event.record(first)
    event.wait(second)
    double(qd_stream=second)
    qd.sync()
    assert np.array_equal(y.to_numpy(), 2 * np.arange(SIZE))


@pytest.mark.usefixtures("fake")
def test_messages_of_kernels(capfd: pytest.CaptureFixture[str]) -> None:
    @qd.kernel
    def say(n: qd.i32):
        for i in range(n):
            if i == 3:
                print("three", i)

    say(5)
    qd.sync()
    assert capfd.readouterr().out == "three 3\n"
    qd.init(arch=qd.amdgpu, debug=True)

    @qd.kernel
    def fail(n: qd.i32):
        for i in range(n):
            assert i < 2, f"at {i}"

    fail(4)
    with pytest.raises(OctantsAssertionError, match="at 2"):
        qd.sync()


def test_a_graph_is_launched_as_one(fake: FakeHip) -> None:
    world = test_graphs.World()
    with qd.graph.capture() as graph:
        world.differentiate()
    graph()
    qd.sync()
    fake.calls.clear()
    graph()
    assert fake.calls["cuGraphLaunch"] == 1
    start = np.linspace(0.1, 0.9, test_graphs.SIZE)
    expected = test_graphs.differences(world, start)
    assert np.allclose(world.results()[2], expected, atol=1e-7)


def on_fake(test: Callable[..., None]) -> Callable[..., None]:
    """A test of another module, which keeps its own marks, on the fake GPU."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        test(*arguments, **named)

    marked: Callable[..., None] = pytest.mark.usefixtures("fake")(run)
    return marked


for _name in vars(test_growing_records):
    if _name.startswith("test_"):
        globals()[_name] = on_fake(getattr(test_growing_records, _name))


def test_waves_of_64_are_not_launched_in_halves() -> None:
    with fake_gpu(processor=b"gfx942:sramecc+:xnack-") as fake:
        qd.init(arch=qd.amdgpu)
        x = qd.field(qd.f32, 3)

        @qd.kernel
        def fill():
            for i in x:
                x[i] = i

        fill()
        assert x.to_numpy().tolist() == [0, 1, 2]
        assert {call.block % 64 for call in fake.launches} == {0}


# -- refusals -----------------------------------------------------------------------------------

CASES: dict[str, Callable[[], Any]] = {}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    CASES[function.__name__] = function
    return function


def start(**facts: Any) -> HipDevice:
    return HipDevice(library=FakeHip(**facts).library())


@case
def missing_hip() -> None:
    def find(symbol: str, types: Any) -> Any:
        raise errors.MissingHip("libamdhip64.so.6: cannot open shared object file").at()

    HipLibrary(find, WAVES)


@case
def old_hip() -> None:
    start(driver=50700000)


@case
def no_amd_gpu() -> None:
    start(devices=0)


@case
def unsupported_processor() -> None:
    start(processor=b"gfx803")


@case
def failed_call_of_hip() -> None:
    fake = FakeHip()
    device = HipDevice(library=fake.library())
    fake.fail("cuStreamCreate", 1)
    device.create_stream()


@pytest.mark.parametrize("name", CASES)
def test_text(name: str) -> None:
    with pytest.raises(OctantsError) as caught:
        CASES[name]()
    assert caught.value.diagnostic is not None
    check_golden(f"errors/{caught.value.diagnostic.code}_{name}", str(caught.value))


def test_every_error_has_a_text() -> None:
    kinds = vars(errors).values()
    own = {each.code for each in kinds if getattr(each, "__module__", "") == errors.__name__}
    assert own == codes_of("errors", CASES) - {"OCT435"}


def test_it_is_experimental() -> None:
    with fake_gpu():
        with pytest.warns(OctantsWarning, match="no GPU of AMD has run it"):
            qd.init(arch=qd.amdgpu)
        assert "experimental" in obstacle_to("amdgpu", by_itself=False)


def test_init_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amdgpu, "driver_library", missing_hip)
    with pytest.raises(OctantsRuntimeError, match="install ROCm's package `hip-runtime-amd`"):
        qd.init(arch=qd.amdgpu)


# -- the library --------------------------------------------------------------------------------


def test_each_function_of_cuda_in_use_has_one_of_hip() -> None:
    names = {name.partition("_v2")[0] for name in SIGNATURES}
    linked = {name for name in names if name.startswith("cuLink")}  # code objects are linked here
    # A process uses one GPU of AMD.
    several = {"cuMemcpyPeerAsync", "cuDeviceCanAccessPeer"}
    several |= {"cuCtxEnablePeerAccess", "cuMemPoolSetAccess"}
    others = {"cuLaunchKernelEx", "cuStreamGetCtx", "cuGraphAddDependencies"}
    assert names - set(FUNCTIONS) == linked | several | others
    assert not set(FUNCTIONS) - names


def test_structures_are_laid_out_as_in_the_header() -> None:
    assert ctypes.sizeof(library.KernelNode) == 64
    assert ctypes.sizeof(library.FillNode) == 48
    assert ctypes.sizeof(library.CopyNode) == 184
    offsets = [
        getattr(library.KernelNode, name).offset for name in ("function", "grid", "arguments")
    ]
    assert offsets == [24, 32, 48]
    offsets = [getattr(library.CopyNode, name).offset for name in ("source", "target", "width")]
    assert offsets == [48, 128, 160]


def test_assembly_of_a_kernel() -> None:
    text = compilation.assembly_text(module_of_atomics(f32), amdgcn.Amdgpu(target("gfx1100")))
    assert "global_atomic_add_f32" in text
