"""Huge angles in lanes: a few at a time, and the bits that each one gets alone."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.codegen.llvm import cpu
from octants.codegen.llvm.lanes.vector_capabilities import lanes_of_target
from tests.seeds import pairwise

pytestmark = pytest.mark.skipif(
    not lanes_of_target(cpu.host_target()), reason="this processor has no lanes"
)
ANGLES = np.concatenate(
    [
        np.linspace(-10, 10, 70),
        np.logspace(3, 30, 200),
        -np.logspace(3, 37, 300),
        [np.inf, -np.inf, np.nan, 1e5, 1e5 + 0.01, 6000.0, 0.0],
        np.linspace(-1, 1, 150),
    ]
)


def kernel_of(lanes: Any, x: Any, y: Any) -> Any:
    @qd.kernel
    def turn():
        qd.loop_config(simd=lanes)
        for i in x:
            s = 0.0 * x[i]
            for _ in range(2):
                s += qd.sin(x[i]) + 0.5 * qd.cos(x[i]) + 0.25 * qd.tan(x[i])
            y[i] = s

    return turn


@pytest.mark.parametrize(
    ("lanes", "dtype", "fast_math"),
    pairwise([2, 4, 8, 16, 32, 64], [qd.f32, qd.f64], [True, False]),
    ids=str,
)
def test_each_lane_gets_what_it_gets_alone(lanes: int, dtype: Any, fast_math: bool) -> None:
    qd.init(arch=qd.cpu, fast_math=fast_math)
    x, y = (qd.field(dtype, shape=len(ANGLES)) for _ in range(2))
    angles = np.clip(ANGLES, *(1e37 * np.array([-1, 1]))) if dtype is qd.f64 else ANGLES
    with np.errstate(over="ignore"):
        x.from_numpy(angles.astype(x.to_numpy().dtype))
    kernel_of(False, x, y)()
    alone = y.to_numpy()
    y.fill(0)
    kernel_of(lanes, x, y)()
    np.testing.assert_array_equal(y.to_numpy(), alone)


@pytest.mark.parametrize("angle", [1e5, np.nextafter(np.float32(1e5), 2e5), -3e9, np.inf, np.nan])
@pytest.mark.parametrize("lanes", [16, 64])
def test_one_lane_of_a_tile_with_several_vectors(lanes: int, angle: float) -> None:
    """Each lane in turn has an angle at or beyond the limit of the fast path."""
    qd.init(arch=qd.cpu)
    angles = np.tile(np.linspace(-3, 3, lanes, dtype=np.float32), (lanes, 1))
    np.fill_diagonal(angles, np.float32(angle))
    x, y = (qd.field(qd.f32, shape=lanes * lanes) for _ in range(2))
    x.from_numpy(angles.ravel())
    kernel_of(False, x, y)()
    alone = y.to_numpy()
    kernel_of(lanes, x, y)()
    np.testing.assert_array_equal(y.to_numpy(), alone)


def test_the_largest_angle_of_several_vectors_is_compared() -> None:
    most = cpu.Cpu(cpu.host_target()).vector_bits // 32
    assert "llvm.umax.v" not in text_of(most)
    assert f"llvm.umax.v{most}i32" in text_of(4 * most)


def text_of(lanes: int) -> str:
    qd.init(arch=qd.cpu)
    x, y = (qd.field(qd.f32, shape=len(ANGLES)) for _ in range(2))
    text: str = kernel_of(lanes, x, y).inspect().llvm_ir
    return text


def test_there_is_code_for_a_few_lanes_only() -> None:
    """The only work with integers of 64 bits in lanes: the reduction of huge angles."""
    text = text_of(64)
    rare = re.findall(r"define internal (.*) @octants.math.rare.\w+\((.*)\)", text)
    assert rare
    assert all("<8 x float>" in result and "<8 x" in parameters for result, parameters in rare)
    assert "<8 x i64>" in text
    assert not re.search(r"(mul|shl|lshr) <64 x i64>", text)
    assert (
        len(text_of(8).splitlines()) < len(text.splitlines()) < len(text_of(8).splitlines()) + 150
    )
