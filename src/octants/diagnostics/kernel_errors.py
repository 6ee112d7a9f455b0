"""What goes wrong while a kernel runs: OCT42x."""

from __future__ import annotations

from dataclasses import dataclass

from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import OctantsAssertionError, OctantsMemoryError


@dataclass(frozen=True)
class AssertionFailed(UserError):
    """An ``assert`` in a kernel that did not hold."""

    kernel: str
    text: str
    item: int
    code = "OCT420"
    exception = OctantsAssertionError
    title = "kernel `{kernel}`: assertion failed: {text}"
    notes = ("in work item {item}, the first one that failed; the launch ended there",)


@dataclass(frozen=True)
class OutOfBounds(UserError):
    """An index outside its array, found by the checks of debug mode."""

    kernel: str
    text: str
    item: int
    code = "OCT421"
    exception = OctantsAssertionError
    title = "kernel `{kernel}`: {text}"
    notes = ("in work item {item}, the first one that failed; the launch ended there",)


@dataclass(frozen=True)
class TapeMemoryRefused(UserError):
    """The record of a loop for which there was no memory."""

    kernel: str
    text: str
    item: int
    code = "OCT422"
    exception = OctantsMemoryError
    title = "kernel `{kernel}`: there is no memory for the tape of a loop: {text}"
    notes = ("in work item {item}; nothing of the launch's results can be used",)
    remedy = "record less: fewer iterations, fewer work items at a time, or narrower types"
