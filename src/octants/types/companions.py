"""The arrays that belong together under one name: values, adjoints, tangents."""

from __future__ import annotations

import enum


class Companion(enum.Enum):
    """Which of the arrays that belong together under one name an access means."""

    PRIMAL = "primal"
    ADJOINT = "adjoint"
    TANGENT = "tangent"
    ADJOINT_TANGENT = "adjoint_tangent"  # the tangent of the adjoint: second order

    __hash__ = object.__hash__  # that of `Enum` is written in Python, and launches look up by this
