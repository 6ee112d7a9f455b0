"""Vectors between arrays and numpy, and the tape's record of results that numpy computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from octants import driver
from octants.ad.custom_gradients import grad_for, grad_replaced
from octants.ad.tapes.tape import Tape
from octants.data.array_base import Tensor
from octants.data.ndarray import Ndarray, ndarray
from octants.diagnostics.linalg_errors import NoTangents, WrongMatrixOperand, WrongOperandShape
from octants.types.scalars import DType

Source = tuple[Ndarray, Any, Any]
"""Where the derivatives by entries go: an array, and the row and column of each element."""

Back = Callable[[Any], tuple[Any, Callable[[Any, Any], Any]]]
"""From the adjoint of a result: that of the vector, and what gives those of entries of the matrix
by their rows and columns."""


def vector_of(operation: str, given: Any, dtype: DType, length: int) -> Any:
    """A vector of numpy's from a field, an ndarray, or an array of numpy's.

    Raises `OctantsRuntimeTypeError` for others, `OctantsValueError` for another length.
    """
    values = given.to_numpy() if isinstance(given, Tensor) else given
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiu":
        wanted = "a field, an ndarray or a numpy array of numbers"
        raise WrongMatrixOperand(operation, type(given).__name__, wanted).at()
    if values.shape != (length,):
        raise WrongOperandShape(operation, f"a length of {length}", f"shape {values.shape}").at()
    return values.astype(dtype.numpy, copy=False)


def refuse_tangents(name: str) -> None:
    """An error in forward mode, where tangents would be lost."""
    recorder = driver.state.own_recorder
    if recorder is not None and not isinstance(recorder, Tape) and not recorder.paused:
        raise NoTangents(name).at()


def recorded(
    name: str, dtype: DType, source: Source | None, given: Ndarray, values: Any, back: Back
) -> Ndarray:
    """The ndarray of what was computed of a matrix and a vector; a Tape can go back through it.

    Raises `OctantsRuntimeError` in forward mode.
    """
    refuse_tangents(name)
    needs_grad = given.has_grad() or source is not None
    result = ndarray(dtype, len(values), needs_grad=needs_grad, device=given.device)

    def compute() -> None:
        result.from_numpy(np.ascontiguousarray(values, dtype.numpy))

    def propagate() -> None:
        adjoint = result.grad.to_numpy()
        result.grad.clear()
        of_given, of_entries = back(adjoint)
        if given.has_grad():
            given.grad.add(of_given)
        if source is not None:
            target, rows, columns = source
            shares = target.to_numpy()
            shares[: len(rows)] += of_entries(rows, columns)
            target.from_numpy(shares)

    compute.__name__ = name
    if needs_grad:
        call = grad_replaced(compute)
        grad_for(call)(propagate)
        call()
    else:
        compute()
    return result
