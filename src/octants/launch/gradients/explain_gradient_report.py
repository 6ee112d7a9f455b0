"""The report of `kernel.grad.explain`, as data, text and HTML."""

from __future__ import annotations

import enum
import html
import linecache
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from octants.diagnostics.byte_counts import format_bytes
from octants.diagnostics.span import Span
from octants.lazy_dataclass import dataclass

WIDTH = 100
Lines: TypeAlias = "tuple[tuple[int, str], ...]"

_WORDS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "approximate_div": "/",
    "floordiv": "//",
    "mod": "%",
    "neg": "-",
    "fma": "* and +",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
    "and": "and",
    "or": "or",
    "select": "a choice",
    "cast": "a conversion",
    "load": "an index",
    "store": "a store",
    "atomic": "a sum in memory",
    "if": "a branch",
    "for": "a loop",
    "while": "a loop",
    "yield": "the next iteration",
}
"""The names of operations in the language."""


@dataclass(frozen=True)
class RecordSlot:
    """A value in a record: its variable and type, and (operation, line) of its uses."""

    name: str
    dtype: str
    uses: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        words = {(_WORDS.get(fn, fn), line): None for fn, line in self.uses}
        uses = ", ".join(f"{fn} in line {line}" if line else fn for fn, line in list(words)[:3])
        return f"{self.name}: {self.dtype}" + (f" for {uses}" if uses else "")


class Storing(enum.Enum):
    """Whether the records of a loop are stored with the loop around it, and why."""

    ALONE = "each iteration"
    WHOLE = "stored whole with the loop around it: it runs there, and its records fit"
    PARTLY = "stored with the loop around it as long as they fit, then for one iteration of it"
    TOO_LARGE = "for one iteration of the loop around it: more would not fit"
    NOTHING_SAVED = "for one iteration of the loop around it: storing more would save no run"
    LANES = "for one iteration of the loop around it: lanes share positions in the record buffer"
    FORBIDDEN = "for one iteration of the loop around it: the options require it"


@dataclass(frozen=True)
class LoopRecords:
    """The records of a serial loop.

    `slots` are the values in a record, `bytes_per_iteration` its size. `trips` counts the
    iterations of all work items; `capacity` and `checkpoints` are the most records and checkpoints
    that a work item holds at one time. `runs` is how often the gradient computes an iteration, in
    addition to the forward launch. `depth` counts the recorded loops around it. `stored` counts the
    iterations that were recorded together with the loop around it; `storing` has the reason. With
    `is_log` it describes no loop, but the values that the whole task read before it overwrote them.
    """

    file: str
    line: int
    depth: int
    slots: tuple[RecordSlot, ...] = ()
    bytes_per_iteration: int = 0
    trips: int = 0
    capacity: int = 0
    checkpoints: int = 0
    runs: float = 1.0
    is_log: bool = False
    storing: Storing = Storing.ALONE
    stored: int = 0

    @property
    def source(self) -> str:
        """The line of the loop in the user's code."""
        if self.is_log:
            return "values that are read, and later overwritten"
        return linecache.getline(self.file, self.line).strip()

    @property
    def nbytes(self) -> int:
        """The most bytes that one work item takes for the loop."""
        return (self.capacity + self.checkpoints) * self.bytes_per_iteration

    @property
    def policy(self) -> str:
        """How the loop is recorded."""
        if self.is_log:
            return "each read"
        if not self.slots:
            return "nothing is recorded: no derivative needs what it carries"
        if self.checkpoints:
            return "in blocks, from checkpoints"
        return self.storing.value


@dataclass(frozen=True)
class InlinedFunction:
    """A function that the kernel calls: its lines with their numbers, in `file`, and its calls."""

    name: str
    file: str
    source: Lines
    calls: tuple[Span, ...]

    def has(self, loop: LoopRecords) -> bool:
        """Whether a loop is one of it."""
        return loop.file == self.file and any(number == loop.line for number, _ in self.source)

    def called(self, kernel: str) -> str:
        """The place of the call, in words."""
        lines_by_caller: dict[str, dict[int, None]] = {}
        for call in self.calls:
            lines_by_caller.setdefault(call.function, {})[call.line] = None
        texts = [
            f"line{'s' * (len(lines) > 1)} {', '.join(map(str, sorted(lines)))}"
            + (f" of {name}" if name != kernel else "")
            for name, lines in lines_by_caller.items()
        ]
        return "called in " + "; ".join(texts)


class AdjointUpdate(enum.Enum):
    """How the reverse run updates an adjoint in memory."""

    TAKEN = "taken, and made zero, where the kernel stores"
    PLAIN = "added to plainly: no other work item has the element"
    COLLECTED = "summed up by each worker, and added once: the element is one for all work items"
    ALTERNATING = "added to plainly: neighbouring chunks of work items never run at the same time"
    PRIVATISED = "added to plainly: each worker has an array of its own, if they are worth it"
    ATOMIC = "added to atomically: work items may meet"


@dataclass(frozen=True)
class ArrayAdjoint:
    """How the gradient of an array is updated, with a line of the kernel for each kind of update.

    `privatised_bytes` is the size of a privatised copy, where workers have one.
    """

    name: str
    has_gradient: bool
    updates: tuple[tuple[AdjointUpdate, int], ...]
    privatised_bytes: int = 0

    def __str__(self) -> str:
        if not self.has_gradient:
            return f"{self.name}.grad: there is none: the array is a constant"
        if not self.updates:
            return f"{self.name}.grad: not changed: no derivative goes through it"
        lines: dict[AdjointUpdate, list[str]] = {}
        for update, line in self.updates:
            lines.setdefault(update, []).append(str(line))
        texts = [f"{self._text(update)} (line {', '.join(at)})" for update, at in lines.items()]
        return f"{self.name}.grad: {'; '.join(texts)}"

    def _text(self, update: AdjointUpdate) -> str:
        size = f", {self.privatised_bytes} bytes"
        return update.value + size * (update is AdjointUpdate.PRIVATISED)


@dataclass(frozen=True)
class Explanation:
    """The cost of a gradient, loop by loop, for the arguments that were passed.

    `loops` are ordered by line, `arrays` are the float arrays. `workers` work items are reversed at
    the same time, each with a record buffer of its own. `log_bytes` is the size of the log of what
    atomics return, which is kept from the launch to its reverse. `privatised_bytes` is the most
    that the privatised copies of all workers take. `source` has the kernel's lines with their
    numbers, in `file`. `functions` are those that it calls. `forward_seconds` and
    `gradient_seconds` are the times of a launch and of its reverse; 0 if the kernel prints, or has
    arrays of other libraries.
    """

    kernel: str
    loops: tuple[LoopRecords, ...]
    arrays: tuple[ArrayAdjoint, ...]
    workers: int
    log_bytes: int = 0
    privatised_bytes: int = 0
    file: str = ""
    source: Lines = ()
    functions: tuple[InlinedFunction, ...] = ()
    forward_seconds: float = 0.0
    gradient_seconds: float = 0.0

    @property
    def bytes_per_work_item(self) -> int:
        """The most bytes that one work item takes, if all its loops reach their maximum."""
        return sum(loop.nbytes for loop in self.loops)

    @property
    def nbytes(self) -> int:
        """The most bytes of all record buffers together."""
        return self.workers * self.bytes_per_work_item

    @property
    def total_bytes(self) -> int:
        """The most bytes that the gradient takes in addition to the arrays of the program."""
        return self.nbytes + self.log_bytes + self.privatised_bytes

    def text(self) -> str:
        """The kernel's source with what each loop records, in lines of at most 100 columns."""
        return "\n".join(text for _, text in _lines(self))

    def _total(self) -> str:
        total = (
            f"at most {self.bytes_per_work_item} bytes a work item,"
            f" {self.nbytes} bytes in {self.workers} at a time"
        )
        kept = f"; {self.log_bytes} bytes of what atomics return are kept from the launch on"
        own = f"; {self.privatised_bytes} bytes in arrays of workers' own"
        whole = f"; {self.total_bytes} bytes in all"
        more = kept * bool(self.log_bytes) + own * bool(self.privatised_bytes)
        return total + more + whole * bool(more)

    def times(self) -> str:
        """The times of a launch and of its gradient, in words."""
        forward, gradient = 1e3 * self.forward_seconds, 1e3 * self.gradient_seconds
        ratio = gradient / forward if forward else 0.0
        times = f"a launch took {forward:.3g} ms, its gradient {gradient:.3g} ms"
        return f"{times}, {ratio:.1f} times as long"

    def html(self) -> str:
        """The text as a page that needs no other file."""
        lines = "".join(
            f"<span class='{kind}'>{html.escape(text)}\n</span>" for kind, text in _lines(self)
        )
        return (
            "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
            f"<title>Gradient of {html.escape(self.kernel)}</title><style>{_STYLE}</style></head>"
            f"<body><pre>{lines}</pre></body></html>"
        )

    def save(self, path: str | Path) -> None:
        """Write the page to a file."""
        Path(path).write_text(self.html(), encoding="utf-8")

    def _repr_html_(self) -> str:
        return self.html()

    def __str__(self) -> str:
        return self.text()


def _lines(explanation: Explanation) -> Iterator[tuple[str, str]]:
    """The lines of the text, with their kinds: source, loops, the sum, the times, and arrays."""
    yield "head", f"gradient of {explanation.kernel}"
    yield "", ""
    for kind, text in _listing(explanation):
        if kind == "head":
            yield "", ""
        yield kind, text[:WIDTH] if kind == "code" else text
    yield "", ""
    last = [explanation._total(), *([explanation.times()] if explanation.gradient_seconds else [])]
    for sentence in last:
        yield from (("total", text) for text in _wrapped(sentence, ""))
    yield "", ""
    for array in explanation.arrays:
        yield from (("array", text) for text in _wrapped(str(array), "", "    "))


def _listing(explanation: Explanation) -> Iterator[tuple[str, str]]:
    """The lines of the kernel and of the functions with loops, and the notes below them.

    Of each the kind, "head", "code" or "note", and the text.
    """
    own = InlinedFunction(explanation.kernel, explanation.file, explanation.source, ())
    loops = list(explanation.loops)
    shown = _with_loops(explanation)
    for part in (own, *shown):
        inside = [loop for loop in loops if not loop.is_log and part.has(loop)]
        loops = [loop for loop in loops if loop not in inside]
        if part is not own:
            called_in = f"{part.name}, {part.called(explanation.kernel)}:"
            yield "head", "\n".join(_wrapped(called_in, ""))
        for number, line in part.source:
            yield "code", f"{number:>5} | {line}"
            indent = len(line) - len(line.lstrip()) + 4
            for called in shown:
                if any((at.file, at.line) == (part.file, number) for at in called.calls):
                    yield "note", f"      | {'':{indent}}# {called.name}: below"
            copies = [loop for loop in inside if loop.line == number]
            for position, loop in enumerate(copies, 1):
                if len(copies) > 1:
                    copy = f"inlined copy {position} of {len(copies)}:"
                    yield "note", f"      | {'':{indent}}# {copy}"
                yield from (("note", text) for text in _notes(loop, indent))
    for loop in loops:
        where = "" if loop.is_log else f"{loop.file}:{loop.line}: "
        yield "head", "\n".join(_wrapped(where + loop.source, ""))
        yield from (("note", text) for text in _notes(loop, 4))


def _with_loops(explanation: Explanation) -> list[InlinedFunction]:
    """The functions that have loops, or call one that has."""
    found = [each for each in explanation.functions if any(map(each.has, explanation.loops))]
    for each in found:  # which grows
        callers = {(call.file, call.function) for call in each.calls}
        found += [
            one
            for one in explanation.functions
            if (one.file, one.name) in callers and one not in found
        ]
    return found


def _notes(loop: LoopRecords, indent: int) -> Iterator[str]:
    """The records of a loop and their size, for the text under its line."""
    margin = "      | " + " " * indent + "# "
    for sentence in _sentences(loop):
        yield from _wrapped(sentence, margin)


def _sentences(loop: LoopRecords) -> Iterator[str]:
    if not loop.slots and not loop.is_log:
        yield "records nothing: no derivative needs what it carries"
        return
    size = format_bytes(loop.bytes_per_iteration)
    if loop.is_log:
        yield f"records each value that is read, and later overwritten: {size} each"
    else:
        yield f"records {'; '.join(map(str, loop.slots))}: {size} an iteration"
    held = f"{loop.capacity} at a time"
    if loop.checkpoints:
        held = f"{loop.capacity} and {loop.checkpoints} checkpoints at a time"
    yield (
        f"{loop.trips} iterations of all work items; one work item holds {held},"
        f" {format_bytes(loop.nbytes)}"
    )
    yield f"the gradient computes an iteration {loop.runs:.2f} times; recorded: {loop.policy}"


def _wrapped(text: str, margin: str, more: str = "  ") -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=margin,
        subsequent_indent=margin + more,
        break_on_hyphens=False,
    )


_STYLE = (
    "pre{background:#f6f6f4;padding:1em;border-radius:.4em;line-height:1.4}"
    ".note{color:#a04000}.head{font-weight:bold}"
)
