"""The mistakes with graphs: OCT46x."""

from __future__ import annotations

from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import (
    OctantsArgumentError,
    OctantsCompilationError,
    OctantsMemoryError,
    OctantsRuntimeError,
)


class NotInAGraph(UserError):
    """Something in the body of a capture that a replay could not do again."""

    what: str
    advice: str
    code = "OCT460"
    exception = OctantsRuntimeError
    title = "while a graph is captured, {what}"
    notes = ("the capture ended here; the work before it was done",)
    remedy = "{advice}"


class NotCaptured(UserError):
    """A replay of a graph whose capture is still under way, or has failed."""

    problem: str
    code = "OCT461"
    exception = OctantsRuntimeError
    title = "this graph cannot be replayed: {problem}"
    remedy = "leave the body of `qd.graph.capture()` without an error first"


class NestedCapture(UserError):
    """A capture within another one, or in another thread at the same time."""

    code = "OCT462"
    exception = OctantsRuntimeError
    title = "a graph is being captured already; captures cannot be nested"
    remedy = "end the other capture first; one graph can hold all launches"


class GraphUnderTape(UserError):
    """A capture or a replay while a tape or forward mode is active."""

    what: str
    code = "OCT463"
    exception = OctantsRuntimeError
    title = (
        "a graph cannot be {what} under a tape or forward mode, which would not see its launches"
    )
    remedy = "put the whole tape into the capture: `with qd.graph.capture() as g: with tape: ...`"


class GraphRanOut(UserError):
    """A replay that has stopped for want of tape, and could not be given more."""

    reason: str
    count: int
    code = "OCT465"
    exception = OctantsMemoryError
    title = "a replay of a graph cannot continue: {reason}"
    notes = ("replays that are incomplete or have not begun: {count}",)
    remedy = "free memory, restore what the arrays held before, and replay it"


class GraphIsOver(UserError):
    """A replay after the arrays of a graph, or the runtime, have come to an end."""

    problem: str
    code = "OCT464"
    exception = OctantsRuntimeError
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
    remedy = "{advice}"
