"""Statements that change no array, though they seem to, give a warning."""

from __future__ import annotations

from typing import Any

import pytest

import octants as qd
from octants.diagnostics.render import render
from octants.frontend import build
from octants.types.scalars import f32
from octants.types.specialisation_signature import NdarrayType, ScalarType
from tests.frontend.frontend_programs import define
from tests.golden_files import check_golden


def warnings_of(*lines: str) -> list[Any]:
    """The warnings about a kernel of an array `x`, a number `a` and fields as globals."""
    qd.init(arch=qd.python)
    fields = {
        "loss": qd.field(qd.f32, shape=()),
        "grid": qd.Vector.field(2, qd.f32, shape=(3, 4)),
        "bodies": qd.Struct.field({"mass": qd.f32}, shape=3),
    }
    text = "def kernel(x, a):\n" + "".join(f"    {line}\n" for line in lines)
    function = define(text, file="example.py", qd=qd, **fields)
    return list(build(function, [NdarrayType(f32, 1), ScalarType(f32)]).warnings)


HIDING = [
    ("loss = 0.0",),
    ("loss = a", "loss += a"),
    ("x = 1",),
    ("grid = qd.Vector([a, 2.0])",),
    ("bodies = a",),
    ("b = loss = a", "x[0] = b"),
    ("for i in range(3):", "    loss = a"),
]
FINE = [
    ("loss = a", "x[0] = loss"),
    ("loss = x[0] * 2", "if a > 1:", "    loss = a", "x[1] = loss"),
    ("loss[None] = a", "grid[0, 1] = qd.Vector([a, a])", "x[0] = 1", "bodies[0].mass = a"),
    ("loss = grid",),
    ("y = a",),
    ("loss: qd.f32 = a",),
    ("x = x[0]", "y = x + 1"),
    (
        "s = 0.0",
        "for i in range(3):",
        "    s += x[i]",
        "s = 1.0",
        "for i in range(3):",
        "    s += 1.0",
    ),
]


@pytest.mark.parametrize("lines", HIDING)
def test_a_variable_that_hides_an_array_gives_a_warning(lines: tuple[str, ...]) -> None:
    (warning,) = warnings_of(*lines)
    assert warning.code == "OCT164"


@pytest.mark.parametrize("lines", FINE)
def test_variables_that_are_read_and_elements_give_none(lines: tuple[str, ...]) -> None:
    assert warnings_of(*lines) == []


@pytest.mark.parametrize(("name", "line"), [("scalar", "loss = 0.0"), ("grid", "grid = a")])
def test_the_warning_says_how_to_write_to_the_array(name: str, line: str) -> None:
    (warning,) = warnings_of(line)
    check_golden(f"errors/OCT164_{name}", render(warning))


def test_a_comparison_that_is_a_statement_gives_a_warning() -> None:
    (warning,) = warnings_of("for i in range(3):", "    x[i] == a")
    check_golden("errors/OCT168_statement", render(warning))
