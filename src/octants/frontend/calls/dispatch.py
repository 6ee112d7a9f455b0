"""Calls: words of the language, its library, functions that are inlined, Python at compile time."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from octants.diagnostics.errors import (
    HostFunction,
    NotCallable,
    PythonFunction,
    UnknownAttribute,
    UnsupportedSyntax,
    WrongArguments,
)
from octants.diagnostics.library_errors import KernelOnly
from octants.diagnostics.suggestions import suggest
from octants.frontend.calls import (
    builtins,
    functions,
    language_calls,
    operator_functions,
    python_functions,
)
from octants.frontend.calls.inlined_calls import (
    BoundFunction,
    begin_inlined,
    build_inlined,
    inline_call,
)
from octants.frontend.compile_time import (
    compile_time_evaluation,
    host_functions,
    local_lists,
    name_resolution,
)
from octants.frontend.compile_time.python_object_conversion import wrap
from octants.frontend.context import NOT_FOUND, Context
from octants.frontend.memory import fill_loops, ndarray_views, sparse_functions
from octants.frontend.scope import FunctionScope
from octants.frontend.syntax.reads_of_functions import is_library
from octants.frontend.syntax.source import parameters
from octants.frontend.values import matrices
from octants.frontend.values.expression_values import (
    ArrayReference,
    MatrixValue,
    RangeDomain,
    StructValue,
    describe,
    first_leaf,
    is_run_time,
    is_view,
)
from octants.lang import exported_names as library
from octants.lazy_dataclass import dataclass
from octants.types.matrix_values import Matrix

Keywords = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LocalFunction:
    """A lambda of a kernel: an expression of the function that it stands in."""

    DESCRIPTION: ClassVar[str] = "a lambda"

    node: ast.Lambda
    frame: FunctionScope
    defaults: dict[str, Any]


def call(context: Context, node: ast.Call) -> Any:
    """The value of a call."""
    if isinstance(node.func, ast.Attribute):
        found = sparse_functions.list_method(context, node)
        if found is not None:
            return found.value
        function = _method(context, node.func)
        if isinstance(function, _Method):
            return _call_method(context, node, function)
    else:
        function = context.evaluate(node.func)
    word = _lookup(language_calls.WORDS, function)
    if word is not None:
        return word(context, node)
    return call_function(context, node, function)


def call_function(context: Context, node: ast.Call, function: Any) -> Any:
    """Call what is no word of the language."""
    handler = builtins.handler_of(function)
    if handler is not None:
        return _call_builtin(context, node, function, handler)
    if isinstance(function, BoundFunction) or functions.is_marked(function):
        return _call_inlined(context, node, function)
    if function is reversed and len(node.args) == 1 and not node.keywords:
        return _call_reversed(context, node)
    args, named = arguments(context, node)
    if function is super and not args:
        args = _arguments_of_super(context)
    return call_with(context, node, function, args, named)


def _call_reversed(context: Context, node: ast.Call) -> Any:
    """``reversed(...)``: of a range a range, so that the loop over it is not unrolled."""
    value, is_static = context.evaluate_marked(node.args[0])
    if isinstance(value, RangeDomain):
        return dataclasses.replace(value, is_reversed=not value.is_reversed)
    if isinstance(value, range) and not is_static:
        return value[::-1]
    return call_with(context, node, reversed, [value], {})


def _arguments_of_super(context: Context) -> list[Any]:
    """The arguments of ``super()``: the class that a method is written in, and its `self`."""
    frame = context.scopes.frame
    cell = frame.closure().get("__class__")
    names = [parameter.arg for parameter in parameters(frame.source.tree)]
    variable = frame.variables.get(names[0]) if names else None
    if cell is None or variable is None:
        return []  # which Python refuses
    return [cell.cell_contents, variable.value]


def call_with(
    context: Context, node: ast.Call, function: Any, args: list[Any], named: Keywords
) -> Any:
    """Call a function with arguments that have been evaluated."""
    if isinstance(function, functools.partial):
        inner = python_functions.unwrap_partial(context, function, args, named)
        return call_with(context, node, *inner)
    if isinstance(function, LocalFunction):
        return _call_lambda(context, node, function, args, named)
    handler = builtins.handler_of(function) or _lookup(operator_functions.FUNCTIONS, function)
    if handler is not None:
        return handler(context, node, args, named)
    calling = _lookup(operator_functions.CALLING, function)
    if calling is not None and not named:
        return calling(context, node, call_with, args)
    found = python_functions.as_method(context, function)
    if python_functions.is_inlined(found, args, named):
        return inline_call(context, node, found, args, named)
    try:
        return _call_python(context, node, function, args, named)
    except KernelOnly.exception as error:
        if not python_functions.is_refused_on_host(error, found):
            raise
        return inline_call(context, node, found, args, named)


def _lookup(table: Any, function: Any) -> Any:
    try:
        return table.get(function)
    except TypeError:
        return None


# -- arguments -------------------------------------------------------------------------------------


def arguments(context: Context, node: ast.Call) -> tuple[list[Any], Keywords]:
    """The values of all arguments, those without a name first."""
    args: list[Any] = []
    for arg in node.args:
        args.extend(_spread(context, arg))
    return args, keywords(context, node)


def _spread(context: Context, arg: ast.expr) -> list[Any]:
    if isinstance(arg, ast.Starred):
        return compile_time_evaluation.iterate(context, context.evaluate(arg.value), arg)
    return [context.evaluate(arg)]


def keywords(context: Context, node: ast.Call) -> Keywords:
    """The values of the arguments that are given by name."""
    for keyword in node.keywords:
        if keyword.arg is None:
            problem = UnsupportedSyntax("`**` in a call", "name each argument")
            context.fail(problem, keyword.value)
    return {str(keyword.arg): context.evaluate(keyword.value) for keyword in node.keywords}


def _call_builtin(
    context: Context, node: ast.Call, function: Any, handler: Callable[..., Any]
) -> Any:
    takes_reference = _is_member(function, builtins.TAKES_REFERENCE)
    if takes_reference and not node.args:
        node = _with_first_by_position(function, node)
    if not takes_reference or not node.args or isinstance(node.args[0], ast.Starred):
        args, named = arguments(context, node)
    else:
        args = [context.evaluate_reference(node.args[0])]
        for arg in node.args[1:]:
            args.extend(_spread(context, arg))
        named = keywords(context, node)
    return handler(context, node, args, named)


def _with_first_by_position(function: Any, node: ast.Call) -> ast.Call:
    """A call whose first argument, if it is named, comes first: ``atomic_add(x=a[i], y=1)``."""
    first = next(iter(inspect.signature(function).parameters))
    for keyword in node.keywords:
        if keyword.arg == first:
            others = [each for each in node.keywords if each is not keyword]
            return ast.copy_location(ast.Call(node.func, [keyword.value], others), node)
    return node


def _is_member(function: Any, group: Any) -> bool:
    try:
        return function in group
    except TypeError:
        return False


# -- methods ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Method:
    """A method of a vector, a matrix, a string or an array, known to the library by its name."""

    owner: Any
    name: str
    reference: Any


def _method(context: Context, node: ast.Attribute) -> Any:
    base = context.evaluate_reference(node.value)
    if node.attr == "element_shape" and isinstance(array := context.load(base), ArrayReference):
        return _Method(array, node.attr, base)  # an attribute on the host, a method in kernels
    if node.attr in _OF_DICTS and type(table := context.load(base)) is dict:
        return _Method(table, node.attr, base)
    if node.attr == "parent" and (block := _in_tree(context, base)) is not None:
        return _Method(block, node.attr, base)
    if node.attr == "subview" and is_view(view := context.load(base)):
        return _Method(view, node.attr, base)
    if local_lists.is_changing(base, node.attr):
        return _Method(base.variable.value, node.attr, base)
    local_lists.check_container(context, node, base)
    found = name_resolution.find_attribute(context, base, node.attr, node)
    if found is not NOT_FOUND and not isinstance(base, str):
        return context.load(found)
    owner = context.load(base)
    if isinstance(owner, (MatrixValue, Matrix, str)):
        return _Method(owner, node.attr, base)
    if node.attr == "fill" and fill_loops.is_fillable(owner):
        return _Method(owner, node.attr, base)
    number = context.known(owner)  # as in `n = static(64)`: `n.bit_length()` is Python's
    if number is not owner:
        found = name_resolution.find_attribute(context, number, node.attr, node)
        if found is not NOT_FOUND:
            return context.load(found)
    return context.load(name_resolution.attribute(context, node))


def _in_tree(context: Context, base: Any) -> Any:
    """A field, or a block of a field tree; None for anything else."""
    owner = context.load(base)
    leaf = first_leaf(owner)
    if isinstance(leaf, ArrayReference):
        return owner if hasattr(leaf.handle, "snode") else None
    return None if is_run_time(owner) or not hasattr(owner, "above") else owner


_OF_DICTS = frozenset(("get", "items", "keys", "values"))


def _call_dict(
    context: Context, node: ast.Call, method: _Method, args: list[Any], named: Keywords
) -> Any:
    """A method that reads a dict, whose values may be known at run time only."""
    if args:
        args[0] = compile_time_evaluation.static_value(context, args[0], node, "a key of a dict")
    try:
        found = getattr(method.owner, method.name)(*args, **named)
    except TypeError as error:
        context.fail(WrongArguments(method.name, f"does not fit: {error}"), node)
    return wrap(context, found, "item") if method.name == "get" else list(found)


def _call_method(context: Context, node: ast.Call, method: _Method) -> Any:
    args, named = arguments(context, node)
    if type(method.owner) is dict:
        return _call_dict(context, node, method, args, named)
    if type(method.owner) is list:
        return local_lists.call(context, node, method.reference.variable, method.name, args, named)
    if method.name == "parent":
        return sparse_functions.parent(context, node, method.owner, [*args, *named.values()])
    if is_view(method.owner):
        return ndarray_views.subview(context, node, method.owner, args, named)
    if isinstance(method.owner, str):
        if method.name == "format":
            return language_calls.format_string(context, node, method.owner, args, named)
        function = getattr(method.owner, method.name, None)
        return _call_python(context, node, function, args, named)
    if method.name == "element_shape":
        return list(method.owner.array.element_shape)
    if fill_loops.is_fillable(method.owner):
        return fill_loops.fill(context, node, method.owner, args, named)
    owner = context.value(method.owner)
    if method.name in matrices.CHANGING:
        changed = matrices.changed(context, node, owner, method.name, args, named)
        return context.store(method.reference, changed, node)
    result = matrices.method(context, node, owner, method.name, args, named)
    if result is NOT_FOUND:
        suggestion = suggest(method.name, matrices.METHOD_NAMES)
        context.fail(UnknownAttribute(describe(owner), method.name, suggestion), node.func)
    return result


# -- functions of the language ---------------------------------------------------------------------


def _call_inlined(context: Context, node: ast.Call, function: Any) -> Any:
    target, collected = begin_inlined(context, node, function)
    by_reference = frozenset(collected.values)
    for arg in node.args:
        _collect(context, collected, arg)
    for keyword in node.keywords:
        if keyword.arg is None:
            keywords(context, node)
        parameter = collected.named(str(keyword.arg))
        collected.values[parameter.name] = _argument(context, parameter, keyword.value)
    return build_inlined(context, node, target, collected.complete(), by_reference)


def _collect(context: Context, collected: functions.Arguments, arg: ast.expr) -> None:
    if not isinstance(arg, ast.Starred):
        parameter = collected.positional()
        collected.values[parameter.name] = _argument(context, parameter, arg)
        return
    for value in compile_time_evaluation.iterate(context, context.evaluate(arg.value), arg):
        collected.values[collected.positional().name] = value


def _argument(context: Context, parameter: functions.Parameter, node: ast.expr) -> Any:
    """An argument as its parameter wants it: a template may be given a reference."""
    return context.evaluate_reference(node) if parameter.is_template else context.evaluate(node)


def lambda_(context: Context, node: ast.Lambda) -> LocalFunction:
    """A lambda stands for itself until it is called."""
    given = node.args
    named = [each.arg for each in (*given.posonlyargs, *given.args)]
    pairs = [
        *zip(reversed(named), reversed(given.defaults), strict=False),
        *zip((each.arg for each in given.kwonlyargs), given.kw_defaults, strict=True),
    ]
    defaults = {name: context.evaluate(value) for name, value in pairs if value is not None}
    return LocalFunction(node, context.scopes.frame, defaults)


def _call_lambda(
    context: Context, node: ast.Call, function: LocalFunction, args: list[Any], named: Keywords
) -> Any:
    given = function.node.args
    if given.vararg is not None or given.kwarg is not None:
        way_out = "name each parameter, or pass a tuple"
        context.fail(UnsupportedSyntax("a lambda of any number of arguments", way_out), node)
    by_position = [each.arg for each in (*given.posonlyargs, *given.args)]
    parameters = {*by_position, *(each.arg for each in given.kwonlyargs)}
    values = dict(zip(by_position, args, strict=False))
    is_twice = len(args) > len(by_position) or bool(set(named) & set(values))
    values = {**function.defaults, **values, **named}
    if is_twice or set(values) != parameters:
        context.fail(WrongArguments("lambda", f"takes {len(parameters)} arguments"), node)
    with context.scopes.within(function.frame):
        for name, value in values.items():
            context.scopes.declare(name, value)
        return context.evaluate(function.node.body)


# -- Python ----------------------------------------------------------------------------------------

CONTAINERS = (zip, enumerate, reversed, tuple, list, range)
"""Functions of Python that arrange their arguments without looking at them."""


def _call_python(
    context: Context, node: ast.Call, function: Any, args: list[Any], named: Keywords
) -> Any:
    """Call a Python function at compile time; its arguments must be known then."""
    if not callable(function):
        context.fail(NotCallable(describe(function)), node.func)
    way_out = host_functions.way_out(function)
    if way_out and not context.is_in_static:
        context.fail(HostFunction(ast.unparse(node.func), way_out), node)
    values = [*args, *named.values()]
    if dataclasses.is_dataclass(function) and any(map(is_run_time, values)):
        return _make_struct(context, node, function, args, named)
    if function in CONTAINERS:
        args = [_as_sequence(context, arg, node) for arg in args]
    elif any(map(is_run_time, values)) or is_run_time(getattr(function, "__self__", None)):
        _check_owner(context, function, node)
        args = [_known(context, arg, function, node) for arg in args]
        named = {name: _known(context, arg, function, node) for name, arg in named.items()}
    args = [_callable(context, arg, node) for arg in args]
    named = {name: _callable(context, arg, node) for name, arg in named.items()}
    result = compile_time_evaluation.call(context, node, function, *args, **named)
    if function in CONTAINERS and not isinstance(result, range):
        result = list(result) if function is not tuple else result
    return wrap(context, result, getattr(function, "__name__", "result"))


@dataclass(frozen=True, slots=True)
class _PythonLambda:
    """A lambda of a kernel, for Python functions that call it at compile time, such as `sorted`."""

    context: Context
    node: ast.Call
    function: LocalFunction

    def __call__(self, *args: Any) -> Any:
        given = [wrap(self.context, arg, "argument") for arg in args]
        result = _call_lambda(self.context, self.node, self.function, given, {})
        what = "the result of this lambda"
        return compile_time_evaluation.static_value(
            self.context, result, self.function.node.body, what
        )


def _callable(context: Context, arg: Any, node: ast.Call) -> Any:
    return _PythonLambda(context, node, arg) if isinstance(arg, LocalFunction) else arg


def _as_sequence(context: Context, arg: Any, node: ast.Call) -> Any:
    return compile_time_evaluation.iterate(context, arg, node) if is_run_time(arg) else arg


_OTHER_NAMES = {
    "absolute": "abs",
    "arccos": "acos",
    "arcsin": "asin",
    "arctan2": "atan2",
    "clip": "math.clamp",
    "fabs": "abs",
    "maximum": "max",
    "minimum": "min",
    "power": "pow",
    "where": "select",
}
"""The language's names for functions of numpy and torch."""


def _way_out(name: str, function: Any) -> str:
    """The remedy for a call of a library's function, or of a Python object's method."""
    if isinstance(getattr(function, "__self__", None), (list, dict, set)):
        return "Python's containers do not change when a kernel runs: use a vector or an array"
    name = _OTHER_NAMES.get(name, name)
    if name.startswith("math.") or hasattr(library, name):
        return f"use `qd.{name}`"
    return "call it outside of the kernel, or write a `@qd.func` that computes it"


def _check_owner(context: Context, function: Any, node: ast.Call) -> None:
    """Refuse methods of tuples and lists that compare items known at run time only."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, (tuple, list)) and is_run_time(owner) and function.__name__ != "copy":
        context.fail(PythonFunction(function.__name__, "compare the items in a loop"), node)


def _known(context: Context, arg: Any, function: Any, node: ast.Call) -> Any:
    """An argument as a Python object, where run-time values are no use."""
    if not is_run_time(arg):
        return arg
    known = context.known(arg)
    if is_run_time(known):
        name = getattr(function, "__name__", describe(function))
        if is_library(function) or not inspect.isfunction(function):
            context.fail(PythonFunction(name, _way_out(name, function)), node)
        context.fail(PythonFunction(name), node)
    return known


def _make_struct(
    context: Context, node: ast.Call, kind: Any, args: list[Any], named: Keywords
) -> StructValue:
    """An instance of a Python dataclass with run-time members: a struct."""
    try:
        bound = inspect.signature(kind).bind(*args, **named)
    except TypeError as error:
        context.fail(WrongArguments(kind.__name__, f"does not fit: {error}"), node)
    bound.apply_defaults()
    return StructValue(dict(bound.arguments), kind)


TABLE: dict[type[ast.AST], Callable[..., Any]] = {ast.Call: call, ast.Lambda: lambda_}
