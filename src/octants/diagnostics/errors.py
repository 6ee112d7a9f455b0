"""The mistakes that users make, one frozen class each, with a stable code.

Texts are templates over the fields of the class. Codes: OCT1xx syntax, names and control flow,
OCT2xx values, types, shapes and functions of the library, OCT3xx derivatives, OCT4xx launches.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from octants.diagnostics.exceptions import (
    OctantsCompilationError,
    OctantsError,
    OctantsIndexError,
    OctantsNameError,
    OctantsSyntaxError,
    OctantsTypeError,
)
from octants.diagnostics.render import Diagnostic, Label
from octants.diagnostics.span import Span


@dataclass(frozen=True)
class UserError:
    """The base: `diagnostic(span)` fills the templates, `exception` is what is raised."""

    code: ClassVar[str] = "OCT000"
    exception: ClassVar[type[OctantsError]] = OctantsCompilationError
    title: ClassVar[str] = ""
    label: ClassVar[str] = ""
    notes: ClassVar[tuple[str, ...]] = ()
    remedy: ClassVar[str] = ""

    def diagnostic(self, *labels: Label, span: Span | None = None) -> Diagnostic:
        """The error at ``span``, with further labels after the main one."""
        main = (Label(span, self._fill(self.label)),) if span is not None else ()
        notes = tuple(self._fill(note) for note in self.notes)
        title, remedy = self._fill(self.title), self._fill(self.remedy)
        return Diagnostic(self.code, title, (*main, *labels), notes, remedy)

    def at(self, span: Span | None, *labels: Label) -> OctantsError:
        """The exception, to be raised."""
        return self.exception(self.diagnostic(*labels, span=span))

    def _fill(self, template: str) -> str:
        names = [entry.name for entry in dataclasses.fields(self)]
        return template.format(**{name: getattr(self, name) for name in names})


__all__ = [
    "OctantsIndexError",
    "OctantsNameError",
    "OctantsSyntaxError",
    "OctantsTypeError",
    "UserError",
]
