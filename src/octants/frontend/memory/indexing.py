"""Subscripts: elements of arrays, components of vectors and matrices, items of Python objects."""

from __future__ import annotations

import ast
import itertools
from typing import Any

import numpy as np

from octants.diagnostics.errors import (
    IndexOutOfRange,
    NotCompileTime,
    NotIndexable,
    RunTimeIndex,
    WrongIndex,
    WrongIndexCount,
)
from octants.diagnostics.linalg_errors import BuilderAccess
from octants.frontend.compile_time import compile_time_evaluation
from octants.frontend.compile_time.python_object_conversion import wrap
from octants.frontend.compile_time.unspecialised_numbers import DecidesAtCompileTime, HostNumber
from octants.frontend.context import Context
from octants.frontend.memory import ndarray_views, references
from octants.frontend.values import tiles
from octants.frontend.values.expression_values import (
    ArrayReference,
    Components,
    ElementReference,
    Item,
    MatrixValue,
    ShapeReference,
    StructValue,
    VariableReference,
    describe,
    is_number,
    is_view,
    plain,
)
from octants.ir.core import Array, Space, Value
from octants.types.matrix_values import Matrix
from octants.types.parameter_annotations import SparseMatrixBuilderAnnotation
from octants.types.scalars import Kind, holds, i32, i64
from octants.types.swizzles import positions

Index = int | slice | Value


def subscript(context: Context, node: ast.Subscript) -> Any:
    """``base[indices]`` as a reference where it is one, else as a value."""
    base = context.evaluate_reference(node.value)
    if isinstance(node.slice, ast.Slice) and is_view(view := context.load(base)):
        return ndarray_views.part(context, view, node.slice)
    if tiles.has_slices(node) and isinstance(array := context.load(base), ArrayReference):
        return tiles.slice_of(context, array, node)
    return element(context, base, evaluate_indices(context, node.slice), node)


def evaluate_indices(context: Context, node: ast.expr) -> Any:
    """The value between the brackets: an index, a slice, or a tuple of such."""
    if isinstance(node, ast.Tuple):
        return tuple(index for item in node.elts for index in _spread(context, item))
    if isinstance(node, ast.Slice):
        parts = (node.lower, node.upper, node.step)
        return slice(*(_slice_bound(context, part) for part in parts))
    return plain(context.known(context.evaluate(node)))


def _spread(context: Context, item: ast.expr) -> list[Any]:
    """One index, or those of ``*t``."""
    if not isinstance(item, ast.Starred):
        return [evaluate_indices(context, item)]
    found = compile_time_evaluation.iterate(context, context.evaluate(item.value), item)
    return [plain(context.known(index)) for index in found]


def _slice_bound(context: Context, node: ast.expr | None) -> Any:
    bound = context.known(context.evaluate(node)) if node is not None else None
    if bound is not None and not isinstance(bound, int):
        context.fail(NotCompileTime("the bounds of a slice"), node)
    return bound


def is_builder(value: Any) -> bool:
    """Whether this is a parameter that takes a builder of sparse matrices."""
    is_struct = isinstance(value, StructValue)
    return is_struct and isinstance(value.python_type, SparseMatrixBuilderAnnotation)


def element(context: Context, base: Any, index: Any, node: ast.Subscript) -> Any:
    """The element of ``base`` at an index."""
    if isinstance(base, ArrayReference):
        return _array_element(context, base, index, node)
    if is_view(base):
        return ndarray_views.element(context, base, _view_index(context, base, index, node))
    if isinstance(base, StructValue) and base.members and _holds_arrays(base):
        if is_builder(base):
            context.fail(BuilderAccess(), node)
        members = {name: element(context, m, index, node) for name, m in base.members.items()}
        return StructValue(members, base.python_type)
    if isinstance(base, ElementReference) and base.shape:
        is_clamped = base.array in context.arrays.clamped
        components = Components(base.shape, base.components)
        chosen = choose(context, components, index, node, is_clamped=is_clamped)
        return ElementReference(
            base.array, base.companion, base.indices, chosen.shape, chosen.indices
        )
    if isinstance(base, VariableReference):
        return _part_of_variable(context, base, index, node)
    if isinstance(base, ShapeReference):
        return _extent(context, base, index, node)
    if isinstance(base, (MatrixValue, Matrix)):
        matrix = context.value(base)
        chosen = choose(context, references.whole_value(matrix.shape), index, node, is_local=True)
        return references.read_components(context, matrix, chosen)
    return _python_item(context, base, index, node)


def _view_index(context: Context, view: StructValue, index: Any, node: ast.Subscript) -> Value:
    """The index of an element of a view; constants count from its end if they are negative."""
    indices = _flatten(context, index)
    if len(indices) != 1:
        context.fail(WrongIndexCount(describe(view), "1 index", len(indices)), node)
    (item,) = indices
    if not is_number(item) or isinstance(item, (HostNumber, float)):
        return integer_index(context, item, node.slice)
    value = index_constant(context, int(item))
    if item >= 0:
        return value
    size = context.builder.cast(view.members["size"], value.type)
    return context.builder.binary("add", size, value)


def _extent(context: Context, base: ShapeReference, index: Any, node: ast.Subscript) -> Any:
    if not isinstance(index, int):
        return _python_item(context, context.load(base), index, node)
    rank, what = base.array.rank, f"the shape of `{base.array.name}`"
    return extent(context, base.array, in_range(context, index, rank, 0, what, node.slice))


def extent(context: Context, array: Array, axis: int) -> Any:
    """The extent of an axis: a number for a field."""
    if array.fixed_shape is not None:
        return array.fixed_shape[axis]
    value = context.builder.shape(array, axis)
    context.arrays.extents.add(value)
    return value


def _holds_arrays(base: StructValue) -> bool:
    return all(
        isinstance(member, ArrayReference)
        or (isinstance(member, StructValue) and _holds_arrays(member))
        for member in base.members.values()
    )


def _python_item(context: Context, base: Any, index: Any, node: ast.Subscript) -> Any:
    if isinstance(base, (Value, ElementReference, StructValue)) or is_number(base):
        context.fail(NotIndexable(describe(base)), node.value)
    if _is_run_time_index(index):
        problem = RunTimeIndex(describe(base))
        if isinstance(base, np.ndarray):
            way_out = "pass it as an argument, `qd.types.ndarray()`, or copy it to a field"
            problem = RunTimeIndex("an array of numpy", way_out)
        context.fail(problem, node.slice)
    item = compile_time_evaluation.item(context, node, base, index)
    return wrap(context, item, "item")


def _is_run_time_index(index: Any) -> bool:
    items = index if isinstance(index, tuple) else (index,)
    return any(isinstance(item, (Value, MatrixValue)) for item in items)


# -- variables -------------------------------------------------------------------------------------


def _part_of_variable(
    context: Context, base: VariableReference, index: Any, node: ast.Subscript
) -> Any:
    """A reference to a part of a local vector or matrix."""
    whole = current_shape(base)
    if whole is None and _has_item(base.held(), index):
        return VariableReference(base.variable, (*base.path, Item(index)))
    if whole is None:
        return element(context, context.load(base), index, node)
    chosen = choose(context, whole, index, node, is_local=not base.variable.in_memory)
    return VariableReference(base.variable, (*_outer_path(base), chosen))


def _has_item(held: Any, index: Any) -> bool:
    """Whether this is a dictionary with a key that is known at compile time."""
    if type(held) is not dict or _is_run_time_index(index):
        return False
    return isinstance(index, (str, int, float, tuple)) and index in held


def _outer_path(base: VariableReference) -> tuple[Any, ...]:
    path = base.path
    return path[:-1] if path and isinstance(path[-1], Components) else path


def current_shape(base: VariableReference) -> Components | None:
    """The components that a reference to a variable means; None if it holds no matrix."""
    if base.path and isinstance(base.path[-1], Components):
        return base.path[-1]
    held = base.held()
    if isinstance(held, ArrayReference) and base.variable.in_memory:
        shape = held.array.element_shape
        return references.whole_value(shape) if shape else None
    return references.whole_value(held.shape) if isinstance(held, MatrixValue) else None


def swizzle(base: Any, name: str) -> Any:
    """A reference to ``base.xy``; None if there is no such component."""
    letters = positions(name)
    if letters is None:
        return None
    if isinstance(base, ElementReference):
        chosen = _named(Components(base.shape, base.components), letters)
        if chosen is None:
            return None
        return ElementReference(
            base.array, base.companion, base.indices, chosen.shape, chosen.indices
        )
    whole = current_shape(base)
    chosen = _named(whole, letters) if whole is not None else None
    if chosen is None:
        return None
    return VariableReference(base.variable, (*_outer_path(base), chosen))


def _named(components: Components, letters: tuple[int, ...]) -> Components | None:
    if len(components.shape) != 1 or max(letters) >= components.shape[0]:
        return None
    chosen = tuple(components.indices[k] for k in letters)
    return Components(() if len(chosen) == 1 else (len(chosen),), chosen)


# -- arrays ----------------------------------------------------------------------------------------


def _array_element(
    context: Context, base: ArrayReference, index: Any, node: ast.Subscript
) -> ElementReference:
    indices = _flatten(context, index)
    array = base.array
    if array.space is Space.TEMPORARY and array.element_shape and not array.rank:
        (item,) = indices  # of the library: a list in launch-temporary memory
        position = integer_index(context, context.value(item), node.slice)
        return ElementReference(array, base.companion, (), (), ((position,),))
    if len(indices) != array.rank:
        way_out = ""
        if array.element_shape and len(indices) == array.rank + len(array.element_shape):
            way_out = "index the element separately: `x[i][k]`"
        elif array.rank == 0:
            way_out = f"use `{array.name}[None]`"
        wanted = f"{array.rank} {'index' if array.rank == 1 else 'indices'}"
        problem = WrongIndexCount(f"`{array.name}`", wanted, len(indices), way_out)
        context.fail(problem, node)
    parts = _parts(node.slice, len(indices))
    values = [
        _array_index(context, base, axis, item, at)
        for axis, (item, at) in enumerate(zip(indices, parts, strict=True))
    ]
    return references.whole_element(base, tuple(values))


def _parts(index: ast.expr, count: int) -> list[ast.expr]:
    """Where each of an element's indices stands in the source."""
    items = index.elts if isinstance(index, ast.Tuple) else []
    if len(items) == count and not any(isinstance(item, ast.Starred) for item in items):
        return items
    return [index] * count


def _flatten(context: Context, index: Any) -> list[Any]:
    """An index list with vectors spread; None, and (), are no index."""
    if index is None:
        return []
    if isinstance(index, (tuple, list)):
        return [item for part in index for item in _flatten(context, part)]
    if isinstance(index, MatrixValue) and index.is_vector:
        return [context.known(item) for item in index.elements]
    if isinstance(index, Matrix):
        return list(index)
    return [index]


def _array_index(
    context: Context, base: ArrayReference, axis: int, index: Any, at: ast.expr
) -> Value:
    if isinstance(index, slice):
        way_out = "loop over the elements; only vectors and matrices have slices"
        context.fail(WrongIndex("a slice", way_out), at)
    first = first_index(base, axis)
    if base.array in context.arrays.clamped and not isinstance(index, float):
        return _clamped(context, index, extent(context, base.array, axis), at)
    if not is_number(index):
        value = integer_index(context, index, at)
        if first:
            start = context.builder.constant(first, value.type)
            value = context.builder.binary("sub", value, start)
        return value
    if isinstance(index, HostNumber):
        return _varying_index(context, base, axis, index, first)
    if isinstance(index, float):
        context.fail(WrongIndex(describe(index)), at)
    if first:
        return context.builder.index(int(index) - first)
    shape = base.array.fixed_shape
    if shape is not None:
        name = f"`{base.array.name}`"
        return index_constant(context, in_range(context, int(index), shape[axis], axis, name, at))
    if index < 0:
        end = context.builder.shape(base.array, axis)
        return context.builder.binary("add", end, context.builder.index(int(index)))
    return index_constant(context, int(index))


def _clamped(context: Context, index: Any, extent: Any, at: ast.AST | None = None) -> Value:
    """An index, or the nearest one that is within the extent."""
    if is_number(index):
        value = index_constant(context, int(index))
    else:
        value = integer_index(context, index, at)
    build = context.builder
    count = build.cast(context.value(extent), value.type)
    last = build.binary("sub", count, build.constant(1, value.type))
    return build.binary("max", build.binary("min", value, last), build.constant(0, value.type))


def _varying_index(
    context: Context, base: ArrayReference, axis: int, index: HostNumber, first: int
) -> Value:
    """An index that each launch evaluates; one out of range is seen to as a constant is."""
    if index.kind is not int:
        raise DecidesAtCompileTime
    shape = base.array.fixed_shape
    end = first + shape[axis] if shape is not None else 1 << 31
    value = context.hidden(index, i32, f"{first} <= {{0}} < {end}")
    start = context.builder.constant(first, i32)
    return context.builder.binary("sub", value, start) if first else value


def first_index(base: ArrayReference, axis: int) -> int:
    """The least index of an axis: 0, but for a field that was made with an offset."""
    offset: tuple[int, ...] = getattr(base.handle, "offset", ())
    return offset[axis] if offset else 0


def index_constant(context: Context, number: int) -> Value:
    """A constant index: i32 if that can hold it."""
    return context.builder.constant(number, i32 if holds(i32, number) else i64)


def in_range(
    context: Context, index: int, extent: int, axis: int, what: str, node: ast.expr
) -> int:
    """A compile-time index, counted from the end if it is negative."""
    if not -extent <= index < extent:
        context.fail(IndexOutOfRange(what, index, axis, extent), node)
    return index + extent if index < 0 else index


def integer_index(context: Context, index: Any, node: ast.AST | None) -> Value:
    """A run-time index as an i32 or i64."""
    if isinstance(index, HostNumber):
        raise DecidesAtCompileTime
    if not isinstance(index, Value) or index.type.is_float:
        context.fail(WrongIndex(describe(index)), node)
    if index.type in (i32, i64):
        return index
    is_wide = index.type.kind is Kind.UNSIGNED and index.type.bits >= 32
    return context.builder.cast(index, i64 if is_wide else i32)


# -- components ------------------------------------------------------------------------------------


def choose(
    context: Context,
    components: Components,
    index: Any,
    node: ast.Subscript,
    is_local: bool = False,
    is_clamped: bool = False,
) -> Components:
    """The components of a vector or matrix at an index; `is_local`: no pass checks its bounds.

    With `is_clamped` run-time indices beyond an end stand for the component there.
    """
    items = _flatten(context, index)
    shape = components.shape
    if len(items) == 1 and len(shape) == 2:
        items.append(slice(None))
    if len(items) != len(shape):
        kind = "a vector" if len(shape) == 1 else "a matrix"
        wanted = "1 index" if len(shape) == 1 else "1 or 2 indices"
        context.fail(WrongIndexCount(kind, wanted, len(items)), node)
    axes = [_axis(context, item, shape, axis, node) for axis, item in enumerate(items)]
    if is_clamped:
        pairs = zip(axes, shape, strict=True)
        axes = [_clamped(context, a, n) if isinstance(a, Value) else a for a, n in pairs]
    if context.debug and is_local:
        _check_bounds(context, axes, shape)
    kept = tuple(
        len(axis)
        for axis, item in zip(axes, items, strict=True)
        if isinstance(item, slice) and isinstance(axis, list)
    )
    if not any(isinstance(axis, Value) for axis in axes):
        grid = itertools.product(*axes)  # type: ignore[arg-type]
        return Components(kept, tuple(components.indices[_linear(shape, k)] for k in grid))
    return Components(kept, _dynamic(context, components, axes, node))


def _linear(shape: tuple[int, ...], position: tuple[int, ...]) -> int:
    return position[0] if len(shape) == 1 else position[0] * shape[1] + position[1]


def _axis(
    context: Context, item: Index, shape: tuple[int, ...], axis: int, node: ast.Subscript
) -> list[int] | Value:
    extent = shape[axis]
    if isinstance(item, slice):
        return list(range(*item.indices(extent)))
    if isinstance(item, int):
        what = "a vector" if len(shape) == 1 else "a matrix"
        return [in_range(context, item, extent, axis, what, node.slice)]
    return integer_index(context, item, node.slice)


def _dynamic(
    context: Context, components: Components, axes: list[Any], node: ast.Subscript
) -> tuple[tuple[int | Value, ...], ...]:
    """The index tuples where an axis is indexed at run time: its coordinate is that index."""
    grid = itertools.product(*([0] if isinstance(axis, Value) else axis for axis in axes))
    chosen = []
    for position in grid:
        index = list(components.indices[_linear(components.shape, position)])
        for axis, run_time in enumerate(axes):
            if isinstance(run_time, Value):
                found = _coordinate(components, axis, position)
                if found is None:
                    context.fail(NotCompileTime("an index into such a swizzle"), node.slice)
                coordinate, first, step = found
                index[coordinate] = _moved(context, run_time, first, step)
        chosen.append(tuple(index))
    return tuple(chosen)


def _moved(context: Context, index: Value, first: int, step: int) -> Value:
    build = context.builder
    if step != 1:
        index = build.binary("mul", index, build.constant(step, index.type))
    return build.binary("add", index, build.constant(first, index.type)) if first else index


def _coordinate(
    components: Components, axis: int, position: tuple[int, ...]
) -> tuple[int, int, int] | None:
    """Which coordinate of the index tuples counts evenly along an axis, from where, by how much."""
    along = [
        components.indices[_linear(components.shape, (*position[:axis], k, *position[axis + 1 :]))]
        for k in range(components.shape[axis])
    ]
    for coordinate in range(len(along[0])):
        numbers = [number for index in along if isinstance(number := index[coordinate], int)]
        if len(numbers) < len(along):
            continue
        first = numbers[0]
        step = numbers[1] - first if len(numbers) > 1 else 1
        if all(number == first + k * step for k, number in enumerate(numbers)) and all(
            _others_equal(index, along[0], coordinate) for index in along
        ):
            return coordinate, first, step
    return None


def _others_equal(a: tuple[Any, ...], b: tuple[Any, ...], coordinate: int) -> bool:
    return all(
        x is y or x == y for k, (x, y) in enumerate(zip(a, b, strict=True)) if k != coordinate
    )


def _check_bounds(context: Context, axes: list[Any], shape: tuple[int, ...]) -> None:
    builder = context.builder
    for axis, (index, extent) in enumerate(zip(axes, shape, strict=True)):
        if not isinstance(index, Value):
            continue
        not_below = builder.compare("ge", index, builder.constant(0, index.type))
        below = builder.compare("lt", index, builder.constant(extent, index.type))
        message = f"index {{}} is out of range for axis {axis} of a local of extent {extent}"
        builder.assert_("bounds", message, builder.binary("and", not_below, below), [index])
