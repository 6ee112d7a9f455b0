"""Calls of funcs and methods, whose bodies are built in place of the call."""

from __future__ import annotations

import ast
import types
from typing import TYPE_CHECKING, Any

from octants.cache.digest import target_of
from octants.deferred_import import Deferred
from octants.diagnostics.errors import KernelInKernel
from octants.frontend.calls import functions
from octants.frontend.context import Context
from octants.lang.library_function_marks import recursion_depth
from octants.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from octants.frontend.calls import recursion
else:
    recursion = Deferred("octants.frontend.calls.recursion")


@dataclass(frozen=True, slots=True)
class BoundFunction:
    """A function of the language with the object that it is a method of."""

    function: Any
    owner: Any


def bound(function: Any) -> BoundFunction | None:
    """The function of a bound method, with its object; None for other functions."""
    if isinstance(function, types.MethodType):
        return BoundFunction(function.__func__, function.__self__)
    return function if isinstance(function, BoundFunction) else None


def build_inlined(
    context: Context,
    node: ast.AST,
    function: Any,
    values: dict[str, Any],
    by_reference: frozenset[str],
) -> Any:
    """Build the call of a function, whose arguments are complete."""
    is_real_func = recursion_depth(function) is not None
    if is_real_func and recursion.is_recursive(context, function, values, by_reference):
        return recursion.call(context, node, function, values, by_reference)
    return functions.inline(context, node, function, values, by_reference)


def begin_inlined(
    context: Context, node: ast.AST, function: Any
) -> tuple[Any, functions.Arguments]:
    """The Python function of a func or a method, and its arguments so far: the owner."""
    method = bound(function)
    function = method.function if method is not None else function
    if getattr(function, "octants_is_kernel", False):
        context.fail(KernelInKernel(getattr(function, "__name__", "kernel")), node)
    target = target_of(function)
    collected = functions.Arguments(context, target, node)
    if method is not None:
        collected.values[collected.positional().name] = method.owner
    return target, collected


def inline_call(
    context: Context, node: ast.AST, function: Any, args: list[Any], named: dict[str, Any]
) -> Any:
    """Inline a function, its arguments being evaluated."""
    target, collected = begin_inlined(context, node, function)
    by_reference = frozenset(collected.values)
    collected.add(args, named)
    return build_inlined(context, node, target, collected.complete(), by_reference)
