"""Sparse fields in kernels: writes activate, loops visit what is active.

All elements of a sparse field have addresses, and what is not active is zero, so a read is one of
a dense field. After a write to ``x[i]`` of ``root.pointer(i, 8).dense(i, 4).place(x)`` follows::

    atomic_or(activity[i // 4], 1)

which reads first (`passes.sums.skip_unchanged_updates`). A loop ``for i, j in x`` becomes parallel
loops that list the numbers of the active cells in launch-temporary memory, in ascending order
(`lang.sparse`; of nested sparse blocks, those in the listed cells of the block above), and a loop
over the elements of the listed cells. All this is ordinary code: backends, passes and derivatives
know nothing of sparse blocks. The reverse of a kernel makes its lists again.
"""

from __future__ import annotations

import ast
import dataclasses
import math
from collections.abc import Sequence
from types import FunctionType
from typing import Any, cast

from octants.diagnostics.sparse_block_errors import NestedSparseLoop
from octants.frontend.calls import functions
from octants.frontend.compile_time import python_object_conversion
from octants.frontend.context import Context
from octants.frontend.control_flow import loop_domains
from octants.frontend.control_flow.loop_domains import Domain
from octants.frontend.memory.active_cells import ActiveList
from octants.frontend.values.expression_values import (
    ArrayReference,
    ElementReference,
    GroupedDomain,
    describe,
    first_leaf,
    is_run_time,
)
from octants.ir.core import Value
from octants.lang import sparse
from octants.types.compile_time_reads import Read
from octants.types.scalars import i32, i64
from octants.types.sparsity import BlockInfo, SparseLevel, Sparsity

Coordinates = Sequence[Value]


# -- numbers of cells ------------------------------------------------------------------------------


def number_of(context: Context, coordinates: Coordinates, extents: Sequence[int]) -> Value:
    """The row-major number of a cell, from its index along each axis."""
    build = context.builder
    number = build.index(0)
    for coordinate, extent in zip(coordinates, extents, strict=True):
        if extent != 1:
            scaled = build.binary("mul", number, build.index(extent))
            number = build.binary("add", scaled, coordinate)
    return number


def coordinates_of(context: Context, number: Value, extents: Sequence[int]) -> list[Value]:
    """The index along each axis of a cell, from its row-major number."""
    build, found, rest = context.builder, [], number
    outer = [axis for axis, extent in enumerate(extents) if extent != 1][:1]
    for axis in range(len(extents) - 1, -1, -1):
        extent = build.constant(extents[axis], rest.type)
        if extents[axis] == 1:
            found.append(build.index(0))
        elif [axis] == outer:
            found.append(build.cast(rest, i32))
        else:
            found.append(build.cast(build.binary("mod", rest, extent), i32))
            rest = build.binary("floordiv", rest, extent)
    return found[::-1]


def scaled(
    context: Context, coordinates: Coordinates, old: Sequence[int], new: Sequence[int]
) -> list[Value]:
    """Indices among ``old`` extents as those of the cell, or of the first cell, among ``new``."""
    build, found = context.builder, []
    for index, before, after in zip(coordinates, old, new, strict=True):
        index = build.cast(index, i32)
        if before > after:
            index = build.binary("floordiv", index, build.index(before // after))
        elif after > before:
            index = build.binary("mul", index, build.index(after // before))
        found.append(index)
    return found


def _parts(
    context: Context, level: SparseLevel, coordinates: Coordinates
) -> tuple[list[Value], Value]:
    """Of a cell of a dynamic block, the indices of its list, and the position in that."""
    build, lists, inside = context.builder, [], context.builder.index(0)
    for index, size in zip(coordinates, level.block, strict=True):
        if size == 1:
            lists.append(index)
            continue
        lists.append(build.binary("floordiv", index, build.index(size)))
        inside = build.binary("mod", index, build.index(size))
    return lists, inside


def activity(context: Context, level: SparseLevel) -> ArrayReference:
    """The flags of a sparse block, or the lengths of its lists, as an array of the kernel."""
    found: ArrayReference = python_object_conversion.wrap(context, level.activity, "activity")
    return found


# -- activation ------------------------------------------------------------------------------------


def after_write(context: Context, reference: ElementReference) -> None:
    """Activate the cells that an element lies in, but for those that a loop has found active.

    The write comes first, so that an index out of bounds is that of the user's array.
    """
    active, indices = context.active, reference.indices
    sparsity = active.of_array.get(reference.array)
    if sparsity is None or not active.activates:
        return
    levels = [level for level in sparsity.levels if not active.is_visited(sparsity, level, indices)]
    if levels:
        activate(context, dataclasses.replace(sparsity, levels=tuple(levels)), indices)


def activate(context: Context, sparsity: Sparsity, indices: Coordinates) -> None:
    """Activate the cells that an element lies in."""
    context.active.note_change()
    for level in sparsity.levels:
        _raise(context, level, scaled(context, indices, sparsity.shape, level.cells))


def _is_missing(context: Context, level: SparseLevel, coordinates: Coordinates) -> Value:
    """Whether a cell is not active."""
    build, flags = context.builder, activity(context, level).array
    if level.is_dynamic:
        lists, inside = _parts(context, level, coordinates)
        length = build.load(flags, [number_of(context, lists, level.lists)])
        return build.compare("le", length, inside)
    flag = build.load(flags, [number_of(context, coordinates, level.cells)])
    return build.compare("eq", flag, build.index(0))


def _raise(context: Context, level: SparseLevel, coordinates: Coordinates) -> None:
    """Set the flag of a cell, or let a list be long enough for it."""
    build, flags = context.builder, activity(context, level).array
    if level.is_dynamic:
        lists, inside = _parts(context, level, coordinates)
        least = build.binary("add", inside, build.index(1))
        build.atomic("max", flags, [number_of(context, lists, level.lists)], least)
    else:
        build.atomic("or", flags, [number_of(context, coordinates, level.cells)], build.index(1))


def is_active(context: Context, sparsity: Sparsity, indices: Coordinates) -> Value:
    """Whether the innermost cell of an element is active."""
    level = sparsity.levels[-1]
    missing = _is_missing(context, level, scaled(context, indices, sparsity.shape, level.cells))
    return context.builder.unary("not", missing)


# -- loops -----------------------------------------------------------------------------------------


def domain_of(context: Context, value: Any, node: ast.expr) -> Domain | None:
    """The domain of a loop over a sparse field or over the cells of a block; None for others."""
    if isinstance(value, GroupedDomain):
        inner = domain_of(context, value.inner, node)
        return None if inner is None else dataclasses.replace(inner, grouped=True)
    info = info_of(context, value)
    if info is not None and not info.sparsity.levels:
        return loop_domains.product(context, [(0, extent) for extent in info.sparsity.shape])
    if info is not None:
        return domain(context, info.sparsity, f"`{info.name}`", node)
    value = first_leaf(value)
    if not isinstance(value, ArrayReference) or value.array not in context.active.of_array:
        return None
    return domain(context, context.active.of_array[value.array], describe(value), node)


def info_of(context: Context, block: Any) -> BlockInfo | None:
    """The description of a block of a field tree; None for anything else."""
    info = None if is_run_time(block) else getattr(block, "info", None)
    if not isinstance(info, BlockInfo):
        return None
    context.reads.append(Read("attribute", block, "info", info))
    return info


def domain(context: Context, sparsity: Sparsity, what: str, node: ast.AST) -> Domain:
    """The domain of a loop over the elements in active cells."""
    if not context.is_top_level:
        context.fail(NestedSparseLoop(what), node)
    build, level = context.builder, sparsity.levels[-1]
    found = _listed(context, sparsity.levels, node)
    inner = [n // m for n, m in zip(sparsity.shape, level.cells, strict=True)]
    size = math.prod(inner)
    total = build.load(found.count.array, [build.index(0)])
    if level.count * size >= 1 << 31:
        total = build.cast(total, i64)
    total = build.binary("mul", total, build.constant(size, total.type))

    def indices(counters: list[Value]) -> list[Value]:
        count = build.constant(size, counters[0].type)
        item = build.binary("floordiv", counters[0], count) if size > 1 else counters[0]
        cell = build.load(found.cells.array, [item])
        first = scaled(
            context, coordinates_of(context, cell, level.cells), level.cells, sparsity.shape
        )
        rest = build.binary("mod", counters[0], count) if size > 1 else build.index(0)
        inside = coordinates_of(context, rest, inner)
        made = [build.binary("add", a, b) for a, b in zip(first, inside, strict=True)]
        if context.item is not None:
            context.active.visit(sparsity, tuple(made))
        starts = sparsity.offset or (0,) * len(made)
        return [
            build.binary("add", index, build.index(start)) if start else index
            for index, start in zip(made, starts, strict=True)
        ]

    return Domain([(build.constant(0, total.type), total)], indices, rank=len(sparsity.shape))


def _listed(context: Context, levels: tuple[SparseLevel, ...], node: ast.AST) -> ActiveList:
    """The active cells of the last of some blocks; the kernel lists them here, or has before."""
    level = levels[-1]
    known = context.active.lists.get(id(level.activity))
    if known is not None:
        return known
    parents = _listed(context, levels[:-1], node) if len(levels) > 1 else None
    groups = math.prod(level.lists) if level.is_dynamic else level.count
    segments = groups if level.is_dynamic else -(-groups // sparse.SEGMENT)
    found = ActiveList(
        level, _temporary(context, "cells", level.count), _temporary(context, "count", 1)
    )
    candidates: Any = groups
    if parents is not None:
        per = groups // parents.level.count
        listed = context.builder.load(parents.count.array, [context.builder.index(0)])
        candidates = context.builder.binary("mul", listed, context.builder.index(per))
    values = {
        "parents": parents,
        "level": level,
        "candidates": candidates,
        "starts": _temporary(context, "starts", segments),
        "cells": found.cells,
        "count": found.count,
    }
    flags = activity(context, level)
    if level.is_dynamic:
        values |= {"lengths": flags, "most": math.prod(level.block)}
        function = cast(FunctionType, sparse._list_elements)
    else:
        values |= {"flags": flags}
        function = cast(FunctionType, sparse._list_active)
    functions.inline(context, node, function, values, frozenset(values))
    context.active.lists[id(level.activity)] = found
    return found


def _temporary(context: Context, name: str, count: int) -> ArrayReference:
    """Memory for a list, which is written before it is read."""
    return context.arrays.temporary(f"active_{name}", i32, (count,), is_zeroed=False)


def cell_of(context: Context, _node: ast.AST, number: Any, parents: Any, level: Any) -> Value:
    """The number of a cell (or list) of a block, of those in listed cells of the block above."""
    k: Value = context.builder.cast(context.value(number), i32)
    if parents is None:
        return k
    build, above = context.builder, parents.level.cells
    extents = level.lists if level.is_dynamic else level.cells
    inner = [n // m for n, m in zip(extents, above, strict=True)]
    size = build.index(math.prod(inner))
    cell = build.load(parents.cells.array, [build.binary("floordiv", k, size)])
    first = scaled(context, coordinates_of(context, cell, above), above, extents)
    inside = coordinates_of(context, build.binary("mod", k, size), inner)
    made = [build.binary("add", a, b) for a, b in zip(first, inside, strict=True)]
    return number_of(context, made, extents)


def element_of(context: Context, _node: ast.AST, number: Any, position: Any, level: Any) -> Value:
    """The number of the cell of a dynamic block at a position of a list."""
    coordinates = coordinates_of(context, context.value(number), level.lists)
    return number_of(
        context, in_list(context, level, coordinates, context.value(position)), level.cells
    )


def in_list(
    context: Context, level: SparseLevel, lists: Coordinates, position: Value
) -> list[Value]:
    """The indices of the cell at a position of a list."""
    build, found = context.builder, scaled(context, lists, level.lists, level.cells)
    own = [axis for axis, size in enumerate(level.block) if size != 1]
    for axis in own:
        found[axis] = build.binary("add", found[axis], build.cast(position, i32))
    return found
