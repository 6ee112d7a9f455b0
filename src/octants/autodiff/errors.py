"""What the autodiff says when a kernel has no derivative that it knows."""

from __future__ import annotations

from octants.analysis.races import Meeting
from octants.diagnostics.exceptions import OctantsCompilationError
from octants.diagnostics.race_errors import describe_race
from octants.diagnostics.render import Diagnostic, Label
from octants.diagnostics.span import Span
from octants.ir import ops
from octants.ir.core import Operation
from octants.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Hazard:
    """A value that the reverse run needs, and the write after which memory no longer holds it."""

    array: str
    read: Span | None
    write: Span | None
    kind: str = "load"
    """What is needed: "load": what was read; "atomic": what an atomic returned; "extremum": what
    atomic_min or atomic_max left; "order": in which order work items made an update."""


_TITLES = {
    "load": "the gradient needs a value of `{}` that the kernel overwrites",
    "atomic": "the gradient needs the value that an atomic on `{}` returned",
    "extremum": "the gradient of an atomic minimum or maximum needs `{}` as it left it",
    "order": "the gradient needs the order in which work items updated `{}`",
}


def overwritten(kernel: str, hazards: list[Hazard]) -> OctantsCompilationError:
    """The error of a bare ``kernel.grad()`` whose loads cannot be read again."""
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


def racing(kernel: str, races: list[Meeting]) -> OctantsCompilationError:
    """The error of a kernel whose derivative depends on which of its work items is first."""
    first = races[0]
    assert first.items is not None
    accesses = [
        (op.location, _VERBS.get(type(op), "updated"), item)
        for op, item in zip((first.one, first.other), first.items, strict=True)
    ]
    more = [f"{len(races) - 1} more pairs of accesses of kernel `{kernel}` race"]
    title = f"work items race for an element of `{first.one.array.name}`, so there is no gradient"
    notes = more if len(races) > 1 else []
    return OctantsCompilationError(describe_race("OCT303", title, accesses, notes))


_VERBS: dict[type[Operation], str] = {ops.Store: "stored", ops.Load: "read"}


def no_rule(what: str, location: Span | None, remedy: str) -> OctantsCompilationError:
    """The error of an operation that has no derivative rule."""
    labels = () if location is None else (Label(location, "here"),)
    return OctantsCompilationError(
        Diagnostic("OCT302", f"{what} has no derivative rule yet", labels, (), remedy)
    )


def no_rule_of_exchange(op: ops.CompareExchange) -> OctantsCompilationError:
    """The error of a compare-and-swap: who wins depends on data in a way that no rule knows."""
    remedy = "keep the data-dependent exchange out of the differentiated kernel"
    return no_rule(f"compare-and-swap on `{op.array.name}`", op.location, remedy)
