"""Constants of kernels that are changed in place: a kernel means what they are when it runs."""

from __future__ import annotations

import numpy as np
import pytest

import octants as qd

VECTOR = qd.Vector([1.0, 2.0])
MATRIX = qd.Matrix([[1.0, 2.0], [3.0, 4.0]])
ARRAY = np.array([1.0, 2.0])
NESTED = [[1.0, 2.0], [3.0, 4.0]]
TABLE = {"a": {"b": 1.0}}
STRUCT = qd.Struct(a=1.0, v=qd.Vector([1.0, 2.0]))
CONFIG = type("Config", (), {})()


@qd.kernel
def read() -> qd.types.vector(8, qd.f32):
    absent = 0.0
    if qd.static(hasattr(CONFIG, "n")):
        absent = 1.0
    return qd.Vector(
        [
            VECTOR[0],
            MATRIX[1, 0],
            ARRAY[0],
            NESTED[1][0],
            TABLE["a"]["b"],
            STRUCT.a,
            STRUCT.v[1],
            absent,
        ]
    )


@pytest.fixture(autouse=True)
def start() -> None:
    qd.init(arch=qd.cpu, log_level="error")


def test_each_change_is_noticed() -> None:
    expected = [1.0, 3.0, 1.0, 3.0, 1.0, 1.0, 2.0, 0.0]
    assert read().to_list() == expected

    def change(position: int) -> None:
        expected[position] = 9.0
        assert read().to_list() == expected

    VECTOR[0] = 9.0
    change(0)
    MATRIX[1, 0] = 9.0
    change(1)
    ARRAY[0] = 9.0
    change(2)
    NESTED[1][0] = 9.0
    change(3)
    TABLE["a"]["b"] = 9.0
    change(4)
    STRUCT.a = 9.0
    change(5)
    STRUCT.v[1] = 9.0
    change(6)
    CONFIG.n = 1  # type: ignore[attr-defined]
    expected[7] = 1.0
    assert read().to_list() == expected
