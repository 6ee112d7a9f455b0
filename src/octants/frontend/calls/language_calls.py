"""The calls that are words of the language: ``static``, ``range``, ``ndrange``, ``print``, ..."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from typing import Any

import numpy as np

from octants.diagnostics.errors import (
    LateLoopConfig,
    NotCompileTime,
    StaticAssertion,
    WrongArguments,
    WrongLoopBound,
    WrongLoopConfig,
)
from octants.frontend.calls import print_and_assert
from octants.frontend.calls.print_and_assert import format_string
from octants.frontend.compile_time import compile_time_evaluation, name_resolution
from octants.frontend.compile_time.unspecialised_numbers import HostNumber
from octants.frontend.context import NOT_FOUND, Context
from octants.frontend.control_flow.loop_domains import is_wide
from octants.frontend.memory import indexing
from octants.frontend.values.expression_values import (
    ArrayReference,
    GroupedDomain,
    MatrixValue,
    ProductDomain,
    RangeDomain,
    StaticValue,
    describe,
    is_number,
    is_run_time,
    plain,
)
from octants.ir.core import Value
from octants.lang import directives
from octants.lang.library_function_marks import is_library_function
from octants.types.matrix_values import Matrix

__all__ = ["WORDS", "format_string"]

# -- compile time ----------------------------------------------------------------------------------


def static(context: Context, node: ast.Call) -> StaticValue:
    """``static(x)``: the Python object that x is."""
    if not node.args or node.keywords:
        context.fail(WrongArguments("static", "takes the expressions to be evaluated"), node)
    with context.in_static():
        values = [_static_argument(context, arg) for arg in node.args]
    return StaticValue(values[0] if len(values) == 1 else tuple(values))


def _static_argument(context: Context, arg: ast.expr) -> Any:
    """The value of an expression at compile time; sequences may hold run-time values."""
    if any(isinstance(node, PYTHON_ONLY) for node in ast.walk(arg)):
        return _by_python(context, arg)
    value = context.evaluate(arg)
    if isinstance(value, (tuple, list, GroupedDomain)):
        return value
    return compile_time_evaluation.static_value(context, value, arg, "the argument of static(...)")


PYTHON_ONLY = (ast.Dict, ast.Set, ast.DictComp, ast.SetComp)


def _by_python(context: Context, arg: ast.expr) -> Any:
    """Let Python evaluate what the language lacks, with the names that are known now."""
    known: dict[str, Any] = {}
    for child in ast.walk(arg):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
            if _is_bound_inside(arg, child.id):
                continue
            value = context.evaluate(child)
            known[child.id] = compile_time_evaluation.static_value(
                context, value, child, f"`{child.id}`"
            )
    code = compile(ast.Expression(arg), "<static>", "eval")
    return compile_time_evaluation.call(context, arg, eval, code, known)


def _is_bound_inside(arg: ast.expr, name: str) -> bool:
    return any(
        isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store) and child.id == name
        for child in ast.walk(arg)
    )


def static_assert(context: Context, node: ast.Call) -> None:
    args, named = _values(context, node)
    if not args:
        context.fail(WrongArguments("static_assert", "takes a condition"), node)
    message = [*args[1:], *named.values()]
    what = "the condition" + (f" of the assertion that {message[0]}" if message else "")
    condition = compile_time_evaluation.static_value(context, args[0], node, what)
    if not compile_time_evaluation.truth(context, condition, node):
        is_library = is_library_function(context.scopes.frame.function)
        reason = "a function of the library asserts it" if is_library else "this is false"
        context.fail(StaticAssertion(f": {message[0]}" if message else "", reason), node.args[0])


def static_print(context: Context, node: ast.Call) -> None:
    """Print values, or what is known of them, while compiling."""
    args, named = _values(context, node)
    shown = [describe(arg) if is_run_time(arg) else arg for arg in args]
    compile_time_evaluation.call(context, node, print, *shown, **named)


def _values(context: Context, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
    args = [context.evaluate(arg) for arg in node.args]
    return args, {str(word.arg): context.evaluate(word.value) for word in node.keywords}


# -- what loops run over ---------------------------------------------------------------------------


def range_(context: Context, node: ast.Call) -> Any:
    """``range(...)``: Python's own if its arguments are known."""
    args, named = _values(context, node)
    if not 1 <= len(args) <= 3 or named:
        context.fail(WrongArguments("range", "takes 1 to 3 arguments"), node)
    bounds = [bound(context, arg, at) for arg, at in zip(args, node.args, strict=True)]
    if all(map(is_number, bounds)):
        return compile_time_evaluation.call(context, node, range, *bounds)
    start, stop = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
    return RangeDomain(start, stop, bounds[2] if len(bounds) == 3 else 1)


def bound(context: Context, value: Any, node: ast.AST) -> Any:
    """A bound of a loop: a Python int, or an integer scalar, which keeps a type of 64 bits."""
    if isinstance(value, HostNumber):
        value = context.constant(value)
    if not (isinstance(value, Value) and is_wide(value.type)) or context.is_in_static:
        value = plain(context.known(value))
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, Value) and not value.type.is_float:
        return value
    if isinstance(value, int):
        return int(value)
    return context.fail(WrongLoopBound(describe(value)), node)


def ndrange(context: Context, node: ast.Call) -> Any:
    """``ndrange(n, (lo, hi), ...)``: the host's object if its arguments are known."""
    args: list[tuple[Any, ast.expr]] = []
    for arg in node.args:
        if isinstance(arg, ast.Starred):
            items = compile_time_evaluation.iterate(context, context.evaluate(arg.value), arg)
            args += [(item, arg) for item in items]
        else:
            args.append((context.evaluate(arg), arg))
    if any(word.arg != "axes" for word in node.keywords):
        problem = "takes an extent or bounds for each index, and `axes`"
        context.fail(WrongArguments("ndrange", problem), node)
    bounds = tuple(pair for arg, at in args for pair in _ndrange_bounds(context, arg, at))
    axes = _axes(context, node, len(bounds))
    if any(is_run_time(pair) for pair in bounds):
        return ProductDomain(bounds, axes)
    return directives.ndrange(*bounds, axes=axes)


def _axes(context: Context, node: ast.Call, count: int) -> tuple[int, ...]:
    """The option `axes` of ``ndrange``: positions of its ranges, slowest first."""
    if not node.keywords:
        return tuple(range(count))
    at = node.keywords[0].value
    given = compile_time_evaluation.static_value(
        context, context.evaluate(at), at, "the order of the axes"
    )
    try:
        return directives.nesting_order(given, count)
    except ValueError as error:
        context.fail(WrongArguments("ndrange", str(error)), at)


def _ndrange_bounds(context: Context, arg: Any, node: ast.AST) -> list[tuple[Any, Any]]:
    if isinstance(arg, (MatrixValue, Matrix)):
        return [
            (0, bound(context, extent, node))
            for extent in compile_time_evaluation.iterate(context, arg, node)
        ]
    if isinstance(arg, (tuple, list)):
        if len(arg) != 2:
            problem = f"takes pairs of bounds, not {describe(arg)}"
            context.fail(WrongArguments("ndrange", problem), node)
        low, high = (bound(context, item, node) for item in arg)
        return [(low, high)]
    return [(0, bound(context, arg, node))]


def grouped(context: Context, node: ast.Call) -> GroupedDomain:
    args, named = _values(context, node)
    if len(args) != 1 or named:
        context.fail(WrongArguments("grouped", "takes a field, an array or an ndrange"), node)
    return GroupedDomain(args[0])


# -- loop options ----------------------------------------------------------------------------------

LOOP_OPTIONS = {
    "block_dim": (int, type(None)),
    "serialize": (bool,),
    "parallelize": (int, type(None)),
    "bit_vectorize": (bool,),
    "block_dim_adaptive": (bool,),
    "name": (str, type(None)),
    "simd": (int, type(None)),
}


IGNORED_OPTIONS = ("bit_vectorize", "block_dim_adaptive")  # they steer other compilers

LANES = (None, 2, 4, 8, 16, 32, 64)


def loop_config(context: Context, node: ast.Call) -> None:
    """Options for the next loop of this function."""
    if node.args:
        context.fail(WrongLoopConfig("its options are given by name"), node)
    for word in node.keywords:
        name = str(word.arg)
        if name not in LOOP_OPTIONS:
            context.fail(WrongLoopConfig(f"there is no option `{name}`"), word.value)
        _set_option(context, name, word.value)


def _set_option(context: Context, name: str, node: ast.expr) -> None:
    value = context.evaluate(node)
    value = compile_time_evaluation.static_value(context, value, node, f"the option `{name}`")
    if not isinstance(value, LOOP_OPTIONS[name]) or not _makes_blocks(name, value):
        context.fail(WrongLoopConfig(f"`{name}` cannot be {describe(value)}"), node)
    if name == "simd" and not isinstance(value, bool) and value not in LANES:
        lanes = "a number of lanes is a power of 2 between 2 and 64"
        context.fail(WrongLoopConfig(lanes), node)
    if name in IGNORED_OPTIONS:
        return
    context.scopes.frame.loop_options[name] = value
    if value and context.item is not None and context.scopes.frame.is_kernel:
        context.warn(LateLoopConfig(name), node)


def _makes_blocks(name: str, value: Any) -> bool:
    """Whether an option, if it is the size of blocks, is one."""
    return name != "block_dim" or value is None or (value is not True and value > 0)


def older_option(name: str, default: Any = None) -> Callable[[Context, ast.Call], None]:
    """``block_dim(n)`` and the like: an option of the next loop, in its older spelling."""

    def build(context: Context, node: ast.Call) -> None:
        values = [*node.args, *(word.value for word in node.keywords)]
        if len(values) != 1 and not (default is not None and not values):
            context.fail(WrongLoopConfig(f"`{name}` takes one value"), node)
        value = values[0] if values else ast.copy_location(ast.Constant(default), node)
        _set_option(context, name, value)

    return build


def block_local(context: Context, node: ast.Call) -> None:
    for arg in node.args:
        context.evaluate(arg)


# -- messages --------------------------------------------------------------------------------------


def print_(context: Context, node: ast.Call) -> None:
    """Output with run-time values; ``sep`` and ``end`` are known when the kernel is compiled."""
    args, named = _values(context, node)
    options = {"sep": None, "end": None, **named}
    if set(options) - {"sep", "end", "flush"}:
        context.fail(WrongArguments("print", "takes `sep` and `end`, both strings"), node)
    separator, end = _text(context, node, options, "sep"), _text(context, node, options, "end")
    message = print_and_assert.Message(context, node)
    for position, arg in enumerate(args):
        message.text(separator if position else "")
        message.add(arg)
    message.text(end)
    if message.parts:
        context.builder.print_(tuple(message.parts), message.values)


def _text(context: Context, node: ast.Call, options: dict[str, Any], name: str) -> str:
    """An option of ``print``; None stands for what it is by default, as in Python."""
    text = options[name]
    if text is None:
        return {"sep": " ", "end": "\n"}[name]
    if not isinstance(text, str):
        problem = f"takes a string known at compile time for `{name}`"
        argument = next(word.value for word in node.keywords if word.arg == name)
        context.fail(WrongArguments("print", problem), argument)
    return text


# -- questions about values ------------------------------------------------------------------------


def isinstance_(context: Context, node: ast.Call) -> bool:
    args, _ = _values(context, node)
    if len(args) == 2 and is_run_time(args[0]):
        kinds = args[1] if isinstance(args[1], tuple) else (args[1],)
        return any(issubclass(_python_type(args[0]), kind) for kind in kinds)
    return bool(compile_time_evaluation.call(context, node, isinstance, *args))


def _python_type(value: Any) -> type:
    """The type that a run-time value would have on the host."""
    if isinstance(value, Value):
        return float if value.type.is_float else bool if value.type.is_bool else int
    if isinstance(value, ArrayReference):
        return type(value.handle)
    return Matrix if isinstance(value, MatrixValue) else type(value)


def getattr_(context: Context, node: ast.Call) -> Any:
    found = _find(context, node, "getattr", (2, 3))
    if found is not NOT_FOUND:
        return context.load(found)
    if len(node.args) == 3:
        return context.evaluate(node.args[2])
    return context.fail(NotCompileTime("the attribute of getattr()"), node)


def hasattr_(context: Context, node: ast.Call) -> bool:
    return _find(context, node, "hasattr", (2,)) is not NOT_FOUND


def _find(context: Context, node: ast.Call, word: str, counts: tuple[int, ...]) -> Any:
    if len(node.args) not in counts or node.keywords:
        context.fail(WrongArguments(word, "takes an object and a name"), node)
    name = compile_time_evaluation.static_value(
        context, context.evaluate(node.args[1]), node, "the name"
    )
    return name_resolution.find_attribute(
        context, context.evaluate_reference(node.args[0]), str(name), node
    )


def do_while(context: Context, node: ast.Call) -> Any:
    """Whether the body of a ``while`` runs again; `loops.while_` runs it once before."""
    if not ast.unparse(node.func).endswith("do_while"):  # by which `loops.while_` knows it
        context.fail(WrongArguments("do_while", "is called by its own name"), node)
    args, named = _values(context, node)
    counter = args[0] if args else named.get("counter")
    if len(args) + len(named) != 1 or not isinstance(counter, ArrayReference):
        context.fail(WrongArguments("do_while", "takes an array of shape ()"), node)
    element = ast.copy_location(ast.Subscript(node, ast.copy_location(ast.Tuple([]), node)), node)
    return context.load(indexing.element(context, counter, (), element))


WORDS: dict[Any, Callable[[Context, ast.Call], Any]] = {
    directives.do_while: do_while,
    directives.static: static,
    directives.static_assert: static_assert,
    directives.static_print: static_print,
    directives.ndrange: ndrange,
    directives.grouped: grouped,
    directives.loop_config: loop_config,
    directives.block_local: block_local,
    directives.cache_read_only: block_local,
    directives.block_dim: older_option("block_dim"),
    directives.parallelize: older_option("parallelize"),
    directives.serialize: older_option("serialize", default=True),
    directives.strictly_serialize: older_option("serialize", default=True),
    builtins.range: range_,
    builtins.print: print_,
    builtins.isinstance: isinstance_,
    builtins.getattr: getattr_,
    builtins.hasattr: hasattr_,
}
