"""The oracle runs work items that share a block up to each barrier."""

from __future__ import annotations

import numpy as np
import pytest

from octants.fuzz.oracle.state import IllDefined, Race
from tests.fuzz.helpers import outcome

HEAD = """\
x = qd.field(FP, shape=5, needs_grad=True)
y = qd.field(FP, shape=5, needs_grad=True)

@qd.kernel
def k():
    qd.loop_config(block_dim=3)
    for i in x:
        t = qd.simt.block.thread_idx()
        n = qd.simt.block.size()
"""
X = [1.0, 2.0, 4.0, 8.0, 16.0]


def found(*lines: str) -> tuple[list[float], list[float]]:
    """What the lines leave in y, and the gradient of x."""
    source = HEAD + "".join(f"        {line}\n" for line in lines)
    inputs = {"x": X, "y": [0.0] * 5}
    result = outcome(source, inputs, weights={"x": [0.0] * 5})
    return result.primal["y"].value.tolist(), result.gradient["x"].value.tolist()


def test_numbers_of_work_items() -> None:
    source = "y[i] = 100 * t + 10 * n + qd.simt.block.global_thread_idx()"
    assert found(source)[0] == [30.0, 131.0, 232.0, 23.0, 124.0]


def test_shared_arrays_and_barriers() -> None:
    primal, gradient = found(
        "p = qd.simt.block.SharedArray(3, FP)",
        "p[t] = x[i]",
        "qd.simt.block.sync()",
        "y[i] = p[(t + 1) % n] * (i + 1)",
    )
    assert primal == [2.0, 8.0, 3.0, 64.0, 40.0]
    assert gradient == [3.0, 1.0, 2.0, 5.0, 4.0]


def test_barriers_in_loops() -> None:
    primal, gradient = found(
        "p = qd.simt.block.SharedArray((3, 2), FP)",
        "s = 0.0",
        "for j in range(2):",
        "    p[t, j] = x[i] * (j + 1)",
        "    qd.simt.block.sync()",
        "    s += p[0, j]",
        "y[i] = s",
    )
    assert primal == [3.0, 3.0, 3.0, 24.0, 24.0]
    assert gradient == [9.0, 0.0, 0.0, 6.0, 0.0]


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("block.reduce_add(x[i], 3, FP)", [7.0, 7.0, 7.0, 24.0, 24.0]),
        ("block.reduce_max(x[i], 3, FP)", [4.0, 4.0, 4.0, 16.0, 16.0]),
        ("block.inclusive_add(x[i], 3, FP)", [1.0, 3.0, 7.0, 8.0, 24.0]),
        ("block.inclusive_min(-x[i], 3, FP)", [-1.0, -2.0, -4.0, -8.0, -16.0]),
        ("block.exclusive_add(x[i], 3, FP)", [0.0, 1.0, 3.0, 0.0, 8.0]),
        ("block.sync_count_nonzero(x[i] > 3.0)", [1.0, 1.0, 1.0, 2.0, 2.0]),
        ("block.sync_all_nonzero(x[i] > 3.0)", [0.0, 0.0, 0.0, 1.0, 1.0]),
        ("block.sync_any_nonzero(x[i] > 8.0)", [0.0, 0.0, 0.0, 1.0, 1.0]),
        ("subgroup.reduce_add_tiled(x[i], 1)", [3.0, 3.0, 4.0, 24.0, 24.0]),
        ("subgroup.inclusive_add_tiled(x[i], 1)", [1.0, 3.0, 4.0, 8.0, 24.0]),
        ("subgroup.shuffle_xor(x[i], 1)", [2.0, 1.0, 4.0, 16.0, 8.0]),
    ],
)
def test_what_work_items_do_together(call: str, wanted: list[float]) -> None:
    assert found(f"y[i] = qd.simt.{call}")[0] == wanted


def test_derivatives_of_scans() -> None:
    _, gradient = found("y[i] = qd.simt.block.exclusive_add(x[i] * x[i], 3, FP)")
    assert gradient == [4.0, 4.0, 0.0, 16.0, 0.0]
    _, gradient = found("y[i] = qd.simt.block.reduce_max(x[i], 3, FP)")
    assert gradient == [0.0, 0.0, 3.0, 0.0, 2.0]


def test_sums_in_shared_arrays() -> None:
    primal, gradient = found(
        "p = qd.simt.block.SharedArray(1, FP)",
        "if t == 0:",
        "    p[0] = 0.0",
        "qd.simt.block.sync()",
        "p[0] += x[i]",
        "qd.simt.block.sync()",
        "y[i] = p[0]",
    )
    assert primal == [7.0, 7.0, 7.0, 24.0, 24.0]
    assert np.allclose(gradient, [3.0, 3.0, 3.0, 2.0, 2.0])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["y[i] = p[t]"], "undefined"),
        (["p[0] += x[i]"], "undefined"),
        (["p[t] = x[i]", "y[i] = p[(t + 1) % n]"], "race|undefined"),
        (["p[0] = x[i]"], "race"),
        (["if t == 0:", "    qd.simt.block.sync()"], "not all"),
    ],
)
def test_programs_that_have_no_meaning(lines: list[str], message: str) -> None:
    with pytest.raises((IllDefined, Race), match=message):
        found("p = qd.simt.block.SharedArray(3, FP)", *lines)
