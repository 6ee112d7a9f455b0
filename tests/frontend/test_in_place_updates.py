"""``x op= constant`` where the constant does not fit the type of ``x``: the same for all places."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.diagnostics.exceptions import OctantsTypeError, OctantsWarning
from tests.frontend.frontend_programs import define

WRAPPING = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "//": operator.floordiv,
    "%": operator.mod,
}
ATOMIC = {"+": "add", "-": "sub", "*": "mul", "&": "and", "|": "or", "^": "xor"}


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


def updated(dtype: Any, start: int, update: Callable[[str], str]) -> set[int]:
    """What an update leaves in places of all kinds; ``update`` gives its statement."""
    x = qd.field(dtype, shape=8)
    v = qd.Vector.field(2, dtype, shape=1)
    s = qd.types.struct(m=dtype).field(shape=1)
    pair = qd.types.struct(m=dtype)
    for array in (x, v):
        array.fill(start)
    s[0].m = start
    first, component, member = update("x[0]"), update("v[0][1]"), update("s[0].m")
    text = f"""
def kernel(start: T):
    {first}
    {component}
    {member}
    a = start
    {update("a")}
    x[3] = a
    b = qd.Vector([start, start], T)
    {update("b[1]")}
    x[4] = b[1]
    c = pair(m=start)
    {update("c.m")}
    x[5] = c.m
    d = start
    for i in range(1):
        {update("x[1]")}
        {update("d")}
    x[6] = d
"""
    given = {"T": dtype, "x": x, "v": v, "s": s, "pair": pair, "qd": qd}
    qd.kernel(define(text, "kernel", **given))(start)
    values = x.to_numpy()[[0, 1, 3, 4, 5, 6]].tolist()
    return {*values, int(v[0][1]), int(s[0].m)}


@pytest.mark.parametrize(("dtype", "start"), [(qd.i8, -7), (qd.u8, 201)])
@pytest.mark.parametrize("symbol", WRAPPING)
def test_integers_wrap_around(symbol: str, dtype: Any, start: int) -> None:
    expected = np.array(WRAPPING[symbol](start, 300)).astype(dtype.numpy)
    forms = [lambda place: f"{place} {symbol}= 300"]
    if symbol in ATOMIC:
        forms.append(lambda place: f"qd.atomic_{ATOMIC[symbol]}({place}, 300)")
    for form in forms:
        assert updated(dtype, start, form) == {int(expected)}


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("{} += 1.5", -6),
        ("{} -= 1.5", -8),
        ("{} *= 1.5", -10),
        ("{} /= 2", -3),
        ("qd.atomic_add({}, 1.5)", -6),
        ("qd.atomic_max({}, 1.5)", 1),
    ],
)
def test_a_float_in_an_integer_loses_its_fraction(form: str, expected: int) -> None:
    with pytest.warns(OctantsWarning, match="OCT158: an f32 is assigned to an i32") as warned:
        assert updated(qd.i32, -7, form.format) == {expected}
    assert len(warned) == 8


@pytest.mark.parametrize(
    "form",
    [
        "{} = 300",
        "{} += 1e3",
        "qd.atomic_add({}, 1e3)",
        "qd.atomic_min({}, 300)",
        "qd.atomic_max({}, -300)",
        "qd.atomic_exchange({}, 300)",
    ],
)
@pytest.mark.parametrize("place", ["x[0]", "v[0][1]", "s[0].m", "a", "b[1]", "c.m"])
def test_what_does_not_wrap_must_fit(form: str, place: str) -> None:
    chosen: Callable[[str], str] = lambda each: form.format(each) if each == place else "pass"  # noqa: E731
    with pytest.raises(OctantsTypeError, match="OCT205: the integer -?[0-9]+ does not fit in i8"):
        updated(qd.i8, 7, chosen)


@pytest.mark.parametrize(
    ("symbol", "expected"),
    [("+", 2.0**24), ("-", 2.0**24 - 1.0), ("*", 2.0**24), ("**", 2.0**24 + 2.0)],
)
def test_additions_of_wider_floats_are_in_the_narrower_type(symbol: str, expected: float) -> None:
    """1.00000001 is 1 in f32, and 2^24 + 1 is halfway between two numbers."""
    addend = "qd.f64(1.0) + qd.f64(1.0) / qd.f64(1e8)"
    assert updated(qd.f32, 1 << 24, lambda place: f"{place} {symbol}= {addend}") == {expected}


def test_fitting_constants_give_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert updated(qd.i8, 7, "{} += 100".format) == {107}
        assert updated(qd.u8, 7, "{} ^= -1".format) == {248}
        assert updated(qd.i8, 7, "{} += 2.0".format) == {9}
