"""Makes `x.grad = y` an error that says what to write instead."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

from octants.data.errors import GradientAssigned

C = TypeVar("C", bound=type)


def refuses_assignment(cls: C) -> C:
    """Give the properties `grad` and `dual` of a class setters that raise an error.

    To type checkers the properties stay read-only.
    """
    for name in ("grad", "dual"):
        found = vars(cls).get(name)
        if found is not None:
            setattr(cls, name, found.setter(_setter(name)))
    return cls


def _setter(name: str) -> Any:
    def refuse(_: Any, __: Any) -> NoReturn:
        raise GradientAssigned(name).at()

    return refuse
