"""``activate``, ``append`` and the other functions of sparse blocks, and methods of lists."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from types import FunctionType
from typing import Any, NoReturn, cast

from octants.diagnostics.library_errors import WrongArgumentValue
from octants.diagnostics.sparse_block_errors import WrongBlock, WrongCell
from octants.frontend.calls import functions
from octants.frontend.compile_time import python_object_conversion
from octants.frontend.context import Context
from octants.frontend.memory import indexing, references, sparse_access
from octants.frontend.values.expression_values import (
    ArrayReference,
    MatrixValue,
    StructValue,
    describe,
    first_leaf,
    is_number,
)
from octants.ir.core import Value
from octants.lang import sparse
from octants.types.compile_time_reads import Read
from octants.types.scalars import i32
from octants.types.sparsity import BlockInfo, CellArray, SparseLevel

FLAGGED = ("pointer", "bitmasked")


def parent(context: Context, node: ast.AST, owner: Any, args: list[Any]) -> Any:
    """``x.parent()``, ``block.parent(n)``: the block that holds a field or a block."""
    count = 1 if not args else context.known(args[0])
    if len(args) > 1 or not isinstance(count, int) or isinstance(count, bool):
        problem = WrongArgumentValue("parent", "it takes a number that is known when compiling")
        context.fail(problem, node)
    owner = first_leaf(owner)
    if isinstance(owner, ArrayReference):
        handle = owner.handle
        block = handle.snode
        context.reads.append(Read("attribute", handle, "snode", block))
        owner = block
    for _ in range(count):
        above = getattr(owner, "above", None)
        context.reads.append(Read("attribute", owner, "above", above))
        owner = above
    return owner


def _checked(
    context: Context, node: ast.AST, name: str, block: Any, kinds: tuple[str, ...]
) -> BlockInfo:
    info = sparse_access.info_of(context, block)
    if info is None or info.kind not in kinds:
        words = " or a ".join(kinds) if len(kinds) < 3 else "sparse"
        given = f"`{info.name}`" if info is not None else describe(block)
        context.fail(WrongBlock(name, f"a {words} block", given), node)
    return info


def _cell(
    context: Context,
    node: ast.AST,
    name: str,
    info: BlockInfo,
    extents: Sequence[int],
    index: Any,
) -> list[Value]:
    """The indices of a cell as values; with `debug`, one beyond the extents is an error."""
    items = indexing._flatten(context, index)
    if len(items) != len(extents) or not all(map(_is_index, items)):
        given = f"{len(items)}" if all(map(_is_index, items)) else describe(index)
        context.fail(WrongCell(name, len(extents), given, info.name), node)
    cell = [context.builder.cast(context.value(item), i32) for item in items]
    if context.debug:
        for axis, (at, extent) in enumerate(zip(cell, extents, strict=True)):
            _check(context, f"axis {axis} of `{info.name}`", at, extent)
    return cell


def _check(context: Context, axis: str, index: Value, extent: int) -> None:
    build = context.builder
    size = build.index(extent)
    not_below = build.compare("ge", index, build.index(0))
    in_range = build.binary("and", not_below, build.compare("lt", index, size))
    message = f"index {{}} is out of bounds for {axis}, whose extent is {{}}"
    build.assert_("bounds", message, in_range, [index, size])


def _is_index(item: Any) -> bool:
    if is_number(item):
        return not isinstance(item, float)
    return isinstance(item, Value) and not item.type.is_float


# -- functions -------------------------------------------------------------------------------------


def is_active(context: Context, node: ast.AST, block: Any, indices: Any) -> Value:
    """Whether a cell is active, as an i32."""
    info = _checked(context, node, "is_active", block, (*FLAGGED, "dynamic"))
    cell = _cell(context, node, "is_active", info, info.sparsity.shape, indices)
    found = sparse_access.is_active(context, info.sparsity, cell)
    return context.builder.cast(found, i32)


def activate(context: Context, node: ast.AST, block: Any, indices: Any) -> None:
    """Activate a cell."""
    info = _checked(context, node, "activate", block, (*FLAGGED, "dynamic"))
    cell = _cell(context, node, "activate", info, info.sparsity.shape, indices)
    sparse_access.activate(context, info.sparsity, cell)


def deactivate(context: Context, node: ast.AST, block: Any, indices: Any) -> None:
    """Deactivate a cell, or empty a list; what was there becomes zero."""
    info = _checked(context, node, "deactivate", block, (*FLAGGED, "dynamic"))
    context.active.note_change()
    context.active.deactivations += 1
    level = info.sparsity.levels[-1]
    if level.is_dynamic:
        extents = [level.lists[axis] for axis in info.list_axes]
    else:
        extents = list(level.cells)
    cell = _cell(context, node, "deactivate", info, extents, indices)
    values = {
        "flags": sparse_access.activity(context, level),
        "number": sparse_access.number_of(context, cell, extents),
        "info": info,
        "cell": cell,
        "extents": extents,
    }
    function = cast(FunctionType, sparse._deactivate_cell)
    functions.inline(context, node, function, values, frozenset(values))


def clear_contents(context: Context, node: ast.AST, info: Any, cell: Any, extents: Any) -> None:
    """Set everything in a cell to zero."""
    with context.active.clearing():
        for content in info.contents:
            _clear(context, node, content, cell, extents)


def _clear(
    context: Context, node: ast.AST, content: CellArray, cell: list[Value], extents: list[int]
) -> None:
    build = context.builder
    array = python_object_conversion.wrap(context, content.array, "content")
    counts = [1 if axis < 0 else extents[axis] for axis in content.axes]
    index = [build.index(0) if axis < 0 else cell[axis] for axis in content.axes]
    first = sparse_access.scaled(context, index, counts, content.extents)
    block = tuple(n // m for n, m in zip(content.extents, counts, strict=True))
    if all(n == 1 for n in block):
        indices = tuple(first)
        if content.is_activity:
            indices = (sparse_access.number_of(context, first, content.extents),)
        context.store(references.whole_element(array, indices), 0, node)
        return
    values: dict[str, Any] = {"block": block}
    if content.is_activity:
        values |= {"activity": array, "extents": content.extents}
        function = cast(FunctionType, sparse._clear_activity)
    else:
        values["array"] = array
        function = cast(FunctionType, sparse._clear_elements)
        starts = content.array.offset or (0,) * len(first)
        first = [
            build.binary("add", k, build.index(start)) if start else k
            for k, start in zip(first, starts, strict=True)
        ]
    values["first"] = MatrixValue((len(first),), first)
    functions.inline(context, node, function, values, frozenset(values))


def number_of(context: Context, _node: ast.AST, index: Any, extents: Any) -> Value:
    """The row-major number of an index that is a vector."""
    return sparse_access.number_of(context, context.value(index).elements, extents)


def no_activate(_context: Context, _node: ast.AST, *_fields: Any) -> None:
    """Nothing: a write asks one flag, and activates only what is not active."""


# -- lists -----------------------------------------------------------------------------------------


def length(context: Context, node: ast.AST, block: Any, indices: Any) -> Value:
    """The length of a list."""
    info = _checked(context, node, "length", block, ("dynamic",))
    level, number, _ = _list(context, node, "length", info, indices)
    lengths = sparse_access.activity(context, level).array
    found = context.builder.load(lengths, [number])
    return context.builder.binary("min", found, context.builder.index(max(level.block)))


def append(context: Context, node: ast.AST, block: Any, indices: Any, value: Any) -> Value:
    """Append to a list that one field is placed in; gives the position."""
    info = _checked(context, node, "append", block, ("dynamic",))
    fields = [content for content in info.contents if not content.is_activity]
    if len(fields) != 1:
        _fail_append(context, node, f"{len(fields)} fields are placed in the list, not one")
    array = python_object_conversion.wrap(context, fields[0].array, "list")
    return _append(context, node, info, indices, array, value)


def _fail_append(context: Context, node: ast.AST, problem: str) -> NoReturn:
    way_out = "append to a field of the list, `x[i].append(value)`, or write elements by index"
    context.fail(WrongArgumentValue("append", problem, way_out), node)


def _append(
    context: Context, node: ast.AST, info: BlockInfo, indices: Any, target: Any, value: Any
) -> Value:
    build = context.builder
    level, number, lists = _list(context, node, "append", info, indices)
    context.active.note_change()
    if len(info.sparsity.levels) > 1:
        above = info.sparsity.levels[:-1]
        outer = type(info.sparsity)(level.lists, above)
        sparse_access.activate(context, outer, lists)
    lengths = sparse_access.activity(context, level).array
    position = build.atomic("add", lengths, [number], build.index(1))
    most = max(level.block)
    fits = build.compare("lt", position, build.index(most))
    message = f"append: a list of `{info.name}` has {most} elements already"
    build.assert_("assertion", message, fits, [])
    cell = sparse_access.in_list(context, level, lists, position)
    with context.active.clearing():
        context.store(_element(context, node, info, target, cell), value, node)
    return position


def _element(
    context: Context, node: ast.AST, info: BlockInfo, target: Any, cell: list[Value]
) -> Any:
    """A reference to an appended element of a field, or of all members of a struct of fields."""
    if isinstance(target, StructValue):
        members = {
            name: _element(context, node, info, member, cell)
            for name, member in target.members.items()
        }
        return StructValue(members, target.python_type)
    shape = context.active.of_array[target.array].shape
    if shape != info.sparsity.shape:
        _fail_append(context, node, "an element of the list is a block of several elements")
    return references.whole_element(target, tuple(cell))


def _list(
    context: Context, node: ast.AST, name: str, info: BlockInfo, indices: Any
) -> tuple[SparseLevel, Value, list[Value]]:
    """The level of a dynamic block, the number of one of its lists, and its index on all axes."""
    level = info.sparsity.levels[-1]
    cell = _cell(context, node, name, info, [level.lists[k] for k in info.list_axes], indices)
    lists = [context.builder.index(0)] * len(level.lists)
    for axis, index in zip(info.list_axes, cell, strict=True):
        lists[axis] = index
    return level, sparse_access.number_of(context, lists, level.lists), lists


METHODS = ("append", "length", "deactivate")


def list_method(context: Context, node: ast.Call) -> Any:
    """``x[i].append(v)``, ``x[i].length()``, ``x[i].deactivate()`` of a field in lists.

    A field in one list, below the root, has these methods itself: ``x.append(v)``. Gives None where
    the call is none of these.
    """
    call = node.func
    if not isinstance(call, ast.Attribute) or call.attr not in METHODS:
        return None
    cell = call.value
    field = cell.value if isinstance(cell, ast.Subscript) else cell
    if not isinstance(cell, (ast.Subscript, ast.Name, ast.Attribute)) or node.keywords:
        return None
    target = context.load(context.evaluate_reference(field))
    block = _block_of_list(context, target)
    if block is None:
        return None
    index: Any = ()
    if isinstance(cell, ast.Subscript):
        index = indexing.evaluate_indices(context, cell.slice)
    args = [context.evaluate(arg) for arg in node.args]
    if len(args) != (call.attr == "append"):
        problem = "it takes one value" if call.attr == "append" else "it takes no arguments"
        context.fail(WrongArgumentValue(call.attr, problem), node)
    if call.attr == "append":
        info = _checked(context, node, "append", block, ("dynamic",))
        return MethodResult(_append(context, node, info, index, target, args[0]))
    return MethodResult(
        (length if call.attr == "length" else deactivate)(context, node, block, index)
    )


class MethodResult:
    """The result of a call that was a method of a list."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _block_of_list(context: Context, target: Any) -> Any:
    """The dynamic block that a field, or a struct of fields, is placed in."""
    first = first_leaf(target)
    if not isinstance(first, ArrayReference) or first.array not in context.active.of_array:
        return None
    if not context.active.of_array[first.array].levels[-1].is_dynamic:
        return None
    return parent(context, cast(ast.AST, None), target, [])
