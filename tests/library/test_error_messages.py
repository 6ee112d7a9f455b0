"""The text of each error of the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import types
from octants.algorithms import parallel_sort
from octants.diagnostics import library_errors
from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import OctantsError
from tests.golden_files import check_golden, codes_of, without_lines
from tests.library.kernels import run

CASES: dict[str, Callable[..., Any]] = {}

Pair = types.struct(a=types.f32, b=types.f32)


def case(function: Callable[..., Any]) -> Callable[..., Any]:
    CASES[function.__name__] = function
    return function


@case
def wrong_operands(x: types.ndarray):
    x[0] = x[0] & 1


@case
def wrong_operand(x: types.ndarray):
    x[0] = ~x[1]


@case
def shapes_differ(x: types.ndarray):
    v = qd.Vector([x[0], x[1]]) + qd.Vector([1.0, 2.0, 3.0])
    x[0] = v[0]


@case
def shapes_differ_in_a_product(x: types.ndarray):
    m = qd.Matrix([[x[0], x[1], x[2]], [1, 2, 3]])
    x[0] = (m @ m)[0, 0]


@case
def shapes_differ_in_a_product_of_elements(x: types.ndarray):
    m = qd.Matrix([[x[0], x[1]], [1, 2]])
    x[0] = (m * qd.Vector([x[0], x[1]]))[0]


@case
def ambiguous_truth(x: types.ndarray):
    if qd.Vector([x[0], x[1]]) > 0:
        x[0] = 1


@case
def literal_too_large(x: types.ndarray):
    x[0] = qd.u8(300)


@case
def not_a_type(x: types.ndarray):
    x[0] = qd.cast(x[1], "f32")


@case
def different_widths(x: types.ndarray):
    x[0] = qd.bit_cast(x[1], qd.i32)


@case
def wrong_elements(x: types.ndarray):
    v = types.vector(3, float)(x[0], x[1])
    x[0] = v[0]


@case
def wrong_elements_of_rows(x: types.ndarray):
    m = qd.Matrix([[x[0], x[1]], [1]])
    x[0] = m[0, 0]


@case
def wrong_shape(x: types.ndarray):
    v = qd.Vector([x[0], x[1]])
    x[0] = v.transpose()[0]


@case
def wrong_argument_value(x: types.ndarray):
    x[0] = round(x[1], 2)


@case
def not_a_place(x: types.ndarray):
    qd.atomic_add(x[0] + 1, 2.0)


@case
def wrong_atomic(x: types.ndarray):
    qd.atomic_or(x[0], 2)


@case
def not_a_member(x: types.ndarray):
    p = Pair(a=1, c=x[0])
    x[0] = p.a


@pytest.mark.parametrize("name", CASES)
def test_text_in_a_kernel(name):
    with pytest.raises(OctantsError) as raised:
        run(CASES[name], np.zeros(3))
    diagnostic = raised.value.diagnostic
    assert diagnostic is not None
    check_golden(f"library/{diagnostic.code}_{name}", without_lines(str(raised.value)))


HOST = {
    "kernel_only": lambda: qd.atomic_add(1, 2),
    "missing_element_type": lambda: types.vector(3).field(4),
    "wrong_host_value": lambda: qd.Vector([1, 2]) + qd.Vector([1, 2, 3]),
    "wrong_host_elements": lambda: qd.Vector([1, "two"]),
    "masked_array": lambda: qd.Vector(np.ma.array([1.0, 2.0], mask=[0, 1])),
    "wrong_algorithm_array": lambda: parallel_sort([3, 1, 2]),
    "not_a_member_on_the_host": lambda: Pair(1, 2, 3),
}


@pytest.mark.parametrize("name", HOST)
def test_text_on_the_host(name):
    with pytest.raises(OctantsError) as raised:
        HOST[name]()
    assert raised.value.diagnostic is not None
    check_golden(f"library/{raised.value.diagnostic.code}_{name}", str(raised.value))


def test_every_error_has_a_text():
    declared = {
        x.code
        for x in vars(library_errors).values()
        if isinstance(x, type) and x is not UserError and issubclass(x, UserError)
    }
    assert declared == codes_of("library", [*CASES, *HOST])
