"""Division by roots and by common divisors, and powers to halves, where `fast_math` allows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver, options
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.passes.arithmetic.expand_powers import expand_powers
from octants.passes.arithmetic.relax_divisions import relax_divisions
from tests.devices import ARCH
from tests.ir.parser import parse
from tests.mathlib.compiled_functions import units

EACH_ROOT = {"vulkan": 2.1, "cuda": 2.0}.get(ARCH, 1.7)
"""What a root adds to the error, in units of the last digit."""

HEAD = "kernel @k\narray @x: {0}, 1, ndarray, () [primal]\nserial @k_0 {{\n"
LOADS = "".join(
    f"  %{2 * k}: i32 = constant<{k}>()\n  %{2 * k + 1}: {{0}} = load<@x, primal>(%{2 * k})\n"
    for k in range(3)
)
"""The values %1, %3, %5."""


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    yield
    qd.reset()


def start(fast_math: bool = True, **more: Any) -> bool:
    """Whether `fast_math` is that of this machine."""
    qd.init(arch=qd.cpu, fast_math=fast_math, log_level="error", **more)
    return driver.capabilities(options.current()).contracts


# -- what is changed ----------------------------------------------------------------------------


def relaxed(*lines: str, dtype: str = "f32") -> str:
    """What becomes of operations after the loads; %20, %21 and so on are stored."""
    results = [line.split(":")[0].strip() for line in lines if line.startswith("%2")]
    stores = "".join(f"  store<@x, primal>({value}, %0)\n" for value in results)
    body = "".join(f"  {line}\n" for line in lines)
    module = parse((HEAD + LOADS + body + stores + "  yield()\n}}\n").format(dtype))
    relax_divisions(module)
    verify(module)
    return to_text(module)


ROOT = "%10: {0} = unary<sqrt>(%1)"
TIMES = "%11: {0} = binary<mul>(%1, %10)"


def test_a_root_in_a_divisor_is_a_power() -> None:
    found = relaxed(ROOT, "%20: {0} = binary<div>(%3, %10)")
    assert "unary<rsqrt>(%1)" in found and "div" not in found and "sqrt>(%3" not in found
    found = relaxed(ROOT, TIMES, "%20: {0} = binary<div>(%3, %11)")
    assert "constant<-1.5>" in found and "binary<pow>(%1" in found and "div" not in found


CUBE = ("%12: {0} = binary<mul>(%10, %10)", "%13: {0} = binary<mul>(%10, %12)")


@pytest.mark.parametrize(
    ("lines", "divisor", "exponent"),
    [((ROOT, TIMES, *CUBE), "%13", -1.5),
     ((ROOT, TIMES, "%12: {0} = binary<mul>(%11, %1)"), "%12", -2.5)],
)  # fmt: skip
def test_roots_are_counted(lines: tuple[str, ...], divisor: str, exponent: float) -> None:
    found = relaxed(*lines, "%20: {0} = binary<div>(%3, " + divisor + ")")
    assert f"constant<{exponent}>" in found and "div" not in found


def test_what_divides_twice_becomes_a_reciprocal() -> None:
    found = relaxed("%20: {0} = binary<div>(%3, %1)", "%21: {0} = binary<div>(%5, %1)")
    assert found.count("div") == 1 and found.count("mul") == 2


LEFT_ALONE = [
    ("%20: {0} = binary<div>(%3, %1)",),
    (ROOT, "%11: {0} = binary<mul>(%10, %10)", "%20: {0} = binary<div>(%3, %11)"),
    (ROOT, "%11: {0} = binary<mul>(%3, %10)", "%20: {0} = binary<div>(%3, %11)"),
    (ROOT, "%10: {0} = binary<div>(%3, %10)", "%20: {0} = unary<floor>(%10)"),
    (ROOT, "%11: {0} = binary<div>(%3, %10)", "%12: {0} = binary<sub>(%11, %5)",
     "%13: i32 = cast(%12)", "%20: {0} = cast(%13)"),
    (ROOT, "%11: {0} = binary<div>(%3, %10)", "%12: u1 = compare<lt>(%5, %11)",
     "%20: {0} = select(%12, %3, %5)"),
    ("%10: {0} = binary<div>(%3, %1)", "%11: {0} = binary<div>(%5, %1)",
     "%20: {0} = binary<mod>(%10, %5)", "%21: {0} = binary<floordiv>(%11, %3)"),
]  # fmt: skip


@pytest.mark.parametrize("lines", LEFT_ALONE)
def test_what_is_left_alone(lines: tuple[str, ...]) -> None:
    divisions = sum("<div>" in line for line in lines)
    assert relaxed(*lines).count("<div>") == divisions


@pytest.mark.parametrize("dtype", ["f16", "f64"])
def test_other_types_are_left_alone(dtype: str) -> None:
    found = relaxed(ROOT, "%20: {0} = binary<div>(%3, %10)", dtype=dtype)
    assert "div" in found and "rsqrt" not in found


def expanded(exponent: str, dtype: str = "f32") -> str:
    lines = f"  %10: {dtype} = constant<{exponent}>()\n  %11: {dtype} = binary<pow>(%1, %10)\n"
    text = (HEAD + LOADS).format(dtype) + lines + "  store<@x, primal>(%11, %0)\n  yield()\n}\n"
    module = parse(text)
    expand_powers(module)
    verify(module)
    return to_text(module)


@pytest.mark.parametrize("exponent", [k / 2 for k in range(-9, 10, 2)])
def test_powers_to_halves_are_products(exponent: float) -> None:
    found = expanded(str(exponent))
    assert "pow" not in found and ("rsqrt" if exponent < 0 else "unary<sqrt>") in found


@pytest.mark.parametrize("exponent", ["2.0", "-1.0", "0.25", "5.5", "-5.5", "inf", "nan"])
def test_other_powers_are_not(exponent: str) -> None:
    assert "pow" in expanded(exponent)
    assert "pow" in expanded("-1.5", "f64")


# -- what comes of it ---------------------------------------------------------------------------


def test_powers_are_as_exact_as_the_page_says() -> None:
    if not start():
        pytest.skip("fast_math changes nothing on this machine")

    @qd.kernel
    def powers(x: qd.types.ndarray(qd.f32, ndim=1), y: qd.types.ndarray(qd.f32, ndim=2)):
        for i in x:
            v = x[i]
            y[0, i] = 1.0 / qd.sqrt(v)
            y[1, i] = 1.0 / (v * qd.sqrt(v))
            y[2, i] = qd.pow(v, -2.5)
            y[3, i] = qd.pow(v, 1.5)
            y[4, i] = qd.pow(v, 2.5)

    x = np.random.default_rng(3).uniform(0.25, 4.0, 100_000).astype(np.float32)
    x[:4] = [0.0, np.inf, -1.0, np.nan]
    y = np.zeros((5, x.size), np.float32)
    powers(x, y)
    with np.errstate(all="ignore"):
        for row, exponent in zip(y, (-0.5, -1.5, -2.5, 1.5, 2.5), strict=True):
            errors = units(row, x.astype(np.float64) ** exponent)
            assert errors.max() <= (EACH_ROOT * 2 * -exponent if exponent < 0 else 2.5), exponent


class Bodies:
    """Forces that go with powers of the distance, and a loop that ends by one of them."""

    def __init__(self, kind: Any) -> None:
        self.x = qd.field(kind, (24, 3), needs_grad=True)
        self.first, self.y = (qd.field(kind, 24, needs_grad=True) for _ in range(2))
        self.x.from_numpy(np.random.default_rng(0).uniform(-1, 1, (24, 3)))

    @qd.kernel
    def forces(self):
        for i in range(24):
            force = qd.Vector([self.first[i], 0.0, 0.0])
            turns = 0
            while turns < 40 and force.norm() < 60.0:
                d = qd.Vector([0.0, 0.0, 0.0])
                for k in qd.static(range(3)):
                    d[k] = self.x[turns % 24, k] - self.x[i, k]
                r2 = d.dot(d) + 0.1
                r = qd.sqrt(r2)
                force += d / r**3 + d / (r2 * r2 * r) - 0.1 * d / (1.0 + r) + force / (2.0 + r2)
                turns += 1
            self.y[i] = force.normalized()[0] + 0.01 * force.norm()


def gradient(bodies: Any) -> Any:
    """Values, and gradients: by `first`, which is not summed up, and by places."""
    bodies.forces()
    bodies.y.grad.fill(1.0)
    bodies.forces.grad()
    return bodies.y.to_numpy(), bodies.first.grad.to_numpy(), bodies.x.grad.to_numpy()


def test_gradients_are_those_of_the_exact_program() -> None:
    start(False, default_fp=qd.f64)
    exact = gradient(Bodies(qd.f64))
    start()
    bodies = Bodies(qd.f32)
    for one, wanted in zip(gradient(bodies), exact, strict=True):
        np.testing.assert_allclose(one, wanted, rtol=2e-4, atol=2e-4 * np.abs(wanted).max())
    if driver.capabilities(options.current()).contracts:
        assert "rsqrt" in bodies.forces.inspect().stages["finish"]


@pytest.mark.parametrize("simd", ["never", "always"])
def test_replays_have_the_same_bits(simd: str) -> None:
    """Records of many blocks, each run again, give what records of everything give."""
    found = []
    for budget in ({}, {"ad_stack_budget_bytes": 500}):
        start(simd=simd, cpu_max_num_threads=1, **budget)
        found.append(gradient(Bodies(qd.f32))[:2])
    for one, other in zip(*found, strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_array_equal(one, other)


def test_work_items_have_the_same_bits_in_lanes() -> None:
    found = []
    for simd in ("never", "always"):
        start(simd=simd, cpu_max_num_threads=1)
        found.append(gradient(Bodies(qd.f32))[:2])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
