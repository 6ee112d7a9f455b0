"""Operations, records and messages by themselves: tests of code for the CPU, on a fake Metal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from octants.target import NEVER
from octants.types import scalars
from octants.types.scalars import DType, f32
from tests.codegen import test_control_and_memory as control
from tests.codegen import test_messages as messages
from tests.codegen import test_records as records
from tests.codegen import test_scalar_operations as scalar
from tests.metal import compiled
from tests.vulkan.test_messages import PRINTS
from tests.vulkan.test_messages import WHOLE as FAILURES
from tests.vulkan.test_operations import WHOLE

all_types = pytest.mark.parametrize("dtype", scalars.ALL, ids=str)


@pytest.fixture(autouse=True)
def on_metal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    compiled.device()
    for module in (control, scalar, records, messages):
        monkeypatch.setattr(module, "Compiled", compiled.OnMetal)
    for module in (control, messages):
        monkeypatch.setattr(module, "run", compiled.run)
    yield
    problems, compiled.FAKE.problems = compiled.FAKE.problems, []
    assert not problems, problems[0]


@pytest.mark.parametrize("test", WHOLE, ids=lambda test: test.__name__)
def test_what_holds_on_the_cpu(test: Callable[[], None]) -> None:
    test()


@all_types
def test_exact_functions(dtype: DType) -> None:
    scalar.test_exact_functions_give_the_defined_bits(dtype, scalar.TARGET, 2)


@all_types
def test_casts(dtype: DType) -> None:
    scalar.test_casts(dtype, scalar.TARGET)


@all_types
def test_atomics(dtype: DType) -> None:
    control.test_atomics_one_after_the_other(dtype)


@pytest.mark.parametrize("dtype", scalar.INTEGERS, ids=str)
def test_division_and_power_by_constants(dtype: DType) -> None:
    scalar.test_division_and_power_by_constants(dtype)


def test_library_functions() -> None:
    scalar.test_library_functions_are_within_two_units(f32)


def test_halves() -> None:
    scalar.test_every_half_is_read_and_rounded_alike(scalar.TARGET)


def test_a_product_and_a_sum_rounded_once() -> None:
    scalar.test_a_product_and_a_sum_rounded_once(f32, scalar.TARGET)


def test_booleans_on_tapes_share_bytes() -> None:
    records.test_booleans_share_bytes(NEVER)


@pytest.mark.parametrize("test", PRINTS, ids=lambda test: test.__name__)
def test_what_is_printed(test: Callable[[Any], None], capsys: Any) -> None:
    test(capsys)


@pytest.mark.parametrize("test", FAILURES, ids=lambda test: test.__name__)
def test_what_fails(test: Callable[[], None]) -> None:
    test()
