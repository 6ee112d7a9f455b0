"""Kernels on an emulated GPU as functions of JAX, whose arrays on the host stand for some there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import octants as qd
from octants.ad.functions.calls_by_address import RepeatedStep
from octants.runtime.cuda.device import CudaDevice
from octants.runtime.cuda.memory import DeviceMemory
from tests.ad import test_jax_functions as on_any_device
from tests.codegen.on_emulated_gpu import emulated_gpu
from tests.devices import ARCH

jax = pytest.importorskip("jax")
pytestmark = [
    on_any_device.by_pointers,
    pytest.mark.skipif(ARCH != "cpu" or jax.default_backend() != "cpu", reason="it emulates a GPU"),
]
DEFAULT_STREAM = 1


@pytest.fixture(autouse=True)
def _programs_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let programs for the CPU call kernels as those for a GPU do."""
    import octants.jax as ours
    from octants.runtime.interop import xla_calls

    arrays_at = ours._device_arrays

    def adopted(addresses: Any, layouts: Any, **options: Any) -> Any:
        made = arrays_at(addresses, layouts, **options)
        for each in made:
            fake.adopt(each.address, each.size * each.dtype.itemsize)
        return made

    run = RepeatedStep.run

    def run_adopted(self: RepeatedStep, inputs: Any, outputs: Any) -> bool:
        whats = [*self._inputs, *self._outputs]
        for address, what in zip([*inputs, *outputs], whats, strict=True):
            fake.adopt(address, what.size * what.dtype.itemsize)
        return run(self, inputs, outputs)

    monkeypatch.setattr(RepeatedStep, "run", run_adopted)
    monkeypatch.setattr(xla_calls.CallFrame, "stream", lambda _: DEFAULT_STREAM)
    monkeypatch.setattr(ours, "_device_arrays", adopted)
    # Programs on the host read the results when the call returns.
    monkeypatch.setattr(CudaDevice, "make_stream_wait", lambda self, _: self.synchronize())
    register = ours.mlir.register_lowering
    jax.clear_caches()
    register(ours._step, ours._lower_to_gpu_call, platform="cpu")
    try:
        with emulated_gpu() as fake:
            qd.init(arch=qd.cuda)
            yield
            qd.sync()
            assert not fake.problems, fake.problems
    finally:
        register(ours._step, ours._lower_to_call, platform="cpu")
        jax.clear_caches()


@pytest.mark.parametrize(
    "check",
    [
        on_any_device.test_values_and_gradients_compiled_and_not,
        on_any_device.test_batches,
        on_any_device.test_forward_mode,
        on_any_device.test_results_of_types_that_programs_of_32_bits_lack,
        on_any_device.test_what_is_updated_or_returned,
        on_any_device.test_what_is_updated_is_a_copy_in_compiled_programs,
        on_any_device.test_outputs_of_integers_and_of_vectors,
        on_any_device.test_second_derivatives_of_returned_numbers_and_vectors,
        on_any_device.test_empty_arrays_and_results_of_integers,
    ],
    ids=lambda check: check.__name__.removeprefix("test_"),
)
def test_the_same_as_on_other_devices(check: Any) -> None:
    check()


def test_functions_of_python_access_elements() -> None:
    def set_first(x: Any, y: Any) -> None:
        on_any_device.scaled_squares(x, y, 2.0, 3)
        y[0] = 7.0 + x[1]

    function = jax.jit(qd.jax.function(set_first, out={"y": "x"}))
    assert function(on_any_device.X).tolist() == [9.0, 8.0, 4.5]


def test_a_value_is_computed_in_the_memory_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = jax.jit(on_any_device.squares)
    compiled(on_any_device.X)
    monkeypatch.setattr(DeviceMemory, "allocate", None)
    for _ in range(3):
        assert compiled(on_any_device.X).tolist() == (2 * on_any_device.X**2).tolist()


def test_another_arch_after_compiling() -> None:
    compiled = jax.jit(on_any_device.squares)
    compiled(on_any_device.X)
    qd.init(arch=qd.cpu)
    with pytest.raises(Exception, match="(?s)OCT368.*jax.clear_caches"):
        compiled(on_any_device.X).block_until_ready()
    qd.init(arch=qd.cuda)
