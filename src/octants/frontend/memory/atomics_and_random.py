"""Functions that change memory, draw random numbers, or stop derivatives.

All take the context and the node of the call before their arguments; the first argument of an
atomic is a reference.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from typing import Any

from octants.diagnostics.library_errors import NotAnElement, WrongArgumentValue, WrongAtomic
from octants.frontend.context import Context
from octants.frontend.memory import references, sparse_access
from octants.frontend.memory.quantised_fields import PackedArray
from octants.frontend.values import arithmetic, lossy_assignments, matrices
from octants.frontend.values.expression_values import (
    ArrayReference,
    ElementReference,
    MatrixValue,
    StructValue,
    VariableReference,
    describe,
    is_number,
)
from octants.frontend.values.operands import as_type, dtype_of, elementwise, operand
from octants.ir.core import Value
from octants.types.scalars import DType, u1

FUNCTIONS = ("add", "sub", "mul", "min", "max", "and", "or", "xor", "exchange")
BITWISE = ("and", "or", "xor")


def atomic(fn: str) -> Callable[..., Any]:
    """``atomic_add`` and the like: gives the value before."""

    def build(context: Context, node: ast.AST, reference: Any, value: Any) -> Any:
        name = f"atomic_{fn}"
        dtype = _dtype_at(context, node, name, reference)
        if fn in BITWISE and dtype.is_float:
            context.fail(WrongAtomic(name, dtype.name, "it is for integers"), node)
        if dtype is u1 and fn not in (*BITWISE, "exchange"):
            context.fail(WrongAtomic(name, "u1", "use atomic_and, atomic_or or atomic_xor"), node)
        given = operand(context, value)
        lossy_assignments.check(context, reference, given, node, fn)
        return context.atomic(fn, reference, given, node)

    return build


def _dtype_at(context: Context, node: ast.AST, name: str, reference: Any) -> DType:
    """The type of what a reference names; an error for anything that is no reference."""
    if not isinstance(reference, (ElementReference, VariableReference)):
        context.fail(NotAnElement(name, describe(reference)), node)
    held = context.load(reference) if isinstance(reference, VariableReference) else None
    if held is None:
        return reference.array.dtype  # type: ignore[union-attr]
    if not isinstance(held, (Value, MatrixValue)):
        context.fail(NotAnElement(name, describe(held)), node)
    return dtype_of(held)


def compare_and_swap(
    context: Context, node: ast.AST, reference: Any, expected: Any, desired: Any
) -> Value:
    """``atomic_cas``: gives the value before."""
    dtype = _dtype_at(context, node, "atomic_cas", reference)
    if isinstance(reference, VariableReference) and reference.variable.in_memory:
        reference = references.memory_of(reference)
    wanted, new = (_scalar(context, node, x, dtype) for x in (expected, desired))
    if isinstance(reference, ElementReference):
        if reference.shape or isinstance(reference.array, PackedArray):
            context.fail(NotAnElement("atomic_cas", describe(reference)), node)
        (indices,) = references.addresses(context, reference)
        before = context.builder.compare_exchange(reference.array, indices, wanted, new)
        context.after_write(reference)
        return before
    before = context.load(reference)
    if not isinstance(before, Value):
        context.fail(NotAnElement("atomic_cas", describe(before)), node)
    same = context.builder.compare("eq", before, wanted)
    context.store(reference, context.builder.select(same, new, before), node)
    return before


def _scalar(context: Context, node: ast.AST, x: Any, dtype: DType) -> Value:
    value = as_type(context, operand(context, x), dtype)
    if not isinstance(value, Value):
        context.fail(WrongArgumentValue("atomic_cas", f"{describe(value)} is not a scalar"), node)
    return value


def volatile_load(context: Context, _node: ast.AST, reference: Any) -> Any:
    """The present value of an element: every load of a kernel reads memory."""
    return context.load(reference)


def random(context: Context, node: ast.AST, dtype: Any = None) -> Value:
    """A uniform draw of a float or integer type."""
    chosen = matrices.scalar_type(context, float if dtype is None else dtype, "random", node)
    return context.random(chosen)


def stop_grad(context: Context, _node: ast.AST, x: Any) -> Any:
    """A value without derivatives; of an array, whatever the block of statements loads."""
    held = context.load(x)
    if _stop_arrays(context, held):
        return None
    value = operand(context, held)
    if is_number(value):
        return value
    stop = functools.partial(references.without_derivative, context)
    return elementwise(context, "stop_grad", stop, value)


def _stop_arrays(context: Context, held: Any) -> bool:
    """Stop the derivatives of an array, or of the members of a struct of arrays."""
    if isinstance(held, StructValue):
        return all(_stop_arrays(context, member) for member in held.members.values())
    if isinstance(held, ArrayReference):
        context.stops.stop(held.array)
    return isinstance(held, ArrayReference)


def rescale_index(context: Context, node: ast.AST, a: Any, b: Any, index: Any) -> MatrixValue:
    """An index into ``a`` scaled to ``b``: divided where a has more elements, else multiplied."""
    shapes = [_shape(context, node, x) for x in (a, b)]
    position = context.value(index)
    if not isinstance(position, MatrixValue) or len(position.elements) > min(map(len, shapes)):
        problem = f"the index is {describe(position)}"
        context.fail(WrongArgumentValue("rescale_index", problem), node)
    elements = []
    for x, source, target in zip(position.elements, *shapes, strict=False):
        operator, factor = ("//", source // target) if source > target else ("*", target // source)
        elements.append(arithmetic.binary(context, operator, x, factor))
    return matrices.uniform(context, position.shape, elements)


def _shape(context: Context, node: ast.AST, x: Any) -> tuple[int, ...]:
    """The extents of a field, or of the cells of a block."""
    info = sparse_access.info_of(context, x)
    if info is not None:
        return info.sparsity.shape
    shape = getattr(getattr(x, "handle", None), "shape", None)
    if shape is None:
        problem = f"{describe(x)} is neither a field nor a block"
        context.fail(WrongArgumentValue("rescale_index", problem), node)
    return tuple(shape)


def assume_in_range(
    _context: Context, _node: ast.AST, value: Any, _base: Any, _low: Any, _high: Any
) -> Any:
    """The value: nothing here needs the hint."""
    return value
