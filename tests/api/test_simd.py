"""Several work items at once: the option, and loops that say it themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.codegen.llvm.cpu import host_target
from octants.codegen.llvm.lanes.vector_capabilities import lanes_of_target
from octants.launch.gradients.explain_gradient_report import Storing
from octants.options import make_options
from tests.devices import on_cpu

pytestmark = on_cpu


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    qd.reset()


def results(simd: str, per_loop: bool | int | None) -> list[Any]:
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


@pytest.mark.parametrize(
    ("simd", "per_loop"),
    [("auto", None), ("always", None), ("auto", False), ("never", True), ("never", 4)],
)
def test_results_are_the_same_bits(simd: str, per_loop: bool | int | None) -> None:
    for one, other in zip(results("never", None), results(simd, per_loop), strict=True):
        np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))


@pytest.mark.parametrize(
    ("given", "meaning"),
    [(True, "auto"), (False, "never"), ("always", "always"), ("auto", "auto"), (1, "auto")],
)
def test_the_option(given: Any, meaning: str) -> None:
    assert make_options({"simd": given}, {}).simd == meaning
    assert make_options({}, {"OCTANTS_SIMD": str(given)}).simd == meaning


def test_the_option_decides_the_code() -> None:
    one, other = make_options({"simd": False}, {}), make_options({"simd": True}, {})
    assert one.compilation_key() != other.compilation_key()
    with pytest.raises(qd.OctantsError, match="auto, always, never"):
        make_options({"simd": "sometimes"}, {})


def lanes_of_a_loop(per_loop: bool | int | None, simd: str = "auto") -> list[int]:
    """The lengths of the vectors of f32 in the code of a loop."""
    qd.init(arch=qd.cpu, simd=simd, log_level="error")
    x = qd.field(qd.f32, 1000)

    @qd.kernel
    def waves():
        qd.loop_config(simd=per_loop)
        for i in x:
            for _ in range(i % 7):
                x[i] = qd.sin(x[i]) * 1.5

    found = re.findall(r"<(\d+) x float>", waves.inspect().llvm_ir)
    return sorted({int(lanes) for lanes in found})


def test_loops_say_it_themselves() -> None:
    assert lanes_of_a_loop(False) == []
    assert lanes_of_a_loop(8, "never") == [8]
    assert bool(lanes_of_a_loop(True, "never")) is bool(lanes_of_target(host_target()))


@pytest.mark.parametrize("lanes", [3, 1, 128, -4])
def test_a_number_of_lanes_is_a_power_of_two(lanes: int) -> None:
    with pytest.raises(qd.OctantsError, match="a power of 2"):
        lanes_of_a_loop(lanes)


@pytest.mark.skipif(not lanes_of_target(host_target()), reason="this CPU has no wide vectors")
@pytest.mark.parametrize("has_sides", [False, True])
def test_nests_are_not_stored_where_that_would_keep_from_lanes(has_sides: bool) -> None:
    """Lanes do not agree on where records stand if both sides have some of different sizes."""
    found = {}
    for simd in ("auto", "never"):
        qd.init(arch=qd.cpu, simd=simd, log_level="error")
        x, y = qd.field(qd.f32, 1000, needs_grad=True), qd.field(qd.f32, 1000, needs_grad=True)
        count = qd.field(qd.i32, 1000)
        x.from_numpy(np.linspace(-2, 2, 1000, dtype=np.float32))
        count.from_numpy((np.arange(1000) * 5 % 13).astype(np.int32))

        @qd.kernel
        def ragged():
            for i in x:
                v = x[i]
                for j in range(count[i]):
                    if qd.static(has_sides):
                        if v > 0.4:
                            for _ in range(2):
                                v = qd.cos(v)
                        else:
                            k = 0
                            while k < j:
                                v = qd.sin(v) + 0.1
                                k += 1
                    else:
                        for _ in range(j):
                            v = qd.sin(v) + 0.1
                y[i] = v

        ragged()
        y.grad.fill(1)
        ragged.grad()
        (way,) = ragged.inspect(mode="reverse").lanes.values()
        assert ("at once" in way) is (simd == "auto")
        inner = ragged.grad.explain().loops[-1]
        is_replayed = has_sides and simd == "auto"
        assert inner.storing is (Storing.LANES if is_replayed else Storing.WHOLE)
        found[simd] = x.grad.to_numpy().view(np.uint32)
    np.testing.assert_array_equal(found["auto"], found["never"])
