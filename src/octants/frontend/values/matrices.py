"""Vectors and matrices in kernels: how they are made, their attributes and their methods."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from octants.diagnostics.errors import WrongArguments
from octants.diagnostics.library_errors import NotAType, WrongElements, WrongShape
from octants.frontend.context import NOT_FOUND, Context
from octants.frontend.values import arithmetic, linear_algebra, lossy_assignments
from octants.frontend.values.expression_values import MatrixValue, describe
from octants.frontend.values.operands import RunTime, as_matrix, as_type, common_type, operand
from octants.types.default_types import resolve
from octants.types.matrix_types import MatrixType
from octants.types.scalars import DType, u1
from octants.types.swizzles import positions

# -- types -----------------------------------------------------------------------------------------


def scalar_type(context: Context, dtype: Any, function: str, node: ast.AST | None = None) -> DType:
    """The scalar type that an argument names: ours, ``int``, ``float``, ``bool`` or numpy's."""
    try:
        return context.default_type(dtype) or resolve(dtype)
    except TypeError:
        context.fail(NotAType(function, describe(dtype)), node)


def element_type(context: Context, kind: MatrixType) -> DType:
    """The type of the elements of a vector or matrix type in this kernel."""
    if not kind.has_dtype:
        context.fail(kind.missing_element_type())
    return kind.declared_dtype or scalar_type(context, kind.python_dtype, str(kind))


# -- construction ----------------------------------------------------------------------------------


def make_matrix(context: Context, node: ast.AST, elements: Any, dt: Any = None) -> MatrixValue:
    """``Matrix([[a, b], [c, d]])``: of rows that are lists or vectors; of numbers, a vector."""
    return _make(context, node, "Matrix", elements, dt)


def make_vector(context: Context, node: ast.AST, elements: Any, dt: Any = None) -> MatrixValue:
    """``Vector([a, b, c])``: the common type of the elements, or ``dt``, is that of the vector."""
    made = _make(context, node, "Vector", elements, dt)
    if not made.is_vector:
        problem = f"its elements are {describe(made)}; use Matrix, rows() or cols()"
        context.fail(WrongElements("a vector", problem), node)
    return made


def _make(context: Context, node: ast.AST, what: str, elements: Any, dt: Any) -> MatrixValue:
    dtype = None if dt is None else scalar_type(context, dt, what, node)
    given = elements if isinstance(elements, (list, tuple)) else context.value(elements)
    if isinstance(given, MatrixValue):
        return given if dtype is None else as_matrix(context, given, dtype)
    if not isinstance(given, (list, tuple)) or not given:
        context.fail(
            WrongElements(f"a {what}", f"it needs a list of elements, not {describe(elements)}"),
            node,
        )
    rows = [_row(context, item) for item in given]
    lengths = {len(row) if isinstance(row, list) else 0 for row in rows}
    if len(lengths) > 1:
        context.fail(WrongElements(f"a {what}", "its rows have different lengths"), node)
    flat = [x for row in rows for x in (row if isinstance(row, list) else [row])]
    shape = (len(rows), *lengths) if lengths != {0} else (len(rows),)
    return _of_dtype(context, node, shape, flat, dtype)


def _row(context: Context, item: Any) -> Any:
    """A number or scalar, or a list of them for a row."""
    if isinstance(item, (list, tuple)):
        return [_scalar(context, element) for element in item]
    value = operand(context, item)
    if isinstance(value, MatrixValue):
        if not value.is_vector:
            context.fail(WrongElements("a matrix", f"a row cannot be {describe(value)}"))
        return list(value.elements)
    return value


def _scalar(context: Context, item: Any) -> Any:
    value = operand(context, item)
    if isinstance(value, MatrixValue):
        context.fail(WrongElements("a matrix", f"an element cannot be {describe(value)}"))
    return value


def uniform(
    context: Context, shape: tuple[int, ...], elements: Sequence[Any], dtype: DType | None = None
) -> MatrixValue:
    """A vector or matrix of numbers and scalars, of their common type, or of ``dtype``."""
    chosen = dtype or common_type(context, *elements)
    converted = [as_type(context, x, chosen) for x in elements]
    return MatrixValue(shape, converted)  # type: ignore[arg-type]


def of_type(context: Context, node: ast.AST, kind: MatrixType, args: Sequence[Any]) -> MatrixValue:
    """``vec3(...)``: numbers, vectors and lists in a row; a single number fills all."""
    elements = flat_elements(context, args)
    count = kind.n * kind.m
    if len(elements) == 1 and _is_number(context, args[0]):
        elements = elements * count
    if len(elements) != count:
        problem = f"it takes {count} numbers, not {len(elements)}"
        context.fail(WrongElements(f"a {kind}", problem), node)
    dtype = element_type(context, kind) if kind.has_dtype else None
    return _of_dtype(context, node, kind.element_shape, elements, dtype)


def _of_dtype(
    context: Context,
    node: ast.AST,
    shape: tuple[int, ...],
    elements: Sequence[Any],
    dtype: DType | None,
) -> MatrixValue:
    """A vector or matrix of ``dtype``, if any; a literal must fit."""
    if dtype is not None:
        for x in elements:
            lossy_assignments.check_stated(context, dtype, x, node)
    return uniform(context, shape, elements, dtype)


def _is_number(context: Context, item: Any) -> bool:
    return not isinstance(item, (list, tuple)) and not isinstance(
        operand(context, item), MatrixValue
    )


def flat_elements(context: Context, items: Sequence[Any]) -> list[Any]:
    """All numbers and scalars in nested sequences, vectors and matrices."""
    elements: list[Any] = []
    for item in items:
        if isinstance(item, (list, tuple)):
            elements.extend(flat_elements(context, item))
            continue
        value = operand(context, item)
        elements.extend(value.elements if isinstance(value, MatrixValue) else [value])
    return elements


def filled(context: Context, shape: tuple[int, ...], number: Any, dtype: DType) -> MatrixValue:
    """A vector or matrix of one number."""
    count = shape[0] * (shape[1] if len(shape) == 2 else 1)
    value = context.constant(number, dtype)
    return MatrixValue(shape, [value] * count)


def diagonal(context: Context, n: int, x: Any, dtype: DType | None = None) -> MatrixValue:
    """An n by n matrix with ``x`` on its diagonal."""
    value = operand(context, x)
    elements = [value if i == j else 0 for i in range(n) for j in range(n)]
    return uniform(context, (n, n), elements, dtype or common_type(context, value))


# -- attributes ------------------------------------------------------------------------------------


def attribute(_context: Context, _node: ast.AST, value: Any, name: str) -> Any:
    """``v.x``, ``v.zyx``, ``m.n``, ``m.m``; NOT_FOUND for other names."""
    if not isinstance(value, MatrixValue):
        return NOT_FOUND
    if name == "n":
        return value.shape[0]
    if name == "m":
        return value.shape[1] if not value.is_vector else 1
    chosen = positions(name)
    if chosen is None or not value.is_vector or max(chosen) >= value.shape[0]:
        return NOT_FOUND
    elements = [value.elements[k] for k in chosen]
    return elements[0] if len(elements) == 1 else MatrixValue((len(elements),), elements)


# -- methods ---------------------------------------------------------------------------------------

Method = Callable[..., Any]
"""Takes the context, the vector or matrix, and the arguments of the call."""


def method(
    context: Context,
    node: ast.AST,
    value: Any,
    name: str,
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Any:
    """The result of ``value.name(*args, **kwargs)``; NOT_FOUND if there is no such method."""
    if not isinstance(value, MatrixValue) or name not in METHODS:
        return NOT_FOUND
    return _call(context, node, METHODS[name], name, (value, *args), kwargs)


def changed(
    context: Context,
    node: ast.AST,
    value: MatrixValue,
    name: str,
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Any:
    """The new value of ``value`` after the call of a method in CHANGING."""
    return _call(context, node, CHANGING[name], name, (value, *args), kwargs)


def _call(
    context: Context,
    node: ast.AST,
    function: Method,
    name: str,
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Any:
    try:
        bound = _signature(function).bind(context, *args, **kwargs)
    except TypeError as error:
        context.fail(WrongArguments(name, f"does not fit: {error}"), node)
    return function(*bound.args, **bound.kwargs)


_signature = functools.cache(inspect.signature)


def _sum(context: Context, x: MatrixValue) -> RunTime:
    dtype = context.default_int if x.dtype is u1 else x.dtype
    elements = as_matrix(context, x, dtype).elements
    return functools.reduce(functools.partial(context.builder.binary, "add"), elements)


def _extreme(fn: str) -> Method:
    def method(context: Context, x: MatrixValue) -> Any:
        return arithmetic.extreme(context, fn, *x.elements)

    return method


def _any_or_all(fn: str) -> Method:
    def method(context: Context, x: MatrixValue) -> Any:
        truths = arithmetic.truths(context, x)
        assert isinstance(truths, MatrixValue)
        return functools.reduce(functools.partial(context.builder.binary, fn), truths.elements)

    return method


def _cast(context: Context, x: MatrixValue, dtype: Any) -> RunTime:
    return as_type(context, x, scalar_type(context, dtype, "cast"))


def _get_shape(_context: Context, x: MatrixValue) -> tuple[int, ...]:
    return x.shape


def _to_list(_context: Context, x: MatrixValue) -> list[Any]:
    if x.is_vector:
        return list(x.elements)
    columns = x.shape[1]
    return [x.elements[k : k + columns] for k in range(0, len(x.elements), columns)]


def transpose(context: Context, x: MatrixValue) -> MatrixValue:
    """The matrix with rows and columns exchanged."""
    if x.is_vector:
        way_out = "for `a @ b.transpose()` of vectors write `a.outer_product(b)`"
        context.fail(WrongShape("transpose", "matrices", describe(x), way_out))
    rows, columns = x.shape
    elements = [x.elements[i * columns + j] for j in range(columns) for i in range(rows)]
    return MatrixValue((columns, rows), elements)


def fill(context: Context, x: MatrixValue, val: Any) -> MatrixValue:
    """The value of a vector or matrix after ``x.fill(val)``."""
    value = operand(context, val)
    if isinstance(value, MatrixValue):
        context.fail(WrongShape("fill", "one number", describe(value)))
    return MatrixValue(x.shape, [as_type(context, value, x.dtype)] * len(x.elements))  # type: ignore[list-item]


METHODS: dict[str, Method] = {
    "sum": _sum,
    "max": _extreme("max"),
    "min": _extreme("min"),
    "any": _any_or_all("or"),
    "all": _any_or_all("and"),
    "cast": _cast,
    "get_shape": _get_shape,
    "to_list": _to_list,
    "transpose": transpose,
    "dot": linear_algebra.dot,
    "frobenius_inner": linear_algebra.frobenius_inner,
    "cross": linear_algebra.cross,
    "outer_product": linear_algebra.outer_product,
    "norm_sqr": linear_algebra.norm_sqr,
    "norm": linear_algebra.norm,
    "norm_inv": linear_algebra.norm_inv,
    "normalized": linear_algebra.normalized,
    "trace": linear_algebra.trace,
    "determinant": linear_algebra.determinant,
    "inverse": linear_algebra.inverse,
}

CHANGING: dict[str, Method] = {"fill": fill}
"""Methods that change the variable that they are called on; they give its new value."""

METHOD_NAMES = (*METHODS, *CHANGING)
