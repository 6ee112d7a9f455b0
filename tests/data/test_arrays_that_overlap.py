"""Arrays of one memory, of which a kernel uses several."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.devices import ARCH

shared_memory = pytest.mark.skipif(
    ARCH not in ("cpu", "cuda"), reason="libraries do not share the memory of such devices"
)
ARRAY = qd.types.ndarray(dtype=qd.f32, ndim=1)
CASES = ["an ndarray and its import", "two imports", "a field and its import"]


@pytest.fixture(params=CASES)
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """Two arrays of four zeros with the same memory."""
    if request.param == "two imports":
        owner = qd.ndarray(qd.f32, 4)
        return qd.from_dlpack(owner), qd.from_dlpack(owner)
    first = qd.ndarray(qd.f32, 4) if "ndarray" in request.param else qd.field(qd.f32, 4)
    return first, qd.from_dlpack(first)


@pytest.fixture(autouse=True)
def _shares_memory() -> Any:
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


@shared_memory
def test_a_store_through_one_is_seen_through_the_other(pair: tuple[Any, Any]) -> None:
    first, second = pair
    seen = qd.field(qd.f32, 4)

    @qd.kernel
    def step() -> None:
        for i in range(4):
            before = first[i]
            second[i] = before + 1
            seen[i] = first[i]

    step()
    np.testing.assert_array_equal(seen.to_numpy(), 1)


@shared_memory
def test_sums_of_a_loop_are_not_collected_past_the_other(pair: tuple[Any, Any]) -> None:
    first, second = pair

    @qd.kernel
    def step() -> None:
        for _ in range(1):
            for _ in range(5):
                first[0] += 1.0
                second[0] *= 2.0

    step()
    assert first[0] == 62


@shared_memory
def test_a_store_is_not_moved_past_a_read_of_the_other(pair: tuple[Any, Any]) -> None:
    first, second = pair
    seen = qd.field(qd.f32, 4)

    @qd.kernel
    def step() -> None:
        for i in range(4):
            first[i] = 3.0
            seen[i] = second[i]
            first[i] = 5.0

    step()
    np.testing.assert_array_equal(seen.to_numpy(), 3)


def doubled_five_times(number: float) -> float:
    for _ in range(5):
        number = (number + 1) * 2
    return number


@shared_memory
@pytest.mark.parametrize("companion", ["values", "gradient"])
def test_kernels_of_before_the_export_see_the_import(companion: str) -> None:
    field = qd.field(qd.f32, 4, needs_grad=True)
    first = field if companion == "values" else field.grad

    @qd.kernel
    def step(n: int, second: ARRAY) -> None:
        for _ in range(n):
            for _ in range(5):
                first[0] += 1.0
                second[0] *= 2.0

    step(1, qd.ndarray(qd.f32, 4))
    assert first[0] == 5
    step(1, qd.from_dlpack(first))
    assert first[0] == doubled_five_times(5)


@shared_memory
def test_an_import_is_seen_by_name_after_the_export() -> None:
    first: Any = qd.field(qd.f32, 4)
    second: Any = qd.ndarray(qd.f32, 4)

    @qd.kernel
    def step(n: int) -> None:
        for _ in range(n):
            for _ in range(5):
                first[0] += 1.0
                second[0] *= 2.0

    step(1)
    second = qd.from_dlpack(first)
    step(1)
    assert first[0] == doubled_five_times(5)


@shared_memory
def test_a_view_of_numpy_is_the_field() -> None:
    first = qd.field(qd.f32, 4)

    @qd.kernel
    def step(n: int, second: ARRAY) -> None:
        for _ in range(n):
            for _ in range(5):
                first[0] += 1.0
                second[0] *= 2.0

    step(1, np.ones(4, np.float32))
    view = qd.from_dlpack(first) if ARCH == "cuda" else first.to_numpy(copy=False)
    step(1, view)
    assert first[0] == doubled_five_times(5)


@shared_memory
def test_only_kernels_with_ndarrays_are_built_again() -> None:
    field, other = qd.field(qd.f32, 4), qd.ndarray(qd.f32, 4)

    @qd.kernel
    def alone() -> None:
        field[0] += 1.0

    @qd.kernel
    def beside(other: ARRAY) -> None:
        field[0] += other[0]

    alone()
    beside(other)
    found = alone.specialisation(()), beside.specialisation((other,))
    field.__dlpack__()
    assert alone.specialisation(()) is found[0]
    renewed = beside.specialisation((other,))
    assert renewed is not found[1]
    field.__dlpack__()  # which was exported already
    assert beside.specialisation((other,)) is renewed


def test_a_gradient_that_is_passed_beside_its_array() -> None:
    """The kernel reads it as the gradient, too, before and after a store."""

    @qd.kernel
    def step(x: ARRAY, gradient: ARRAY, seen: ARRAY) -> None:
        for _ in range(1):
            before = x.grad[0]
            gradient[0] = before + 1.0
            seen[0] = x.grad[0]
            x.grad[1] = 3.0
            seen[1] = gradient[1]
            x.grad[1] = 4.0

    x, seen = qd.ndarray(qd.f32, 4, needs_grad=True), qd.ndarray(qd.f32, 4)
    step(x, x.grad, seen)
    np.testing.assert_array_equal(seen.to_numpy(), [1, 3, 0, 0])
    np.testing.assert_array_equal(x.grad.to_numpy(), [1, 4, 0, 0])


@pytest.mark.parametrize("n", [1, 7])
def test_sums_into_a_gradient_that_is_passed_too(n: int) -> None:
    @qd.kernel
    def step(n: int, x: ARRAY, gradient: ARRAY) -> None:
        for i in range(n):
            for _ in range(5):
                x.grad[i] += 1.0
                gradient[i] *= 2.0
        for _ in range(1):
            for _ in range(5):
                x.grad[7] += 1.0
                gradient[7] *= 2.0

    x = qd.ndarray(qd.f32, 8, needs_grad=True)
    step(n, x, x.grad)
    expected = [*[62.0] * n, *[0.0] * (7 - n), 62.0]
    np.testing.assert_array_equal(x.grad.to_numpy(), expected)
