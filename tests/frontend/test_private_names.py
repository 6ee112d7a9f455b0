"""Names with two underscores in a class: Python gives them the name of the class."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import pytest

import octants as qd
from octants.frontend.syntax.private_names import mangle_private_names
from tests.devices import ARCH


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=getattr(qd, ARCH), log_level="error")
    yield
    qd.reset()


@qd.data_oriented
class _World:
    __count = 3

    def __init__(self) -> None:
        self.__step = 0.5
        self.__x = qd.field(qd.f32, 3)

    @qd.func
    def __scaled(self, __value):  # noqa: PYI063
        return __value * self.__count

    @qd.kernel
    def advance(self) -> qd.f32:
        __sum = 0.0
        for i in range(3):
            self.__x[i] += self.__scaled(__value=i * self.__step)
            __sum += self.__x[i]
        return __sum

    def set_step(self, step: float) -> None:
        self.__step = step

    def in_a_closure(self) -> float:
        @qd.kernel
        def inner() -> qd.f32:
            plus = lambda a: a + self.__step  # noqa: E731
            return plus(1.0)

        return inner()

    @staticmethod
    @qd.kernel
    def constant() -> qd.i32:
        return _World.__count


def test_private_members() -> None:
    world = _World()
    assert world.advance() == 4.5
    world.set_step(1.0)
    assert world.advance() == 13.5
    assert world.in_a_closure() == 2
    assert world.constant() == 3


def test_what_looks_private_outside_of_a_class() -> None:
    class Holder:
        _Other__dt = 1.0

    Holder.__dt = 2.0  # type: ignore[attr-defined]
    holder = Holder()

    @qd.kernel
    def both() -> qd.f32:
        return holder.__dt + 10 * holder._Other__dt  # type: ignore[attr-defined]

    assert both() == 12


def test_names_as_python_mangles_them() -> None:
    text = "class __A:\n def f(self, __b):\n  return self.__c + __b + self.__d__ + __b.c"
    scope: dict[str, Any] = {}
    exec(text, scope)
    body = ast.parse(text).body[0]
    assert isinstance(body, ast.ClassDef)
    mangle_private_names(body.body[0], scope["__A"].f.__code__)
    expected = "def f(self, _A__b): return self._A__c + _A__b + self.__d__ + _A__b.c"
    assert ast.dump(body.body[0]) == ast.dump(ast.parse(expected).body[0])
