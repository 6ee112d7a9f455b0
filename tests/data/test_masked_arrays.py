"""Masked arrays of numpy are an error wherever their mask would be ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.golden_files import check_golden


@pytest.fixture(autouse=True)
def cpu() -> None:
    qd.init(arch=qd.cpu)


def row() -> Any:
    return np.ma.array(np.ones(4, np.float32), mask=[False, True, False, False])


@qd.kernel
def total(x: qd.types.ndarray(qd.f32, 1)) -> qd.f32:
    s = 0.0
    for i in range(4):
        s += x[i]
    return s


@qd.kernel
def second(v: qd.types.vector(4, qd.f32)) -> qd.f32:
    return v[1]


TAKERS: dict[str, Callable[[Any], Any]] = {
    "argument": total,
    "vector": second,
    "field": lambda x: qd.field(qd.f32, 4).from_numpy(x),
    "ndarray": lambda x: qd.ndarray(qd.f32, 4).from_numpy(x),
    "array": qd.array,
    "slice": lambda x: qd.ndarray(qd.f32, 8).__setitem__(slice(2, 6), x),
    "element": lambda x: qd.Vector.field(4, qd.f32, 3).__setitem__(0, x),
    "Vector": qd.Vector,
}


@pytest.mark.parametrize("taker", TAKERS)
def test_masked_arrays_are_an_error(taker: str) -> None:
    TAKERS[taker](np.ones(4, np.float32))
    for array in (row(), np.ma.array(np.ones(4, np.float32))):
        with pytest.raises(qd.OctantsError, match=r"`a\.filled\(number\)`"):
            TAKERS[taker](array)


def test_constants_of_kernels() -> None:
    constant = row()

    @qd.kernel
    def read() -> qd.f32:
        return constant[1]

    with pytest.raises(qd.OctantsError, match="masked"):
        read()


def test_the_error() -> None:
    with pytest.raises(qd.OctantsError) as caught:
        qd.field(qd.f32, 4).from_numpy(row())
    check_golden("errors/OCT232_MaskedArrayGiven", str(caught.value))
