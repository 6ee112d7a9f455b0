"""Functions with a custom gradient, or without one; a tape records a call of one as one event."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from octants import driver
from octants.ad.tapes.tape import Tape
from octants.ad.tapes.tape_entries import CustomEntry
from octants.deferred_import import Deferred
from octants.diagnostics.tape_errors import NoGradientGiven, NotReplaced

if TYPE_CHECKING:
    from octants.ad import forward_mode, tangents
    from octants.diagnostics import kernel_as_function_errors as errors
else:
    forward_mode = Deferred("octants.ad.forward_mode")
    tangents = Deferred("octants.ad.tangents")
    errors = Deferred("octants.diagnostics.kernel_as_function_errors")


def no_grad(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function or a kernel whose launches take no part in derivatives.

    A tape does not record the launches, and forward mode runs them without tangents: adjoints pass
    as if the function had not been called.

    Example::

        @qd.ad.no_grad
        def monitor():
            count_collisions()

        with qd.ad.Tape(loss=loss):
            step()
            monitor()
    """

    @functools.wraps(function)
    def unrecorded(*args: Any, **named: Any) -> Any:
        recorder = driver.state.own_recorder
        if recorder is None:
            return function(*args, **named)
        recorder.paused += 1
        try:
            return function(*args, **named)
        finally:
            recorder.paused -= 1

    unrecorded.grad = _nothing  # type: ignore[attr-defined]
    return unrecorded


def _nothing(*args: Any, **named: Any) -> None:
    """The gradient of a function without one."""


class ReplacedFunction:
    """A function whose gradient is another function, given by `grad_for`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.grad: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **named: Any) -> Any:
        tape = driver.state.own_recorder
        if tape is None or tape.paused:
            return self.function(*args, **named)
        if isinstance(tape, tangents.Tangents):
            if tape.tape is None:
                raise errors.NoTangentsOfCustom(self.function.__name__).at()
            raise errors.NoSecondDerivative(
                f"`{self.function.__name__}`, which has a gradient of its own"
            ).at()
        if isinstance(tape, forward_mode.FwdMode):
            raise errors.NoDualsOfCustom(self.function.__name__).at()
        if not isinstance(tape, Tape):
            return self.function(*args, **named)
        if self.grad is None:
            raise NoGradientGiven(self.function.__name__).at()
        with tape.custom_call() as call:
            result = self.function(*args, **named)
        gradient = functools.partial(self.grad, *args, **named)
        name = self.function.__name__
        needed = tape.need_all(call.memories.values(), name)
        tape.append(CustomEntry(name, gradient, needed, call.written))
        return result

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        return self if owner is None else functools.partial(self, owner)


def grad_replaced(function: Callable[..., Any]) -> ReplacedFunction:
    """Decorate a host function whose gradient `grad_for` gives.

    A tape records a call of it as one event, not the launches in it. Its reverse calls the gradient
    with the same arguments, on memory as the call left it. In forward mode a call is an error,
    since a gradient gives no tangents; ``name.function`` is what was decorated.

    Example::

        @qd.ad.grad_replaced
        def project():
            solve_pressure()

        @qd.ad.grad_for(project)
        def project_grad():
            solve_pressure_adjoint()
    """
    return ReplacedFunction(function)


def grad_for(primal: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate the gradient of a `grad_replaced` function; it takes the same arguments.

    Raises:
        OctantsRuntimeError: ``primal`` is not decorated with `grad_replaced`.
    """

    def register(gradient: Callable[..., Any]) -> Callable[..., Any]:
        if not isinstance(primal, ReplacedFunction):
            raise NotReplaced(getattr(primal, "__name__", str(primal))).at()
        primal.grad = gradient
        return gradient

    return register
