"""What statements mention, and that each node of a source is looked at once."""

from __future__ import annotations

import ast

import pytest

from octants.frontend.syntax import names_in_source as module
from octants.frontend.syntax.names_in_source import mentions

SOURCE = """\
a = b
for i in x:
    v[0] += i
    w.y = c
    k += 1
    atomic_max(m, d)
    if k > 3:
        r *= 2
        q = [z for z in y]
"""


def body(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def test_names_are_told_apart() -> None:
    found = mentions(body(SOURCE))
    assert list(found.assigned) == ["a", "i", "k", "r", "q"]
    assert list(found.changed) == [("v",), ("w", "y"), ("m",)]
    assert found.read == {"b", "x", "i", "c", "atomic_max", "d", "k", "r", "z", "y"}
    assert not found.returns


def test_parts_that_change_end_at_the_first_subscript() -> None:
    found = mentions(body("a.b.c[0].d[1] += 1\na[0].b = 2\natomic_add(a.b.e, 1)\n"))
    assert list(found.changed) == [("a", "b", "c"), ("a",), ("a", "b", "e")]


def test_uses_count_reads_and_updates() -> None:
    uses = mentions(body("k += k\nk = 1\ndef f():\n    k += 1\n    print(k)\n")).uses
    assert uses["k"] == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for i in x:\n    if i:\n        return 1\n", True),
        ("def f():\n    return 1\n", False),
        ("f = lambda: 1\n", False),
    ],
)
def test_returns_are_those_of_the_function(text: str, expected: bool) -> None:
    assert mentions(body(text)).returns is expected


def test_nodes_are_visited_once_however_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    visits = []
    visit = module._Reader.visit

    def counted(self: module._Reader, node: ast.AST, *, inner: bool) -> None:
        visits.append(node)
        visit(self, node, inner=inner)

    monkeypatch.setattr(module._Reader, "visit", counted)
    depth = 30
    nested = "".join(f"{'  ' * k}for i{k} in x:\n{'  ' * k}  v = v * {k}.5\n" for k in range(depth))
    (outermost,) = body(nested)
    statements: list[ast.stmt] = [outermost]
    asked = 0
    while statements:
        mentions(statements)
        asked += 1
        statements = next((s.body for s in statements if isinstance(s, ast.For)), [])
    assert asked == depth + 1
    assert len(visits) == len(set(visits))
    assert len(visits) == sum(
        not isinstance(each, module._NAMELESS) for each in ast.walk(outermost)
    )
