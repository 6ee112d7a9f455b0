"""Tests of `analysis.floats.float_ranges`: no random angle leaves the range that it has."""

from __future__ import annotations

import itertools
import math
from random import Random
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.analysis.floats import float_ranges
from octants.ir import ops
from octants.passes.arithmetic import bound_angles
from tests.devices import on_cpu
from tests.seeds import counts

SIZES = (-1001, -3, -1, 0, 1, 2, 3, 7, 1000)


def a_number(random: Random) -> str:
    values = (0.0, 0.3, 0.5, 0.9, 1.0, 2.0, 3.0, 1000.0, 1e6, 2.0**36)
    return repr(random.choice((-1, 1)) * random.choice(values))


def a_position(random: Random, depth: int = 2) -> str:
    """A float that is linear in indices and sizes, mostly."""
    if depth == 0 or random.random() < 0.3:
        whole = ("i", "j", "n", "m", "i + 1", "n - i", "n - 1", "n * m", "m * j + i", "max(n, 0)")
        return f"float({random.choice(whole)})"
    one, other = a_position(random, depth - 1), a_position(random, depth - 1)
    sums = (f"({one} + {other})", f"({one} - {other})", f"({one} + {a_number(random)})")
    return random.choice((*sums, f"({a_number(random)} * {one})", f"(-{one})"))


def a_float(random: Random, depth: int = 2) -> str:
    if depth == 0:
        quotient = f"{a_position(random)} / {a_position(random)}"
        remainder = f"(x % {a_number(random)})"
        return random.choice((f"({quotient})",) * 2 + (remainder, "qd.random()", "qd.sin(x)", "x"))
    one, other = a_float(random, depth - 1), a_float(random, depth - 1)
    return random.choice(
        (
            f"({one} + {other})",
            f"({one} - {other})",
            f"({one} * {other})",
            f"({one} * {a_number(random)} + {a_number(random)})",
            f"({one} - qd.floor({one}))",
            f"min(max({one}, {a_number(random)}), {a_number(random)})",
            f"({one} / {a_number(random)})" if depth == 1 else one,
            f"qd.atan2({one}, {other})",
            f"({one} % {a_number(random)})",
            one,
        )
    )


def a_kernel(random: Random) -> str:
    """A kernel that stores an angle for each pair of indices, and its tangent."""
    return (
        "@qd.kernel\n"
        "def run(n: int, m: int, x: float, y: qd.types.ndarray(qd.f32, 2), "
        "z: qd.types.ndarray(qd.f32, 2)):\n"
        "    for j in range(m):\n"
        "        for i in range(n):\n"
        f"            angle = {a_float(random)}\n"
        "            y[j, i % 64], z[j, i % 64] = angle, qd.tan(angle)\n"
    )


@on_cpu
@pytest.mark.parametrize("count", counts(60, 3000))
def test_angles_stay_in_their_ranges(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    qd.init(arch=qd.cpu, offline_cache=False, log_level="error", opt_level=0)
    ranges, bounds = list[float_ranges.Range](), dict[str, float]()

    def magnitude(known: float_ranges.Range) -> float:
        ranges.append(known)
        return float_ranges.magnitude(known)

    def limit(op: ops.Unary, _: bool) -> float:
        bounds[op.fn] = float_ranges.magnitude(ranges[-1])
        return 0.0

    monkeypatch.setattr(bound_angles, "magnitude", magnitude)
    monkeypatch.setattr(bound_angles, "_limit", limit)
    random, bounded = Random(5), 0
    for _ in range(count):
        text = a_kernel(random)
        scope: dict[str, Any] = {"qd": qd}
        exec(text, scope)  # noqa: S102
        bounds.clear()
        for n, m, x in itertools.product(SIZES, (1, 3, 8), (0.7, 2.9e20, 3e38)):
            y, z = (np.zeros((8, 64), np.float32) for _ in range(2))
            scope["run"](n, m, x, y, z)
            most = np.where(np.isfinite(y), abs(y), 0).max()
            assert most <= bounds.get("tan", math.inf), f"{text}\n{n=} {m=} {x=}"
        bounded += bounds.get("tan", math.inf) < math.inf
    assert bounded > count / 4
