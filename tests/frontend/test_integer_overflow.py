"""Debug mode reports where integers wrap, and changes no result."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.runtime.devices import interpreter
from octants.runtime.reports import messages
from octants.runtime.reports.counted_prints import joined
from octants.types.scalars import DType, convert, integer_range
from tests.codegen.on_emulated_gpu import emulated_gpu
from tests.devices import ON_GPU

OPERATORS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "<<": lambda a, b: a << b,
}
NAMES = {"+": "Addition", "-": "Subtraction", "*": "Multiplication", "<<": "Shift left"}


@pytest.fixture(params=["lanes", "one by one", "interpreter", "gpu"] if not ON_GPU else ["arch"])
def everywhere(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "gpu":
        with emulated_gpu():
            qd.init(arch=qd.cuda, debug=True, log_level="error")
            yield
        return
    chosen = qd.python if request.param == "interpreter" else qd.cpu
    simd = "always" if request.param == "lanes" else "never"
    qd.init(arch=chosen, simd=simd, debug=True, log_level="error")
    yield
    qd.reset()


@pytest.fixture
def debug() -> Iterator[None]:
    qd.init(arch=qd.cpu, debug=True, log_level="error")
    yield
    qd.reset()


def some_of(dtype: DType) -> list[int]:
    """Numbers at the ends of a type, and between them."""
    low, high = integer_range(dtype)
    middle = 1 << (dtype.bits // 2)
    return sorted(
        {low, low + 1, -middle if low else 0, 0, 1, 3, middle - 1, middle, high - 1, high}
    )


def reports(a: list[int], b: list[int], symbol: str, dtype: DType) -> list[str]:
    lines = []
    for x, y in zip(a, b, strict=True):
        exact = OPERATORS[symbol](x, y)
        wrapped = convert(exact, dtype)
        if exact != wrapped:
            lines.append(f"{x} {symbol} {y} wraps to {wrapped} ({dtype})")
    return lines


def written_by(capfd: Any) -> str:
    qd.sync()
    text: str = capfd.readouterr().out
    return text


@pytest.fixture
def each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write every report, not only the first one of a launch at each place."""

    def all_of(prints: Iterable[tuple[Hashable, Callable[[], str]]]) -> str:
        return joined((None, text) for _, text in prints)

    monkeypatch.setattr(messages, "joined", all_of)
    monkeypatch.setattr(interpreter, "joined", all_of)


@pytest.mark.usefixtures("everywhere", "each_time")
@pytest.mark.parametrize("dtype", [qd.i8, qd.u32, qd.i64])
def test_every_pair_that_wraps(dtype: DType, capfd: Any) -> None:
    numbers = some_of(dtype)
    pairs = [(a, b) for a in numbers for b in numbers]
    a, b = (np.array(side, dtype.numpy) for side in zip(*pairs, strict=True))
    shifts = np.array([abs(int(y)) % dtype.bits for y in b], dtype.numpy)
    found = {symbol: np.zeros(len(pairs), dtype.numpy) for symbol in OPERATORS}

    @qd.kernel
    def run(
        a: qd.types.ndarray(),
        b: qd.types.ndarray(),
        c: qd.types.ndarray(),
        total: qd.types.ndarray(),
        difference: qd.types.ndarray(),
        product: qd.types.ndarray(),
        shifted: qd.types.ndarray(),
    ):
        for i in a:
            total[i] = a[i] + b[i]
        for i in a:
            difference[i] = a[i] - b[i]
        for i in a:
            product[i] = a[i] * b[i]
        for i in a:
            shifted[i] = a[i] << c[i]

    run(a, b, shifts, *found.values())
    lines = [line.strip() for line in written_by(capfd).splitlines() if "wraps to" in line]
    sides = {symbol: shifts if symbol == "<<" else b for symbol in OPERATORS}
    expected = [
        line
        for symbol in OPERATORS
        for line in reports(a.tolist(), sides[symbol].tolist(), symbol, dtype)
    ]
    assert lines == expected
    for symbol, results in found.items():
        with np.errstate(over="ignore"):
            assert np.array_equal(results, OPERATORS[symbol](a, sides[symbol])), symbol


@pytest.mark.usefixtures("debug")
def test_the_place_of_an_overflow(capfd: Any) -> None:
    x = qd.field(qd.i32, ())
    x[None] = 2**31 - 1

    @qd.func
    def square(a):
        return a * a

    @qd.kernel
    def run(a: qd.i32):
        b = qd.Vector([a, 1]) + a
        b[1] -= -a
        x[None] += 1
        print(square(b[1]) + a**2)

    run(2**30)
    text = written_by(capfd)
    parts = text.split(" overflow detected in File ")
    assert [part.splitlines()[-1] for part in parts[:-1]] == [
        "Addition",
        "Subtraction",
        "Addition",
        "Multiplication",
        "Multiplication",
    ]
    places = ["qd.Vector([a, 1]) + a", "b[1] -= -a", "x[None] += 1", "a * a", "a**2"]
    for part, place in zip(parts[1:], places, strict=True):
        head, source, carets, *_ = part.splitlines()
        assert __file__ in head
        assert head.endswith(("in run:", "in square:"))
        first = carets.index("^")
        assert source[first : first + carets.count("^")] == place


@pytest.mark.usefixtures("debug")
def test_what_is_not_checked(capfd: Any) -> None:
    @qd.kernel
    def run(a: qd.i32) -> qd.i32:
        x = -a + qd.cast(a, qd.i8) + 0 // qd.max(a, 1)
        for i in range(10, -10, -3):
            x ^= i
        return x + qd.cast(qd.random(qd.f32), qd.i32) + qd.randn(qd.f32) * 0.0

    run(-(2**31))
    assert written_by(capfd) == ""


def test_nothing_without_debug_mode(capfd: Any) -> None:
    qd.init(arch=qd.cpu, log_level="error")

    @qd.kernel
    def run(a: qd.i32) -> qd.i32:
        return a + a

    assert run(2**30) == -(2**31)
    assert written_by(capfd) == ""


@pytest.mark.usefixtures("everywhere")
def test_a_launch_reports_each_place_once(capfd: Any) -> None:
    @qd.func
    def scrambled(a):
        return a * qd.u32(668265261)

    @qd.kernel
    def run(x: qd.types.ndarray(qd.u32, 1)):
        for i in x:
            x[i] = scrambled(qd.u32(i) + 100)
            if i == 7:
                x[i] += qd.u32(4294967295)
            print("item", i)

    for _ in range(2):
        run(np.zeros(16, np.uint32))
        text = written_by(capfd)
        assert text.count("overflow detected") == 2
        assert text.count("    and 15 more times there\n") == text.count(" there\n") == 1
        assert "100 * 668265261 wraps to 2402016660" in text
        assert [line for line in text.splitlines() if "item" in line] == [
            f"item {i}" for i in range(16)
        ]


@pytest.mark.usefixtures("debug", "each_time")
def test_reverse_kernels_report_nothing_again(capfd: Any) -> None:
    x = qd.field(qd.f32, 4, needs_grad=True)
    count = qd.field(qd.i32, ())
    loss = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def run(a: qd.i32):
        for i in x:
            for k in range(3):
                count[None] += 1
                loss[None] += x[i] * x[i] * (a * (k + 1))

    x.fill(1.0)
    with qd.ad.Tape(loss):
        run(2**30)
    assert written_by(capfd).count("overflow detected") == 8
    assert x.grad[0] == 2.0 * (2.0**30 - 2.0**31 - 2.0**30)
    run(1)
    loss.grad[None] = 1.0
    run.grad(1)
    assert written_by(capfd) == ""
