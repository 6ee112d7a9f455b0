"""Assignments that cut off a part of a number: a warning for each line; literals are errors."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

import octants as qd
from octants.diagnostics.exceptions import OctantsTypeError, OctantsWarning
from octants.diagnostics.render import render
from octants.frontend import build
from octants.types.scalars import f32, f64, i32, i64, u8, u32
from octants.types.specialisation_signature import NdarrayType, ScalarType
from tests.frontend.frontend_programs import define
from tests.golden_files import check_golden

TYPES = [NdarrayType(i32, 1), NdarrayType(f32, 1), NdarrayType(u8, 1)]
SCALARS = [ScalarType(each) for each in (f32, f64, i64, u32)]
HEAD = "def kernel(n, x, small, r, d, l, u):\n"


@qd.func
def add(a: qd.template(), x: Any) -> None:
    a += x


@qd.func
def narrow(x: qd.i32) -> qd.i32:
    return x


def lines_warned(body: str) -> list[int]:
    """The lines of the body, from 1 on, that warnings are about."""
    text = HEAD + "".join(f"    {line}\n" for line in body.splitlines())
    function = define(text, qd=qd, add=add, narrow=narrow)
    built = build(function, [*TYPES, *SCALARS])
    return [each.labels[0].span.line - 1 for each in built.warnings]


LOSSES = [
    "a = 1\na = 2.7",
    "a = 1\na += 0.5",
    "a = 1\na *= r",
    "a = 1\nif r > 0:\n    a = r",
    "a = 1\na = l",
    "a: qd.u32 = 1\na = l",
    "v = qd.Vector([1, 2])\nv[0] = r",
    "v = qd.Vector([1, 2])\nv += r",
    "v = qd.Vector([1, 2])\nv = qd.Vector([1.5, 2.0])",
    "s = qd.Struct(a=1, b=2.0)\ns.a = r",
    "n[0] = 1\nn[0] = r",
    "n[0] += 1\nn[0] += r",
    "small[0] = 3\nsmall[0] = 0.5",
    "n.fill(1)\nn.fill(r)",
    "for i in range(3):\n    n[i] = r * i",
    "a = 1\na, b = r, r",
    "a = 1.0\na = d",
    "a = 1.0\na += d",
    "v = qd.Vector([1.0, 2.0])\nv[1] = d",
    "v = qd.Vector([1.0, 2.0])\nv += d",
]
FINE = [
    "a = 1\na = 2.0",
    "a = 1\na = qd.cast(r, qd.i32)\na = int(r)",
    "a: qd.i32 = r\nb: int = 2.5",
    "a = 1.0\na = 2\na = qd.f32(d)\nx[0] = d\nx[0] += d\nx[0] += 0.1",
    "n[0] = 1\nn[0] += u\nsmall[0] = n[1]\nsmall[1] = 255\nsmall[2] = -1",
    "a = r > 0\na = 1\na = r",
    "v = qd.Vector([1.0, 2.0])\nv[0] = 1\nv += 2",
    "for i in range(l):\n    n[i] = 2",
    "a = 0\na = 2147483647\na = -2147483648",
    "a: qd.u32 = 0\na = -1\na = 0xFFFFFFFF",
    "a: qd.u32 = -1\na = 0xFFFFFFFF",
    "v = qd.math.uvec2(-1, 0xFFFFFFFF)\nv = qd.math.uvec2(u)\nx.fill(d)\na = narrow(l)",
]


@pytest.mark.parametrize("body", LOSSES)
def test_a_warning(body: str) -> None:
    line = next(k for k, text in enumerate(body.splitlines(), 1) if k > 1 and "if" not in text)
    assert lines_warned(body) == [line]


@pytest.mark.parametrize("body", FINE)
def test_no_warning(body: str) -> None:
    assert lines_warned(body) == []


@pytest.mark.parametrize(
    "body",
    [
        "a = 0\na = 0x80000000",
        "n[0] = -2147483649",
        "small[0] = 256",
        "a = 1\na = 1e10",
        "a: qd.i32 = 0x80000000",
        "a: qd.u8 = 300",
        "n.fill(0x80000000)",
        "v = qd.math.ivec2(0, 0x80000000)",
        "v = qd.types.matrix(2, 2, qd.u8)(300)",
        "v = qd.Vector([0x80000000, 1], dt=qd.i32)",
        "s = qd.types.struct(a=qd.u8, b=qd.f32)(300, 1)",
        "s = qd.types.struct(v=qd.math.ivec2)(v=[1, 0x80000000])",
        "a = narrow(0x80000000)",
    ],
)
def test_literals_that_do_not_fit(body: str) -> None:
    with pytest.raises(OctantsTypeError, match="does not fit in"):
        lines_warned(body)


def test_a_literal_that_is_returned_must_fit() -> None:
    qd.init(arch=qd.cpu)

    @qd.func
    def converted() -> qd.i32:
        return 0x80000000

    @qd.kernel
    def returned() -> qd.i32:
        return 0x80000000

    @qd.kernel
    def called() -> qd.i32:
        return converted()

    @qd.kernel
    def pattern() -> qd.u32:
        return -1

    for kernel in (returned, called):
        with pytest.raises(OctantsTypeError, match="does not fit in i32"):
            kernel()
    assert pattern() == 0xFFFFFFFF


def test_each_line_has_one_warning() -> None:
    assert lines_warned("a = 0\nfor k in qd.static(range(3)):\n    a += 0.5\na += 0.25") == [3, 4]


def test_a_func_warns_at_its_own_line() -> None:
    text = f"{HEAD}    a = 1\n    add(a, r)\n    add(a, 0.5)\n"
    built = build(define(text, add=add), [*TYPES, *SCALARS])
    (warning,) = built.warnings
    assert warning.labels[0].span.file == __file__
    text = render(warning).replace(__file__, "test.py")
    check_golden("frontend/OCT158_augmented", text)


# -- launches --------------------------------------------------------------------------------------


def half() -> Any:
    @qd.kernel
    def kernel() -> qd.f32:
        total = 0
        for _ in range(3):
            total += 0.5
        return total

    return kernel


def test_a_launch_warns_once_and_from_the_cache_too(tmp_path: Path) -> None:
    for _ in range(2):
        qd.init(
            arch=qd.cpu,
            log_level="error",
            offline_cache=True,
            offline_cache_file_path=str(tmp_path),
        )
        kernel = half()
        with pytest.warns(OctantsWarning, match="OCT158: an f32 is assigned to an i32") as caught:
            assert kernel() == 0
            assert kernel() == 0
        assert len(caught) == 1
        assert Path(caught[0].filename) == Path(__file__)
        assert "total += 0.5" in str(caught[0].message)
        qd.reset()


def test_the_usual_filter_shows_a_line_once() -> None:
    qd.init(arch=qd.cpu, log_level="error")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(2):
            half()()
    assert len(caught) == 1
    qd.reset()


def test_a_struct_with_a_vector_is_stored_without_a_warning(
    recwarn: pytest.WarningsRecorder,
) -> None:
    qd.init(arch=qd.cpu, log_level="error")
    pair = qd.types.struct(a=qd.i32, b=qd.math.vec2, c=qd.i32)
    x = pair.field(shape=3)

    @qd.kernel
    def kernel():
        for i in x:
            x[i] = pair(i, qd.math.vec2(i + 0.5, -i), 2 * i)

    kernel()
    assert x.b.to_numpy()[2].tolist() == [2.5, -2.0]
    assert x.c.to_numpy().tolist() == [0, 2, 4]
    assert not recwarn.list
    qd.reset()
