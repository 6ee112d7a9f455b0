"""Marks the members of public classes that only other parts of Octants call.

The page of public names (`scripts/api_reference.py`) leaves out these members and their overrides.
A member that only its own class calls begins with an underscore instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def internal(function: F) -> F:
    """Mark a method as one that users do not call. Stands below ``@property``."""
    function.__dict__["octants_internal"] = True
    return function


def is_internal(cls: type, name: str) -> bool:
    """Whether a class, or a base of it, marks a member as internal."""
    return any("octants_internal" in _attributes(vars(base).get(name)) for base in cls.__mro__)


def _attributes(member: Any) -> dict[str, Any]:
    """The attributes of the function of a method or a property."""
    function = member.fget if isinstance(member, property) else member
    function = getattr(function, "func", getattr(function, "__func__", function))  # if cached
    return getattr(function, "__dict__", {})
