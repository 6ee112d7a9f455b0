"""Errors while a kernel runs: OCT42x, OCT446 and OCT476."""

from __future__ import annotations

from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import (
    OctantsAssertionError,
    OctantsMemoryError,
)


class AssertionFailed(UserError):
    """An ``assert`` in a kernel that did not hold."""

    kernel: str
    text: str
    item: int
    code = "OCT420"
    exception = OctantsAssertionError
    title = "kernel `{kernel}`: assertion failed: {text}"
    notes = ("in work item {item}, the first one that failed; the launch ended there",)


class OutOfBounds(UserError):
    """An index outside its array, found by the checks of debug mode."""

    kernel: str
    text: str
    item: int
    code = "OCT421"
    exception = OctantsAssertionError
    title = "kernel `{kernel}`: {text}"
    notes = ("in work item {item}, the first one that failed; the launch ended there",)


class NotFinite(UserError):
    """A NaN or an infinity that a kernel stores, found by ``debug="nan"``."""

    kernel: str
    text: str
    item: int
    code = "OCT446"
    exception = OctantsAssertionError
    title = "kernel `{kernel}`: {text}"
    notes = ("in work item {item}, the first one that failed; the launch ended there",)
    remedy = (
        "look for a division by zero, a root or a logarithm outside its domain, or an overflow in"
        " what leads to this line; in a gradient also for an infinite slope, as of `asin` at 1"
    )


class RecursionTooDeep(UserError):
    """A call of a recursive function that exceeds the function's `max_depth`."""

    kernel: str
    text: str
    item: int
    code = "OCT476"
    exception = OctantsAssertionError
    title = "kernel `{kernel}`: {text}"
    notes = ("in work item {item}, the first one that failed; the launch ended there",)
    remedy = (
        "allow more by `@qd.real_func(max_depth=...)`, if the recursion ends; each work item then"
        " takes more memory"
    )


class OutOfRecordMemory(UserError):
    """The record of a loop for which there was no memory."""

    kernel: str
    text: str
    item: int
    code = "OCT422"
    exception = OctantsMemoryError
    title = "kernel `{kernel}`: there is no memory for the records of its gradient: {text}"
    notes = ("in work item {item}; the gradients of this launch are void",)
    remedy = (
        "use narrower types, or carry fewer values through loops; if the kernel overwrites what it"
        " reads, lower `ad_stack_budget_bytes`, since Octants cannot retry its work items with less"
        " memory"
    )


class UntrackedWrite(UserError):
    """A record buffer that was too small, since memory changed untracked."""

    what: str
    code = "OCT425"
    title = (
        "the gradient of {what} is incomplete: an array that the lengths of its loops depend on"
        " was written while it ran, or by another library"
    )
    remedy = (
        "write such arrays before the gradient: in the same stream, or in another one with an"
        " event that the stream of the gradient waits for"
    )


class RecordBufferOverflow(UserError):
    """The record of a loop that takes more iterations than it holds."""

    kernel: str
    text: str
    item: int
    code = "OCT423"
    exception = OctantsAssertionError
    title = "kernel `{kernel}`: the records of a loop overflowed: {text}"
    label = "this loop"
    notes = ("in work item {item}, the one that needs most; the gradients of this launch are void",)
    remedy = (
        "leave `ad_stack_size` at 0, its default: each record then grows to what its loop needs"
    )
