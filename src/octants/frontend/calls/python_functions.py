"""Functions that were written for Python and are called in a kernel.

One that is given run-time values, or works on arrays, is inlined as if it were a func. Any other
call is made while the kernel is compiled, and may do whatever Python can.
"""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any

from octants.cache.digest import is_ours
from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.library_errors import KernelOnly
from octants.frontend.calls import inlined_calls
from octants.frontend.calls.functions import is_marked
from octants.frontend.calls.inlined_calls import BoundFunction
from octants.frontend.compile_time.python_object_conversion import wrap
from octants.frontend.context import Context
from octants.frontend.syntax.reads_of_functions import is_library
from octants.frontend.values.expression_values import ArrayReference, is_run_time
from octants.types.compile_time_reads import Read
from octants.types.specialisation_signature import (
    FieldHandle,
    NdarrayHandle,
    QuantHandle,
    StructHandle,
)

_ARRAYS = (FieldHandle, NdarrayHandle, QuantHandle, StructHandle)
_DEEPEST = 5  # calls of calls that are looked through for arrays


def as_method(context: Context, function: Any) -> Any:
    """A function with its owner where it is a method or a callable object; else itself."""
    bound = inlined_calls.bound(function)
    if bound is not None:
        return bound
    own = inspect.getattr_static(type(function), "__call__", None)
    is_object = isinstance(own, types.FunctionType) and not is_ours(type(function).__module__)
    if not is_object or is_marked(function):
        return function
    context.reads.append(Read("attribute", function, "__call__", function.__call__))
    return BoundFunction(own, function)


def unwrap_partial(
    context: Context, function: functools.partial[Any], args: list[Any], named: dict[str, Any]
) -> tuple[Any, list[Any], dict[str, Any]]:
    """The function of a partial, and all arguments of the call."""
    for name in ("func", "args", "keywords"):
        context.reads.append(Read("attribute", function, name, getattr(function, name)))
    before = [wrap(context, value, "item") for value in function.args]
    fixed = {name: wrap(context, value, name) for name, value in function.keywords.items()}
    return function.func, [*before, *args], {**fixed, **named}


def is_inlined(function: Any, args: list[Any], named: dict[str, Any]) -> bool:
    """Whether a call becomes a part of the kernel, and is not made while it is compiled."""
    target = function.function if isinstance(function, BoundFunction) else function
    if is_marked(target):
        return True
    if not isinstance(target, types.FunctionType) or is_library(target):
        return False
    owner = function.owner if isinstance(function, BoundFunction) else None
    values = [*args, *named.values()]
    return any(map(is_run_time, (owner, *values))) or _uses_arrays(target, owner, set())


def is_refused_on_host(error: OctantsError, function: Any) -> bool:
    """Whether a call failed because its function, of Python's, calls what works in kernels only."""
    target = function.function if isinstance(function, BoundFunction) else function
    is_ordinary = isinstance(target, types.FunctionType) and not is_library(target)
    return is_ordinary and error.diagnostic is not None and error.diagnostic.code == KernelOnly.code


def _uses_arrays(function: types.FunctionType, owner: Any, seen: set[Any]) -> bool:
    """Whether a function names an array, or a function that does."""
    if function in seen or len(seen) > _DEEPEST:
        return False
    seen.add(function)
    for value in _named_objects(function, owner):
        inner = inlined_calls.bound(value)
        target = value if inner is None else inner.function
        if isinstance(value, (*_ARRAYS, ArrayReference)):
            return True
        if isinstance(target, types.FunctionType) and not is_library(target):
            its_owner = None if inner is None else inner.owner
            if is_marked(target) or _uses_arrays(target, its_owner, seen):
                return True
    return False


def _named_objects(function: types.FunctionType, owner: Any) -> list[Any]:
    """The objects that the names in a function stand for, attributes of its owner among them."""
    code = function.__code__
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    known = {**function.__globals__, **{name: _contents(cell) for name, cell in cells}}
    found = [known[name] for name in (*code.co_names, *code.co_freevars) if name in known]
    held = getattr(owner, "__dict__", {})
    methods = [name for name in code.co_names if owner is not None and hasattr(type(owner), name)]
    bound = [getattr(owner, name) for name in methods if callable(getattr(type(owner), name))]
    return [*found, *(held[name] for name in code.co_names if name in held), *bound]


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None
