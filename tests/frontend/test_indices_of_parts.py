"""Run-time indices into slices and swizzles: where their components count evenly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.diagnostics.exceptions import OctantsTypeError
from tests.devices import ARCH
from tests.frontend.frontend_programs import define

V = np.array([1.0, 2.0, 3.0, 4.0])
M = np.arange(9.0).reshape(3, 3)

PARTS: dict[str, Any] = {
    "v[1:]": V[1:],
    "v[::-1]": V[::-1],
    "v[1::2]": V[1::2],
    "v.zyx": V[2::-1],
    "v.yw": V[1::2],
    "v.xx": V[[0, 0]],
    "f[0][2:]": V[2:],
    "m[0, 1:]": M[0, 1:],
    "m[1:, 2]": M[1:, 2],
}


def loaded(part: str, n: int) -> float:
    qd.init(arch=getattr(qd, ARCH), log_level="error", default_fp=qd.f32)
    f = qd.Vector.field(4, qd.f32, shape=1)
    f[0] = V
    given = {"qd": qd, "f": f, "V": V.tolist(), "M": qd.Matrix(M.tolist())}
    text = f"""
def kernel(n: qd.i32) -> qd.f32:
    v = qd.Vector(V)
    m = M
    w = {part}
    {part}[n] += 100.0
    return {part}[n] + w[n]
"""
    return float(qd.kernel(define(text, "kernel", **given))(n))


@pytest.mark.parametrize("part", PARTS)
def test_an_index_is_moved(part: str) -> None:
    for n in (0, 1):
        assert loaded(part, n) == 2 * PARTS[part][n] + 100


def test_components_that_do_not_count_evenly() -> None:
    with pytest.raises(OctantsTypeError, match="OCT120: an index into such a swizzle"):
        loaded("v.xyx", 0)
