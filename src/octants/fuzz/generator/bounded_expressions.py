"""Wraps expressions so that their values are within a bound or a range."""

from __future__ import annotations

import math

from octants.fuzz.generator.context import Context, Expr, number


def tame(c: Context, expr: Expr, limit: float) -> Expr:
    """Squash or scale what may be too large."""
    if expr.bound <= limit:
        return expr
    kind = c.rng.choices(["sin", "tanh", "scale", "ratio", "clamp"], [2, 1, 4, 1, 0.3])[0]
    if kind in ("sin", "tanh") and limit >= 1:
        return Expr(f"qd.{kind}({expr.text})", -1.0, 1.0)
    if kind == "ratio" and limit >= 1 and len(expr.text) < 30:
        c.note("division")
        return Expr(f"({expr.text}) / (1.0 + qd.abs({expr.text}))", -1.0, 1.0)
    if kind == "clamp":
        text = f"qd.max(qd.min({expr.text}, {number(limit)}), {number(-limit)})"
        return Expr(text, -limit, limit)
    factor = max(math.floor(1000 * limit / expr.bound) / 1000, 0.001)
    return Expr(f"{number(factor)} * ({expr.text})", expr.low * factor, expr.high * factor)


def fitting(c: Context, limit: float, depth: int = 2) -> Expr:
    """An expression of at most ``limit`` in magnitude."""
    return tame(c, c.floating(depth), limit)


def two(c: Context, depth: int) -> tuple[Expr, Expr]:
    """Two expressions, if possible different ones."""
    first, second = c.floating(depth), c.floating(depth)
    if first.text == second.text:
        second = c.floating(depth + 1)
    return first, second


def modulo(c: Context, expression: Expr, modulus: int) -> Expr:
    """The remainder, which is never negative."""
    c.note("integer %")
    return Expr(f"({expression.text}) % {modulus}", 0, modulus - 1)


def within(c: Context, expression: Expr, extent: int) -> Expr:
    """Brought into 0 .. extent - 1."""
    if expression.low >= 0 and expression.high < extent:
        return expression
    if c.chance(0.6):
        return modulo(c, expression, extent)
    c.note("clamped index")
    text = f"qd.min(qd.max({expression.text}, 0), {extent - 1})"
    return Expr(text, 0, extent - 1)


def index(c: Context, extent: int) -> str:
    """An index within an extent, possibly one that depends on data."""
    for _ in range(2):
        expression = c.whole(c.pick([0, 0, 1, 2]))
        if expression.low >= 0 and expression.high < extent:
            return expression.text
    return within(c, expression, extent).text
