"""Functions of one text share its code, and nothing else."""

from __future__ import annotations

from octants.functions_from_text import define


def test_functions_of_one_text_have_their_own_names() -> None:
    text = "def add(x):\n    return x + step"
    one, ten = define("add", text, {"step": 1}), define("add", text, {"step": 10})
    assert one.__code__ is ten.__code__
    assert (one(1), ten(1)) == (2, 11)
