"""Which calls of Python at compile time keep a kernel in the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import octants as qd
from octants.frontend import build
from octants.frontend.compile_time.cacheable_calls import is_repeatable
from octants.types.scalars import f32
from octants.types.specialisation_signature import NdarrayType
from tests.frontend.frontend_programs import define


class Text(str):
    """A string whose methods do what they like."""

    __slots__ = ()

    def upper(self) -> str:
        return str(id(self))


KEPT: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    ((16).bit_length, ()),
    (True.conjugate, ()),
    ((0.5).is_integer, ()),
    ((0.5).as_integer_ratio, ()),
    ("fast math".startswith, ("fast",)),
    ("a,b".split, (",",)),
    ("{:.2f}".format, (0.5,)),
    (b"ab".hex, ()),
    (range(3).index, (2,)),
    ([1, 2].count, (2,)),
    ({"a": 1}.get, ("a",)),
]
REFUSED: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    ([1].append, (2,)),
    ({}.setdefault, ("a", 1)),
    ("{}".format, (object(),)),
    (",".join, (iter("ab"),)),
    (Text("a").upper, ()),
    (open, ("a",)),
    (id, (1,)),
]


@pytest.mark.parametrize(("function", "args"), KEPT)
def test_calls_that_depend_on_what_they_are_given(
    function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    assert is_repeatable(function, args)


@pytest.mark.parametrize(("function", "args"), REFUSED)
def test_calls_that_may_depend_on_more(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    assert not is_repeatable(function, args)


@pytest.mark.parametrize(
    ("expression", "is_kept"),
    [
        ("SIZE.bit_length() - 1", True),
        ("MODE.startswith('fast')", True),
        ("len(MODE.split('_'))", True),
        ("ITEMS.pop()", False),
    ],
)
def test_a_kernel_that_calls_methods_at_compile_time(expression: str, is_kept: bool) -> None:
    text = f"def kernel(x):\n    x[0] = qd.static({expression})\n"
    function = define(text, qd=qd, SIZE=16, MODE="fast_math", ITEMS=[1, 2])
    assert build(function, [NdarrayType(f32, 1)]).is_repeatable is is_kept
