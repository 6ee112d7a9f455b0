"""Operations by themselves: the tests of code for the CPU, on Vulkan."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from octants.ir import scalar_semantics
from octants.ir.core import Module
from octants.types import scalars
from octants.types.scalars import DType, f32, f64
from tests.codegen import test_control_and_memory as control
from tests.codegen import test_scalar_operations as scalar
from tests.codegen.compiled import ndarray, parallel
from tests.vulkan import compiled

WHOLE = (
    control.test_nested_loops_with_carried_values,
    control.test_while_and_branches_that_depend_on_data,
    control.test_tasks_hand_values_to_each_other,
    control.test_row_major_arrays_and_arguments_of_every_shape,
    control.test_blocked_layout_of_a_field,
    control.test_a_bool_in_memory_is_a_byte_and_any_nonzero_one_is_true,
    control.test_draws_are_those_of_the_definition,
    control.test_draws_are_uniform,
    control.test_atomics_of_many_threads_lose_nothing,
    scalar.test_index_of_i64,
)
ROOTS = ("sqrt", "rsqrt")
all_types = pytest.mark.parametrize("dtype", scalars.ALL, ids=str)
floats = pytest.mark.parametrize("dtype", scalar.FLOATS, ids=str)


@pytest.fixture(autouse=True)
def on_vulkan(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled.device()
    for module in (control, scalar):
        monkeypatch.setattr(module, "Compiled", compiled.OnVulkan)
    monkeypatch.setattr(control, "run", compiled.run)
    if takes_subnormals_for_zero():
        given, same = scalar.samples, scalar.same
        normal = [*filter(is_normal, given(f32))]
        monkeypatch.setattr(scalar, "samples", lambda d: normal if d is f32 else given(d))
        monkeypatch.setattr(scalar, "same", lambda x, y: same(x, y) or is_near_zero(x, y))


SMALLEST = float(np.finfo(np.float32).tiny)


@functools.cache
def takes_subnormals_for_zero() -> bool:
    """Whether the device does so with f32, as it may."""
    x = np.array([1e-40], np.float32)
    a, b = ndarray("a", f32), ndarray("b", f32)

    def body(build: Any, i: Any) -> None:
        build.store(b, [i], build.unary("abs", build.load(a, [i])))

    task = parallel("all", lambda build: (build.index(0), build.shape(a, 0)), body)
    found = np.ones(1, np.float32)
    compiled.OnVulkan(Module("abs", [a, b], tasks=[task])).run({"a": x, "b": found})
    return not found[0]


def is_normal(x: Any) -> bool:
    return not isinstance(x, float) or x == 0 or not abs(x) < SMALLEST


def is_near_zero(x: Any, y: Any) -> bool:
    """Whether numbers differ by no more than what may be lost at zero."""
    return isinstance(x, float) and abs(x - y) < SMALLEST


@pytest.mark.parametrize("test", WHOLE, ids=lambda test: test.__name__)
def test_what_holds_on_the_cpu(test: Callable[[], None]) -> None:
    test()


@all_types
def test_exact_functions(dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not all errors of products in f64 are defined, nor how a GPU rounds roots of f32."""
    left_out = {("mul_error", f64)}
    if not compiled.device().hardware.is_cpu:
        left_out |= {(fn, f32) for fn in ROOTS}

    def functions(dtype: DType) -> Any:
        unary, binary, compare = given(dtype)
        kept = ([fn for fn in fns if (fn, dtype) not in left_out] for fns in (unary, binary))
        return *kept, compare

    given = scalar.functions
    monkeypatch.setattr(scalar, "functions", functions)
    scalar.test_exact_functions_give_the_defined_bits(dtype, scalar.TARGET, 2)


@pytest.mark.parametrize("fn", ROOTS)
def test_roots_of_f32_are_within_what_vulkan_allows(fn: str) -> None:
    """Those of f32, in units of the last digit; GPUs do not round them right."""
    x, found = np.linspace(0.01, 40.0, 10_000, dtype=np.float32), np.zeros(10_000, np.float32)
    a, b = ndarray("a", f32), ndarray("b", f32)

    def body(build: Any, i: Any) -> None:
        build.store(b, [i], build.unary(fn, build.load(a, [i])))

    task = parallel("all", lambda build: (build.index(0), build.shape(a, 0)), body)
    compiled.OnVulkan(Module("roots", [a, b], tasks=[task])).run({"a": x, "b": found})
    wanted = np.sqrt(x.astype(np.float64)) ** (-1 if fn == "rsqrt" else 1)
    assert (np.abs(found - wanted) / np.spacing(wanted.astype(np.float32))).max() <= 3.0


@all_types
def test_casts(dtype: DType) -> None:
    scalar.test_casts(dtype, scalar.TARGET)


@all_types
def test_atomics(dtype: DType) -> None:
    control.test_atomics_one_after_the_other(dtype)


@pytest.mark.parametrize("dtype", scalar.INTEGERS, ids=str)
def test_division_and_power_by_constants(dtype: DType) -> None:
    scalar.test_division_and_power_by_constants(dtype)


@floats
def test_library_functions(dtype: DType) -> None:
    scalar.test_library_functions_are_within_two_units(dtype)


def test_halves() -> None:
    scalar.test_every_half_is_read_and_rounded_alike(scalar.TARGET)


def test_a_product_and_a_sum_rounded_once() -> None:
    scalar.test_a_product_and_a_sum_rounded_once(f32, scalar.TARGET)


def test_errors_of_products_of_f64() -> None:
    """Where neither the product nor its error leave the range of normal numbers."""
    a, b, c = (ndarray(name, f64) for name in "abc")

    def body(build: Any, i: Any) -> None:
        error = build.binary("mul_error", build.load(a, [i]), build.load(b, [i]))
        build.store(c, [i], error)

    task = parallel("all", lambda build: (build.index(0), build.shape(a, 0)), body)
    rng = np.random.default_rng(3)
    x, y = (rng.standard_normal(5000) * 2.0 ** rng.integers(-400, 400, 5000) for _ in "ab")
    found = np.zeros(5000)
    compiled.OnVulkan(Module("errors", [a, b, c], tasks=[task])).run({"a": x, "b": y, "c": found})
    assert np.array_equal(found, scalar_semantics.product_error(x, y))
