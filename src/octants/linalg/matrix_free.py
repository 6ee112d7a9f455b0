"""Solvers of linear systems whose matrix is a kernel that applies it; they run on the device.

Conjugate gradients: M. R. Hestenes, E. Stiefel, 1952. BiCGSTAB: H. A. van der Vorst, 1992.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from octants import driver
from octants.ad.custom_gradients import grad_for, grad_replaced
from octants.ad.tapes.tape import Tape
from octants.api import kernel
from octants.data.array_base import Tensor
from octants.data.field_factories import make_field
from octants.data.ndarray import Ndarray, make_ndarray
from octants.diagnostics.linalg_errors import NoTranspose, WrongMatrixOperand, WrongOperandShape
from octants.internal_members import internal
from octants.lang.directives import grouped, static
from octants.lang.scalar_functions import cast
from octants.linalg.numpy_vectors import refuse_tangents
from octants.types.parameter_annotations import template
from octants.types.scalars import DType, f32, f64


class LinearOperator:
    """A linear map that a kernel ``matvec(x, Ax)`` computes: it sets ``Ax`` from ``x``.

    Args:
        matvec_kernel: a kernel of two fields or ndarrays.
        transpose: one of the transposed map, for gradients of `MatrixFreeBICGSTAB`.

    Raises:
        OctantsRuntimeTypeError: one of them cannot be called.
    """

    def __init__(
        self, matvec_kernel: Callable[..., Any], transpose: Callable[..., Any] | None = None
    ) -> None:
        for given in (matvec_kernel, transpose):
            if given is not None and not callable(given):
                raise WrongMatrixOperand("LinearOperator", repr(given), "a kernel").at()
        self._matvec = matvec_kernel
        self._transpose = transpose
        self._spares: dict[Any, list[Any]] = {}

    def matvec(self, x: Any, Ax: Any) -> None:
        """Set the array `Ax` to the image of the array `x`, of the same shape.

        Raises:
            OctantsValueError: the shapes differ.
        """
        if x.shape != Ax.shape:
            raise WrongOperandShape("matvec", f"shape {x.shape}", f"{Ax.shape}").at()
        self._matvec(x, Ax)

    @internal
    def spare(self, like: Any, count: int) -> list[Any]:
        """So many arrays of the kind of another one, which the operator keeps for its solvers."""
        key = (driver.state.generation, isinstance(like, Ndarray), like.dtype, like.shape)
        found = self._spares.setdefault((*key, like.element_shape), [])
        while len(found) < count:
            found.append(_array_like(like))
        return found[:count]

    def transposed(self) -> LinearOperator:
        """The operator with both kernels exchanged.

        Raises:
            OctantsRuntimeError: there is only one kernel.
        """
        if self._transpose is None:
            raise NoTranspose().at()
        return LinearOperator(self._transpose, self._matvec)


def MatrixFreeCG(  # noqa: N802
    A: LinearOperator, b: Any, x: Any, tol: float = 1e-6, maxiter: int = 5000, quiet: bool = True
) -> bool:
    """Solve A x = b by conjugate gradients, for symmetric positive definite operators.

    A Tape records it as one call: the derivative by ``b`` takes one more solve, and those by what
    the kernel reads one gradient of the kernel.

    Example::

        @qd.kernel
        def laplacian(x: qd.types.ndarray(qd.f32, 1), Ax: qd.types.ndarray(qd.f32, 1)):
            for i in x:
                left = x[i - 1] if i > 0 else 0.0
                right = x[i + 1] if i < x.shape[0] - 1 else 0.0
                Ax[i] = 2.0 * x[i] - left - right

        b, x = qd.ndarray(qd.f32, 100), qd.ndarray(qd.f32, 100)
        b.fill(1.0)
        converged = qd.linalg.MatrixFreeCG(qd.linalg.LinearOperator(laplacian), b, x)

    Args:
        A: the operator.
        b: the right-hand side, a field or an ndarray of numbers or vectors.
        x: an array of the same kind, shape and dtype: where to begin; afterwards the solution.
        tol: the length of the residual b - A x that is small enough.
        maxiter: the most steps.
        quiet: print nothing.

    Returns:
        Whether the solution is good enough.

    Raises:
        OctantsValueError: shapes or dtypes differ.
        OctantsRuntimeError: in forward mode.
    """
    return _solve(_conjugate_gradients, A, lambda: A, b, x, (tol, maxiter, quiet))


def MatrixFreeBICGSTAB(  # noqa: N802
    A: LinearOperator, b: Any, x: Any, tol: float = 1e-6, maxiter: int = 5000, quiet: bool = True
) -> bool:
    """Solve A x = b by stabilised bi-conjugate gradients, for any operator that has an inverse.

    See `MatrixFreeCG`. On a Tape the operator needs its `transpose`.
    """
    return _solve(_stabilised, A, A.transposed, b, x, (tol, maxiter, quiet))


_Method = Callable[[LinearOperator, Any, Any, float, int, Callable[[str], None]], bool]


def _solve(
    method: _Method,
    A: LinearOperator,
    transposed: Callable[[], LinearOperator],
    b: Any,
    x: Any,
    limits: tuple[float, int, bool],
) -> bool:
    """Run a method; on a Tape as one call with a gradient of its own."""
    name = _NAMES[method]
    _check(name, b, x)
    refuse_tangents(name)
    tol, maxiter, quiet = limits
    tell = _silent if quiet else print
    tape = driver.state.own_recorder
    if not isinstance(tape, Tape) or tape.paused:
        return method(A, b, x, tol, maxiter, tell)
    back = transposed()  # an error now, and not at the end of the tape
    gradient = getattr(A._matvec, "grad", None)
    if gradient is None:
        wanted = "an operator that is a single kernel"
        raise WrongMatrixOperand(f"the gradient of {name}", "this function", wanted).at()
    result = []

    def compute() -> None:
        result.append(method(A, b, x, tol, maxiter, tell))

    def propagate() -> None:
        if not x.has_grad():
            return
        adjoint, image = (_array_like(x, needs_grad=True) for _ in range(2))
        method(back, x.grad, adjoint, tol, maxiter, _silent)
        if b.has_grad():
            _add(b.grad, adjoint, 1.0)
        A.matvec(x, image)  # what its gradient follows
        _add(image.grad, adjoint, -1.0)
        gradient(x, image)
        x.grad.clear()

    compute.__name__ = name
    call = grad_replaced(compute)
    grad_for(call)(propagate)
    call()
    return result[0]


def _silent(_: str) -> None:
    """Print nothing."""


def _array_like(like: Any, *, needs_grad: bool = False) -> Any:
    make = make_ndarray if isinstance(like, Ndarray) else make_field
    options = {"element_shape": like.element_shape, "device": like.device}
    return make(like.dtype, like.shape, needs_grad=needs_grad, **options)


def _check(name: str, b: Any, x: Any) -> None:
    for each in (b, x):
        if not isinstance(each, Tensor) or each.dtype not in (f32, f64):
            wanted = "fields or ndarrays of f32 or f64"
            raise WrongMatrixOperand(name, f"{type(each).__name__}", wanted).at()
    if b.dtype is not x.dtype:
        wanted = f"arrays of one dtype, not of {x.dtype} and {b.dtype}"
        raise WrongMatrixOperand(name, f"b of {b.dtype}", wanted).at()
    if b.shape != x.shape or b.element_shape != x.element_shape:
        raise WrongOperandShape(name, f"b of shape {b.shape}", f"x of {x.shape}").at()


# -- the methods ----------------------------------------------------------------------------------


def _conjugate_gradients(
    A: LinearOperator, b: Any, x: Any, tol: float, maxiter: int, tell: Callable[[str], None]
) -> bool:
    r, p, Ap = A.spare(x, 3)
    A.matvec(x, Ap)
    _combine(r, b, Ap, -1.0)
    p.copy_from(r)
    square = _dot(r, r)
    tell(f">>> Initial residual = {math.sqrt(square):e}")
    for step in range(maxiter):
        if math.sqrt(square) < tol or square == 0.0:
            return _converged(tell, step)
        A.matvec(p, Ap)
        curvature = _dot(p, Ap)
        if curvature == 0.0 or not math.isfinite(curvature):
            break
        alpha = square / curvature
        _add(x, p, alpha)
        _add(r, Ap, -alpha)
        before, square = square, _dot(r, r)
        _combine(p, r, p, square / before)
        tell(f">>> Iter = {step + 1:4}, Residual = {math.sqrt(square):e}")
    return _result(tell, math.sqrt(square) < tol, maxiter)


def _stabilised(
    A: LinearOperator, b: Any, x: Any, tol: float, maxiter: int, tell: Callable[[str], None]
) -> bool:
    r, shadow, p, Ap, As = A.spare(x, 5)
    A.matvec(x, Ap)
    _combine(r, b, Ap, -1.0)
    shadow.copy_from(r)
    p.copy_from(r)
    rho, norm = _dot(shadow, r), math.sqrt(_dot(r, r))
    tell(f">>> Initial residual = {norm:e}")
    for step in range(maxiter):
        if norm < tol or norm == 0.0:
            return _converged(tell, step)
        A.matvec(p, Ap)
        projection = _dot(shadow, Ap)
        if projection == 0.0 or rho == 0.0:
            break
        alpha = rho / projection
        _add(r, Ap, -alpha)
        A.matvec(r, As)
        square = _dot(As, As)
        omega = _dot(As, r) / square if square else 0.0
        _add(x, p, alpha)
        _add(x, r, omega)
        _add(r, As, -omega)
        norm = math.sqrt(_dot(r, r))
        tell(f">>> Iter = {step + 1:4}, Residual = {norm:e}")
        if omega == 0.0:
            break
        before, rho = rho, _dot(shadow, r)
        _add(p, Ap, -omega)
        _combine(p, r, p, (rho / before) * (alpha / omega))
    return _result(tell, norm < tol, maxiter)


def _converged(tell: Callable[[str], None], steps: int) -> bool:
    tell(f">>> Converged after {steps} iterations.")
    return True


def _result(tell: Callable[[str], None], is_small: bool, steps: int) -> bool:
    if is_small:
        return _converged(tell, steps)
    tell(f">>> Not converged after {steps} iterations.")
    return False


_NAMES: dict[_Method, str] = {
    _conjugate_gradients: "MatrixFreeCG",
    _stabilised: "MatrixFreeBICGSTAB",
}


# -- vectors --------------------------------------------------------------------------------------


def _dot(a: Any, b: Any) -> float:
    return float(_kernels(a.dtype).dot(a, b))


def _add(target: Any, source: Any, factor: float) -> None:
    """target += factor * source"""
    _kernels(target.dtype).combine(target, target, source, factor)


def _combine(target: Any, a: Any, b: Any, factor: float) -> None:
    """target = a + factor * b"""
    _kernels(target.dtype).combine(target, a, b, factor)


class _Kernels(NamedTuple):
    dot: Any
    combine: Any


@functools.cache
def _kernels(dtype: DType) -> _Kernels:
    """The kernels for arrays of a type, whose scalars have it, too."""

    @kernel
    def dot(a: template(), b: template()) -> dtype:  # type: ignore[valid-type]
        total = cast(0, dtype)
        for index in grouped(a):
            product = a[index] * b[index]
            if static(len(a.element_shape) > 0):
                total += product.sum()
            else:
                total += product
        return total  # type: ignore[no-any-return]

    @kernel
    def combine(  # type: ignore[no-untyped-def]
        target: template(),  # type: ignore[valid-type]
        a: template(),  # type: ignore[valid-type]
        b: template(),  # type: ignore[valid-type]
        factor: dtype,  # type: ignore[valid-type]
    ):
        for index in grouped(target):
            target[index] = a[index] + factor * b[index]

    return _Kernels(dot, combine)
