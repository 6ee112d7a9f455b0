"""Derives the constants of `octants.mathlib`: `python scripts/mathlib_coefficients.py`.

Each polynomial is the minimax one of its kind, found by the exchange algorithm of E. Remez (1934)
in mpmath's arithmetic and rounded to the type. Its degree is the least for which its share in the
error of the function is under a sixteenth of half a unit of the last digit. The result replaces
src/octants/mathlib/coefficients.py; the achieved errors are printed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpmath
from mpmath import mp, mpf

mp.prec = 400
TARGET = Path(__file__).parent.parent / "src" / "octants" / "mathlib" / "coefficients.py"
Function = Callable[[Any], Any]
GRID = 600


@dataclass(frozen=True)
class Fit:
    """What a polynomial shall be near to on an interval.

    ``weight`` is the relative error of the function per error of the polynomial; ``spare`` are
    bits beyond the usual accuracy, for f32 and f64.
    """

    function: Function
    weight: Function
    low: float
    high: float
    spare: tuple[int, int] = (0, 0)


def near_zero(closed: Function, coefficient: Callable[[int], Any]) -> Function:
    """A function that loses digits at zero, by its series there."""

    def function(z: Any) -> Any:
        if abs(z) < mpf(2) ** -20:
            return sum((mpf(coefficient(k)) * z**k for k in range(12)), mpf(0))
        return closed(z)

    return function


def root(f: Function) -> Function:
    """A function of the square root."""
    return lambda z: f(mpmath.sqrt(z))


def _tanh_terms(k: int) -> Any:
    """The coefficient of x**(2k + 3) of tanh."""
    n = k + 2
    power = mpf(2) ** (2 * n)
    return power * (power - 1) * mpmath.bernoulli(2 * n) / mpmath.factorial(2 * n)


def _erf_terms(k: int) -> Any:
    return 2 / mpmath.sqrt(mp.pi) * (-1) ** k / (mpmath.factorial(k) * (2 * k + 1)) - (k == 0)


def _asin_terms(k: int) -> Any:
    """The coefficient of x**(2k + 3) of asin."""
    n = k + 1
    return mpmath.binomial(2 * n, n) / (mpf(4) ** n * (2 * n + 1))


QUADRANT = (mpmath.pi / 4 * mpf("1.001")) ** 2
HALF_TURN = (mpmath.pi / 2 * mpf("1.01")) ** 2
EIGHTH = mpmath.tan(mpmath.pi / 8) ** 2 * mpf("1.001")
LOG_RANGE = ((mpmath.sqrt(2) - 1) / (mpmath.sqrt(2) + 1)) ** 2 * mpf("1.001")
ERF_JOINT, ERF_SHIFT, ERF_END = 1.0, 2.5, (4.0, 6.0)


def erfcx_of(t: Any) -> Any:
    """exp(x * x) erfc(x) of x = shift (1 + t) / (1 - t)."""
    x = ERF_SHIFT * (1 + t) / (1 - t)
    return mpmath.exp(x * x) * mpmath.erfc(x)


def erf_place(x: float) -> float:
    """The variable of `erfcx_of` for x."""
    return (x - ERF_SHIFT) / (x + ERF_SHIFT)


SINE_UP_TO_ONE = (
    -0.16666656732559204,
    0.008333032950758934,
    -0.0001980735978577286,
    2.600042307676631e-06,
)
"""What a random search near the best polynomial found for "SIN_HALF_TURN" in f32.

Evaluated as in `octants.mathlib.fast_with_fma` the sine is nowhere beyond one, and one at pi / 2.
"""

FITS: dict[str, Fit] = {
    "EXP": Fit(
        near_zero(lambda r: (mpmath.expm1(r) - r) / r**2, lambda k: 1 / mpmath.factorial(k + 2)),
        lambda r: r**2 / mpmath.exp(r), -0.34726, 0.34726,
    ),
    "LOG": Fit(
        near_zero(
            root(lambda s: 2 * (mpmath.atanh(s) - s) / s**3), lambda k: mpf(2) / (2 * k + 3)
        ),
        lambda z: z / 2, 0.0, LOG_RANGE,
    ),
    "LOG_TAIL": Fit(
        near_zero(
            root(lambda s: (mpmath.atanh(s) / s - 1 - s**2 / 3) / s**4),
            lambda k: mpf(1) / (2 * k + 5),
        ),
        lambda z: z**2, 0.0, LOG_RANGE, (9, 12),
    ),
    "SIN": Fit(
        near_zero(
            root(lambda r: (mpmath.sin(r) - r) / r**3),
            lambda k: (-1) ** (k + 1) / mpmath.factorial(2 * k + 3),
        ),
        lambda z: z, 0.0, QUADRANT,
    ),
    "COS": Fit(
        near_zero(
            root(lambda r: (mpmath.cos(r) - 1 + r**2 / 2) / r**4),
            lambda k: (-1) ** k / mpmath.factorial(2 * k + 4),
        ),
        lambda z: z**2 / mpmath.cos(mpmath.sqrt(z)), 0.0, QUADRANT,
    ),
    "ATAN": Fit(
        near_zero(
            root(lambda t: (mpmath.atan(t) - t) / t**3),
            lambda k: mpf((-1) ** (k + 1)) / (2 * k + 3),
        ),
        lambda z: z, 0.0, EIGHTH,
    ),
    "ASIN": Fit(
        near_zero(root(lambda t: (mpmath.asin(t) - t) / t**3), _asin_terms),
        lambda z: z, 0.0, 0.25,
    ),
    "SINH": Fit(
        near_zero(
            root(lambda x: (mpmath.sinh(x) - x) / x**3),
            lambda k: 1 / mpmath.factorial(2 * k + 3),
        ),
        lambda z: z, 0.0, 1.0,
    ),
    "TANH": Fit(
        near_zero(root(lambda x: (mpmath.tanh(x) - x) / x**3), _tanh_terms),
        lambda z: z, 0.0, 0.36,
    ),
    "ERF": Fit(
        near_zero(root(lambda x: mpmath.erf(x) / x - 1), _erf_terms),
        lambda z: 1 / mpmath.erf(1), 0.0, ERF_JOINT,
    ),
    "SIN_HALF_TURN": Fit(
        near_zero(
            root(lambda r: (mpmath.sin(r) - r) / r**3),
            lambda k: (-1) ** (k + 1) / mpmath.factorial(2 * k + 3),
        ),
        lambda z: z * mpmath.sqrt(z) / mpmath.sin(mpmath.sqrt(z)) if z else z,
        0.0, HALF_TURN, (-2, 0),
    ),
    "COS_HALF_TURN": Fit(
        near_zero(
            root(lambda r: (mpmath.cos(r) - 1) / r**2),
            lambda k: (-1) ** (k + 1) / mpmath.factorial(2 * k + 2),
        ),
        lambda z: z, 0.0, HALF_TURN, (-2, 0),
    ),
    "LOG_NEAR_ONE": Fit(
        near_zero(
            lambda f: (mpmath.log(1 + f) - f + f**2 / 2) / f**3,
            lambda k: mpf((-1) ** k) / (k + 3),
        ),
        lambda f: f**2, mpmath.sqrt(0.5) - 1, mpmath.sqrt(2) - 1, (-2, 0),
    ),
    "CBRT": Fit(mpmath.cbrt, lambda m: 1 / mpmath.cbrt(m), 1.0, 2.0, (-13, -27)),
}  # fmt: skip


def erfcx_fit(end: float) -> Fit:
    """Relative to erf, which is near one, the error of erfc counts by its size."""

    def weight(t: Any) -> Any:
        x = ERF_SHIFT * (1 + t) / (1 - t)
        return mpmath.exp(-x * x) / mpmath.erf(x)

    return Fit(erfcx_of, weight, erf_place(ERF_JOINT), erf_place(end))


def minimax(fit: Fit, degree: int) -> tuple[list[Any], Any]:
    """The coefficients of the best polynomial and its weighted error."""
    low, high, count = mpf(fit.low), mpf(fit.high), degree + 2
    grid = [
        (low + high) / 2 - (high - low) / 2 * mpmath.cos(mp.pi * k / GRID) for k in range(GRID + 1)
    ]
    values = [fit.function(x) for x in grid]
    weights = [fit.weight(x) for x in grid]
    floor = max(weights) / 1000
    weights = [max(weight, floor) for weight in weights]
    nodes = [round(k * GRID / (count - 1)) for k in range(count)]
    coefficients: list[Any] = []
    worst = mpf(0)
    for _ in range(8):
        matrix = mpmath.matrix(count, count)
        right = mpmath.matrix(count, 1)
        for row, node in enumerate(nodes):
            for column in range(degree + 1):
                matrix[row, column] = grid[node] ** column
            matrix[row, degree + 1] = (-1) ** row / weights[node]
            right[row] = values[node]
        solution = list(mpmath.lu_solve(matrix, right))
        coefficients = solution[:-1]
        errors = [
            weight * (mpmath.polyval(coefficients[::-1], x) - value)
            for x, value, weight in zip(grid, values, weights, strict=True)
        ]
        worst = max(abs(error) for error in errors)
        chosen = _alternating(errors, count)
        if chosen == nodes:
            break
        nodes = chosen
    return coefficients, worst


def _alternating(errors: list[Any], count: int) -> list[int]:
    """The places of extreme errors of alternating sign: ``count`` of them, the largest."""
    peaks: list[int] = []
    for k, error in enumerate(errors):
        if peaks and (errors[peaks[-1]] > 0) == (error > 0):
            if abs(error) > abs(errors[peaks[-1]]):
                peaks[-1] = k
        else:
            peaks.append(k)
    while len(peaks) > count:
        peaks.pop(0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1)
    while len(peaks) < count:  # rounding hides some: any places will do for a step
        peaks = sorted({*peaks, *(round(k * GRID / (count - 1)) for k in range(count))})[:count]
    return peaks


def rounded(x: Any, digits: int) -> float:
    """A number of f32 or f64."""
    if digits == 53:
        return float(x)
    with mp.workprec(24):
        single = float(+mpf(x))
    assert struct.unpack("f", struct.pack("f", single))[0] == single
    return single


def head(x: Any, bits: int) -> Any:
    """The leading bits of a number."""
    with mp.workprec(bits):
        return +mpf(x)


def parts(x: Any, bits: list[int], digits: int) -> tuple[float, ...]:
    """Numbers of so many bits whose sum is x; the last one has all digits of the type."""
    found = []
    for count in bits:
        part = rounded(head(x, count), digits)
        found.append(part)
        x = x - mpf(part)
    return (*found, rounded(x, digits))


def positive_parts(x: Any, digits: int) -> tuple[float, ...]:
    """Three positive numbers of all digits whose sum is x: zeros keep their signs."""
    found = []
    for _ in range(2):
        unit = mpf(2) ** (mpmath.floor(mpmath.log(x, 2)) + 1 - digits)
        part = mpmath.floor(x / unit) * unit
        found.append(rounded(part, digits))
        x = x - part
    return (*found, rounded(x, digits))


def fitted(name: str, fit: Fit, digits: int) -> tuple[float, ...]:
    """The shortest polynomial that is good enough, rounded."""
    wanted = mpf(2) ** -(digits + 4 + fit.spare[digits == 53])
    degree = next(d for d in range(1, 40) if _chebyshev_error(fit, d) < wanted * 4)
    while True:
        coefficients, worst = minimax(fit, degree)
        if worst < wanted:
            break
        degree += 1
    print(
        f"{name:10} {digits} digits: degree {degree:2}, error 2**{float(mpmath.log(worst, 2)):.1f}"
    )
    return tuple(rounded(c, digits) for c in coefficients)


def _chebyshev_error(fit: Fit, degree: int) -> Any:
    """The weighted error of an interpolation at Chebyshev's points: near the best, and quick."""
    middle, half = (mpf(fit.low) + fit.high) / 2, (mpf(fit.high) - fit.low) / 2
    count = degree + 1
    nodes = [middle + half * mpmath.cos(mp.pi * (2 * k + 1) / (2 * count)) for k in range(count)]
    values = [fit.function(x) for x in nodes]
    worst = mpf(0)
    for step in range(41):
        x = middle + half * (mpf(step + mpf("0.37")) / mpf("20.7") - 1)  # at no node
        total, below = mpf(0), mpf(0)
        for k, (node, value) in enumerate(zip(nodes, values, strict=True)):
            weight = (-1) ** k * mpmath.sin(mp.pi * (2 * k + 1) / (2 * count)) / (x - node)
            total, below = total + weight * value, below + weight
        worst = max(worst, abs(total / below - fit.function(x)) * fit.weight(x))
    return worst


def constants(digits: int) -> dict[str, tuple[float, ...]]:
    """Numbers as sums of numbers of the type."""
    exponent = 9 if digits == 24 else 12
    half = digits // 2
    ln2 = mpmath.log(2)
    angle = [11, 11, 11] if digits == 24 else [32, 20, 32]  # the first two fill less than a number
    return {
        "LN2_SHORT": parts(ln2, [digits - exponent], digits),
        "LN2": parts(ln2, [digits], digits),
        "LOG2_E": parts(1 / ln2, [digits], digits),
        "LOG2_E_SHORT": parts(1 / ln2, [half], digits),
        "LOG10_2_SHORT": parts(mpmath.log(2, 10), [digits - exponent], digits),
        "LOG10_E_SHORT": parts(1 / mpmath.log(10), [half], digits),
        "TWICE_LOG2_E": parts(2 / ln2, [digits], digits),
        "THIRD": parts(mpf(1) / 3, [digits], digits),
        "HALF_PI": parts(mp.pi / 2, [digits], digits),
        "QUARTER_PI_SHORT": parts(mp.pi / 4, [digits - 2], digits),
        "PI_PARTS": positive_parts(mp.pi, digits),
        "HALF_PI_PARTS": parts(mp.pi / 2, angle, digits),
        "TWO_OVER_PI": parts(2 / mp.pi, [], digits),
        "CBRT_2": parts(mpmath.cbrt(2), [], digits),
        "CBRT_4": parts(mpmath.cbrt(4), [], digits),
    }


HEAD = '''"""Constants that `scripts/mathlib_coefficients.py` derives, by the digits of the type."""

from __future__ import annotations

Numbers = dict[int, tuple[float, ...]]

ERF_JOINT, ERF_SHIFT = {joint!r}, {shift!r}
ERF_END = {{24: {ends[0]!r}, 53: {ends[1]!r}}}
TWO_OVER_PI_BITS = 1280
TWO_OVER_PI_WORD = (
    {words}
)
"""2 / pi, times 2**1280."""
'''


def main() -> None:
    """Write all tables."""
    tables: dict[str, dict[int, tuple[float, ...]]] = {}
    for digits in (24, 53):
        for name, numbers in constants(digits).items():
            tables.setdefault(name, {})[digits] = numbers
        for name, fit in FITS.items():
            tables.setdefault(name, {})[digits] = fitted(name, fit, digits)
        tail = erfcx_fit(ERF_END[digits == 53])
        tables.setdefault("ERFCX", {})[digits] = fitted("ERFCX", tail, digits)
    tables["SIN_HALF_TURN"][24] = SINE_UP_TO_ONE
    with mp.workprec(2000):
        bits = int(mpmath.floor(2 / mp.pi * mpf(2) ** 1280))
    words = "\n    | ".join(
        f"0x{bits >> 64 * k & (2**64 - 1):016X} << {64 * k}" for k in reversed(range(20))
    )
    text = [HEAD.format(joint=ERF_JOINT, shift=ERF_SHIFT, ends=ERF_END, words=words)]
    for name, by_digits in tables.items():
        text.append(f"\n{name}: Numbers = {{\n")
        for digits, numbers in by_digits.items():
            if len(numbers) == 1:
                text.append(f"    {digits}: ({numbers[0]!r},),\n")
                continue
            lines = "".join(f"        {number!r},\n" for number in numbers)
            text.append(f"    {digits}: (\n{lines}    ),\n")
        text.append("}\n")
    TARGET.write_text("".join(text))


if __name__ == "__main__":
    main()
