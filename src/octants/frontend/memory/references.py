"""Reads and writes of references: elements of arrays, local variables, and components of both."""

from __future__ import annotations

import ast
import functools
import itertools
from typing import Any

import numpy as np

from octants.diagnostics.errors import (
    CompileTimeVariable,
    NotAssignable,
    NotAValue,
    ShapeMismatch,
    TypeChange,
)
from octants.diagnostics.library_errors import MaskedArrayGiven
from octants.frontend.context import Context
from octants.frontend.memory import quantised_fields
from octants.frontend.memory.quantised_fields import PackedArray
from octants.frontend.values import debug_overflow_checks, flattening
from octants.frontend.values.expression_values import (
    ArrayReference,
    Components,
    ElementReference,
    Item,
    MatrixValue,
    ShapeReference,
    Step,
    StructValue,
    Variable,
    VariableReference,
    describe,
    is_number,
)
from octants.ir import component_access
from octants.ir.core import Array, Value
from octants.types import scalars
from octants.types.masked_arrays import is_masked
from octants.types.matrix_values import Matrix
from octants.types.scalars import DType

_LONG_MATRIX = 25  # elements: those of a smaller one are selected, row by row

# -- values ----------------------------------------------------------------------------------------


def value(context: Context, x: Any) -> Any:
    """A run-time value for anything that has one; anything else is given back as it is."""
    if is_number(x):
        return context.constant(x)
    if isinstance(x, (Matrix, np.ndarray)):
        return _constants(context, x)
    if isinstance(x, (tuple, list)) and x:
        return _from_sequence(context, x)
    return load(context, x)


def _constants(context: Context, x: Any) -> Any:
    """A host vector or matrix as constants."""
    if is_masked(x):
        context.fail(MaskedArrayGiven("a constant of a kernel"))
    array = x.to_numpy() if isinstance(x, Matrix) else x
    if array.ndim == 0 and array.dtype.kind in "biuf":
        return context.constant(array.item())
    if array.ndim not in (1, 2) or array.size == 0:
        return x
    numbers = [item.item() for item in array.reshape(-1)]
    dtype = getattr(x, "declared_dtype", None)
    return _uniform(context, tuple(array.shape), [context.constant(n, dtype) for n in numbers])


def _from_sequence(context: Context, x: Any) -> Any:
    """A vector of a sequence of scalars, or a matrix of a sequence of such."""
    items = [value(context, item) for item in x]
    if all(isinstance(item, Value) for item in items):
        return _uniform(context, (len(items),), items)
    first = items[0]
    is_row = isinstance(first, MatrixValue) and first.is_vector
    if is_row and all(isinstance(x, MatrixValue) and x.shape == first.shape for x in items):
        elements = [element for item in items for element in item.elements]
        return _uniform(context, (len(items), first.shape[0]), elements)
    return x


def _uniform(context: Context, shape: tuple[int, ...], elements: list[Value]) -> MatrixValue:
    dtype = flattening.common_type(elements)
    return MatrixValue(shape, [context.builder.cast(element, dtype) for element in elements])


def cast(context: Context, x: Any, dtype: DType) -> Any:
    """A number, scalar, vector or matrix with elements of another type."""
    if is_number(x):
        return context.constant(x, dtype)
    return flattening.rebuild(
        x, [context.builder.cast(leaf, dtype) for leaf in flattening.leaves(x)]
    )


# -- reading ---------------------------------------------------------------------------------------


def load(context: Context, reference: Any) -> Any:
    """The value of what a reference names; what is no reference is given back."""
    if isinstance(reference, ElementReference):
        return _load_element(context, reference)
    if isinstance(reference, VariableReference):
        return _load_variable(context, reference)
    if isinstance(reference, ShapeReference):
        return shape_of(context, reference.array)
    if isinstance(reference, StructValue) and any(map(is_reference, reference.members.values())):
        members = {name: load(context, member) for name, member in reference.members.items()}
        return StructValue(members, reference.python_type)
    return reference


def shape_of(context: Context, array: Array) -> tuple[Any, ...]:
    """The extents of an array: numbers for a field, run-time values for an argument."""
    if array.fixed_shape is not None:
        return array.fixed_shape
    return tuple(context.builder.shape(array, axis) for axis in range(array.rank))


def is_reference(x: Any) -> bool:
    """Whether this is a reference, or a struct that has one among its members."""
    if isinstance(x, StructValue):
        return any(map(is_reference, x.members.values()))
    return isinstance(x, (ElementReference, VariableReference))


def _load_element(context: Context, reference: ElementReference) -> Any:
    if isinstance(reference.array, PackedArray):
        return quantised_fields.load(context, reference)
    builder, loads = context.builder, []
    for indices in addresses(context, reference):
        loads.append(builder.load(reference.array, indices, reference.companion))
        if reference.array.dtype.is_float:
            context.stops.note(builder.block.ops[-1])
    return MatrixValue(reference.shape, loads) if reference.shape else loads[0]


def without_derivative(context: Context, x: Value) -> Value:
    """A scalar through an integer of the same bits, which has no derivative."""
    if not x.type.is_float:
        return x
    bits = context.builder.bitcast(x, scalars.by_name(f"i{x.type.bits}"))
    return context.builder.bitcast(bits, x.type)


def addresses(context: Context, reference: ElementReference) -> list[list[Value]]:
    """The indices of each component of a reference, those of the array first."""
    builder = context.builder
    return [
        [*reference.indices, *(builder.index(k) if isinstance(k, int) else k for k in component)]
        for component in reference.components
    ]


def _load_variable(context: Context, reference: VariableReference) -> Any:
    if reference.variable.in_memory:
        return load(context, memory_of(reference))
    result = reference.variable.value
    for step in reference.path:
        if isinstance(step, str):
            result = result.members[step]
        elif isinstance(step, Item):
            result = result[step.key]
        else:
            result = read_components(context, result, step)
    return result


def memory_of(reference: VariableReference) -> Any:
    """References to (a part of) a variable that lives in launch-temporary memory."""
    result = _whole(reference.variable.value)
    for step in reference.path:
        if isinstance(step, str):
            result = result.members[step]
        elif isinstance(step, Components):
            result = ElementReference(
                result.array, result.companion, result.indices, step.shape, step.indices
            )
    return result


def _whole(x: Any) -> Any:
    if isinstance(x, ArrayReference):
        return whole_element(x, ())
    members = {name: _whole(member) for name, member in x.members.items()}
    return StructValue(members, x.python_type)


def whole_element(reference: ArrayReference, indices: tuple[Value, ...]) -> ElementReference:
    """A reference to an element of an array with all its components."""
    shape = reference.array.element_shape
    positions = tuple(itertools.product(*map(range, shape)))
    return ElementReference(reference.array, reference.companion, indices, shape, positions)


def whole_value(shape: tuple[int, ...]) -> Components:
    """All components of a vector or matrix."""
    return Components(shape, tuple(itertools.product(*map(range, shape))))


def read_components(context: Context, matrix: MatrixValue, chosen: Components) -> Any:
    """Components of a vector or matrix, by indices that may be known at run time only."""
    values = [_read_component(context, matrix, index) for index in chosen.indices]
    return MatrixValue(chosen.shape, values) if chosen.shape else values[0]


def _read_component(context: Context, matrix: MatrixValue, index: tuple[int | Value, ...]) -> Value:
    builder, shape = context.builder, matrix.shape
    if len(index) == 2 and _is_long(shape) and any(isinstance(axis, Value) for axis in index):
        row, column = (
            axis if isinstance(axis, int) else component_access.or_first(builder, axis, extent)
            for axis, extent in zip(index, shape, strict=True)
        )
        return component_access.extract(
            builder, _position(context, row, column, shape), matrix.elements
        )
    columns = shape[1] if len(shape) == 2 else 1
    rows = [matrix.elements[k : k + columns] for k in range(0, len(matrix.elements), columns)]
    if len(index) == 1:
        return _pick(context, [row[0] for row in rows], index[0])
    if isinstance(index[0], int):
        return _pick(context, rows[index[0]], index[1])
    columns_picked = range(columns) if isinstance(index[1], Value) else (index[1],)
    picked = [_pick(context, [row[k] for row in rows], index[0]) for k in columns_picked]
    return picked[0] if len(picked) == 1 else _pick(context, picked, index[1])


def _is_long(shape: tuple[int, ...]) -> bool:
    """Whether the elements of a matrix are those of one long vector."""
    return shape[0] * shape[1] >= _LONG_MATRIX


def _position(
    context: Context, row: int | Value, column: int | Value, shape: tuple[int, ...]
) -> Value:
    """The position of an element of a matrix in the list of all of them."""
    builder = context.builder
    axes = [axis for axis in (row, column) if isinstance(axis, Value)]
    dtype = max((axis.type for axis in axes), key=lambda each: each.bits)
    wide = [
        builder.constant(axis, dtype) if isinstance(axis, int) else builder.cast(axis, dtype)
        for axis in (row, column)
    ]
    start = builder.binary("mul", wide[0], builder.constant(shape[1], dtype))
    return builder.binary("add", start, wide[1])


def _pick(context: Context, values: list[Value], index: int | Value) -> Value:
    if isinstance(index, int):
        return values[index]
    return component_access.extract(context.builder, index, values)


# -- writing ---------------------------------------------------------------------------------------


def store(context: Context, reference: Any, new: Any, node: ast.AST | None = None) -> None:
    """Store a value, converted to the type of a reference; a scalar fills a vector or matrix."""
    if isinstance(reference, ElementReference):
        values = _fitting(context, reference, new, node)
        if isinstance(reference.array, PackedArray):
            quantised_fields.store(context, reference, values)
            return
        for indices, component in zip(addresses(context, reference), values, strict=True):
            context.builder.store(reference.array, indices, component, reference.companion)
        context.after_write(reference)
    elif isinstance(reference, VariableReference):
        _store_variable(context, reference, new, node)
    elif isinstance(reference, StructValue):
        _store_members(context, reference, new, node)
    else:
        context.fail(NotAssignable(describe(reference)), node)


def _fitting(
    context: Context, reference: ElementReference, new: Any, node: ast.AST | None
) -> list[Value]:
    """A scalar for each component of a reference, of the type of its array."""
    dtype, count = reference.array.dtype, len(reference.components)
    new = new if is_number(new) else value(context, new)
    if isinstance(new, MatrixValue) and new.shape == reference.shape:
        return [context.builder.cast(element, dtype) for element in new.elements]
    if isinstance(new, Value) or is_number(new):
        return [cast(context, new, dtype)] * count
    what = f"an element of `{reference.array.name}`"
    way_out = ""
    if isinstance(new, MatrixValue) and not reference.shape:
        way_out = "store one component: `... = v[0]`; or make an array of vectors or matrices"
    return context.fail(ShapeMismatch(what, describe(reference), describe(new), way_out), node)


def _store_members(
    context: Context, reference: StructValue, new: Any, node: ast.AST | None
) -> None:
    new = load(context, new)
    if not isinstance(new, StructValue) or set(new.members) != set(reference.members):
        context.fail(ShapeMismatch("this struct", describe(reference), describe(new)), node)
    for name, member in reference.members.items():
        store(context, member, new.members[name], node)


def _store_variable(
    context: Context, reference: VariableReference, new: Any, node: ast.AST | None
) -> None:
    variable = reference.variable
    if variable.in_memory:
        store(context, memory_of(reference), new, node)
        return
    changed = _replaced(context, variable, variable.value, list(reference.path), new, node)
    context.scopes.assign(variable, changed)


def _replaced(
    context: Context,
    variable: Variable,
    old: Any,
    path: list[Step],
    new: Any,
    node: ast.AST | None,
) -> Any:
    """The value of a variable after the store of ``new`` to its part at ``path``."""
    if not path:
        return fitting_value(context, variable.name, old, new, node)
    step, *rest = path
    if isinstance(step, str):
        member = _replaced(context, variable, old.members[step], rest, new, node)
        return StructValue({**old.members, step: member}, old.python_type)
    if isinstance(step, Item):
        item = _replaced(context, variable, old[step.key], rest, new, node)
        return {**old, step.key: item}
    return _with_components(context, variable.name, old, step, new, node)


def fitting_value(
    context: Context, name: str, old: Any, new: Any, node: ast.AST | None = None
) -> Any:
    """``new`` converted to the type of ``old``, the value of the variable ``name``."""
    new = load(context, new)
    if isinstance(old, (Value, MatrixValue)):
        new = value(context, new)
        if isinstance(old, MatrixValue) and isinstance(new, Value):
            new = MatrixValue(old.shape, [new] * len(old.elements))
    if not flattening.same_structure(old, new):
        if flattening.has_object(old):
            context.fail(CompileTimeVariable(name, describe(old)), node)
        context.fail(TypeChange(name, describe(old), describe(new)), node)
    converted = [
        _convert_leaf(context, before, after)
        for before, after in zip(flattening.leaves(old), flattening.leaves(new), strict=True)
    ]
    return flattening.rebuild(new, converted)


def _convert_leaf(context: Context, before: Any, after: Any) -> Any:
    return cast(context, after, before.type) if isinstance(before, Value) else after


def _with_components(
    context: Context, name: str, old: MatrixValue, chosen: Components, new: Any, node: Any
) -> MatrixValue:
    new = value(context, new)
    if isinstance(new, MatrixValue) and new.shape == chosen.shape:
        values = new.elements
    elif isinstance(new, Value):
        values = [new] * len(chosen.indices)
    else:
        part = _part(old, chosen)
        context.fail(ShapeMismatch(f"this part of `{name}`", part, describe(new)), node)
    elements = list(old.elements)
    for index, component in zip(chosen.indices, values, strict=True):
        _set_component(context, elements, old.shape, index, component)
    return MatrixValue(old.shape, elements)


def _part(old: MatrixValue, chosen: Components) -> str:
    if not chosen.shape:
        return describe(old.elements[0])
    return describe(MatrixValue(chosen.shape, old.elements))


def _set_component(
    context: Context,
    elements: list[Value],
    shape: tuple[int, ...],
    index: tuple[int | Value, ...],
    new: Value,
) -> None:
    """Replace the elements whose position is ``index``, where that is known at run time only."""
    builder = context.builder
    new = builder.cast(new, elements[0].type)
    position = _run_time_position(context, shape, index)
    if position is not None:
        elements[:] = component_access.insert(builder, position, new, elements)
        return
    for k, each in enumerate(itertools.product(*map(range, shape))):
        hit = _matches(context, index, each)
        if hit is True:
            elements[k] = new
        elif hit is not False:
            elements[k] = builder.select(hit, new, elements[k])


def _run_time_position(
    context: Context, shape: tuple[int, ...], index: tuple[int | Value, ...]
) -> Value | None:
    """The position of an element, -1 if an index is out of range; None if selects replace it."""
    if len(index) == 1:
        return index[0] if isinstance(index[0], Value) else None
    builder = context.builder
    axes = [(axis, n) for axis, n in zip(index, shape, strict=True) if isinstance(axis, Value)]
    if not axes or not _is_long(shape):
        return None
    row, column = index
    position = _position(context, row, column, shape)
    inside = [component_access.is_inside(builder, axis, extent) for axis, extent in axes]
    is_inside = functools.reduce(functools.partial(builder.binary, "and"), inside)
    return builder.select(is_inside, position, builder.constant(-1, position.type))


def _matches(
    context: Context, index: tuple[int | Value, ...], position: tuple[int, ...]
) -> Value | bool:
    if any(isinstance(axis, int) and axis != k for axis, k in zip(index, position, strict=True)):
        return False
    hits = [
        component_access.is_equal(context.builder, axis, k)
        for axis, k in zip(index, position, strict=True)
        if isinstance(axis, Value)
    ]
    return (
        functools.reduce(functools.partial(context.builder.binary, "and"), hits) if hits else True
    )


# -- atomics ---------------------------------------------------------------------------------------


def atomic(
    context: Context, fn: str, reference: Any, operand: Any, node: ast.AST | None = None
) -> Any:
    """An atomic operation on a reference, component by component; gives the value before it."""
    if isinstance(reference, VariableReference) and reference.variable.in_memory:
        reference = memory_of(reference)
    if isinstance(reference, VariableReference):
        return _update_variable(context, fn, reference, operand, node)
    if not isinstance(reference, ElementReference):
        context.fail(
            NotAValue(describe(reference), "an element of a field or array is needed"), node
        )
    values = _fitting(context, reference, operand, node)
    if isinstance(reference.array, PackedArray):
        return quantised_fields.atomic(context, fn, reference, values)
    before = []
    for indices, component in zip(addresses(context, reference), values, strict=True):
        old = context.builder.atomic(fn, reference.array, indices, component, reference.companion)
        before.append(old)
        if debug_overflow_checks.is_checked(context, fn, old.type):
            new = context.builder.binary(fn, old, component)
            debug_overflow_checks.report(context, fn, old, component, new)
    context.after_write(reference)
    return MatrixValue(reference.shape, before) if reference.shape else before[0]


def _update_variable(
    context: Context, fn: str, reference: VariableReference, operand: Any, node: ast.AST | None
) -> Any:
    """An atomic operation on a local variable, which is private to the work item."""
    before = _load_variable(context, reference)
    operand = fitting_value(context, reference.variable.name, before, operand, node)

    def combine(old: Value, new: Value) -> Value:
        if debug_overflow_checks.is_checked(context, fn, old.type):
            return debug_overflow_checks.checked(context, fn, old, new)
        return new if fn == "exchange" else context.builder.binary(fn, old, new)

    after = map(combine, flattening.leaves(before), flattening.leaves(operand))
    store(context, reference, flattening.rebuild(before, list(after)), node)
    return before
