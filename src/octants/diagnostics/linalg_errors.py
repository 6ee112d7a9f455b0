"""The mistakes with sparse matrices and their solvers: OCT6xx."""

from __future__ import annotations

from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import (
    OctantsHostIndexError,
    OctantsRuntimeTypeError,
    OctantsTypeError,
    OctantsValueError,
)


class WrongMatrixOption(UserError):
    """An option of a builder, a matrix or a solver that is not one of those that exist."""

    what: str
    option: str
    given: str
    choices: str
    code = "OCT601"
    exception = OctantsValueError
    title = "{what}: `{option}` cannot be {given}"
    remedy = "choose one of {choices}"


class TooManyEntries(UserError):
    """More entries were added to a builder than its capacity."""

    added: int
    capacity: int
    code = "OCT602"
    title = "{added} entries were added to a builder of sparse matrices that holds {capacity}"
    remedy = "create it with `max_num_triplets={added}` or more"


class EntryOutOfRange(UserError):
    """An entry outside of the matrix."""

    row: int
    column: int
    shape: str
    code = "OCT603"
    exception = OctantsHostIndexError
    title = "there is no entry ({row}, {column}) in a sparse matrix of shape {shape}"


class WrongMatrixOperand(UserError):
    """An operand that a sparse matrix cannot be combined with."""

    operation: str
    given: str
    wanted: str
    code = "OCT604"
    exception = OctantsRuntimeTypeError
    title = "{operation}: {given} cannot be an operand"
    remedy = "pass {wanted}"


class WrongOperandShape(UserError):
    """Shapes or dtypes that do not fit each other."""

    operation: str
    first: str
    second: str
    code = "OCT605"
    exception = OctantsValueError
    title = "{operation}: {first} and {second} do not match"


class NotFactorized(UserError):
    """A solver has not factorised a matrix before it solves, or has failed to."""

    problem: str
    code = "OCT606"
    title = "SparseSolver: {problem}"
    remedy = "call `compute(matrix)` first; `info()` says whether that succeeded"


class NoTranspose(UserError):
    """A gradient needs the transpose of an operator that is a kernel."""

    code = "OCT607"
    title = "the gradient of MatrixFreeBICGSTAB needs the transposed operator"
    remedy = "pass its kernel: `LinearOperator(matvec, transpose=kernel)`"


class NoTangents(UserError):
    """A solver is called in forward mode."""

    name: str
    code = "OCT608"
    title = "{name} has no derivative in forward mode"
    remedy = "solve again for the tangents: A dx = db - dA x; or use a tape"


class BuilderAccess(UserError):
    """A builder of sparse matrices is used in a kernel in another way than by adding to it."""

    code = "OCT609"
    exception = OctantsTypeError
    title = "a builder of sparse matrices takes `A[i, j] += value` and `A[i, j] -= value` only"
    label = "this is neither"
    remedy = "on the host, read entries of the matrix that `build()` returns"
