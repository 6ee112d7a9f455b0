"""The exceptions that a user may catch. `diagnostics.errors` has one class per mistake."""

from __future__ import annotations

from octants.diagnostics import render as _render


class OctantsError(Exception):
    """The base of all errors; `diagnostic` holds the parts of the message where there are any."""

    def __init__(self, problem: _render.Diagnostic | str) -> None:
        self.diagnostic = problem if isinstance(problem, _render.Diagnostic) else None
        super().__init__(problem if isinstance(problem, str) else _render.render(problem))


class OctantsCompilationError(OctantsError):
    """The source of a kernel cannot be compiled."""


class OctantsSyntaxError(OctantsCompilationError, SyntaxError):
    """Python that is not in the language."""

    def __str__(self) -> str:
        return str(self.args[0])


class OctantsNameError(OctantsCompilationError, NameError):
    """A name that is not defined."""


class OctantsTypeError(OctantsCompilationError, TypeError):
    """A value of a type that does not fit."""


class OctantsCallError(OctantsSyntaxError, OctantsTypeError):
    """A call of a kernel or a func with missing arguments, too many, or unknown names."""


class OctantsIndexError(OctantsCompilationError, IndexError):
    """A compile-time index out of range, or a wrong number of indices."""


class OctantsRuntimeError(OctantsError, RuntimeError):
    """Something went wrong outside compilation."""


class OctantsRuntimeTypeError(OctantsRuntimeError, TypeError):
    """An argument of a launch has a wrong type."""


class OctantsValueError(OctantsRuntimeError, ValueError):
    """A value on the host that does not fit: a shape, an extent, a number out of range."""


class OctantsArgumentError(OctantsRuntimeTypeError, OctantsValueError):
    """An argument that does not fit: its type, its shape, its dtype."""


class OctantsHostIndexError(OctantsRuntimeError, OctantsIndexError):
    """An index out of range on the host, or a wrong number of indices."""


class OctantsAssertionError(OctantsRuntimeError, AssertionError):
    """An assertion or a bounds check of a kernel failed, or a record buffer overflowed."""


class OctantsMemoryError(OctantsRuntimeError, MemoryError):
    """An allocation failed: the device or the system has too little memory left."""


class OctantsAttributeError(OctantsRuntimeError, AttributeError):
    """A name that the peers have and Octants does not."""


class OctantsImportError(OctantsRuntimeError, ImportError):
    """A module that the peers have and Octants does not."""


class OctantsWarning(UserWarning):
    """Something that works, and probably does not do what is meant."""


class InternalError(Exception):
    """A bug in Octants. It keeps its traceback; please report it."""
