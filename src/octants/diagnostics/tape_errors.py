"""The mistakes with tapes and forward mode: OCT31x."""

from __future__ import annotations

from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import (
    OctantsAssertionError,
    OctantsMemoryError,
    OctantsValueError,
)


class NestedTape(UserError):
    """A tape or forward mode within another one."""

    code = "OCT310"
    title = "a tape or forward mode is active already; they cannot be nested"
    remedy = (
        "leave the outer one first, or wait for the thread that is in it; a tape takes several"
        " losses: `loss=[...]`; for second derivatives, use `qd.ad.hvp` or `qd.ad.hessian`"
    )


class TapeIsUsed(UserError):
    """A tape was entered twice."""

    code = "OCT311"
    title = "this tape has been used already"
    remedy = "create a new `qd.ad.Tape(...)` for each pass"


class TapeNotEntered(UserError):
    """The gradient of a tape that has recorded nothing, since it was not entered."""

    code = "OCT367"
    title = "this tape has not been entered, so it has recorded nothing"
    remedy = "launch the kernels in the body of `with qd.ad.Tape(loss=...) as tape:`"


class WrongLoss(UserError):
    """Something that cannot be the loss of a tape."""

    problem: str
    code = "OCT312"
    title = "the loss of a tape {problem}"
    remedy = (
        "pass a 0-D field or an ndarray of one element with `needs_grad=True`, a torch tensor of"
        " one element with `requires_grad=True`, or a kernel that returns a float"
    )


class LossNotLaunched(UserError):
    """A kernel as the loss, launched never or more than once."""

    kernel: str
    count: int
    code = "OCT313"
    title = "kernel `{kernel}` is the loss of the tape, but was launched {count} times in its body"
    remedy = "launch it once, or sum up into a field"


class OverwrittenUnderTape(UserError):
    """A write to what a recorded launch needs, where the tape forbids it."""

    array: str
    code = "OCT314"
    title = "`{array}` is overwritten, but the gradient of an earlier launch needs its contents"
    remedy = "use `on_overwrite='save'`, the default, which keeps a copy; or write to another array"


class UntrackedChange(UserError):
    """An array that a recorded launch needs was written through a pointer."""

    array: str
    code = "OCT320"
    title = (
        "`{array}` was changed through a pointer or a shared view, which destroyed values of it or"
        " of its gradient that the tape needs"
    )
    remedy = (
        "write it with `from_numpy`, `from_torch`, `fill` or a kernel, which the tape sees; or"
        " call `mark_written()` after the write"
    )


class ChangedSinceLaunch(UserError):
    """Validation: the reverse run would read something else than the launch did."""

    array: str
    kernel: str
    code = "OCT325"
    exception = OctantsAssertionError
    title = (
        "`{array}` no longer holds what kernel `{kernel}` read on the tape, so the gradient would"
        " be wrong"
    )
    remedy = (
        "leave `on_overwrite` at 'save', and call `mark_written()` after writing through a pointer"
        " or a shared view"
    )


class TensorReplaced(UserError):
    """A tensor whose memory or shape changed in place between a launch and its reverse."""

    array: str
    kernel: str
    code = "OCT329"
    title = (
        "the tensor `{array}` has other memory, another shape or other strides than when kernel"
        " `{kernel}` was launched, so the gradient would be wrong"
    )
    remedy = (
        "until the tape has ended, write `w.copy_(...)` instead of `w.data = ...` and"
        " `v = w.t()` instead of `w.t_()`"
    )


class OperandChanged(UserError):
    """A bare gradient whose operands were written after the last launch of the kernel."""

    array: str
    kernel: str
    writer: str
    code = "OCT305"
    title = (
        "`{array}` was written by {writer} after the last launch of kernel `{kernel}`, whose"
        " gradient reads it"
    )
    remedy = (
        "record the launches with `qd.ad.Tape`, which keeps what is needed; if the array still"
        ' holds what the launch read, call `grad.using(on_overwrite="trust")`, or set this option'
        " in `init`"
    )


class OtherRandomNumbers(UserError):
    """A bare gradient of an earlier launch, after which the kernel has drawn others."""

    kernel: str
    code = "OCT376"
    title = (
        "the last launch of kernel `{kernel}`, which draws random numbers, had other arguments than"
        " its gradient"
    )
    remedy = "record the launches with `qd.ad.Tape`, whose reverse run draws what each launch drew"


class TooManySnapshots(UserError):
    """The copies of overwritten contents exceed their budget."""

    writer: str
    array: str
    nbytes: int
    held: int
    budget: int
    code = "OCT326"
    exception = OctantsMemoryError
    title = (
        "{writer} overwrites `{array}`, of which the gradient needs a copy of {nbytes} bytes, but"
        " the tape already holds {held} of its {budget} bytes"
    )
    notes = ("nothing was launched or written, and all arrays are as they were",)
    remedy = (
        "raise `init(ad_snapshot_budget_bytes=...)`, write to new elements instead (as `x[t + 1,"
        " i]`), or run the steps under `qd.ad.checkpointed`"
    )


class LogTooLarge(UserError):
    """The log of what the atomics of a launch return exceeds the budget of the tape."""

    kernel: str
    nbytes: int
    held: int
    budget: int
    code = "OCT328"
    exception = OctantsMemoryError
    title = (
        "the gradient of kernel `{kernel}` needs {nbytes} bytes for what its atomics return, but"
        " the tape already holds {held} of its {budget} bytes"
    )
    notes = ("the loop with these atomics was not run",)
    remedy = (
        "raise `init(ad_snapshot_budget_bytes=...)`, or run the steps under `qd.ad.checkpointed`"
    )


class OutOfSnapshotMemory(UserError):
    """The system has no memory for a copy of what is about to be overwritten."""

    array: str
    nbytes: int
    held: int
    code = "OCT327"
    exception = OctantsMemoryError
    title = (
        "there is no memory for a copy of {nbytes} bytes of `{array}`, which the gradient needs;"
        " the tape already holds {held} bytes"
    )
    notes = ("nothing was launched or written, and all arrays are as they were",)
    remedy = "write to new elements instead, or run steps under `qd.ad.checkpointed`"


class ArgumentGradientsNotRequested(UserError):
    """The gradients of a kernel's arguments were not asked for before the body ran."""

    kernel: str
    code = "OCT324"
    title = "the tape has no gradients of the arguments of kernel `{kernel}`"
    remedy = (
        "request them when you create the tape: `qd.ad.Tape(loss=...,"
        " argument_gradients=[{kernel}])`"
    )


class PartialOverlap(UserError):
    """Two arguments share some of their memory, and the kernel writes it."""

    kernel: str
    first: str
    second: str
    code = "OCT315"
    title = (
        "kernel `{kernel}`: `{first}` and `{second}` share memory in a way whose gradient is not"
        " supported"
    )
    remedy = "pass arrays that are the same or do not overlap"


class OverlapOnTape(UserError):
    """A launch reads memory that was written as another array."""

    reader: str
    array: str
    other: str
    writer: str
    code = "OCT338"
    title = (
        "{reader} reads {array}, but {writer} wrote the same memory as another array, {other}:"
        " derivatives do not cross from one array to another"
    )
    notes = ("arrays that share memory share no gradient: each has its own, or none",)
    remedy = (
        "import the memory once, and use that array in all launches; or copy the elements in a"
        " kernel to an array with its own memory"
    )


class DerivativeInMemory(UserError):
    """The memory of a derivative is that of another array, or of its derivative."""

    kernel: str
    array: str
    other: str
    code = "OCT339"
    title = "kernel `{kernel}`: the derivative of {array} shares its memory with {other}"
    remedy = "give each array a gradient in memory of its own, and pass a copy of it to kernels"


class WrongSeed(UserError):
    """The seed of forward mode does not fit its parameters."""

    problem: str
    code = "OCT316"
    exception = OctantsValueError
    title = "forward mode: {problem}"
    remedy = "`seed` has one number for each element of `param`; it may be left out for one element"


class WrongAdjointSeed(UserError):
    """A seed of reverse mode that does not fit."""

    what: str
    problem: str
    code = "OCT323"
    exception = OctantsValueError
    title = "`seed` of {what}: {problem}"
    remedy = "pass a number, or one number for each element of what the seed is the adjoint of"


class NoDual(UserError):
    """A parameter or loss of forward mode without a dual."""

    what: str
    problem: str
    advice: str
    code = "OCT317"
    title = "forward mode: {what} {problem}"


class WrongGradientCheck(UserError):
    """A gradient disagrees with central differences."""

    array: str
    index: str
    gradient: float
    difference: float
    code = "OCT318"
    exception = OctantsAssertionError
    title = (
        "the gradient of {array} at {index} is {gradient}, but central differences give"
        " {difference}"
    )


class CannotCheck(UserError):
    """Something that ``grad_check`` cannot run again."""

    problem: str
    code = "OCT322"
    title = "`grad_check`: {problem}"
    remedy = (
        "use a body of kernels only, fields and ndarrays with gradients, and an array as the loss"
    )


class NotReplaced(UserError):
    """``grad_for`` of a function that is not marked."""

    name: str
    code = "OCT319"
    title = "`{name}` is not decorated with `@qd.ad.grad_replaced`"
    remedy = "decorate it, or pass the function whose gradient this is"


class WrittenDuringReverse(UserError):
    """A thread wrote an array that the tape of another thread needs for its backward pass."""

    name: str
    code = "OCT492"
    title = "`{name}` is written by a thread while the tape of another one goes back through it"
    remedy = "wait for the end of the `with` statement of the tape, or write another array"


class NoGradientGiven(UserError):
    """A `grad_replaced` function was called under a tape without a gradient."""

    name: str
    code = "OCT321"
    title = "`{name}` is decorated with `@qd.ad.grad_replaced`, but has no gradient"
    remedy = "decorate its gradient with `@qd.ad.grad_for({name})`, or use `@qd.ad.no_grad`"


class NothingHasGradient(UserError):
    """``kernel.grad`` where no array of the kernel has a gradient."""

    kernel: str
    code = "OCT337"
    title = "`{kernel}.grad` has nothing to compute: none of the kernel's arrays has a gradient"
    remedy = (
        "create fields and ndarrays with `needs_grad=True`; instead of numpy arrays, pass torch"
        " tensors that require a gradient; for numbers, call"
        " `{kernel}.grad.using(argument_gradients=True)`"
    )
