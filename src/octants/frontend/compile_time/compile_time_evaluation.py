"""Evaluates Python on Python objects while a kernel is compiled."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import operator
import re
from collections.abc import Callable
from typing import Any

from octants.diagnostics.errors import (
    CompileTimeFailure,
    MissingKey,
    NotAValue,
    NotCompileTime,
    NotIterable,
    UnknownLength,
)
from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.render import Label
from octants.diagnostics.suggestions import suggest
from octants.frontend.compile_time.cacheable_calls import has_plain_truth, is_repeatable
from octants.frontend.compile_time.python_object_conversion import wrap
from octants.frontend.compile_time.unspecialised_numbers import (
    DecidesAtCompileTime,
    has_host_number,
)
from octants.frontend.context import Context
from octants.frontend.syntax.reads_of_functions import ReadsOfCall
from octants.frontend.values.expression_values import (
    ArrayReference,
    FormattedString,
    MatrixValue,
    ProductDomain,
    RangeDomain,
    StructValue,
    describe,
    is_number,
    is_run_time,
    plain,
)
from octants.ir.core import Value
from octants.lang import directives
from octants.types.matrix_values import Matrix

_SHOWN = 8
"""The most keys that a message lists."""


def call(
    context: Context, node: ast.AST | None, function: Callable[..., Any], *args: Any, **named: Any
) -> Any:
    """Call a Python function now; what it raises is the user's error."""
    if has_host_number(args) or has_host_number(named):
        raise DecidesAtCompileTime
    if is_repeatable(function, (*args, *named.values())):
        return _run(context, node, function, *args, **named)
    context.is_repeatable = False
    reads = ReadsOfCall(function, (*args, *named.values()))
    result = _run(context, node, function, *args, **named)
    context.reads += reads.unchanged()
    return result


def operate(context: Context, node: ast.AST, function: Callable[..., Any], *operands: Any) -> Any:
    """Apply an operator, or a function of the language, to Python objects.

    A scalar of numpy is a number like those of Python, whose results do not wrap: beside a value
    that is known at run time only, it is one, too.
    """
    if all(map(is_number, operands)):
        operands = tuple(map(plain, operands))
    return call(context, node, function, *operands)


def item(context: Context, node: ast.Subscript, base: Any, index: Any) -> Any:
    """The item of a Python object: ``x[index]``."""
    if type(base) is dict and isinstance(index, (str, int, float, tuple)) and index not in base:
        texts = [key for key in base if isinstance(key, str)]
        way_out = suggest(index, texts) if isinstance(index, str) else ""
        way_out = way_out or "a dictionary has the keys that it is made with, and gets no others"
        keys = ", ".join(map(repr, itertools.islice(base, _SHOWN))) or "none, it is empty"
        more = ", ..." if len(base) > _SHOWN else ""
        missing = MissingKey(ast.unparse(node.value), repr(index), keys + more, way_out)
        context.fail(missing, node)
    return call(context, node, operator.getitem, base, index)


def none_is_not_a_value() -> NotAValue:
    """Return the error for a None that a kernel computes with."""
    way_out = "begin with a number; if this is a call, its function has no `return`"
    return NotAValue("None", way_out)


def _run(
    context: Context, node: ast.AST | None, function: Callable[..., Any], *args: Any, **named: Any
) -> Any:
    """Call a Python function that is known to be repeatable, or not to be."""
    try:
        return function(*args, **named)
    except OctantsError as error:
        raise _with_location(context, error, node) from None
    except Exception as error:
        if isinstance(error, TypeError) and any(each is None for each in args):
            context.fail(none_is_not_a_value(), node)
        text = _CLASS_NAME.sub(lambda found: _KINDS[found[0]], str(error))
        if "'range' object is not iterable" in text:  # that of a run-time length
            context.fail(UnknownLength(), node)
        context.fail(CompileTimeFailure(type(error).__name__, text), node)


_KINDS = {
    "FormattedString": "str",
    "LocalFunction": "function",
    "ProductDomain": "ndrange",
    "RangeDomain": "range",
}
"""The names that Python's messages give to the values of a kernel."""

_CLASS_NAME = re.compile(r"\b(?:" + "|".join(_KINDS) + r")\b")


def truth(context: Context, value: Any, node: ast.AST | None) -> bool:
    """Whether a Python object counts as true."""
    compute = _run if has_plain_truth(value) else call
    found: bool = compute(context, node, bool, value)
    return found


def _with_location(context: Context, error: OctantsError, node: ast.AST | None) -> OctantsError:
    """An error of the host's functions with the location in the kernel where they were called."""
    span, diagnostic = context.span(node), error.diagnostic
    if diagnostic is None or diagnostic.labels or span is None:
        return error
    return type(error)(dataclasses.replace(diagnostic, labels=(Label(span),)))


def static_value(context: Context, value: Any, node: ast.AST, what: str) -> Any:
    """A value as a Python object; a user error if it is known at run time only."""
    value = context.load(value)
    if has_host_number(value):
        raise DecidesAtCompileTime
    if isinstance(value, Value):
        value = context.known(value)
    if isinstance(value, MatrixValue):
        known = [context.known(element) for element in value.elements]
        if not any(isinstance(element, Value) for element in known):
            return Matrix(_nested(known, value.shape), value.dtype)
    if isinstance(value, (tuple, list)):
        return type(value)(static_value(context, item, node, what) for item in value)
    if type(value) is dict:
        items = value.items()
        return {key: static_value(context, item, node, what) for key, item in items}
    if isinstance(value, (Value, MatrixValue, StructValue, RangeDomain, FormattedString)) or (
        isinstance(value, ProductDomain) and is_run_time(value.bounds)
    ):
        context.fail(NotCompileTime(what), node)
    return value


def _nested(elements: list[Any], shape: tuple[int, ...]) -> list[Any]:
    if len(shape) == 1:
        return elements
    return [elements[k : k + shape[1]] for k in range(0, len(elements), shape[1])]


def iterate(context: Context, value: Any, node: ast.AST) -> list[Any]:
    """The items of something whose length is known at compile time."""
    if isinstance(value, MatrixValue):
        return rows(value)
    if isinstance(value, (Value, StructValue, ArrayReference)):
        context.fail(NotIterable(describe(value)), node)
    value = _known_domain(context, value)
    if isinstance(value, (RangeDomain, ProductDomain)):
        context.fail(UnknownLength(), node)
    if context.is_repeatable:
        context.is_repeatable = is_repeatable(list, (value,))
    try:
        iterator = iter(value)
    except TypeError:
        context.fail(NotIterable(describe(value)), node)
    items: list[Any] = _run(context, node, list, iterator)
    return [wrap(context, item, "item") for item in items]


def _known_domain(context: Context, value: Any) -> Any:
    """The same as the object of Python or of the host, if the bounds are known."""
    if isinstance(value, RangeDomain):
        bounds = [context.known(each) for each in (value.start, value.stop, value.step)]
        if all(map(is_number, bounds)) and bounds[2]:
            return range(*bounds)[::-1] if value.is_reversed else range(*bounds)
    if isinstance(value, ProductDomain):
        pairs = [tuple(map(context.known, pair)) for pair in value.bounds]
        if all(is_number(bound) for pair in pairs for bound in pair):
            return directives.ndrange(*pairs, axes=value.axes)
    return value


def rows(matrix: MatrixValue) -> list[Any]:
    """The elements of a vector, the rows of a matrix."""
    if matrix.is_vector:
        return list(matrix.elements)
    parts = _nested(matrix.elements, matrix.shape)
    return [MatrixValue((matrix.shape[1],), part) for part in parts]
