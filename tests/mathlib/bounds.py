"""The errors that docs/mathematics.md promises, in units of the last digit: of f32 and of f64."""

from __future__ import annotations

from octants.types.scalars import DType, f64

BOUNDS: dict[str, tuple[float, float]] = {
    "sin": (0.9, 0.9),
    "cos": (0.9, 0.9),
    "tan": (1.3, 1.2),
    "asin": (0.7, 0.7),
    "acos": (0.7, 0.7),
    "atan": (0.9, 0.9),
    "atan2": (1.5, 1.5),
    "sinh": (0.95, 1.0),
    "cosh": (0.95, 0.95),
    "tanh": (0.95, 1.0),
    "asinh": (0.9, 0.9),
    "acosh": (0.9, 0.9),
    "atanh": (0.9, 0.9),
    "exp": (0.8, 0.8),
    "exp2": (0.8, 0.8),
    "expm1": (1.4, 1.4),
    "log": (0.85, 0.85),
    "log2": (0.85, 0.85),
    "log10": (0.75, 0.75),
    "log1p": (0.85, 0.85),
    "pow": (0.85, 0.9),
    "cbrt": (0.55, 0.55),
    "erf": (1.6, 1.6),
}

FAST: dict[str, float] = {"sin": 2.3, "cos": 2.3, "exp": 1.1, "log": 0.95}
"""Those of f32 with ``fast_math``, on machines that have a fused operation."""

PLAIN: dict[str, float] = {"sin": 2.4, "cos": 2.4, "exp": 1.0, "log": 1.0}
"""The same on machines that have none."""

ESTIMATED = 3.0
"""That of exp and exp2 of f32 with ``fast_math``, on machines that estimate powers of two."""

ESTIMATED_TANH = 4.0
"""That of tanh there."""

ROOT = 1.5
"""Of rsqrt, divided or estimated."""


def bound(fn: str, dtype: DType, fast_math: bool = False) -> float:
    """The error that is promised."""
    if fn == "rsqrt":
        return ROOT
    return FAST[fn] if fast_math else BOUNDS[fn][dtype is f64]
