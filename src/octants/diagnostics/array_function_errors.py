"""The mistakes with kernels as functions of arrays: OCT35x."""

from __future__ import annotations

from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import (
    OctantsCallError,
    OctantsRuntimeError,
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
        "there are gradients by arrays, and by the numbers that a kernel itself takes; tangents"
        " only by arrays: pass an array of one element"
    )


class NoSecondDerivative(UserError):
    """A derivative of a derivative."""

    code = "OCT354"
    exception = OctantsRuntimeError
    title = "kernels have first derivatives only, and this differentiates a derivative of one"
    remedy = (
        "leave out `create_graph=True`, nested `torch.func.grad`, `jax.grad` and the like; the"
        " difference of two gradients gives the product of the Hessian with a direction"
    )


class WrongMode(UserError):
    """A mode that there is not."""

    given: str
    code = "OCT355"
    exception = OctantsValueError
    title = "octants.jax.function(mode={given}): there is no such mode"
    remedy = "pass 'reverse', for jax.grad and jax.vjp, or 'forward', for jax.jvp"
