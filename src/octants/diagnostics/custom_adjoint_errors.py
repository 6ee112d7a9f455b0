"""The mistakes with functions that have an adjoint of their own: OCT36x."""

from __future__ import annotations

from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import (
    OctantsCompilationError,
    OctantsTypeError,
)


class WrongAdjoint(UserError):
    """An adjoint that does not fit its function."""

    name: str
    problem: str
    code = "OCT360"
    exception = OctantsTypeError
    title = "the adjoint of `{name}` {problem}"
    label = "called here"
    remedy = (
        "an adjoint takes the arguments of the function, then the adjoint of each result; it"
        " returns the adjoint of each float argument, in the order of the arguments"
    )


class LateAdjoint(UserError):
    """An adjoint of a function that kernels were compiled with."""

    name: str
    code = "OCT365"
    title = "`{name}` gets an adjoint after kernels that call it were compiled"
    remedy = "define the adjoint right after the function; to change it, define both again"


class ImpureAdjoint(UserError):
    """A function with an adjoint, or an adjoint, that does more than to compute its result."""

    name: str
    problem: str
    advice: str
    code = "OCT361"
    exception = OctantsCompilationError
    title = "`{name}` {problem}"
    label = "here"


class NonlinearAdjoint(UserError):
    """Forward mode through an adjoint that is no product with a transposed Jacobian."""

    code = "OCT362"
    exception = OctantsCompilationError
    title = "forward mode cannot use an adjoint that is not linear in the adjoints of the results"
    label = "called here"
    remedy = (
        "use reverse mode, or compute each returned adjoint as a sum of products of one adjoint of"
        " a result with a number that does not depend on them"
    )
