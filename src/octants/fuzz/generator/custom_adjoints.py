"""Funcs with adjoints of their own: the true derivatives, so that the oracle needs to know none."""

from __future__ import annotations

from octants.fuzz.generator import vectors
from octants.fuzz.generator.context import Context, Expr, Function, Productions, Shared

_Kind = tuple[str, list[tuple[str, tuple[int, ...]]], str, tuple[int, ...], str]
"""The name, the parameters, the sort and the shape of the result, and the text.

In the text, @ stands for the name, $p and $q for numbers that keep the result small.
"""
_KINDS: list[_Kind] = [
    (
        "of two numbers",
        [("f", ()), ("f", ())],
        "f",
        (),
        """
@qd.func
def @(a: FP, b: FP):
    return $p * a * b + $q * qd.sin(a)

@@.adjoint
def @_adjoint(a, b, g):
    return g * ($p * b + $q * qd.cos(a)), $p * g * a
""",
    ),
    (
        "with a loop",
        [("f", ()), ("i", ())],
        "f",
        (),
        """
@qd.func
def @(a: FP, n):
    t = a
    for _ in range(n):
        t = 0.5 * t + $p * qd.sin(t)
    return t

@@.adjoint
def @_adjoint(a, n, g):
    t = a
    for _ in range(n):
        g *= 0.5 + $p * qd.cos(t)
        t = 0.5 * t + $p * qd.sin(t)
    return g
""",
    ),
    (
        "with a branch, of itself",
        [("f", ())],
        "f",
        (),
        """
@qd.func
def @(a: FP):
    r = $q * a
    if a < 0.25:
        r = $p * a * a + 0.25 * ($q - 0.25 * $p)
    return r

@@.adjoint
def @_adjoint(a, g):
    slope = $q
    if a < 0.25:
        slope = 2.0 * $p * a
    if @(a) > 100.0:
        slope = 0.0
    return g * slope
""",
    ),
    (
        "of a vector",
        [("f", (3,)), ("f", ())],
        "f",
        (3,),
        """
@qd.func
def @(v, a: FP):
    return v * ($q * qd.cos(a))

@@.adjoint
def @_adjoint(v, a, g):
    return g * ($q * qd.cos(a)), -$q * qd.sin(a) * g.dot(v)
""",
    ),
    (
        "of two results",
        [("f", ()), ("f", ())],
        "pair",
        (),
        """
@qd.func
def @(a: FP, b: FP):
    return $p * a * b, qd.cos(a) - $q * b

@@.adjoint
def @_adjoint(a, b, g, h):
    return $p * g * b - h * qd.sin(a), $p * g * a - $q * h
""",
    ),
]


def _declare(shared: Shared) -> list[str]:
    """Add some of the forms to the funcs of the program."""
    rng = shared.rng
    lines: list[str] = []
    for name, parameters, sort, shape, text in rng.sample(_KINDS, rng.randint(2, 4)):
        made = Function(shared.fresh("adj"), parameters, sort, shape, 4.0)
        shared.functions.append(made)
        shared.features[f"adjoint {name}"] += 1
        numbers = {"$p": rng.uniform(0.05, 0.15), "$q": rng.uniform(0.2, 0.7)}
        for mark, number in numbers.items():
            text = text.replace(mark, f"{number:.3f}")
        text = text.replace("@@", f"\0{made.name}").replace("@qd", "\0qd")
        lines += text.replace("@", made.name).replace("\0", "@").splitlines()
    return lines


def _call(c: Context, _: int) -> Expr | None:
    return vectors.call(c, "f", ())


PRODUCTIONS = Productions(floats=((2.0, _call),), declare=_declare)
