"""The mistakes with work items that work together in blocks: OCT24x."""

from __future__ import annotations

from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import (
    OctantsAssertionError,
    OctantsCompilationError,
    OctantsTypeError,
)


class OutsideOfBlocks(UserError):
    """A function of work items that work together, in serial code."""

    name: str
    code = "OCT240"
    exception = OctantsCompilationError
    title = "`simt.{name}` is in serial code"
    label = "only the work items of a parallel loop are in blocks"
    remedy = (
        "call it in a top-level loop of the kernel; the loop must not be serialised, and no"
        " iteration may need a variable that another one assigned"
    )


class NoBlocks(UserError):
    """A function of work items that work together, where there are no blocks."""

    name: str
    code = "OCT241"
    title = "`simt.{name}` needs work items that run in blocks, but this arch has no blocks"
    label = "used here"
    remedy = "use an arch that has blocks, such as `qd.init(arch=qd.cpu)`"


class Divergent(UserError):
    """A convergent operation that some work items do not reach."""

    name: str
    who: str
    code = "OCT242"
    exception = OctantsCompilationError
    title = "not all {who} reach this `simt.{name}`, which waits for all of them"
    label = "not all of them reach this"
    remedy = "move it out of the branch or loop, so that all of them run it equally often"


class WrongLanes(UserError):
    """A value, or a number of lanes, that a function of subgroups cannot take."""

    name: str
    problem: str
    advice: str = ""
    code = "OCT243"
    exception = OctantsTypeError
    title = "`simt.{name}`: {problem}"


class WrongSharedArray(UserError):
    """A shared array of a shape or type that cannot be."""

    problem: str
    advice: str = ""
    code = "OCT244"
    exception = OctantsTypeError
    title = "`simt.block.SharedArray`: {problem}"


class NoOrder(UserError):
    """A loop whose work items would have to run one after the other, and work together."""

    kernel: str
    code = "OCT245"
    title = (
        "kernel `{kernel}`: work items that share arrays or barriers cannot run one after the"
        " other, as this kernel needs"
    )
    label = "they wait for each other here"
    notes = (
        "`deterministic=True` orders updates of elements that work items share",
        "the derivative of updates other than sums needs an order, too",
    )
    remedy = "move these updates to a loop of their own"


class NoSuchWork(UserError):
    """A function of Quadrants for work items that work together, which is not supported."""

    what: str
    advice: str
    code = "OCT246"
    exception = OctantsTypeError
    title = "{what} not supported"
    label = "used here"


class NotMet(UserError):
    """Work items that wait for each other at different operations."""

    kernel: str
    item: int
    code = "OCT424"
    exception = OctantsAssertionError
    title = "kernel `{kernel}`: its work items wait for each other at different statements"
    label = "work item {item} waits here for others, which have ended or wait elsewhere"
    remedy = "let all of them reach the same statement, equally often"
