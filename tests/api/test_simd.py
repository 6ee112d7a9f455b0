"""Several work items at once: the option, and loops that say it themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.options import make_options


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    qd.reset()


def results(simd: bool, per_loop: bool | None) -> list[Any]:
    """Values and gradients of a kernel with loops and branches that diverge."""
    qd.init(arch=qd.cpu, simd=simd, log_level="error")
    x, y = qd.field(qd.f32, 77, needs_grad=True), qd.field(qd.f32, 77, needs_grad=True)
    count = qd.field(qd.i32, 77)
    x.from_numpy(np.linspace(-2, 2, 77, dtype=np.float32))
    count.from_numpy((np.arange(77) * 5 % 13).astype(np.int32))

    @qd.kernel
    def spiral():
        qd.loop_config(simd=per_loop)
        for i in x:
            v = x[i]
            for k in range(count[i]):
                if v > 0.3 * k:
                    v = qd.sin(v) * 1.5
                else:
                    v = v * v - 0.5
            while v < 1.0:
                v += 0.25 + 0.1 * qd.cos(v)
            y[i] = v

    spiral()
    y.grad.fill(1)
    spiral.grad()
    return [y.to_numpy(), x.grad.to_numpy()]


@pytest.mark.parametrize(("simd", "per_loop"), [(True, None), (True, False), (False, True)])
def test_results_are_the_same_bits(simd: bool, per_loop: bool | None) -> None:
    for one, other in zip(results(False, None), results(simd, per_loop), strict=True):
        np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))


def test_the_option_decides_the_code() -> None:
    assert not make_options({}, {}).simd
    assert make_options({}, {"OCTANTS_SIMD": "1"}).simd
    one, other = make_options({"simd": False}, {}), make_options({"simd": True}, {})
    assert one.compilation_key() != other.compilation_key()
