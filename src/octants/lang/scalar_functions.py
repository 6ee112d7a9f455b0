"""The functions of scalars that kernels call; vectors and matrices are taken element by element.

In a kernel their meaning is given by `octants.frontend.calls.builtins`, and integers that are given
to a function of floats become the default float. On the host they compute with numpy, on numbers
and on `Vector` and `Matrix` values. The derivatives at kinks are stated here: they are always
finite.
"""

from __future__ import annotations

import builtins
import math
from functools import reduce
from typing import Any

import numpy as np

from octants.lang.function_typing_stubs import binary_float, extremum, same_type, unary_float
from octants.lang.library_function_marks import kernel_only
from octants.types.default_types import resolve
from octants.types.matrix_values import Matrix, map_elements
from octants.types.scalars import convert

# -- powers and roots ------------------------------------------------------------------------------


@unary_float
def sqrt(x: Any) -> Any:
    """The square root; its derivative at 0 is 0."""
    return map_elements(np.sqrt, x)


@unary_float
def rsqrt(x: Any) -> Any:
    """One over the square root; its derivative at 0 is 0."""
    return map_elements(lambda a: 1.0 / np.sqrt(np.asarray(a, float)), x)


@unary_float
def cbrt(x: Any) -> Any:
    """The cube root, of negative numbers too; its derivative at 0 is 0."""
    return map_elements(np.cbrt, x)


def pow(base: Any, exponent: Any) -> Any:  # noqa: A001 - a name of the language
    """``base ** exponent``; derivatives: 0 in the exponent where the base is not positive."""
    return map_elements(lambda a, b: a**b, base, exponent)


@unary_float
def exp(x: Any) -> Any:
    """The exponential function."""
    return map_elements(np.exp, x)


@unary_float
def exp2(x: Any) -> Any:
    """Two to the power of ``x``."""
    return map_elements(np.exp2, x)


@unary_float
def expm1(x: Any) -> Any:
    """``exp(x) - 1``, accurate for small ``x``."""
    return map_elements(np.expm1, x)


@unary_float
def log(x: Any) -> Any:
    """The natural logarithm."""
    return map_elements(np.log, x)


@unary_float
def log2(x: Any) -> Any:
    """The logarithm to base 2."""
    return map_elements(np.log2, x)


@unary_float
def log10(x: Any) -> Any:
    """The logarithm to base 10."""
    return map_elements(np.log10, x)


@unary_float
def log1p(x: Any) -> Any:
    """``log(1 + x)``, accurate for small ``x``."""
    return map_elements(np.log1p, x)


# -- trigonometry ----------------------------------------------------------------------------------


@unary_float
def sin(x: Any) -> Any:
    """The sine of an angle in radians."""
    return map_elements(np.sin, x)


@unary_float
def cos(x: Any) -> Any:
    """The cosine of an angle in radians."""
    return map_elements(np.cos, x)


@unary_float
def tan(x: Any) -> Any:
    """The tangent of an angle in radians."""
    return map_elements(np.tan, x)


@unary_float
def asin(x: Any) -> Any:
    """The inverse sine, in [-pi/2, pi/2]."""
    return map_elements(np.arcsin, x)


@unary_float
def acos(x: Any) -> Any:
    """The inverse cosine, in [0, pi]."""
    return map_elements(np.arccos, x)


@unary_float
def atan(x: Any) -> Any:
    """The inverse tangent, in (-pi/2, pi/2)."""
    return map_elements(np.arctan, x)


@binary_float
def atan2(x1: Any, x2: Any) -> Any:
    """The angle of the point `(x2, x1)`, in [-pi, pi]; its derivatives at (0, 0) are 0."""
    return map_elements(np.arctan2, x1, x2)


@unary_float
def sinh(x: Any) -> Any:
    """The hyperbolic sine."""
    return map_elements(np.sinh, x)


@unary_float
def cosh(x: Any) -> Any:
    """The hyperbolic cosine."""
    return map_elements(np.cosh, x)


@unary_float
def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    return map_elements(np.tanh, x)


@unary_float
def asinh(x: Any) -> Any:
    """The inverse hyperbolic sine."""
    return map_elements(np.arcsinh, x)


@unary_float
def acosh(x: Any) -> Any:
    """The inverse hyperbolic cosine."""
    return map_elements(np.arccosh, x)


@unary_float
def atanh(x: Any) -> Any:
    """The inverse hyperbolic tangent."""
    return map_elements(np.arctanh, x)


@unary_float
def erf(x: Any) -> Any:
    """The error function."""
    return map_elements(np.vectorize(math.erf, otypes=[float]), x)


# -- rounding and signs ----------------------------------------------------------------------------


def floor(x: Any, dtype: Any = None) -> Any:
    """The greatest whole number that is not above ``x``, of x's type or of ``dtype``."""
    return _whole(np.floor, x, dtype)


def ceil(x: Any, dtype: Any = None) -> Any:
    """The least whole number that is not below ``x``, of x's type or of ``dtype``."""
    return _whole(np.ceil, x, dtype)


def round(x: Any, dtype: Any = None) -> Any:  # noqa: A001 - a name of the language
    """The whole number nearest to `x`, of x's type or of `dtype`; further from zero at a tie.

    Python's ``round``, which kernels have too, gives the even one at a tie: 2 for 2.5.
    """
    return _whole(_half_away, x, dtype)


def _half_away(x: Any) -> Any:
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.sign(x), whole)[()]


def trunc(x: Any, dtype: Any = None) -> Any:
    """``x`` without its fraction, of x's type or of ``dtype``."""
    return _whole(np.trunc, x, dtype)


def _whole(function: Any, x: Any, dtype: Any) -> Any:
    whole = map_elements(function, x)
    return whole if dtype is None else cast(whole, dtype)


@same_type
def abs(x: Any) -> Any:  # noqa: A001 - a name of the language
    """The absolute value; its derivative at 0 is 0."""
    return map_elements(np.abs, x)


@same_type
def sign(x: Any) -> Any:
    """-1, 0 or 1, of x's type."""
    return map_elements(np.sign, x)


def isnan(x: Any) -> Any:
    """Whether ``x`` is not a number."""
    return map_elements(np.isnan, x)


def isinf(x: Any) -> Any:
    """Whether ``x`` is an infinity."""
    return map_elements(np.isinf, x)


# -- choices ---------------------------------------------------------------------------------------
# Integers of Python are compared as they are: numpy has none that 2**64 - 1 and -1 both fit.


def _are_integers(*operands: Any) -> bool:
    return all(type(operand) is int for operand in operands)


def _fmin(a: Any, b: Any) -> Any:
    return builtins.min(a, b) if _are_integers(a, b) else np.fmin(a, b)


def _fmax(a: Any, b: Any) -> Any:
    return builtins.max(a, b) if _are_integers(a, b) else np.fmax(a, b)


def _where(condition: Any, a: Any, b: Any) -> Any:
    if np.ndim(condition) == 0 and _are_integers(a, b):
        return a if condition else b
    return np.where(condition, a, b)


@extremum
def min(first: Any, *others: Any) -> Any:  # noqa: A001 - a name of the language
    """The least of the operands, by element; at a tie the first one has the derivative."""
    return reduce(lambda a, b: map_elements(_fmin, a, b), others, first)


@extremum
def max(first: Any, *others: Any) -> Any:  # noqa: A001 - a name of the language
    """The greatest of the operands, by element; at a tie the first one has the derivative."""
    return reduce(lambda a, b: map_elements(_fmax, a, b), others, first)


def select(cond: Any, x1: Any, x2: Any) -> Any:
    """``x1`` or ``x2``, by element of ``cond``; both are evaluated."""
    return map_elements(_where, cond, x1, x2)


# -- types and bits --------------------------------------------------------------------------------


def cast(obj: Any, dtype: Any) -> Any:
    """`obj` converted to the type `dtype`: integers wrap, floats are truncated and saturate."""
    return obj.cast(dtype) if isinstance(obj, Matrix) else convert(obj, resolve(dtype))


def as_floats(x: Any, dtype: Any = None) -> Any:
    """``x`` as ``dtype``; without one as it is, but integers as the default float."""
    if dtype is not None:
        return cast(x, dtype)
    return map_elements(lambda a: np.asarray(a) * 1.0, x)


@kernel_only
def bit_cast(obj: Any, dtype: Any) -> Any:
    """The bits of `obj` read as the type `dtype` of the same width; derivatives end here."""


def raw_div(x1: Any, x2: Any) -> Any:
    """``x1 / x2``, for two integers truncated towards zero as in C."""
    return map_elements(_raw_div, x1, x2)


def _raw_div(a: Any, b: Any) -> Any:
    if np.asarray(a).dtype.kind == "f" or np.asarray(b).dtype.kind == "f":
        return a / b
    return np.where(np.asarray(b) == 0, 0, np.trunc(np.divide(a, b))).astype(int)[()]


def raw_mod(x1: Any, x2: Any) -> Any:
    """The remainder of ``raw_div``, with the sign of ``x1`` as in C."""
    return map_elements(np.fmod, x1, x2)


@kernel_only
def bit_shr(x1: Any, x2: Any) -> Any:
    """``x1`` shifted by ``x2`` to the right with zeros coming in, whatever its sign."""


@kernel_only
def popcnt(x: Any) -> Any:
    """The number of bits that are 1."""


@kernel_only
def clz(x: Any) -> Any:
    """The number of zero bits above the highest bit that is 1."""


@kernel_only
def ffs(x: Any) -> Any:
    """The position of the lowest bit that is 1, counted from 1; 0 if there is none."""


def zero(x: Any) -> Any:
    """Zero, of the type and shape of ``x``."""
    return map_elements(np.zeros_like, x)


def one(x: Any) -> Any:
    """One, of the type and shape of ``x``."""
    return map_elements(np.ones_like, x)


def stop_grad(x: Any) -> Any:
    """``x`` without derivatives: a value, or a whole field or ndarray.

    Of an array, nothing that the block of statements around the call loads has derivatives, before
    the call and after it, in nested blocks too: the body of a loop, a branch of an ``if``, or the
    whole kernel. In a func it is the block of the call.

    Example::

        @qd.kernel
        def weighted(x: qd.types.ndarray(qd.f32, 1), loss: qd.types.ndarray(qd.f32, 0)):
            for i in x:
                weight = qd.stop_grad(1.0 / (1.0 + abs(x[i])))  # a constant for the derivative
                loss[None] += weight * x[i] ** 2
    """
    return x


def with_derivative_of(x: Any, y: Any) -> Any:  # noqa: ARG001 - kernels take its derivatives
    """``x`` with the derivatives of ``y``, for functions of the language that know better ones.

    What only `y` needs is not computed where no derivatives are taken.
    """
    return x
