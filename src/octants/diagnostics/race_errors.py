"""Races between the work items of a parallel loop: OCT303 when compiling, OCT304 at run time.

OCT306 says that a device cannot look for those of run time.
"""

from __future__ import annotations

from collections.abc import Sequence

from octants.diagnostics.errors import UserError
from octants.diagnostics.render import Diagnostic, Label
from octants.diagnostics.span import Span

RaceAccess = tuple[Span | None, str, int]
"""Where an access is in the source, what it does ("stored"), and the work item that does it."""

REMEDY = (
    "run the loop in order with `loop_config(serialize=True)`, write to another array, split the"
    " loop in two, or update by atomics alone"
)


def describe_race(
    code: str, title: str, accesses: Sequence[RaceAccess], notes: Sequence[str] = ()
) -> Diagnostic:
    """Two accesses to one element by different work items, as a diagnostic."""
    labels = [
        Label(span, f"{verb} by work item {item}")
        for span, verb, item in accesses
        if span is not None
    ]
    always = "the work items of a parallel loop run in any order, and at the same time"
    return Diagnostic(code, title, tuple(labels), (always, *notes), REMEDY)


class NoRaceCheck(UserError):
    """A launch that was to be checked for races, on a device that cannot do so."""

    kernel: str
    device: str
    code = "OCT306"
    title = "launches of kernel `{kernel}` cannot be checked for races on the device `{device}`"
    label = "which work items access this element is known at run time only"
    notes = (
        "the check needs atomic updates of 64 bits",
        "the device lacks them, or 64-bit integers (Vulkan: shaderBufferInt64Atomics, shaderInt64)",
    )
    remedy = (
        "leave out `validation=True`, so that launches run unchecked here; or use another"
        " device (`init(device=...)`), or `qd.init(arch=qd.cpu)`"
    )
