"""Functions: their parameters, and their inlining into the code that calls them."""

from __future__ import annotations

import ast
import functools
import inspect
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from octants.diagnostics.errors import (
    EndlessRecursion,
    MissingReturn,
    NoSource,
    StarParameter,
    TooDeep,
    WrongArguments,
    WrongArgumentType,
)
from octants.diagnostics.render import Label
from octants.frontend import assignments
from octants.frontend.calls import custom_adjoints
from octants.frontend.context import Context
from octants.frontend.scope import UNDEFINED, FunctionScope
from octants.frontend.syntax import source
from octants.frontend.values.expression_values import is_number
from octants.ir.core import Value
from octants.lang.library_function_marks import is_library_function, marked_function, note_compiled
from octants.lazy_dataclass import dataclass
from octants.types.matrix_types import MatrixType
from octants.types.matrix_values import Matrix
from octants.types.parameter_annotations import Template, resolve_annotation
from octants.types.structs import StructType

DEEPEST = 100
"""Calls of one function nested deeper than this are a recursion without end."""

_MOST_CALLS = 500
"""The most calls of any functions that may be nested: compiling them takes Python's stack."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function; `default` is `inspect.Parameter.empty` where there is none.

    A call passes it by name only if it `is_keyword`, and without a name only if it `is_positional`.
    """

    name: str
    annotation: Any
    default: Any
    is_keyword: bool
    is_positional: bool

    @property
    def is_template(self) -> bool:
        return is_template(self.annotation)


def is_template(annotation: Any) -> bool:
    """Whether an annotation says that the argument is known at compile time."""
    return annotation is Template or isinstance(annotation, Template)


def parameters(context: Context, function: types.FunctionType) -> list[Parameter]:
    """The parameters of a function, with annotations that are strings evaluated."""
    known = context.parameters.get(function)
    if known is None:
        known = context.parameters[function] = list(_parameters(context, function))
    return known


def _parameters(context: Context, function: types.FunctionType) -> Iterator[Parameter]:
    for parameter in inspect.signature(function, follow_wrapped=False).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            context.fail(StarParameter(function.__name__))
        yield Parameter(
            parameter.name,
            _annotation(function, parameter.annotation),
            parameter.default,
            parameter.kind is parameter.KEYWORD_ONLY,
            parameter.kind is parameter.POSITIONAL_ONLY,
        )


def _annotation(function: types.FunctionType, given: Any) -> Any:
    """The meaning of an annotation; Python's own types have none in functions for Python."""
    found = resolve_annotation(function, given)
    is_python = not is_marked(function) and found in (int, float, bool)
    return inspect.Parameter.empty if is_python else found


# -- calls -----------------------------------------------------------------------------------------


class Arguments:
    """Collects the arguments of a call, each evaluated as its parameter wants it."""

    def __init__(self, context: Context, function: types.FunctionType, node: ast.AST) -> None:
        self.context = context
        self.name = function.__name__
        self.node = node
        self.parameters = parameters(context, function)
        self.values: dict[str, Any] = {}
        self._positional = [p for p in self.parameters if not p.is_keyword]

    def positional(self) -> Parameter:
        """The parameter of the next argument without a name."""
        position = len(self.values)
        if position >= len(self._positional):
            count = len(self._positional)
            which = " without a name" if count < len(self.parameters) else ""
            what = f"{count} argument{'' if count == 1 else 's'}{which}"
            self._fail(f"takes {what}, but more are given")
        return self._positional[position]

    def named(self, name: str) -> Parameter:
        """The parameter of a name."""
        for parameter in self.parameters:
            if parameter.name == name:
                if parameter.is_positional:
                    self._fail(f"takes `{name}` by its position only")
                if name in self.values:
                    self._fail(f"is given two values for `{name}`")
                return parameter
        return self._fail(f"has no parameter `{name}`")

    def complete(self) -> dict[str, Any]:
        """All arguments, with the defaults of those that are not given."""
        missing = []
        for parameter in self.parameters:
            if parameter.name not in self.values:
                self.values[parameter.name] = parameter.default
                if parameter.default is inspect.Parameter.empty:
                    missing.append(f"`{parameter.name}`")
        if missing:
            self._fail(f"is missing {', '.join(missing)}")
        return self.values

    def add(self, args: Sequence[Any], named: Mapping[str, Any]) -> None:
        """Take arguments that have been evaluated."""
        for value in args:
            self.values[self.positional().name] = value
        for name, value in named.items():
            self.values[self.named(name).name] = value

    def _fail(self, problem: str) -> NoReturn:
        self.context.fail(WrongArguments(self.name, problem), self.node)


def inline(
    context: Context,
    node: ast.AST,
    function: types.FunctionType,
    values: dict[str, Any],
    by_reference: frozenset[str] = frozenset(),
) -> Any:
    """Build the body of a function in place of its call; gives what it returns, or None."""
    note_compiled(function)
    adjoint = custom_adjoints.adjoint_of(context, function)
    if adjoint is None:
        return _inline(context, node, function, values, by_reference)
    own = parameters(context, function)
    references = by_reference | {each.name for each in own if each.is_template}
    copied = {
        each.name: values[each.name]
        if each.name in references
        else _copied(context, function, each, values[each.name], node)
        for each in own
    }
    call = custom_adjoints.CustomCall(context, node, function, copied, references)
    names = [each.name for each in parameters(context, adjoint)]
    return call.build(adjoint, names, functools.partial(_inline, context, node))


def _inline(
    context: Context,
    node: ast.AST,
    function: types.FunctionType,
    values: dict[str, Any],
    by_reference: frozenset[str],
) -> Any:
    """Build the body of a function for itself."""
    scopes = context.scopes
    code = function.__code__
    if sum(frame.function.__code__ is code for frame in scopes.frames) >= DEEPEST:
        context.fail(EndlessRecursion(function.__name__, DEEPEST), node)
    if len(scopes.frames) > _MOST_CALLS:
        context.fail(TooDeep(scopes.frames[0].function.__name__), node)
    text = find_source(context, function, node)
    keeps = _keeps_numbers(function, text)
    key = (scopes.frame.key, node, tuple(scopes.iterations))
    is_ours = is_library_function(function)
    if not is_ours:
        context.calls[text.inlined_at(scopes.frame.source.span(node))] = None
    begins = {}
    for parameter in parameters(context, function):
        is_reference = parameter.is_template or parameter.name in by_reference
        value = values[parameter.name]
        keeps_number = is_number(value) and parameter.name in keeps
        if not is_reference and not keeps_number:
            value = _copied(context, function, parameter, value, node)
        begins[parameter.name] = value
    with scopes.entered(FunctionScope(text, function, key, call=node)) as frame:
        frame.returns = None if is_ours else declared_result(function)
        for name, value in begins.items():
            scopes.declare(name, value)
        completes = context.build(text.tree.body)
    return returned(context, node, frame, completes)


def returned(context: Context, node: ast.AST, scope: FunctionScope, completes: bool) -> Any:
    """The returned value of a function whose body was built; None if it has none.

    `completes` says whether the end of the body can be reached.
    """
    result, text = scope.result.value, scope.source
    is_missing = assignments.is_type(scope.returns)
    if result is not UNDEFINED:
        is_missing = completes or scope.returns_nothing
    if is_missing:
        name = scope.function.__name__
        context.fail(MissingReturn(name), node, Label(text.span(text.tree)))
    return None if result is UNDEFINED else result


def declared_result(function: types.FunctionType) -> Any:
    """The annotation of what a function returns; a tuple of several, None without one."""
    annotation = _annotation(function, function.__annotations__.get("return"))
    if annotation is inspect.Parameter.empty:
        return None
    if typing.get_origin(annotation) is tuple:
        kinds = typing.get_args(annotation)
        return None if ... in kinds else kinds
    return tuple(annotation) if isinstance(annotation, list) else annotation


def is_marked(function: Any) -> bool:
    """Whether a function was made for kernels, by ``qd.func`` or as a part of the library."""
    return marked_function(function) is not None


def _keeps_numbers(function: types.FunctionType, text: source.FunctionSource) -> frozenset[str]:
    """The parameters that stay the Python numbers that they are given.

    Those of the library's functions do, and of functions that were written for Python, which know
    no types, those that are not assigned.
    """
    names = frozenset(parameter.arg for parameter in source.parameters(text.tree))
    if is_library_function(function):
        return names
    return frozenset() if is_marked(function) else names - {*source.assigned_names(text.tree.body)}


def find_source(
    context: Context, function: types.FunctionType, node: ast.AST
) -> source.FunctionSource:
    """The source of a function that is called; an error points to the call."""
    try:
        return source.find_source(function)
    except NoSource.exception as error:
        labels = error.diagnostic.labels if error.diagnostic is not None else ()
        definitions = [Label(label.span, "defined here") for label in labels]
        context.fail(NoSource(function.__name__), node, *definitions)


def source_or_none(function: types.FunctionType) -> source.FunctionSource | None:
    """The source of a function; None without one."""
    try:
        return source.find_source(function)
    except NoSource.exception:
        return None


def _copied(
    context: Context,
    function: types.FunctionType,
    parameter: Parameter,
    value: Any,
    node: ast.AST,
) -> Any:
    """The copy that a parameter, not a template, holds: of the type of its annotation."""
    misfit = functools.partial(WrongArgumentType, function.__name__)
    value, kind = context.load(value), parameter.annotation
    is_scalar = is_number(value) or isinstance(value, Value)
    if is_scalar or isinstance(kind, (MatrixType, StructType)):
        value = assignments.as_kind(context, kind, value, parameter.name, node, misfit)
    return context.value(value) if is_number(value) or isinstance(value, Matrix) else value
