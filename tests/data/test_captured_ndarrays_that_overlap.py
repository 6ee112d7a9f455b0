"""Ndarrays that a kernel refers to by name, of which several are one memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.devices import ARCH

pytestmark = pytest.mark.skipif(
    ARCH not in ("cpu", "cuda"), reason="libraries do not share the memory of such devices"
)
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


@pytest.mark.parametrize("pair", CASES[:2], indirect=True)
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
