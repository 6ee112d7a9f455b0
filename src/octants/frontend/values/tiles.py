"""Tiles: their making, slices of arrays as their contents, and products of columns.

`octants.lang.simt.tiles` has what these do.
"""

from __future__ import annotations

import ast
from types import FunctionType
from typing import Any, ClassVar, NoReturn, cast

from octants.diagnostics.cooperation_errors import WrongLanes
from octants.diagnostics.errors import WrongIndex
from octants.frontend.calls import functions
from octants.frontend.context import Context
from octants.frontend.control_flow.cooperation import Implementation, blocks_of, loop_of
from octants.frontend.memory import references
from octants.frontend.values import matrices
from octants.frontend.values.expression_values import (
    ArrayReference,
    MatrixValue,
    StructValue,
    VariableReference,
    plain,
)
from octants.lang import linear_algebra
from octants.lang.simt import tiles
from octants.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ArraySlice:
    """``array[*batch, rows[0]:rows[1], columns[0]:columns[1]]``"""

    DESCRIPTION: ClassVar[str] = "a slice of an array"

    array: ArrayReference
    batch: tuple[Any, ...]
    rows: tuple[Any, Any]
    columns: tuple[Any, Any]


def _maker(size: int, is_identity: bool) -> Implementation:
    """``Tile.zeros(dtype)`` or ``Tile.eye(dtype)``"""

    def build(context: Context, node: ast.AST, dtype: Any = None) -> StructValue:
        name = f"simt.Tile{size}x{size}"
        lanes = blocks_of(context, node, name).subgroup_size
        if lanes < size:
            problem = f"a tile has {size} rows, a lane for each, and a subgroup has {lanes} lanes"
            context.fail(WrongLanes(name, problem, "use an arch with wider subgroups"), node)
        scalar = context.default_float
        if dtype is not None:
            scalar = matrices.scalar_type(context, dtype, name, node)
        zero, one = (context.builder.constant(number, scalar) for number in (0, 1))
        row = [zero] * size
        if is_identity:
            lane, build = loop_of(context, node, name).lane, context.builder
            equal = [build.compare("eq", lane, build.constant(k, lane.type)) for k in range(size)]
            row = [build.select(is_one, one, zero) for is_one in equal]
        return StructValue({"r": MatrixValue((size,), row)}, tiles.tile_type(size, scalar))

    return build


TABLE: dict[Any, Implementation] = {
    make: _maker(tile.SIZE, is_identity=make is tile.eye)
    for tile in (tiles.Tile16x16, tiles.Tile32x32)
    for make in (tile.zeros, tile.eye)
}
"""The functions that make tiles, by what a kernel calls."""


# -- slices ----------------------------------------------------------------------------------------


def has_slices(node: ast.Subscript) -> bool:
    """Whether there is a slice with a start and an end between the brackets."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return len(parts) > 1 and any(isinstance(part, ast.Slice) for part in parts)


def slice_of(context: Context, array: ArrayReference, node: ast.Subscript) -> Any:
    """A slice of an array: its columns are an `ArraySlice`, a single one an element of it."""
    assert isinstance(node.slice, ast.Tuple)
    parts = node.slice.elts
    if len(parts) != array.array.rank or array.array.element_shape:
        _fail(context, node)
    *batch, rows, last = parts
    if not isinstance(rows, ast.Slice) or any(isinstance(part, ast.Slice) for part in batch):
        _fail(context, node)
    if context.loop is None:
        _fail(context, node)  # lanes have rows, and serial code has no lanes
    leading = tuple(_number(context, part) for part in batch)
    chosen = _bounds(context, rows, node)
    if isinstance(last, ast.Slice):
        return ArraySlice(array, leading, chosen, _bounds(context, last, node))
    number = _number(context, last)
    zero = context.builder.constant(0, array.array.dtype)
    values = {"array": array, "batch": leading, "rows": chosen, "number": number, "zero": zero}
    return _run(context, node, tiles.column, values)


def _bounds(context: Context, node: ast.Slice, at: ast.AST) -> tuple[Any, Any]:
    if node.lower is None or node.upper is None or node.step is not None:
        _fail(context, at)
    return _number(context, node.lower), _number(context, node.upper)


def _number(context: Context, node: ast.expr) -> Any:
    """A number that a kernel computes, or one that is known."""
    return plain(context.known(context.evaluate(node)))


def _fail(context: Context, node: ast.AST) -> NoReturn:
    way_out = (
        "loop over the elements; slices of arrays are for tiles: rows, and columns or one of"
        " them, as in `x[i:j, k:n]` or `x[i:j, k]`, each with a start and an end"
    )
    context.fail(WrongIndex("a slice", way_out), node)


# -- statements ------------------------------------------------------------------------------------


def assign(context: Context, target: ast.expr, value: Any) -> bool:
    """``tile[:] = array[...]`` and ``array[...] = tile``; False for other assignments."""
    if not isinstance(target, ast.Subscript):
        return False
    if isinstance(value, ArraySlice):
        tile = _tile_at(context, target)
        if tile is None:
            return False
        _move(context, target, tiles.load, tile, value)
        return True
    if not has_slices(target):
        return False
    if not is_tile(value):
        if isinstance(target.value, (ast.Name, ast.Attribute)):
            base = context.load(context.evaluate(target.value))
            if isinstance(base, ArrayReference):
                _fail(context, target)
        return False
    part = context.evaluate_reference(target)
    if not isinstance(part, ArraySlice):
        return False
    _move(context, target, tiles.store, value, part)
    return True


def _tile_at(context: Context, target: ast.Subscript) -> Any:
    """A reference to the tile of ``tile[:]``."""
    part = target.slice
    if not isinstance(part, ast.Slice) or (part.lower, part.upper, part.step) != (None,) * 3:
        return None
    reference = context.evaluate_reference(target.value)
    is_reference = isinstance(reference, VariableReference)
    return reference if is_reference and is_tile(context.load(reference)) else None


def is_tile(value: Any) -> bool:
    """Whether a value is a tile."""
    methods = getattr(value.python_type, "methods", {}) if isinstance(value, StructValue) else {}
    return methods.get("cholesky_") is tiles.cholesky_


def subtract(context: Context, node: ast.AugAssign, reference: Any) -> bool:
    """``tile -= outer(v, w)``; False for anything else."""
    call = node.value
    if not isinstance(node.op, ast.Sub) or not isinstance(call, ast.Call) or len(call.args) != 2:
        return False
    if not references.is_reference(reference) or not is_tile(context.load(reference)):
        return False
    if context.evaluate(call.func) is not linear_algebra.outer:
        return False
    left, right = (context.evaluate(part) for part in call.args)
    _run(context, node, tiles.subtract_outer, {"tile": reference, "left": left, "right": right})
    return True


def _move(context: Context, node: ast.AST, function: Any, tile: Any, part: ArraySlice) -> None:
    given = {"array": part.array, "batch": part.batch, "rows": part.rows, "columns": part.columns}
    _run(context, node, function, {"tile": tile, **given})


def _run(context: Context, node: ast.AST, function: Any, values: dict[str, Any]) -> Any:
    return functions.inline(
        context, node, cast(FunctionType, function), values, frozenset(values) - {"zero"}
    )
