"""Expressions: literals, operators, collections, comprehensions."""

from __future__ import annotations

import ast
import contextlib
import operator
from collections.abc import Callable, Iterator
from typing import Any

from octants.diagnostics.errors import (
    CompileTimeFailure,
    NotIterable,
    UnsupportedSyntax,
    WrongFormat,
)
from octants.frontend import assignments
from octants.frontend.calls import print_and_assert
from octants.frontend.compile_time import compile_time_evaluation, name_resolution
from octants.frontend.compile_time.unspecialised_numbers import HostNumber
from octants.frontend.context import NOT_FOUND, Context
from octants.frontend.memory import indexing
from octants.frontend.values import arithmetic, struct_operators
from octants.frontend.values.expression_values import (
    ArrayReference,
    FormattedString,
    StructValue,
    describe,
    is_number,
    is_run_time,
)
from octants.types.matrix_values import Matrix

BINARY: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
    ast.MatMult: ("@", operator.matmul),
    ast.LShift: ("<<", operator.lshift),
    ast.RShift: (">>", operator.rshift),
    ast.BitAnd: ("&", operator.and_),
    ast.BitOr: ("|", operator.or_),
    ast.BitXor: ("^", operator.xor),
}

UNARY: dict[type[ast.unaryop], str] = {
    ast.UAdd: "+",
    ast.USub: "-",
    ast.Invert: "~",
    ast.Not: "not",
}
UNARY_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "+": operator.pos,
    "-": operator.neg,
    "~": operator.invert,
    "not": operator.not_,
}


# -- literals and operators ------------------------------------------------------------------------


def constant(context: Context, node: ast.Constant) -> Any:
    """A literal is a Python object."""
    if isinstance(node.value, (complex, bytes)) or node.value is ...:
        kind = "`...`" if node.value is ... else f"a {type(node.value).__name__} literal"
        context.fail(UnsupportedSyntax(kind, "kernels compute with integers and floats"), node)
    return node.value


def binary(context: Context, node: ast.BinOp) -> Any:
    """``left op right``"""
    left, right = context.evaluate(node.left), context.evaluate(node.right)
    return binary_operation(context, node.op, left, right, node)


def binary_operation(
    context: Context, op: ast.operator, left: Any, right: Any, node: ast.AST
) -> Any:
    """``left op right`` on run-time values or on Python objects."""
    symbol, function = BINARY[type(op)]
    if isinstance(left, str) and isinstance(op, ast.Mod) and is_run_time(right):
        return print_and_assert.percent_format(context, node, left, right)
    if isinstance(left, StructValue) or isinstance(right, StructValue):
        found = struct_operators.binary(context, symbol, left, right, node)
        if found is not NOT_FOUND:
            return found
    if _combines_in_kernel(left, right):
        return arithmetic.binary(context, symbol, left, right)
    return compile_time_evaluation.operate(context, node, function, left, right)


def _combines_in_kernel(left: Any, right: Any) -> bool:
    """Whether an operator is one of the kernel, and not of Python on its own objects."""
    sequences = (tuple, list, str)
    if isinstance(left, sequences) and (isinstance(right, sequences) or is_number(right)):
        return False
    if is_number(left) and isinstance(right, sequences):
        return False
    varies = isinstance(left, HostNumber) or isinstance(right, HostNumber)
    return varies or is_run_time(left) or is_run_time(right)


def unary(context: Context, node: ast.UnaryOp) -> Any:
    """``op operand``"""
    return unary_operation(context, UNARY[type(node.op)], context.evaluate(node.operand), node)


def unary_operation(context: Context, symbol: str, operand: Any, node: ast.AST) -> Any:
    """An operator with one operand, on a run-time value or on a Python object."""
    if isinstance(operand, StructValue):
        found = struct_operators.unary(context, symbol, operand, node)
        if found is not NOT_FOUND:
            return found
    if symbol == "not" and isinstance(operand, ArrayReference) and context.is_in_static:
        return False
    if is_number(operand) or (is_run_time(operand) and not isinstance(operand, (tuple, list))):
        return arithmetic.unary(context, symbol, operand)
    if isinstance(operand, Matrix) and symbol != "not":
        return arithmetic.unary(context, symbol, operand)
    return compile_time_evaluation.operate(context, node, UNARY_FUNCTIONS[symbol], operand)


# -- collections -----------------------------------------------------------------------------------


def items(context: Context, nodes: list[ast.expr]) -> list[Any]:
    """The values of expressions in a row; ``*t`` is spread."""
    values: list[Any] = []
    for node in nodes:
        if isinstance(node, ast.Starred):
            values.extend(
                compile_time_evaluation.iterate(context, context.evaluate(node.value), node)
            )
        else:
            values.append(context.evaluate(node))
    return values


def tuple_(context: Context, node: ast.Tuple) -> Any:
    """A tuple of values of any types."""
    return tuple(items(context, node.elts))


def list_(context: Context, node: ast.List) -> Any:
    """A list of values of any types."""
    return items(context, node.elts)


def comprehension(context: Context, node: ast.ListComp | ast.GeneratorExp) -> list[Any]:
    """A comprehension over what is known at compile time: unrolled."""
    with _new_scope(context):
        return [context.evaluate(node.elt) for _ in _iterations(context, node.generators)]


def dict_(context: Context, node: ast.Dict) -> dict[Any, Any]:
    """A dict of values of any types, with keys that are known at compile time."""
    found: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is not None:
            found[_key(context, key)] = context.evaluate(value)
            continue
        spread = context.evaluate(value)
        if type(spread) is not dict:
            context.fail(NotIterable(describe(spread)), value)
        found |= spread
    return found


def dict_comprehension(context: Context, node: ast.DictComp) -> dict[Any, Any]:
    """A comprehension over what is known at compile time: unrolled."""
    with _new_scope(context):
        return {
            _key(context, node.key): context.evaluate(node.value)
            for _ in _iterations(context, node.generators)
        }


def _key(context: Context, node: ast.expr) -> Any:
    """A key of a dict; an error if it is known at run time only, or cannot be hashed."""
    key = compile_time_evaluation.static_value(
        context, context.evaluate(node), node, "a key of a dict"
    )
    try:
        hash(key)
    except TypeError as error:
        context.fail(CompileTimeFailure("TypeError", str(error)), node)
    return key


@contextlib.contextmanager
def _new_scope(context: Context) -> Iterator[None]:
    """Build within a scope of its own, whose variables end with it."""
    frame = context.scopes.frame
    outer = dict(frame.variables)
    try:
        yield
    finally:
        frame.variables = outer


def _iterations(context: Context, generators: list[ast.comprehension]) -> Iterator[None]:
    if not generators:
        yield
        return
    first, *rest = generators
    for item in compile_time_evaluation.iterate(context, context.evaluate(first.iter), first.iter):
        assignments.bind_static(context, first.target, item)
        if all(static_truth(context, test) for test in first.ifs):
            yield from _iterations(context, rest)


def static_truth(context: Context, test: ast.expr) -> bool:
    """The truth of an expression that is known at compile time."""
    value = context.evaluate(test)
    known = compile_time_evaluation.static_value(context, value, test, "the condition")
    return compile_time_evaluation.truth(context, known, test)


# -- names, references, strings --------------------------------------------------------------------


def named(context: Context, node: ast.NamedExpr) -> Any:
    """``(name := value)``"""
    value = context.evaluate(node.value)
    assignments.assign(context, node.target, value)
    return context.evaluate(node.target)


def joined_string(context: Context, node: ast.JoinedStr) -> Any:
    """An f-string; a plain string if all of it is known at compile time."""
    parts: list[Any] = []
    for piece in node.values:
        if isinstance(piece, ast.FormattedValue):
            parts.append(_formatted(context, node, piece))
        else:
            parts.append(context.evaluate(piece))
    if all(isinstance(part, str) for part in parts):
        return "".join(parts)
    return FormattedString(tuple(parts))


def _formatted(context: Context, node: ast.JoinedStr, piece: ast.FormattedValue) -> Any:
    spec = context.evaluate(piece.format_spec) if piece.format_spec is not None else ""
    if isinstance(spec, FormattedString):
        # Before Python 3.12 no piece has a position of its own.
        context.fail(WrongFormat("a format cannot depend on run-time values"), node)
    value = context.evaluate(piece.value)
    conversions: dict[int, Callable[[Any], str]] = {114: repr, 115: str, 97: ascii}
    conversion = conversions.get(piece.conversion)
    if is_run_time(value):
        return (spec, value)
    if conversion is not None:
        value = compile_time_evaluation.call(context, piece, conversion, value)
    return compile_time_evaluation.call(context, piece, format, value, spec)


UNSUPPORTED: dict[type[ast.expr], tuple[str, str]] = {
    ast.Set: ("a set", "make it outside of the kernel, or use a tuple"),
    ast.SetComp: ("a set comprehension", "make it outside of the kernel"),
    ast.Await: ("`await`", "kernels are not coroutines; call qd.sync() outside of them"),
    ast.Yield: ("`yield`", "write the values to a field or an array"),
    ast.YieldFrom: ("`yield from`", "write the values to a field or an array"),
    ast.Starred: ("`*` here", "list the items"),
}


def unsupported(context: Context, node: ast.expr) -> Any:
    """An error that says what to write instead."""
    construct, way_out = UNSUPPORTED.get(type(node), (f"a {type(node).__name__}", ""))
    context.fail(UnsupportedSyntax(construct, way_out), node)


TABLE: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Constant: constant,
    ast.Name: name_resolution.name,
    ast.Attribute: name_resolution.attribute,
    ast.Subscript: indexing.subscript,
    ast.BinOp: binary,
    ast.UnaryOp: unary,
    ast.Tuple: tuple_,
    ast.List: list_,
    ast.Dict: dict_,
    ast.DictComp: dict_comprehension,
    ast.ListComp: comprehension,
    ast.GeneratorExp: comprehension,
    ast.NamedExpr: named,
    ast.JoinedStr: joined_string,
    **dict.fromkeys(UNSUPPORTED, unsupported),
}
