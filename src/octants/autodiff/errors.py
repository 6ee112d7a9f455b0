"""The errors of kernels without a derivative: hazards OCT301, no rule OCT302, races OCT303."""

from __future__ import annotations

from octants.analysis.memory.races import RacePair
from octants.diagnostics.exceptions import OctantsCompilationError
from octants.diagnostics.race_errors import describe_race
from octants.diagnostics.render import Diagnostic, Label
from octants.diagnostics.span import Span
from octants.ir import ops
from octants.ir.core import Operation
from octants.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Hazard:
    """A value that the reverse kernel needs, and the write that overwrites it in memory."""

    array: str
    read: Span | None
    write: Span | None
    kind: str = "load"
    """The needed part.

    "load": what was read; "atomic": what an atomic returned; "extremum": what atomic_min or
    atomic_max left; "order": the order in which work items made an update.
    """


_TITLES = {
    "load": "the gradient needs a value of `{}` that the kernel overwrites",
    "atomic": "the gradient needs the value that an atomic on `{}` returned",
    "extremum": "the gradient of an atomic minimum or maximum needs `{}` as it left it",
    "order": "the gradient needs the order in which work items updated `{}`",
}


def overwritten(kernel: str, hazards: list[Hazard]) -> OctantsCompilationError:
    """The error for a bare ``kernel.grad()`` whose reads cannot be repeated."""
    first = hazards[0]
    labels = []
    if first.read is not None:
        labels.append(Label(first.read, "needed here"))
    if first.write is not None:
        labels.append(Label(first.write, "overwritten here"))
    notes = []
    if len(hazards) > 1:
        notes.append(
            f"{len(hazards) - 1} more values of kernel `{kernel}` are in the same situation"
        )
    remedy = "run the kernel under `ad.Tape`, which restores what was overwritten"
    if first.kind != "load":
        remedy = "run the kernel under `ad.Tape`, which keeps what is needed"
    title = _TITLES[first.kind].format(first.array)
    return OctantsCompilationError(Diagnostic("OCT301", title, tuple(labels), tuple(notes), remedy))


def racing(kernel: str, races: list[RacePair]) -> OctantsCompilationError:
    """The error for a kernel whose derivative depends on which work item is first."""
    first = races[0]
    assert first.items is not None
    accesses = [
        (op.location, _VERBS.get(type(op), "updated"), item)
        for op, item in zip((first.one, first.other), first.items, strict=True)
    ]
    others = len(races) - 1
    more = f"{others} more pairs of accesses of kernel `{kernel}` race"
    if others == 1:
        more = f"another pair of accesses of kernel `{kernel}` races"
    title = f"work items race for an element of `{first.one.array.name}`, so there is no gradient"
    notes = [more] if others else []
    return OctantsCompilationError(describe_race("OCT303", title, accesses, notes))


_VERBS: dict[type[Operation], str] = {ops.Store: "stored", ops.Load: "read"}


def no_rule(what: str, location: Span | None, remedy: str) -> OctantsCompilationError:
    """The error for an operation that has no derivative rule."""
    labels = () if location is None else (Label(location, "here"),)
    return OctantsCompilationError(
        Diagnostic("OCT302", f"{what} has no derivative rule yet", labels, (), remedy)
    )


def no_rule_of_exchange(op: ops.CompareExchange) -> OctantsCompilationError:
    """The error for a compare-and-swap, whose winner depends on data as no rule covers."""
    remedy = "keep the data-dependent exchange out of the differentiated kernel"
    return no_rule(f"compare-and-swap on `{op.array.name}`", op.location, remedy)
