"""Variables from before a parallel loop that its iterations assign and read."""

from __future__ import annotations

import ast
import types

import numpy as np
import pytest

import octants as qd
from octants.frontend.syntax.names_in_source import is_read_first

SIZE = 64
Array = qd.types.ndarray(qd.f32, ndim=1)


def assigned_first(x: Array, y: Array):
    a = 1.0
    for i in range(SIZE):
        a = x[i] * 2
        y[i] += a
    a = 3.0
    for i in range(SIZE):
        a = x[i]
        if a > 3:
            a += 1
        y[i] += a


def assigned_in_each_branch_that_reads(x: Array, y: Array):
    a = 1.0
    for i in range(SIZE):
        if x[i] > 5:
            a = x[i]
            y[i] = a
        else:
            y[i] = 2


def index_of_an_inner_loop(x: Array, y: Array):
    k = 7
    for i in range(SIZE):
        for k in range(i % 5):
            y[i] += k * x[i]


def several_at_once(x: Array, y: Array):
    a = 1
    b = 2.0
    for i in range(SIZE):
        b, a = x[i], i
        while a > 9:
            a -= 7
        y[i] = a * b


def within_a_known_branch(x: Array, y: Array):
    a = 1.0
    if qd.static(SIZE > 3):
        for i in range(SIZE):
            a = x[i]
            y[i] = a * a
    for i in range(SIZE):
        y[i] += x[i]


def read_after_the_loop(x: Array, y: Array):
    a = 1.0
    for i in range(SIZE):
        a = x[i] * 2
        y[i] += a
    y[0] = a


def read_in_a_later_loop(x: Array, y: Array):
    a = 1.0
    for i in range(SIZE):
        a = x[i] * 2
        y[i] += a
    for i in range(SIZE):
        if x[i] > 7:
            a = 2.0
        y[i] += a


def read_by_a_repetition(x: Array, y: Array):
    a = 1.0
    for _ in qd.static(range(2)):
        y[1] += a
        for i in range(SIZE):
            a = x[i]
            y[i] += a


def assigned_in_one_branch(x: Array, y: Array):
    a = 1.0
    for i in range(SIZE):
        if x[i] > 5:
            a = x[i]
        y[i] += a


def assigned_in_a_loop(x: Array, y: Array):
    a = 1.0
    for i in range(SIZE):
        for k in range(i % 3):
            a = x[k]
        y[i] += a


def index_that_is_read_after_its_loop(x: Array, y: Array):
    k = 2
    for i in range(SIZE):
        for k in range(i % 3):
            y[i] += x[k]
        y[i] += k


def assigned_from_itself(x: Array, y: Array):
    a = 0.0
    for i in range(SIZE):
        a = x[i] - a
        y[i] = a


def only_assigned_and_read_after_the_loop(x: Array, y: Array):
    a = 1.0
    for i in range(SIZE):
        if x[i] > 7:
            a = x[i] * i
    y[0] = a


def only_assigned_and_read_in_a_later_loop(x: Array, y: Array):
    a = 1.0
    b = 2.0
    for i in range(SIZE):
        b = x[i]
        a = b + i
        if b > 5:
            continue
        a = i
    for i in range(SIZE):
        y[i] += a


def elements_only_assigned_and_read_after_the_loop(x: Array, y: Array):
    a = qd.Vector([0.0, 1.0])
    for i in range(SIZE):
        a[0] = x[i] + i
    y[0] = a[0]


def two_constants(x: Array, y: Array):
    a = 1.0
    for i in range(SIZE):
        if x[i] > 7:
            a = 2.0
        else:
            a = 3.0
    y[0] = a


def zeros_of_both_signs(x: Array, y: Array):
    a = 1.0
    for i in range(SIZE):
        if x[i] > 5:
            a = 0.0
        else:
            a = -0.0
    y[0] = qd.atan2(a, -1.0)


def a_constant_that_is_added_to(x: Array, y: Array):
    a = 1.0
    for i in range(SIZE):
        a = 2.0
        a += x[i]
    y[0] = a


def one_constant(x: Array, y: Array):
    a = 1.0
    for i in range(SIZE):
        if x[i] > 7:
            a = 2.0
    y[0] = a


def only_assigned_and_not_read_after_the_loop(x: Array, y: Array):
    a = 1.0
    for i in range(SIZE):
        a = x[i]
        y[i] = 2
    a = 2.0
    y[0] = a


def assigned_in_part(x: Array, y: Array):
    a = qd.Vector([0.0, 1.0])
    for i in range(SIZE):
        a[0] = x[i]
        y[i] = a[0] + a[1]


def read_in_the_else_of_the_loop(x: Array, y: Array):
    a = 7.0
    for i in range(SIZE):
        a = x[i]
        y[i] = a
    else:
        y[0] = a


def only_assigned_and_read_in_the_else(x: Array, y: Array):
    a = 7.0
    for i in range(SIZE):
        a = x[i]
    else:
        y[0] = a


PARALLEL = {
    read_in_the_else_of_the_loop: 0,
    only_assigned_and_read_in_the_else: 0,
    assigned_first: 2,
    assigned_in_each_branch_that_reads: 1,
    index_of_an_inner_loop: 1,
    several_at_once: 1,
    within_a_known_branch: 2,
    read_after_the_loop: 0,
    read_in_a_later_loop: 0,
    read_by_a_repetition: 0,
    assigned_in_one_branch: 0,
    assigned_in_a_loop: 0,
    index_that_is_read_after_its_loop: 0,
    assigned_from_itself: 0,
    assigned_in_part: 0,
    only_assigned_and_read_after_the_loop: 0,
    only_assigned_and_read_in_a_later_loop: 1,
    elements_only_assigned_and_read_after_the_loop: 0,
    two_constants: 0,
    zeros_of_both_signs: 0,
    a_constant_that_is_added_to: 0,
    one_constant: 1,
    only_assigned_and_not_read_after_the_loop: 1,
}


@pytest.mark.parametrize("function", PARALLEL, ids=lambda function: function.__name__)
def test_iterations_have_copies_of_what_they_assign_first(
    function: types.FunctionType,
) -> None:
    qd.init(arch=qd.cpu)
    x = np.random.default_rng(0).integers(0, 12, SIZE).astype(np.float32)
    expected, found = np.ones_like(x), np.ones_like(x)
    kernel = qd.kernel(function)
    kernel(x, found)
    function(x, expected)
    assert found.tolist() == expected.tolist()
    assert kernel.inspect(x, found).stages["frontend"].count("parallel_for") == PARALLEL[function]


def test_gradients_of_copies() -> None:
    qd.init(arch=qd.cpu)
    x = qd.field(qd.f32, SIZE, needs_grad=True)
    loss = qd.field(qd.f32, (), needs_grad=True)
    x.from_numpy(np.linspace(1, 2, SIZE, dtype=np.float32))

    @qd.kernel
    def sum_of_powers() -> None:
        a = 1.0
        for i in x:
            a = x[i]
            for _ in range(i % 4):
                a *= x[i]
            loss[None] += a

    with qd.ad.Tape(loss):
        sum_of_powers()
    power = np.arange(SIZE) % 4
    assert np.allclose(x.grad.to_numpy(), (power + 1) * x.to_numpy() ** power, rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "is_first"),
    [
        ("a = 1\nb = a", False),
        ("a: f32 = 1\nb = a", False),
        ("a: f32\nb = a", True),
        ("c = a = 1\nb = a", True),  # as if unknown
        ("a, c = 1, 2\nb = a", False),
        ("a, c[a] = 1, 2", True),
        ("a, c = c, a", True),
        ("a[0] = 1", True),
        ("a.x = 1", True),
        ("a += 1", True),
        ("f(a)", True),
        ("while a > 1:\n  a = 2", True),
        ("if a:\n  a = 2", True),
        ("for a in range(3):\n  b = a", False),
        ("for a in range(a):\n  b = 1", True),
        ("for i in range(3):\n  b = 1\nelse:\n  b = a", True),
        ("if c:\n  a = 1\nelse:\n  a = 2\nb = a", True),  # as if unknown
        ("b = lambda: a", True),
        ("with a:\n  pass", True),
        ("b = 2", False),
    ],
)
def test_what_is_read_first(text: str, is_first: bool) -> None:
    assert is_read_first("a", ast.parse(text).body) is is_first
