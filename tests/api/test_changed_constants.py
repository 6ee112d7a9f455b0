"""Constants of kernels that are changed in place: a kernel means what they are when it runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def test_a_function_that_an_object_or_a_variable_holds_is_replaced() -> None:
    @qd.func
    def plus_one(v):
        return v + 1.0

    def doubled(v):
        return 2.0 * v

    class Layer:
        def __init__(self) -> None:
            self.activation = plus_one

        @qd.kernel
        def apply(self) -> qd.f32:
            return self.activation(3.0)

    @qd.kernel
    def call() -> qd.f32:
        return activation(3.0)

    activation = plus_one
    layer = Layer()
    assert (layer.apply(), call()) == (4.0, 4.0)
    layer.activation = activation = doubled
    assert (layer.apply(), call()) == (6.0, 6.0)


def test_a_function_of_the_main_module_is_defined_again(tmp_path: Path) -> None:
    """As in a notebook, where a cell is changed and runs again."""
    script = tmp_path / "session.py"
    script.write_text(
        """
import octants as qd

qd.init(arch=qd.cpu)

@qd.func
def inner(v):
    return v + 1

@qd.func
def shift(v):
    return inner(v)

@qd.kernel
def call() -> qd.i32:
    return shift(1)

print(call())

@qd.func
def inner(v):
    return v + 10

print(call())

def shift(v):
    return v + 100

print(call())
"""
    )
    command = [sys.executable, str(script)]
    assert subprocess.check_output(command, text=True).split() == ["2", "11", "101"]
