"""The type that type checkers see of what `func` decorates; at run time that is the function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
_Others = ParamSpec("_Others")
_Result = TypeVar("_Result")
_Owner = TypeVar("_Owner")
_Adjoint = TypeVar("_Adjoint", bound=Callable[..., Any])


class Func(Protocol[P, R_co]):
    """A function that kernels call."""

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R_co:
        """Run it as Python."""

    def adjoint(self, function: _Adjoint, /) -> _Adjoint:
        """Decorate the function that computes its derivatives; see `func`."""

    @overload
    def __get__(self, owner: None, kind: type) -> Func[P, R_co]: ...
    @overload
    def __get__(
        self: Func[Concatenate[_Owner, _Others], _Result], owner: object, kind: type | None = None
    ) -> Callable[_Others, _Result]: ...
