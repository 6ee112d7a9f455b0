"""Code for GPUs of NVIDIA on a real one; on one that the CPU emulates where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octants.diagnostics.exceptions import OctantsMemoryError
from octants.ir.core import Companion, Module
from octants.runtime.cuda.device import CudaDevice
from octants.types import scalars
from octants.types.scalars import f32, f64
from tests.autodiff.random_ir import inputs
from tests.autodiff.reversing import differentiate
from tests.autodiff.test_checkpoints import LongLoops
from tests.codegen import (
    test_control_and_memory,
    test_messages,
    test_records,
    test_reductions,
    test_scalar_operations,
    test_threads,
)
from tests.codegen.compiled import Compiled
from tests.codegen.on_emulated_gpu import OnEmulatedGpu
from tests.codegen.on_gpu import OnGpu, gpu

EMULATES = gpu() is None
LONG: Any = pytest.mark.slow if EMULATES else ()

ADJOINT = Companion.ADJOINT


def _on_gpu(module: Module, *_: Any, **__: Any) -> OnGpu:
    return OnEmulatedGpu(module) if EMULATES else OnGpu(module)


def _run(module: Module, arrays: Any, **options: Any) -> Any:
    return _on_gpu(module).run(arrays, **options)


@pytest.fixture(autouse=True)
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests of other modules run there, when they are called from here."""
    for module in (
        test_control_and_memory,
        test_messages,
        test_records,
        test_reductions,
        test_scalar_operations,
    ):
        monkeypatch.setattr(module, "Compiled", _on_gpu)
    monkeypatch.setattr(test_threads, "Threads", _on_gpu)
    for module in (test_control_and_memory, test_messages, test_reductions):
        monkeypatch.setattr(module, "run", _run)


@pytest.mark.parametrize(
    "dtype", [pytest.param(d, marks=() if d is f32 else LONG) for d in scalars.ALL], ids=str
)
def test_exact_functions(dtype: Any) -> None:
    target = test_scalar_operations.TARGET
    test_scalar_operations.test_exact_functions_give_the_defined_bits(dtype, target, 1)


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_remainders_are_exact(dtype: Any) -> None:
    test_threads.test_remainders_are_exact(dtype)


@pytest.mark.parametrize(
    "name",
    [
        "test_nested_loops_with_carried_values",
        pytest.param("test_while_and_branches_that_depend_on_data", marks=LONG),
        "test_tasks_hand_values_to_each_other",
        pytest.param("test_row_major_arrays_and_arguments_of_every_shape", marks=LONG),
        "test_draws_are_those_of_the_definition",
    ],
)
def test_what_the_interpreter_gives(name: str) -> None:
    getattr(test_control_and_memory, name)()


@pytest.mark.parametrize(("dtype", "fn"), [("f32", "add"), ("i32", "max"), ("i64", "min")])
def test_what_is_collected(dtype: str, fn: str) -> None:
    test_reductions.test_what_is_collected(scalars.by_name(dtype), fn)


def test_reductions_as_on_the_cpu() -> None:
    test_reductions.test_nothing_is_touched_if_no_item_updates()
    test_reductions.test_one_place_for_all_by_an_argument()


@pytest.mark.parametrize("by_while", [False, True])
@pytest.mark.parametrize("items", [1, 60, pytest.param(40_000, marks=LONG)])
def test_what_is_pushed_comes_back(by_while: bool, items: int) -> None:
    kernel = _on_gpu(test_records.reversal(by_while))
    for most in (40, 3000 if items < 1000 else 40, 7):
        n = np.random.default_rng(3).integers(0, most, items).astype(np.int32)
        data = {"n": n, "out": np.zeros(items)}
        kernel.run(data)
        assert data["out"].tolist() == test_records.wanted(n)


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=LONG) for seed in range(60)])
def test_gradients_of_random_modules(seed: int) -> None:
    module = LongLoops(seed).simplified()
    result = differentiate(module, whole_record_bytes=(0, 40)[seed % 2])
    if result.hazards:
        pytest.skip("the reverse needs memory from before")
    state = {**inputs(seed), "t": np.zeros(())}
    if result.state == "after":
        Compiled(module).run(state)
    both: dict[Any, Any] = {**state, ("t", ADJOINT): np.zeros(())}
    both |= {(name, ADJOINT): value for name, value in inputs(seed + 1).items()}
    wanted = {key: value.copy() for key, value in both.items()}
    Compiled(result.module).run(wanted)
    try:
        if EMULATES:
            OnEmulatedGpu(result.module, record_budget=1 << 10).run(both)
        else:
            OnGpu(result.module, CudaDevice(record_budget=1 << 10)).run(both)
    except OctantsMemoryError:  # a task that stores in its first sweep cannot run again
        pytest.skip("refused for good")
    for key, expected in wanted.items():
        np.testing.assert_allclose(both[key], expected, rtol=1e-9, atol=1e-12, err_msg=str(key))


@pytest.mark.parametrize(
    "first", [pytest.param(0, marks=LONG), 4321, pytest.param(99_999, marks=LONG)]
)
def test_the_lowest_failing_item_is_reported(first: int) -> None:
    test_messages.test_the_lowest_failing_item_is_reported(first)


def test_what_kernels_say(capsys: Any, tmp_path: Any) -> None:
    test_messages.test_lines_come_in_the_order_of_tasks_and_items(capsys)
    test_messages.test_values_of_every_type(capsys)
    test_messages.test_a_failure_inside_loops_ends_the_work_item_and_shows_its_line(tmp_path)
    test_messages.test_what_was_printed_before_a_failure_is_there(capsys)
    test_messages.test_a_failure_with_very_many_values()
