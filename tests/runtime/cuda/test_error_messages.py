"""The text of each error of GPUs, as golden files."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import OctantsError
from octants.runtime.cuda import context, errors
from octants.runtime.cuda.device import CudaDevice
from octants.runtime.cuda.library import Library
from tests.golden_files import check_golden, codes_of
from tests.runtime.cuda.fake_cuda import Call, FakeCuda, Trap
from tests.runtime.cuda.kernels import Dispatch, artifact, launch

CASES: dict[str, Callable[[], Any]] = {}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    CASES[function.__name__] = function
    return function


def start(**facts: Any) -> CudaDevice:
    return CudaDevice(library=FakeCuda(**facts).library())


@case
def missing_driver() -> None:
    def find(symbol: str) -> Any:
        raise errors.MissingDriver("libcuda.so.1: cannot open shared object file").at()

    Library(find)


@case
def old_driver() -> None:
    start(driver=11040)


@case
def no_gpu() -> None:
    start(devices=0)


@case
def no_gpu_of_the_driver() -> None:
    start(init_status=100)


@case
def no_such_gpu() -> None:
    CudaDevice(2, library=FakeCuda(devices=2).library())


@case
def old_gpu() -> None:
    start(capability=(7, 0))


@case
def failed_call() -> None:
    fake = FakeCuda()
    device = CudaDevice(library=fake.library())
    fake.fail("cuStreamCreate", 1)
    device.create_stream()


@case
def lost_gpu() -> None:
    def trap(call: Call) -> None:
        raise Trap

    fake = FakeCuda(kernels={"run": trap})
    device = CudaDevice(library=fake.library())
    for name in ("step", "move", "step"):
        launch(device.load(artifact(name, [Dispatch("run", 0)], 0)))
    device.synchronize()


@case
def no_memory_on_the_gpu() -> None:
    device = start()
    keep = [device.allocate(k << 20, f"field `x{k}`") for k in range(1, 4)]
    keep += [device.allocate(4000 + k) for k in range(20)]
    keep += [device.allocate(100 + k, "a number") for k in range(20)]
    device.allocate(1 << 40)
    keep.clear()


@case
def memory_of_another_gpu() -> None:
    raise errors.OtherDevice("argument `x` of kernel `step`", "GPU 1", "GPU 0 (Fake GPU)").at()


@case
def stream_of_another_gpu() -> None:
    fake = FakeCuda(devices=2)
    CudaDevice(0, library=fake.library()).create_stream(fake.add_foreign_stream(1))


@case
def forked_process() -> None:
    device = start()
    with pytest.MonkeyPatch.context() as patch:  # a real GPU that other tests use is none of them
        patch.setattr(context, "_contexts", [device.context])
        context._after_fork()
    device.allocate(8)


@pytest.mark.parametrize("name", CASES)
def test_text(name: str) -> None:
    with pytest.raises(OctantsError) as caught:
        CASES[name]()
    assert caught.value.diagnostic is not None
    check_golden(f"errors/{caught.value.diagnostic.code}_{name}", str(caught.value))


def test_every_error_has_a_text() -> None:
    found = {
        kind.code
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, UserError) and kind is not UserError
    }
    assert found == codes_of("errors", CASES)
