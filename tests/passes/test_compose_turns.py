"""Affine loops by many turns at a time: as right as turn by turn, where nobody sees the bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver, options
from tests.codegen.on_emulated_gpu import emulated_gpu

SIZE = 100
A, B, TAU = 0.9, 0.01, 7.0


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    yield
    qd.reset()


def start(dtype: Any = qd.f64, **chosen: Any) -> None:
    qd.init(arch=qd.cpu, default_fp=dtype, log_level="error", **{"fast_math": True, **chosen})
    if not driver.capabilities(options.current()).contracts and chosen.get("fast_math", True):
        pytest.skip("fast_math changes nothing on this machine")


def loops(kernel: Any, mode: str = "primal") -> int:
    """How many loops there are in what code is generated for."""
    text: str = kernel.inspect(mode=mode).stages["finish"]
    return text.count(" for(")


class Lines:
    """A loop for each kind of turn; what a turn does, in exact arithmetic."""

    def __init__(self, dtype: Any) -> None:
        self.x, self.a, self.y = (qd.field(dtype, SIZE, needs_grad=True) for _ in "xay")
        self.n = qd.field(qd.i32, ())

    @qd.kernel
    def affine(self):
        for i in self.x:
            v = self.x[i]
            for _ in range(self.n[None]):
                v = v * self.a[i] + B
            self.y[i] = v

    @qd.kernel
    def constant(self):
        for i in self.x:
            v = self.x[i]
            for _ in range(1000):
                v = A * v + B
            self.y[i] = v

    @qd.kernel
    def geometric(self):
        for i in self.x:
            v = self.x[i]
            for _ in range(self.n[None]):
                v *= self.a[i]
            self.y[i] = v

    @qd.kernel
    def arithmetic(self):
        for i in self.x:
            v = self.x[i]
            for _ in range(self.n[None]):
                v += self.a[i]
            self.y[i] = v

    @qd.kernel
    def relaxing(self):
        for i in self.x:
            v = self.x[i]
            for _ in range(self.n[None]):
                v += (self.a[i] - v) / TAU
            self.y[i] = v

    @qd.kernel
    def crooked(self):
        for i in self.x:
            v = self.x[i]
            for _ in range(self.n[None]):
                v = 0.75 * (B - v) - 0.125 * (v + self.a[i]) + v * 0.25
            self.y[i] = v

    @qd.kernel
    def damped(self):
        for i in self.x:
            v = self.x[i]
            for _ in range(self.n[None]):
                v = v - self.a[i] * v * 0.001
            self.y[i] = v


EXACT: dict[str, Callable[[Fraction, Fraction, Fraction, Fraction], tuple[Any, Any]]] = {
    "affine": lambda a, b, tau, milli: (a, b),
    "constant": lambda a, b, tau, milli: (Fraction(A), b),
    "geometric": lambda a, b, tau, milli: (a, 0),
    "arithmetic": lambda a, b, tau, milli: (1, a),
    "relaxing": lambda a, b, tau, milli: (1 - 1 / tau, a / tau),
    "crooked": lambda a, b, tau, milli: (Fraction(-5, 8), 3 * b / 4 - a / 8),
    "damped": lambda a, b, tau, milli: (1 - milli * a, 0),
}


def after(name: str, kind: Any, x: float, a: float, turns: int) -> tuple[float, float]:
    """What a loop gives in exact arithmetic on constants of a type, and its largest number."""
    constants = [Fraction(float(kind(each))) for each in (B, TAU, 0.001)]
    slope, offset = EXACT[name](Fraction(float(a)), *constants)
    if name == "constant":
        slope = Fraction(float(kind(A)))
    total, power = np.longdouble(0), np.longdouble(1)
    for _ in range(turns):
        total, power = total + power, power * wide(slope)
    found = np.longdouble(x) * power + total * wide(offset)
    return float(found), abs(x) + float(total * abs(wide(offset)))


def wide(x: Fraction) -> np.longdouble:
    return np.longdouble(float(x)) + np.longdouble(float(x - Fraction(float(x))))


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("dtype", [qd.f32, qd.f64], ids=["f32", "f64"])
def test_values_are_right_to_some_digits(name: str, dtype: Any) -> None:
    start(dtype)
    lines, kind = Lines(dtype), dtype.numpy.type
    rng = np.random.default_rng(0)
    x, a = rng.uniform(-2, 2, SIZE).astype(kind), rng.uniform(-1, 1, SIZE).astype(kind)
    a[:6] = 1, -1, 0.5, 0.999999, -0.99999, 0.99
    lines.x.from_numpy(x)
    lines.a.from_numpy(a)
    for turns in [1000] if name == "constant" else [1000, 64, 63, 97, 1, 0, -5]:
        lines.n[None] = turns
        getattr(lines, name)()
        wanted, sizes = np.transpose([after(name, kind, *z, turns) for z in zip(x, a, strict=True)])
        error = np.abs(lines.y.to_numpy() - wanted) / (np.abs(wanted) + 0.01 * sizes)
        assert error.max() < 40 * np.finfo(kind).eps, (turns, error.argmax())
    assert loops(getattr(lines, name)) == 2 + (name != "constant")  # one if there are few turns


WILD = [0.0, -0.0, 1e-30, 2.0, -3.0, 1e30, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("name", ["affine", "geometric", "arithmetic", "relaxing", "damped"])
def test_what_grows_or_is_infinite_is_as_turn_by_turn(name: str) -> None:
    found = []
    for fast_math in (True, False):
        start(qd.f32, fast_math=fast_math)
        lines = Lines(qd.f32)
        x, a = np.meshgrid([*WILD, 0.3], [*WILD, 0.5])
        lines.x.from_numpy(x.ravel().astype(np.float32))
        lines.a.from_numpy(a.ravel().astype(np.float32))
        lines.n[None] = 100
        getattr(lines, name)()
        found.append(lines.y.to_numpy())
        qd.reset()
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-30)


def test_an_unstable_balance_is_kept() -> None:
    start(qd.f32)
    lines = Lines(qd.f32)
    lines.x.fill(-0.01)
    lines.a.fill(2.0)  # 2 v + 0.01 of -0.01
    lines.n[None] = 1000
    lines.affine()
    np.testing.assert_array_equal(lines.y.to_numpy(), np.float32(-0.01))


@pytest.mark.parametrize("dtype", [qd.f32, qd.f64], ids=["f32", "f64"])
def test_lanes_have_the_bits_of_single_work_items(dtype: Any) -> None:
    found = []
    for simd in ("never", "always"):
        start(dtype, simd=simd)
        lines = Lines(dtype)
        rng = np.random.default_rng(1)
        lines.x.from_numpy(rng.uniform(-2, 2, SIZE).astype(dtype.numpy))
        lines.a.from_numpy(rng.uniform(-1.05, 1.05, SIZE).astype(dtype.numpy))
        lines.n[None] = 100
        for name in EXACT:
            getattr(lines, name)()
            found.append(lines.y.to_numpy())
        qd.reset()
    half = len(found) // 2
    for one, other in zip(found[:half], found[half:], strict=True):
        np.testing.assert_array_equal(one, other)


# -- gradients -------------------------------------------------------------------------------------


def slopes(name: str, dtype: Any) -> dict[str, Any]:
    """The gradients of a loop of 100 turns."""
    lines = Lines(dtype)
    rng = np.random.default_rng(2)
    lines.x.from_numpy(rng.uniform(-2, 2, SIZE).astype(dtype.numpy))
    lines.a.from_numpy(rng.uniform(-0.999, 0.999, SIZE).astype(dtype.numpy))
    lines.n[None] = 100
    getattr(lines, name)()
    lines.y.grad.fill(1.0)
    getattr(lines, name).grad()
    return {"x": lines.x.grad.to_numpy(), "a": lines.a.grad.to_numpy()}


@pytest.mark.parametrize("name", EXACT)
def test_gradients_are_those_of_the_loop(name: str) -> None:
    start(fast_math=False)
    wanted = slopes(name, qd.f64)
    qd.reset()
    for dtype, digits in ((qd.f64, 1e-12), (qd.f32, 2e-4)):
        start(dtype)
        for key, found in slopes(name, dtype).items():
            np.testing.assert_allclose(found, wanted[key], rtol=digits, atol=digits)
        qd.reset()


def test_the_adjoint_of_an_affine_loop_is_one() -> None:
    start()
    lines = Lines(qd.f64)
    assert loops(lines.constant, "reverse") == 2
    lines.n[None] = 100
    assert loops(lines.geometric, "reverse") >= 2


def test_on_a_gpu_checkpoints_are_found_by_many_turns() -> None:
    found = []
    for fast_math in (True, False):
        with emulated_gpu(total=1 << 28):
            qd.init(arch=qd.cuda, fast_math=fast_math)
            found.append(slopes("affine", qd.f64))
            lines = Lines(qd.f64)
            has_fused = "fma(" in lines.affine.inspect(mode="reverse").stages["finish"]
            assert has_fused == fast_math
    for key in "xa":
        np.testing.assert_allclose(found[0][key], found[1][key], rtol=1e-12, atol=1e-12)


# -- where somebody sees the bits ------------------------------------------------------------------


class Watched:
    def __init__(self) -> None:
        self.x, self.y = (qd.field(qd.f64, SIZE, needs_grad=True) for _ in "xy")
        self.count = qd.field(qd.i32, SIZE)

    @qd.kernel
    def nobody(self):
        for i in self.x:
            v = self.x[i]
            for _ in range(100):
                v = A * v + B
            self.y[i] = qd.sin(v)

    @qd.kernel
    def branch(self):
        for i in self.x:
            v = self.x[i]
            for _ in range(100):
                v = A * v + B
            self.y[i] = v if v > 0.05 else 0.0

    @qd.kernel
    def integer(self):
        for i in self.x:
            v = self.x[i]
            for _ in range(100):
                v = A * v + B
            self.count[i] = int(10.0 * v)

    @qd.kernel
    def place(self):
        for i in self.x:
            v = self.x[i]
            for _ in range(100):
                v = A * v + B
            self.y[int(v)] += 1.0

    @qd.kernel
    def again(self):
        for i in self.x:
            v = self.x[i]
            for _ in range(100):
                v = A * v + B
            self.x[i] = v

    @qd.kernel
    def next_loop(self):
        v = self.x[0]
        for _ in qd.static(range(1)):
            for _ in range(100):
                v = A * v + B
        for i in self.x:
            self.y[i] = self.x[i] if self.x[i] > v else 0.0

    @qd.kernel
    def outer_loop(self):
        for i in self.x:
            v = self.x[i]
            total = 0.0
            for _ in range(3):
                for _ in range(100):
                    v = A * v + B
                if v > 0.05:
                    total += v
            self.y[i] = total


@pytest.mark.parametrize(
    "name", ["nobody", "branch", "integer", "place", "again", "next_loop", "outer_loop"]
)
def test_loops_on_whose_bits_something_hangs_stay_as_they_are(name: str) -> None:
    start()
    kernel = getattr(Watched(), name)
    plain = {"outer_loop": 2, "next_loop": 1}.get(name, 1)
    assert loops(kernel) == plain + (name == "nobody")


def test_fast_math_is_asked_for() -> None:
    start(fast_math=False)
    assert loops(Lines(qd.f64).constant) == 1
    assert loops(Lines(qd.f64).affine) == 1


def test_few_turns_stay_as_they_are() -> None:
    start()
    y = qd.field(qd.f64, 10)

    @qd.kernel
    def few():
        for i in y:
            v, w = float(i), 1.0 / (1.0 + i)
            for _ in range(12):
                v = A * v + B
            for _ in range(100):  # by which nothing is left of w
                w = 0.001 * w + B
            y[i] = v + w

    assert loops(few) == 2
