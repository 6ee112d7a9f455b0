"""The mistakes with checkpointed loops: OCT33x."""

from __future__ import annotations

from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import (
    OctantsMemoryError,
    OctantsValueError,
)


class WrongLoop(UserError):
    """An argument of `checkpointed` that cannot be."""

    problem: str
    remedy_text: str
    code = "OCT330"
    exception = OctantsValueError
    title = "`qd.ad.checkpointed`: {problem}"
    remedy = "{remedy_text}"


class StepChanged(UserError):
    """A step that was run again did something else than the first time."""

    step: int
    first: str
    again: str
    code = "OCT331"
    title = (
        "step {step} of a checkpointed loop did something different when it ran again for its"
        " gradient"
    )
    notes = ("the first time it {first}", "now it {again}")
    remedy = (
        "let the step depend only on its number and on arrays: keep Python variables that it"
        " changes, and random numbers of numpy, in a field, or compute them from the number"
    )


class StepHasFailed(UserError):
    """The body of a tape went on after a step had raised."""

    step: int
    error: str
    code = "OCT332"
    title = "step {step} of a checkpointed loop raised {error}, so its launches have no gradient"
    remedy = "let the exception leave the body of the tape; to end a loop, return False from `step`"


class StepChangesGradient(UserError):
    """A step writes the gradient of an array, which would happen again in the backward pass."""

    what: str
    code = "OCT333"
    title = "{what} in a step of a checkpointed loop, which the backward pass runs again"
    remedy = "change gradients before or after the tape"


class SnapshotsTooLarge(UserError):
    """The snapshots of a checkpointed loop exceed the budget."""

    array: str
    nbytes: int
    held: int
    budget: int
    slots: int
    code = "OCT334"
    exception = OctantsMemoryError
    title = (
        "a snapshot of `{array}` takes {nbytes} bytes, but the tape and the checkpointed loop"
        " already hold {held} of their {budget} bytes"
    )
    remedy = (
        "use fewer than {slots} `slots`, which repeats more steps, or raise"
        " `init(ad_snapshot_budget_bytes=...)`"
    )


class NoArgumentGradients(UserError):
    """The gradients of arguments of launches in a checkpointed loop were asked for."""

    kernel: str
    code = "OCT335"
    title = (
        "kernel `{kernel}` is launched in a checkpointed loop, which computes no gradients of"
        " arguments that are passed by value"
    )
    remedy = "pass the number in a field or an ndarray with `needs_grad=True`"


class OrderChanged(UserError):
    """A kernel in a checkpointed loop depends on the order of work items, which no run repeats."""

    kernel: str
    code = "OCT336"
    title = (
        "kernel `{kernel}` depends on the order in which work items update an array, and a"
        " checkpointed loop runs it again, in another order"
    )
    remedy = "fix the order with `init(deterministic=True)`"
