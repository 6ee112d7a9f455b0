"""The mistakes with kernels as functions of arrays: OCT35x."""

from __future__ import annotations

from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import (
    OctantsCallError,
    OctantsTypeError,
    OctantsValueError,
)


class WrongOutput(UserError):
    """A parameter that cannot be an output as it was described, or a result that is no number."""

    function: str
    name: str
    problem: str
    code = "OCT351"
    exception = OctantsTypeError
    title = "`{function}` as a function of arrays: `{name}` {problem}"
    remedy = (
        "`out` gives for each output the name of an argument of the same shape, a shape, a pair of"
        " a shape and a dtype, or a function of the arguments that returns one of these"
    )


class WrongArrayCall(UserError):
    """A call that does not fit the inputs."""

    function: str
    problem: str
    inputs: str
    code = "OCT352"
    exception = OctantsCallError
    title = "`{function}` as a function of arrays: {problem}"
    remedy = "its inputs are: {inputs}"


class NoDerivativeByArgument(UserError):
    """A derivative by an argument that is neither an array nor a number of a kernel."""

    function: str
    name: str
    code = "OCT353"
    exception = OctantsTypeError
    title = "`{function}` has no derivative by its argument `{name}`"
    remedy = (
        "there are derivatives by arrays of floats, and by the floats that a kernel itself takes"
    )


class NoSecondDerivative(UserError):
    """A derivative of a derivative that there is not."""

    what: str
    code = "OCT354"
    title = "there is no derivative of the derivative of {what}"
    remedy = "the difference of two derivatives gives the change along a direction"


class NoThirdDerivative(UserError):
    """A derivative of a step that PyTorch or JAX has composed already as far as it goes."""

    function: str
    what: str
    advice: str
    code = "OCT363"
    title = "`{function}`: there are no {what}"


class NewDraws(UserError):
    """A derivative that would draw other random numbers than the value."""

    function: str
    code = "OCT369"
    title = "`{function}` draws random numbers, so its derivative would not be that of its value"
    remedy = "draw them outside, such as by `jax.random`, and pass them as an argument"


class FieldChanged(UserError):
    """A derivative of a function that read a field that has been written since."""

    function: str
    array: str
    writer: str
    code = "OCT371"
    title = (
        "`{array}` was written by {writer} after the call of `{function}`, whose derivative"
        " reads it"
    )
    remedy = "pass it as an argument, or write it when the derivative has been taken"


class CompiledForAnotherDevice(UserError):
    """A compiled program of JAX that calls kernels of a GPU, after an `init` with another arch."""

    code = "OCT368"
    title = "JAX compiled this program for kernels on CUDA, where they do not run any more"
    remedy = "call `jax.clear_caches()` after an `init` with another `arch`"


class NoTangentsOfCustom(UserError):
    """Tangents of a function whose gradient is another function."""

    name: str
    code = "OCT364"
    title = "`{name}` has a gradient of its own, and so no tangents"
    remedy = "use reverse mode: `ad.vjp`, `ad.jacobian(..., mode='reverse')`, `ad.Tape`"


class NoDualsOfCustom(UserError):
    """Forward mode calls a function whose gradient is another function."""

    name: str
    code = "OCT366"
    title = "`{name}` has a gradient of its own, and so no tangents"
    remedy = (
        "use a tape; or call `{name}.function(...)` in `FwdMode`, if the derivative of the launches"
        " in it is the one that you want"
    )


class WrongDirection(UserError):
    """A tangent or an adjoint that has another shape than what it belongs to."""

    function: str
    name: str
    expected: tuple[int, ...]
    given: tuple[int, ...]
    code = "OCT355"
    exception = OctantsValueError
    title = "`{function}`: the direction of `{name}` has the shape {given}, not {expected}"
    remedy = "a tangent has the shape of its argument, an adjoint that of its result"


class WrongSparsity(UserError):
    """A sparsity pattern that is not that of the Jacobian."""

    function: str
    problem: str
    code = "OCT356"
    exception = OctantsValueError
    title = "the sparsity of a Jacobian of `{function}` {problem}"
    remedy = (
        "give a matrix with a row for each element of the result and a column for each of the"
        " argument, or 'probe'"
    )


class NotOneBlock(UserError):
    """A sparse Jacobian of several results, or by several arguments."""

    function: str
    results: int
    arguments: int
    code = "OCT357"
    exception = OctantsValueError
    title = (
        "a sparse Jacobian of `{function}` is of one result by one argument, not of {results} by"
        " {arguments}"
    )
    remedy = "name the argument: `by=`"


class WrongJacobianMode(UserError):
    """A mode of `jacobian` that there is not."""

    given: str
    code = "OCT358"
    exception = OctantsValueError
    title = "jacobian(mode={given}): there is no such mode"
    remedy = "pass 'auto', 'forward' or 'reverse'"


class AdjointSolveFailed(UserError):
    """The linear system of an implicit derivative has no solution that was found."""

    name: str
    problem: str
    code = "OCT359"
    title = "the derivative of what `{name}` solves for: the Jacobian of the residual {problem}"
    remedy = "check that the residual is zero at the solution only; or give a `linear_solve`"


class ComputedFromArgument(UserError):
    """A kernel takes, or an output gets, what another library computed from an argument."""

    function: str
    use: str
    code = "OCT350"
    title = (
        "`{function}` {use} an array that was computed from an argument outside of a"
        " kernel, where no derivative passes"
    )
    remedy = (
        "compute it before the call or in a kernel; or call `detach()` on it if it is a constant"
    )


class RecordedElsewhere(UserError):
    """A program that torch has recorded in another process."""

    key: str
    code = "OCT370"
    title = "the recorded program calls a kernel that this process does not have"
    remedy = "record the program again in this process: what is stored has no kernels"


class PassedAsNumber(UserError):
    """A kernel takes an array to differentiate by as a number."""

    kernel: str
    name: str
    code = "OCT372"
    title = "`{kernel}` takes a number, where the derivative by the array `{name}` does not pass"
    remedy = "let it take an array, `qd.types.ndarray(ndim=0)`, and read `{name}[None]`"


class InputIsWritten(UserError):
    """A launch wrote an input of a function, whose derivatives run the launches again."""

    function: str
    kernel: str
    name: str
    code = "OCT373"
    title = (
        "`{kernel}` writes `{name}`, an input of `{function}`: its derivatives take what that held"
        " before the call"
    )
    remedy = "name it in `inout`, for a call that updates and returns a copy, or in `out`"


class GradientEndsWithin(UserError):
    """A derivative that is zero, or lacks a term, since it ends at an array within a function."""

    array: str
    kernel: str
    derivative: str
    code = "OCT374"
    title = (
        "the {derivative} ends at `{array}`, which has no gradient: a launch wrote it, and kernel"
        " `{kernel}` reads it"
    )
    remedy = (
        "make the ndarray with `needs_grad=True`, or the tensor with `requires_grad=True`; if it is"
        " a constant, write it under `qd.ad.no_grad`"
    )


class StateChanged(UserError):
    """A function read in a field what earlier calls had left there, and changed it."""

    reader: str
    array: str
    writer: str
    code = "OCT375"
    title = (
        "`{reader}` reads `{array}`, whose elements from before the call `{writer}` changes in the"
        " same call: a derivative launches both again, and would read what the call has left there"
    )
    remedy = (
        "pass `{array}` as an argument that is named in `inout`, or set it first; count what no"
        " kernel of the function reads by `+=`"
    )
