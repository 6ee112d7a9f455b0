"""``ad.implicit``: the derivative of what a solver finds, by the equation that it solves.

For x with ``r(x, p) = 0``, dx/dp = -(dr/dx)^-1 dr/dp. So the adjoint of p is that of x, solved with
the transposed Jacobian dr/dx, times -dr/dp. The iterations of the solver are not differentiated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from octants import driver
from octants.ad.array_libraries.numpy_array_library import NumpyArrays
from octants.ad.functions.array_function import ArrayFunction
from octants.ad.functions.linear_operators import Array, Product
from octants.ad.tangents import Tangents
from octants.ad.tapes.tape import Tape
from octants.ad.tapes.tape_entries import CustomEntry
from octants.data.array_base import Tensor
from octants.deferred_import import Deferred
from octants.diagnostics.kernel_as_function_errors import (
    AdjointSolveFailed,
    NoSecondDerivative,
    WrongOutput,
)
from octants.diagnostics.linalg_errors import NoTangents
from octants.launch.gradients.taped_memory import TapedMemory, memory_of
from octants.types.companions import Companion

if TYPE_CHECKING:
    from scipy.sparse import linalg as sparse_linalg
else:
    sparse_linalg = Deferred("scipy.sparse.linalg")

LARGEST_DENSE = 64
"""The most unknowns of an adjoint system that is solved by elimination."""
RESTART = 60

LinearSolve = Callable[[Callable[[Array], Array], Array], Array]


class Implicit:
    """A solver with the derivative of its solution; `implicit` makes it."""

    def __init__(
        self,
        solve: Callable[..., Any],
        residual: Callable[..., Any],
        linear_solve: LinearSolve | None,
    ) -> None:
        self._solve = solve
        self._linear_solve = linear_solve
        self.name = self.__name__ = getattr(solve, "__name__", repr(solve))
        first, *_, last = ArrayFunction(residual, None, (), NumpyArrays()).parameters
        if first == last:
            raise WrongOutput(self.name, first, "is the unknown, and there is no residual").at()
        self._residual = ArrayFunction(residual, {last: first}, (), NumpyArrays())

    def __call__(self, unknown: Any, *parameters: Any) -> Any:
        """Solve for the unknown, an array that the solver overwrites."""
        tape: Any = driver.state.own_recorder
        if tape is None or tape.paused:
            return self._solve(unknown, *parameters)
        if not isinstance(tape, Tape):
            if isinstance(tape, Tangents) and tape.tape is not None:
                raise NoSecondDerivative(f"the solution of `{self.name}`").at()
            raise NoTangents(f"the solution of `{self.name}`").at()
        with tape.custom_call() as call:
            result = self._solve(unknown, *parameters)
        arguments = dict(zip(self._residual.inputs, (unknown, *parameters), strict=True))
        memories = {name: memory_of(a, name) for name, a in arguments.items() if _is_array(a)}
        for memory in memories.values():
            tape.touch(memory)
        contents = tape.need_all(memories.values(), self.name)
        written = {*call.written, *(memory.key for memory in list(memories.values())[:1])}
        propagate = partial(self._propagate, arguments, memories)
        tape.append(CustomEntry(self.name, propagate, contents, written))
        return result

    def _propagate(self, arguments: dict[str, Any], memories: dict[str, TapedMemory]) -> None:
        """Add to the gradients of the parameters, and end that of the unknown."""
        first, *others = self._residual.inputs
        gradient = memories[first].array.companion_array(Companion.ADJOINT)
        if gradient is None:
            return
        values = {name: memory.array.read() for name, memory in memories.items()}
        bound = arguments | values
        adjoint = gradient.read()
        gradient.clear()
        with _unrecorded():
            solved = self._solved(bound, first, adjoint)
            wanted = [
                name
                for name in others
                if name in memories
                and memories[name].array.companion_array(Companion.ADJOINT) is not None
            ]
            _, found = self._residual.pullback(bound, [solved], wanted)
        for name in wanted:
            _add(memories[name].array.companion_array(Companion.ADJOINT), -found[name])

    def _solved(self, bound: dict[str, Any], first: str, adjoint: Array) -> Array:
        """The adjoint of the residual: the solution with the transposed Jacobian."""

        def times(vector: Array) -> Array:
            given = vector.astype(adjoint.dtype).reshape(adjoint.shape)
            _, found = self._residual.pullback(bound, [given], [first])
            return np.ravel(found[first])

        right = adjoint.ravel()
        found = (self._linear_solve or _solve_linear)(times, right)
        if not np.all(np.isfinite(found)):
            raise AdjointSolveFailed(self.name, "is singular, or GMRES has not converged").at()
        solved: Array = np.asarray(found, adjoint.dtype).reshape(adjoint.shape)
        return solved


def implicit(
    solve: Callable[..., Any],
    residual: Callable[..., Any],
    *,
    linear_solve: LinearSolve | None = None,
) -> Implicit:
    """A solver whose derivative is that of its solution, not of its iterations.

    A tape records a call of it as one event. In the backward pass, one linear system with the
    transposed Jacobian of the residual is solved. It serves linear and nonlinear systems, fixed
    points (the residual of ``x = g(x)`` is ``g(x) - x``), and times of events (the unknown has one
    element, the time, and the residual is what is zero then). Example::

        @qd.kernel
        def residual(x: vec, stiffness: vec, r: vec):
            for i in x:
                r[i] = stiffness[i] * (x[i] + x[i] ** 3) - 1.0

        def solve(x, stiffness):
            ...  # by kernels, numpy, scipy: anything that leaves the solution in x

        equilibrium = qd.ad.implicit(solve, residual)
        with qd.ad.Tape(loss=loss):
            equilibrium(x, stiffness)
            measure(x, loss)

    Args:
        solve: a Python function of the unknown, an array that it overwrites with the solution, and
            of the parameters.
        residual: a kernel, or a Python function that launches kernels, of the unknown, the
            parameters, and an array of the shape of the unknown that begins as zeros, into which it
            writes the residual. It writes nothing else.
        linear_solve: a function of the product of the transposed Jacobian with a vector, and of the
            right side, that returns the solution, all of numpy. By default up to 64 unknowns are
            eliminated, and GMRES of scipy solves for more.

    Returns:
        A function of the arguments of ``solve``. Parameters that are arrays with a gradient get
        one; numbers, and what the functions use besides, are constants.

    Raises:
        OctantsTypeError: ``residual`` has one parameter only.
        OctantsRuntimeError: at a call: forward mode or a second derivative is asked for; in the
            backward pass: the Jacobian is singular, or GMRES has not found the solution.
    """
    return Implicit(solve, residual, linear_solve)


def _solve_linear(times: Callable[[Array], Array], right: Array) -> Array:
    """Solve a system that is known by its products; NaNs stand for no solution."""
    if right.size <= LARGEST_DENSE:
        product = Product(lambda units: np.stack(list(map(times, units))), right.size, right.size)
        matrix = product.matrix().T
        try:
            solved: Array = np.linalg.solve(matrix.astype(np.float64), right)
            return solved
        except np.linalg.LinAlgError:
            return np.full(right.shape, np.nan)
    operator = sparse_linalg.LinearOperator((right.size,) * 2, matvec=times, dtype=right.dtype)
    level = 100 * float(np.finfo(right.dtype).eps)
    found, failed = sparse_linalg.gmres(operator, right, rtol=level, restart=RESTART)
    return np.full(right.shape, np.nan) if failed else found


@contextlib.contextmanager
def _unrecorded() -> Iterator[None]:
    """A backward pass within that of a tape, on arrays of its own."""
    around = driver.state.recorder
    driver.state.recorder = None
    try:
        yield
    finally:
        driver.state.recorder = around


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, np.generic)


def _add(array: Any, values: Array) -> None:
    if isinstance(array, Tensor):
        array.add(values)
    else:
        array.restore(array.read() + values)
