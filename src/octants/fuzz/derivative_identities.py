"""Checks of the derivatives of one run: identities that hold for any right program.

Second derivatives are compared with central differences of the oracle's gradient, of two steps that
differ by a factor of two: so the error of a difference is known. A program is left out where it is
large, where rounding may change a branch, where a branch differs between the points, or where it
uses `stop_grad`, whose values change the gradient although they have no derivative.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octants.fuzz.backends import Actual, Arrays
from octants.fuzz.compare import expect
from octants.fuzz.program import Outcome, Program

LEVEL = {"f16": 0.05, "f32": 1e-3, "f64": 1e-9}


def adjoint_identity(program: Program, actual: Actual) -> Iterator[str]:
    """The two modes are the transposes of each other."""
    if actual.tangent is None or "tape" not in actual.gradients:
        return
    forward = [program.weights[name] * actual.tangent[name] for name in program.weights]
    gradient = actual.gradients["tape"]
    reverse = [gradient[name] * program.direction[name] for name in program.weights]
    sizes = [np.sum(np.abs(terms), dtype=np.float64) for terms in (*forward, *reverse)]
    ahead = sum(float(np.sum(terms, dtype=np.float64)) for terms in forward)
    back = sum(float(np.sum(terms, dtype=np.float64)) for terms in reverse)
    named = (dtype for dtype in LEVEL if f"qd.{dtype}" in program.source)  # narrowest first
    level = max(LEVEL[program.precision], LEVEL[next(named, "f64")])
    if not abs(ahead - back) <= level * (1e-6 + sum(sizes)):
        yield f"<v, J u> is {ahead!r}, <J^T v, u> is {back!r}"


STEPS = 2e-4, 1e-4
SHARPEST = 1e-3
"""The largest error of a difference, as a part of the largest derivative, that says something."""


def second_differences(program: Program, actual: Actual) -> Iterator[str]:
    """The derivative of the gradient along the direction is what differences say."""
    if actual.second is None or program.precision != "f64" or _has_narrow_floats(program):
        return
    if "stop_grad" in program.source:
        return
    found = [_difference(program, step) for step in STEPS]
    wide, narrow = found
    if wide is None or narrow is None:
        return
    expected = {name: (4 * narrow[name] - wide[name]) / 3 for name in narrow}
    margin = {name: np.abs(narrow[name] - wide[name]) for name in narrow}
    scale = max((float(np.max(np.abs(e), initial=0.0)) for e in expected.values()), default=0.0)
    if (
        max((float(np.max(d, initial=0.0)) for d in margin.values()), default=0.0)
        > SHARPEST * scale
    ):
        return
    for name, values in expected.items():
        got = actual.second[name].reshape(values.shape)
        wrong = ~(np.abs(got - values) <= margin[name] + 1e-5 * scale + 1e-7)
        if np.any(wrong):
            place = tuple(map(int, np.argwhere(wrong)[0]))
            yield (
                f"second derivative: {name}{list(place)}: expected {values[place]!r},"
                f" got {got[place]!r}"
            )


def _has_narrow_floats(program: Program) -> bool:
    return any(f"qd.{dtype}" in program.source for dtype in ("f16", "f32"))


def _difference(program: Program, step: float) -> Arrays | None:
    """The central difference of the oracle's gradient; None where it means nothing."""
    ends = [_gradient(program, sign * step) for sign in (1.0, -1.0)]
    middle = expect(program)
    (ahead, behind) = ends
    if not isinstance(middle, Outcome) or ahead is None or behind is None:
        return None
    if not ahead.path == behind.path == middle.path:
        return None
    return {
        name: (ahead.gradient[name].value - behind.gradient[name].value) / (2 * step)
        for name in ahead.gradient
    }


def _gradient(program: Program, step: float) -> Outcome | None:
    """The oracle's results where the inputs are moved along the direction."""
    moved = {
        name: values + step * program.direction[name] if name in program.direction else values
        for name, values in program.inputs.items()
    }
    found = expect(Program(**{**program.__dict__, "inputs": moved}))
    return found if isinstance(found, Outcome) else None
