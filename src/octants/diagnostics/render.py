"""A user error as data, and its rendering with the source line and carets."""

from __future__ import annotations

import linecache

from octants.diagnostics.span import Span
from octants.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Label:
    """A span of the source, and a note about it."""

    span: Span
    text: str = ""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """An error with its places in the source, and the remedy; `code` is stable ("OCT012")."""

    code: str
    title: str
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    remedy: str = ""


def render(diagnostic: Diagnostic) -> str:
    """The diagnostic as text.

    ::

        OCT012: `foo` is not defined
          --> demo.py:12 in kernel `step`
        12 |     y = foo + 1
           |         ^^^ no such name here
          note: ...
          help: did you mean `for_`?
    """
    lines = [f"{diagnostic.code}: {diagnostic.title}"]
    for label in diagnostic.labels:
        lines.extend(_excerpt(label))
    lines.extend(f"  note: {note}" for note in diagnostic.notes)
    if diagnostic.remedy:
        lines.append(f"  help: {diagnostic.remedy}")
    return "\n".join(lines)


def _excerpt(label: Label) -> list[str]:
    span = label.span
    where = f"  --> {span.file}:{span.line}"
    lines = [where + (f" in `{span.function}`" if span.function else "")]
    source = linecache.getline(span.file, span.line).rstrip("\n")
    if source:
        number = str(span.line)
        lines.append(f"{number} | {source}")
        ends_here = span.end_line in (0, span.line) and span.end_column > span.column
        width = span.end_column - span.column if ends_here else len(source) - span.column
        carets = " " * span.column + "^" * max(1, width)
        lines.append(f"{' ' * len(number)} | {carets} {label.text}".rstrip())
    elif label.text:
        lines.append(f"      {label.text}")
    return lines
