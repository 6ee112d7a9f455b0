"""The mistakes with values, types, shapes and functions of the library: OCT2xx."""

from __future__ import annotations

from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import (
    OctantsCallError,
    OctantsRuntimeTypeError,
    OctantsTypeError,
)

# -- operators and types ---------------------------------------------------------------------------


class WrongOperands(UserError):
    """A binary operator that is not defined for its operands."""

    operator: str
    lhs: str
    rhs: str
    advice: str = ""
    code = "OCT201"
    exception = OctantsTypeError
    title = "`{operator}` is not defined for {lhs} and {rhs}"
    label = "{lhs} {operator} {rhs}"


class WrongOperand(UserError):
    """A unary operator or a function that is not defined for its operand."""

    operator: str
    operand: str
    advice: str = ""
    code = "OCT202"
    exception = OctantsTypeError
    title = "`{operator}` is not defined for {operand}"
    label = "this is {operand}"


class ShapesDiffer(UserError):
    """Vectors or matrices whose shapes do not go together."""

    operator: str
    lhs: str
    rhs: str
    advice: str = ""
    code = "OCT203"
    exception = OctantsTypeError
    title = "`{operator}`: the shapes of {lhs} and {rhs} do not match"
    label = "{lhs} {operator} {rhs}"


class AmbiguousTruth(UserError):
    """A vector or matrix as a condition."""

    what: str
    code = "OCT204"
    exception = OctantsTypeError
    title = "{what} is neither true nor false"
    label = "used as a condition"
    remedy = "use `.any()` or `.all()`"


class LiteralTooLarge(UserError):
    """An integer literal that its type cannot hold."""

    number: int
    dtype: str
    advice: str
    code = "OCT205"
    exception = OctantsTypeError
    title = "the integer {number} does not fit in {dtype}"
    label = "it would be {dtype} here"


class NotAType(UserError):
    """Something else where a scalar type is needed."""

    function: str
    given: str
    code = "OCT206"
    exception = OctantsTypeError
    title = "`{function}` needs a scalar type, not {given}"
    label = "not a type"
    remedy = "pass a type such as `qd.f32`, `qd.i32`, `int` or `float`"


class DifferentWidths(UserError):
    """A bit_cast between types of different widths."""

    source: str
    target: str
    code = "OCT207"
    exception = OctantsTypeError
    title = "`bit_cast` cannot read {source} as {target}"
    label = "the types have different widths"
    remedy = "use `qd.cast` to convert the value"


# -- vectors and matrices --------------------------------------------------------------------------


class WrongElements(UserError):
    """A vector or matrix cannot be made from what was given."""

    what: str
    problem: str
    code = "OCT210"
    exception = OctantsTypeError
    title = "{what} cannot be made: {problem}"
    label = "made here"


class WrongShape(UserError):
    """A method of vectors or matrices on a shape that it is not for."""

    method: str
    wanted: str
    given: str
    advice: str = ""
    code = "OCT211"
    exception = OctantsTypeError
    title = "`{method}` is for {wanted}, not for {given}"
    label = "this is {given}"


# -- functions -------------------------------------------------------------------------------------


class WrongArgumentValue(UserError):
    """An argument of a function of the library that it cannot work with."""

    function: str
    problem: str
    advice: str = ""
    code = "OCT220"
    exception = OctantsTypeError
    title = "`{function}`: {problem}"
    label = "called here"


class NotAnElement(UserError):
    """An atomic on something that is not in memory."""

    function: str
    given: str
    code = "OCT221"
    exception = OctantsCallError
    title = "`{function}` changes an element of a field or array, or a variable, not {given}"
    label = "this is {given}"
    remedy = "write `qd.{function}(x[i], value)`"


class WrongAtomic(UserError):
    """An atomic that is not defined for the type of its element."""

    function: str
    dtype: str
    advice: str = ""
    code = "OCT222"
    exception = OctantsTypeError
    title = "`{function}` is not defined for {dtype}"
    label = "this element holds {dtype}"


class NotAMember(UserError):
    """A struct that is given a member that it does not have, or too many of them."""

    struct: str
    problem: str
    members: str
    code = "OCT223"
    exception = OctantsTypeError
    title = "{struct} {problem}"
    label = "made here"
    notes = ("its members are {members}",)


class MissingElementType(UserError):
    """A vector or matrix type without an element type, where memory or a value is made of it."""

    kind: str
    example: str
    code = "OCT224"
    exception = OctantsTypeError
    title = "the type `{kind}` has no element type"
    label = "needs an element type"
    notes = ("without an element type, a type only checks shapes",)
    remedy = "state it: `qd.types.{example}`"


# -- on the host -----------------------------------------------------------------------------------


class KernelOnly(UserError):
    """A function of kernels that was called on the host."""

    name: str
    code = "OCT230"
    title = "`{name}` works in kernels only"
    remedy = "call it inside a function that is decorated with `@qd.kernel` or `@qd.func`"


class WrongHostValue(UserError):
    """A vector, matrix or struct on the host that cannot be made or used so."""

    what: str
    problem: str
    code = "OCT231"
    exception = OctantsRuntimeTypeError
    title = "{what}: {problem}"


class MaskedArrayGiven(UserError):
    """An array of ``numpy.ma``, whose mask nothing would take into account."""

    what: str
    code = "OCT232"
    exception = OctantsRuntimeTypeError
    title = "{what}: there are no masked arrays here"
    remedy = "pass `a.filled(number)`, or `a.data` for all elements, masked or not"


# -- algorithms ------------------------------------------------------------------------------------


class WrongAlgorithmArray(UserError):
    """An array that an algorithm cannot work on."""

    function: str
    wanted: str
    given: str
    code = "OCT247"
    exception = OctantsRuntimeTypeError
    title = "`{function}` takes {wanted}, not {given}"
    remedy = "pass `qd.field(dtype, n)` or `qd.ndarray(dtype, n)`"
