"""The mistakes with graphs: OCT46x, and with checkpoints: OCT482 to OCT487, OCT491 to OCT494."""

from __future__ import annotations

from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import (
    OctantsArgumentError,
    OctantsCompilationError,
    OctantsSyntaxError,
)


class NotInAGraph(UserError):
    """Something in the body of a capture that a replay could not do again."""

    what: str
    advice: str
    code = "OCT460"
    title = "while a graph is captured, {what}"
    notes = ("the capture ended here; the work before it was done",)


class NotCaptured(UserError):
    """A replay of a graph whose capture is still under way, or has failed."""

    problem: str
    code = "OCT461"
    title = "this graph cannot be replayed: {problem}"
    remedy = "leave the body of `qd.graph.capture()` without an error first"


class NestedCapture(UserError):
    """A capture within another one, or in another thread at the same time."""

    code = "OCT462"
    title = "a graph is being captured already; captures cannot be nested"
    remedy = "end the other capture first; one graph can hold all launches"


class GraphUnderTape(UserError):
    """A capture or a replay while a tape or forward mode is active."""

    what: str
    code = "OCT463"
    title = (
        "a graph cannot be {what} under a tape or forward mode, which would not see its launches"
    )
    remedy = "put the whole tape into the capture: `with qd.graph.capture() as g: with tape: ...`"


class GraphIsOver(UserError):
    """A replay after the arrays of a graph, or the runtime, have come to an end."""

    problem: str
    code = "OCT464"
    title = "this graph cannot be replayed any more: {problem}"
    remedy = "capture it again"


class GraphReturns(UserError):
    """``graph=True`` for a kernel that returns something."""

    kernel: str
    code = "OCT466"
    exception = OctantsCompilationError
    title = "kernel `{kernel}` has `graph=True`, but returns a value"
    remedy = "let it write to an array of one element"


class HostArrayInGraph(UserError):
    """An array of the host for a kernel with ``graph=True``, on a device with its own memory."""

    kernel: str
    parameter: str
    code = "OCT467"
    exception = OctantsArgumentError
    title = "kernel `{kernel}` has `graph=True`, but argument `{parameter}` is in host memory"
    remedy = "pass a field, an ndarray, or a tensor on the device"


class WrongGraphArgument(UserError):
    """A name of a graph that has no value, or one that does not fit."""

    name: str
    problem: str
    advice: str
    code = "OCT468"
    exception = OctantsArgumentError
    title = "argument `{name}` of the graph: {problem}"


class WrongCheckpoint(UserError):
    """A ``with checkpoint(...)`` with a wrong label, or with something that it cannot contain."""

    problem: str
    code = "OCT482"
    exception = OctantsSyntaxError
    title = "this checkpoint {problem}"
    remedy = (
        "write `with qd.checkpoint(label, yield_on=flag):` around loops, with a label of its own,"
        " an integer or a member of an `IntEnum`"
    )


class WrongFlag(UserError):
    """A counter or a ``yield_on`` that is no array of shape ()."""

    what: str
    given: str
    code = "OCT483"
    exception = OctantsArgumentError
    title = "the {what} must be an array of shape (), not a `{given}`"
    remedy = "pass `qd.ndarray(qd.i32, shape=())`, or a field of that shape"


class UncutVariable(UserError):
    """A variable that crosses a point where the host decides what runs next."""

    name: str
    code = "OCT484"
    exception = OctantsSyntaxError
    title = "variable `{name}` is needed across the end of a checkpoint or of `graph.do_while`"
    label = "the launch that begins here needs it"
    notes = ("a kernel with checkpoints is several launches, with the host in between",)
    remedy = "keep it in an array of one element; extents and constants may be used anywhere"


class CheckpointsReturn(UserError):
    """``checkpoints=True`` for a kernel that returns something."""

    kernel: str
    code = "OCT485"
    exception = OctantsCompilationError
    title = "kernel `{kernel}` has `checkpoints=True`, but returns a value"
    notes = ("such a kernel returns a `GraphStatus`",)
    remedy = "let it write to an array of one element"


class NotResumable(UserError):
    """``resume`` with a label that the kernel does not have, or of a kernel without checkpoints."""

    kernel: str
    problem: str
    code = "OCT486"
    title = "kernel `{kernel}` cannot be resumed: {problem}"
    remedy = (
        "decorate it with `@qd.kernel(graph=True, checkpoints=True)`, and pass the `checkpoint` of"
        " the `GraphStatus` that its last launch returned"
    )


class ExtremumInSegments(UserError):
    """The bare gradient of a minimum or maximum in a kernel that ran as several launches."""

    kernel: str
    fn: str
    code = "OCT491"
    exception = OctantsCompilationError
    title = "`{kernel}.grad` cannot find the value that became the {fn}imum"
    label = "this update"
    notes = (
        "a kernel with `graph.do_while` ran as several launches",
        "with `fast_math` its reverse may round differently, so that no value equals the result",
    )
    remedy = "launch the kernel under `qd.ad.Tape`, or use `qd.init(fast_math=False)`"


class RandomInSegments(UserError):
    """The bare gradient of a kernel with random numbers that ran as several launches."""

    kernel: str
    code = "OCT493"
    exception = OctantsCompilationError
    title = "`{kernel}.grad` cannot draw the random numbers again that the kernel drew"
    label = "this number"
    notes = ("a kernel with `graph.do_while` ran as several launches",)
    remedy = "launch the kernel under `qd.ad.Tape`"


class ArgumentGradientsOfSegments(UserError):
    """A tape that is to give the gradients of the arguments of a kernel of several launches."""

    kernel: str
    code = "OCT494"
    title = "a tape has no gradients of the numbers that are passed to kernel `{kernel}`"
    notes = ("a kernel with `graph.do_while` runs as several launches",)
    remedy = (
        "pass them in an array with a gradient, or call"
        " `kernel.grad.using(argument_gradients=True)` without a tape"
    )


class WholeCheckpoints(UserError):
    """A kernel with checkpoints where it would have to be one launch."""

    kernel: str
    code = "OCT487"
    title = "kernel `{kernel}` has checkpoints, so it runs as several launches, not one"
    remedy = "for its gradient, launch it under `qd.ad.Tape`; it cannot be inspected as a whole"
