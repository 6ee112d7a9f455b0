"""Enumerations that users name."""

from __future__ import annotations

import enum


class Layout(enum.Enum):
    """How the components of vectors and structs lie in memory.

    AOS: the components of an element together; SOA: each component as an array of its own.
    """

    AOS = "aos"
    SOA = "soa"


class AutodiffMode(enum.Enum):
    """The derivative that a kernel is compiled for."""

    NONE = "none"
    VALIDATION = "validation"
    FORWARD = "forward"
    REVERSE = "reverse"


class SNodeGradType(enum.Enum):
    """Which of the arrays that belong together an access means."""

    PRIMAL = "primal"
    ADJOINT = "adjoint"
    DUAL = "dual"


class BoundaryMode(enum.Enum):
    """The effect of an index out of range: UNSAFE is undefined, CLAMP takes the nearest one."""

    UNSAFE = "unsafe"
    CLAMP = "clamp"


__all__ = ["AutodiffMode", "BoundaryMode", "Layout", "SNodeGradType"]
