"""Indices that surely leave a field in some iteration give a warning; all others give none."""

from __future__ import annotations

import pytest

import octants as qd
from octants.diagnostics.render import render
from octants.frontend import build
from tests.frontend.frontend_programs import define
from tests.golden_files import check_golden


def warned(body: str) -> list[str]:
    """What the warnings about a body say, each as ``array axis excess``."""
    qd.init(arch=qd.cpu)
    names = {
        "x": qd.field(qd.f32, (10, 4, 3), name="x"),
        "y": qd.field(qd.f32, 10, name="y"),
        "v": qd.Vector.field(3, qd.f32, 5, name="v"),
        "o": qd.field(qd.f32, 8, offset=-2, name="o"),
        "n": qd.field(qd.i32, (), name="n"),
    }
    text = "def kernel():\n" + "".join(f"    {line}\n" for line in body.splitlines())
    built = build(define(text, qd=qd, **names), [])
    titles = [each.title for each in built.warnings]
    return [title.removeprefix("an index for ").partition(" of its")[0] for title in titles]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("for i in range(11):\n    y[i] = 1.0", "axis 0 of `y` goes 1 beyond the last"),
        ("for i in y:\n    y[i] = y[i + 1]", "axis 0 of `y` goes 1 beyond the last"),
        ("for i in y:\n    y[i] = y[2 * i]", "axis 0 of `y` goes 9 beyond the last"),
        ("for i in y:\n    y[9 - i - 2] += 1.0", "axis 0 of `y` goes 2 before the first"),
        ("for i, j, k in x:\n    x[i, j + 1, k] = 1.0", "axis 1 of `x` goes 1 beyond the last"),
        ("for I in qd.grouped(x):\n    x[I - 1] = 1.0", "axis 0 of `x` goes 1 before the first"),
        ("for i in o:\n    o[i + 3] = 1.0", "axis 0 of `o` goes 3 beyond the last"),
        (
            "for i in v:\n    for d in range(4):\n        v[i][d] = 1.0",
            "component axis 0 of `v` goes 1 beyond the last",
        ),
        (
            "for i in y:\n    for d in range(-1, 2):\n        y[i] += y[i + d]",
            "axis 0 of `y` goes 1 beyond the last",
        ),
        (
            "for i in y:\n    y[i] = qd.select(i < 9, y[i + 1], 0.0)",
            "axis 0 of `y` goes 1 beyond the last",
        ),
    ],
)
def test_a_warning(body: str, expected: str) -> None:
    assert warned(body) == [expected]


@pytest.mark.parametrize(
    "body",
    [
        "for i in y:\n    y[i] = y[9 - i]",
        "for i, j, k in x:\n    x[i, j, k] = x[9 - i, 3 - j, 2 - k]",
        "for i, j in qd.ndrange((1, 11), (-1, 3)):\n    x[i - 1, j + 1, 0] = 1.0",
        "for i in o:\n    o[i] = 1.0",
        "for i in y:\n    if i < 9:\n        y[i] = y[i + 1]",
        "for i in y:\n    y[i] = y[i + 1] if i < 9 else 0.0",
        "for i in y:\n    if i == 0:\n        continue\n    y[i] = y[i - 1]",
        "for i in y:\n    for k in range(i):\n        y[k + 1] = 1.0",
        "for i in y:\n    for k in range(n[None]):\n        y[i + k] = 1.0",
        "for i in y:\n    y[i] = y[(i + 1) % 10] + y[qd.min(i + 1, 9)]",
        "for i in y:\n    y[i] = y[i * 65536 * 65536 + 3]",
        "for i in y:\n    y[i] = y[i * i - i * i]",
        "for i, j in qd.ndrange(5, 2):\n    y[2 * i + j] = 1.0",
        "for i in range(0):\n    y[i + 20] = 1.0",
        "if n[None]:\n    for i in y:\n        if i > 8:\n            break\n        y[i + 1] = 1",
        "i = 0\nwhile i < 12:\n    y[i] = 1.0\n    i += 1",
    ],
)
def test_no_warning(body: str) -> None:
    assert warned(body) == []


def test_the_text() -> None:
    qd.init(arch=qd.cpu)
    y = qd.field(qd.f32, 10, name="y")
    text = "def kernel():\n    for i in y:\n        y[i] = y[i + 1] - y[i]\n"
    (warning,) = build(define(text, y=y), []).warnings
    text = render(warning).replace(warning.labels[0].span.file, "program.py")
    check_golden("frontend/OCT171_index_leaves_array", text)
