"""Options of `loop_config` that do nothing where they stand give a warning."""

from __future__ import annotations

import warnings

import pytest

import octants as qd
from octants.diagnostics.render import render
from tests.frontend.test_hidden_arrays import warnings_of
from tests.golden_files import check_golden

LATE = [
    ("for i in range(3):", "    qd.loop_config(serialize=True)", "    x[i] = a"),
    ("for i in range(3):", "    qd.serialize()", "    for j in range(3):", "        x[i] += j"),
    ("for i in x:", "    if a > 1:", "        qd.loop_config(block_dim=32)", "    x[i] = a"),
    ("for i in x:", "    for j in range(2):", "        qd.loop_config(name='inner')"),
]
FINE = [
    ("qd.loop_config(serialize=True)", "for i in range(3):", "    x[i] = a"),
    ("for i in range(3):", "    qd.loop_config(serialize=False)", "    x[i] = a"),
    (
        "qd.loop_config(serialize=True)",
        "for i in range(3):",
        "    qd.loop_config(serialize=True)",
        "    for j in range(3):",
        "        x[j] += a",
    ),
]


@pytest.mark.parametrize("lines", LATE)
def test_an_option_in_a_parallel_loop_gives_a_warning(lines: tuple[str, ...]) -> None:
    (warning,) = warnings_of(*lines)
    assert warning.code == "OCT167"


@pytest.mark.parametrize("lines", FINE)
def test_other_options_give_none(lines: tuple[str, ...]) -> None:
    assert warnings_of(*lines) == []


def test_functions_may_have_options() -> None:
    """They may be called inside a parallel loop, and outside."""
    qd.init(arch=qd.cpu)
    x = qd.field(qd.i32, shape=3)

    @qd.func
    def count() -> None:
        qd.loop_config(serialize=True)
        for j in range(3):
            x[j] += 1

    @qd.kernel
    def kernel() -> None:
        count()
        for _ in range(3):
            count()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel()
    assert x.to_numpy().tolist() == [4, 4, 4]


def test_the_warning_says_where_the_option_belongs() -> None:
    (warning,) = warnings_of(*LATE[0])
    check_golden("errors/OCT167_LateLoopConfig", render(warning))
