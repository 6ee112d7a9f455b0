"""Marks of the functions that kernels call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from octants.diagnostics.library_errors import KernelOnly

_Function = TypeVar("_Function", bound=Callable[..., Any])


def library_function(function: _Function) -> _Function:
    """Let kernels inline a function, as one made by ``qd.func``; on the host it runs as Python.

    Numbers that it is given stay numbers, and so adapt exactly to the types that they meet.
    """
    function.octants_function = True  # type: ignore[attr-defined]
    function.octants_library = True  # type: ignore[attr-defined]
    return function


def kernel_only(function: _Function) -> _Function:
    """Make a call on the host an error; what the function means is known to the frontend only."""

    @functools.wraps(function)
    def fail(*_: Any, **__: Any) -> Any:
        raise KernelOnly(function.__name__).at(None)

    return cast(_Function, fail)
