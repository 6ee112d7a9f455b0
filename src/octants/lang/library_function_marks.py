"""Marks functions that kernels may inline (`library_function`), or that only kernels may call."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, TypeVar, cast

from octants.diagnostics.library_errors import KernelOnly

_Function = TypeVar("_Function", bound=Callable[..., Any])


def library_function(function: _Function) -> _Function:
    """Let kernels inline a function, as one made by ``qd.func``; on the host it runs as Python.

    Python numbers stay numbers, and so adapt exactly to the types of other operands.
    """
    function.octants_function = True  # type: ignore[attr-defined]
    function.octants_library = True  # type: ignore[attr-defined]
    return function


def kernel_only(function: _Function) -> _Function:
    """Make a call on the host an error; what the function means is known to the frontend only."""

    @functools.wraps(function)
    def fail(*_: Any, **__: Any) -> Any:
        raise KernelOnly(function.__name__).at()

    return cast(_Function, fail)


def named(function: _Function, name: str, text: str) -> _Function:
    """Give a function that was made from a row of a table its name and its docstring."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


def home_of(function: Any) -> str:
    """The module whose code a function is; wrappers say that they are of the module they wrap."""
    if isinstance(function, types.FunctionType):
        return str(function.__globals__.get("__name__"))
    return str(getattr(function, "__module__", None))


def marked_function(function: Any) -> Any:
    """The function that a call in a kernel inlines by its mark; None for one without a mark.

    `functools.wraps` copies attributes, so a mark counts only on the function that it was made for.
    """
    mark = getattr(function, "octants_function", None)
    if mark is True:
        return inspect.unwrap(function) if is_library_function(function) else None
    own = getattr(function, "__func__", function)
    return mark if mark is own or getattr(function, "octants_is_kernel", False) else None


def recursion_depth(function: Any) -> int | None:
    """How many calls of a `real_func` may be active at once; None for other functions."""
    is_own = getattr(function, "octants_function", None) is function
    depth: int | None = getattr(function, "octants_max_depth", None)
    return depth if is_own else None


def note_compiled(function: Any) -> None:
    """Remember that a function is part of a compiled kernel: its adjoint cannot change any more."""
    if getattr(function, "octants_function", None) is function:
        setattr(function, "octants_is_compiled", True)  # noqa: B010


def is_library_function(function: Any) -> bool:
    """Whether `library_function` has marked a function."""
    return getattr(function, "octants_library", False) and is_from_octants(function)


def is_from_octants(function: Any) -> bool:
    """Whether a function is in a module of Octants."""
    return home_of(function).partition(".")[0] == "octants"
