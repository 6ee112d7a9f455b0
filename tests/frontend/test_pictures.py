"""What the frontend makes of some kernels, as text."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from octants.ir.printer import to_text
from octants.lang.atomics_and_random import random
from octants.lang.directives import grouped, loop_config, ndrange, static
from octants.types.matrix_values import Vector
from octants.types.scalars import f64
from tests.frontend.frontend_programs import Field, compile_kernel, func
from tests.golden_files import check_golden


def scale(x, a):
    for i in x:
        x[i] *= a


def total(x, n):
    s = 0.0
    for i in range(n):
        s += x[i]
    return s


def first_above(x, limit):
    k = 0
    while x[k] < limit and k < 100:
        k += 1
        if x[k] < 0.0:
            break
    return k


def branches(n):
    if n > 3:
        a = n * 2
    elif n < 0:
        a = -n
    else:
        return -1
    return a


@func
def newton(x):
    guess = x
    for _ in range(10):
        better = 0.5 * (guess + x / guess)
        if better == guess:
            return better
        guess = better
    return guess


def early_return(x):
    for i in x:
        x[i] = newton(x[i])


def strided(x, n):
    loop_config(serialize=True)
    for i in range(n, 0, -2):
        x[i] = i


def product(x, n, m):
    for i, j in ndrange(n, (1, m)):
        x[i, j] = i - j


def stencil(x, y):
    for I in grouped(x):
        if I[0] > 0:
            for d in static(range(2)):
                y[I] += x[I[0] - 1, I[1]] * (d + 1)


def vector(x, k):
    v = Vector([x[0], x[1], 1.0])
    v[k] += 2.0
    x[2] = v.dot(v.zyx)


def draws(x, n):
    for i in range(n):
        for _ in range(i):
            if x[i] > random():
                x[i] += random()


PICTURES = {
    "scale": (scale, np.zeros(2), 1.5),
    "total": (total, np.zeros(2), 2),
    "first_above": (first_above, np.zeros(2), 1.5),
    "branches": (branches, 2),
    "early_return": (early_return, np.zeros(2)),
    "strided": (strided, np.zeros(2), 3),
    "product": (product, np.zeros((2, 2)), 2, 2),
    "stencil": (stencil, Field(f64, (4, 3)), Field(f64, (4, 3))),
    "vector": (vector, np.zeros(3), 1),
    "draws": (draws, np.zeros(3), 2),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures(name: str) -> None:
    function, *arguments = PICTURES[name]
    text = to_text(compile_kernel(function, *arguments).module)
    check_golden(f"frontend/{name}", text.rstrip("\n"))


def test_every_operation_has_a_place_in_this_file() -> None:
    for function, *arguments in PICTURES.values():
        built = compile_kernel(function, *arguments)
        for op in built.module.walk():
            if op.NAME in ("yield", "constant"):
                continue
            assert op.location is not None, op
            assert op.location.file == __file__, op


def test_places_are_those_of_the_innermost_line() -> None:
    built = compile_kernel(early_return, np.zeros(2))
    (division,) = [op for op in built.module.walk() if getattr(op, "fn", "") == "div"]
    assert division.location is not None
    lines = Path(__file__).read_text().splitlines()
    assert re.search(r"better = 0.5 \* \(guess", lines[division.location.line - 1])
    assert division.location.function == "newton"
    place = division.location
    assert lines[place.line - 1][place.column : place.end_column] == "x / guess"
