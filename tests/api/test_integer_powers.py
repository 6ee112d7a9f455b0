"""Integers to negative powers: an error in debug mode, else truncated; literals give floats."""

from __future__ import annotations

import pytest

import octants as qd


@qd.kernel
def power(a: qd.i32, b: qd.i32) -> qd.i32:
    return a**b


@qd.kernel
def float_power(a: qd.i32) -> qd.f64:
    return a**-2


@qd.kernel
def vector_power(a: qd.i32, b: qd.i32) -> qd.i32:
    return (qd.Vector([a, 2]) ** qd.Vector([b, 1])).sum()


def test_truncated() -> None:
    qd.init(arch=qd.cpu, log_level="error")
    assert [power(a, -2) for a in (0, 1, -1, 2, 3)] == [0, 1, 1, 0, 0]
    assert [power(a, -3) for a in (1, -1, 10)] == [1, -1, 0]
    assert float_power(2) == 0.25
    qd.reset()


def test_an_error_in_debug_mode() -> None:
    qd.init(arch=qd.cpu, log_level="error", debug=True)
    assert power(2, 10) == 1024
    assert float_power(2) == 0.25
    assert vector_power(3, 2) == 11
    for kernel in (power, vector_power):
        with pytest.raises(qd.QuadrantsAssertionError, match="to the power of -10"):
            kernel(10, -10)
    assert power(10, 0) == 1
    qd.reset()
