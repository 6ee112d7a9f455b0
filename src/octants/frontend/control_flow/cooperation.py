"""Functions of work items that work together: `octants.lang.simt`.

All take the context and the node of the call before their arguments.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

from octants.diagnostics.cooperation_errors import (
    NoBlocks,
    NoSuchWork,
    OutsideOfBlocks,
    WrongLanes,
    WrongSharedArray,
)
from octants.diagnostics.errors import WrongLoopConfig
from octants.frontend.compile_time import compile_time_evaluation
from octants.frontend.context import Context
from octants.frontend.control_flow.thread_block_loops import BlockLoop
from octants.frontend.values import arithmetic, matrices
from octants.frontend.values.expression_values import (
    ArrayReference,
    MatrixValue,
    describe,
    is_number,
)
from octants.frontend.values.operands import RunTime, elementwise, operand
from octants.ir.cooperative_tasks import nbytes, shared_arrays
from octants.ir.core import Block, Task, Value
from octants.ir.ops.cooperation import BITWISE, REDUCTIONS, SHUFFLES
from octants.ir.scalar_semantics import identity_of
from octants.lang.simt import block, grid, subgroup
from octants.target import Blocks
from octants.types.matrix_types import MatrixType
from octants.types.matrix_values import Matrix
from octants.types.scalars import DType, i32

Implementation = Callable[..., Any]


def blocks_of(context: Context, node: ast.AST, name: str) -> Blocks:
    """The machine's limits for work items that work together; an error if they cannot."""
    if context.blocks is None:
        context.fail(NoBlocks(name), node)
    return context.blocks


def loop_of(context: Context, node: ast.AST, name: str) -> BlockLoop:
    """The parallel loop that is being built, which runs in blocks from now on."""
    blocks_of(context, node, name)
    if context.loop is None:
        context.fail(OutsideOfBlocks(name), node)
    context.loop.cooperates = True
    return context.loop


# -- loops -----------------------------------------------------------------------------------------


def begin(
    context: Context, item: Value, bounds: tuple[Value, Value], options: dict[str, Any]
) -> BlockLoop | None:
    """A parallel loop before its body is built; None where there are no blocks."""
    if context.blocks is None:
        return None
    return BlockLoop(item, bounds, options, context.blocks, context.builder.constant_of)


def finish(context: Context, node: ast.For, loop: BlockLoop, body: Block) -> dict[str, int]:
    """Complete the body of a loop whose work items work together; gives the sizes of its blocks."""
    assert context.blocks is not None
    most, capacity = context.blocks.most_items, context.blocks.shared_bytes
    if loop.block_dim > most:
        context.fail(WrongLoopConfig(f"`block_dim` is {loop.block_dim}, and at most {most}"), node)
    loop.begin(body)
    arrays = shared_arrays(Task("", body))
    taken = sum(map(nbytes, arrays))
    if taken > capacity:
        problem = f"this loop has {taken} bytes of them, and a block can have {capacity}"
        where = loop.shared.get(max(arrays, key=nbytes), node)
        context.fail(WrongSharedArray(problem, "use narrower types, or fewer elements"), where)
    loop.check(body)
    return loop.options


# -- numbers ---------------------------------------------------------------------------------------


def _number(name: str, find: Callable[[BlockLoop], Value]) -> Implementation:
    """A number of a work item, which the loop computes once."""
    return lambda context, node: find(loop_of(context, node, name))


def _group_size(context: Context, node: ast.AST) -> int:
    return blocks_of(context, node, "subgroup.group_size").subgroup_size


def _log2_group_size(context: Context, node: ast.AST) -> int:
    return int(math.log2(blocks_of(context, node, "subgroup.log2_group_size").subgroup_size))


def _dim(context: Context, node: ast.AST) -> int:
    return loop_of(context, node, "block.dim").block_dim


# -- barriers and memory ---------------------------------------------------------------------------


def _barrier(scope: str) -> Implementation:
    def build(context: Context, node: ast.AST) -> None:
        loop_of(context, node, f"{scope}.sync")
        context.builder.barrier(scope)

    return build


def _fence(name: str, scope: str) -> Implementation:
    def build(context: Context, node: ast.AST) -> None:
        loop_of(context, node, f"{name}.mem_fence")
        context.builder.fence(scope)

    return build


def _shared_array(context: Context, node: ast.AST, shape: Any, dtype: Any) -> ArrayReference:
    """An array of which each block has its own."""
    loop = loop_of(context, node, "block.SharedArray")
    element_shape: tuple[int, ...] = ()
    if isinstance(dtype, MatrixType):
        scalar, element_shape = matrices.element_type(context, dtype), dtype.element_shape
    else:
        scalar = matrices.scalar_type(context, dtype, "simt.block.SharedArray", node)
    extents = _shape(context, node, shape)
    made: ArrayReference = context.arrays.shared("shared", scalar, extents, element_shape)
    loop.shared[made.array] = node
    return made


def _shape(context: Context, node: ast.AST, shape: Any) -> tuple[int, ...]:
    given = compile_time_evaluation.static_value(
        context, shape, node, "the shape of a shared array"
    )
    extents = tuple(given) if isinstance(given, (tuple, list, Matrix)) else (given,)
    if not extents or not all(_is_extent(extent) for extent in extents):
        way_out = "give an extent, or a tuple of extents, which are positive integers"
        context.fail(WrongSharedArray(f"the shape is {_show(given)}", way_out), node)
    return tuple(map(int, extents))


def _is_extent(x: Any) -> bool:
    return is_number(x) and not isinstance(x, (bool, float)) and x > 0


def _show(given: Any) -> str:
    return repr(given) if isinstance(given, (int, float, tuple, list)) else describe(given)


# -- subgroups -------------------------------------------------------------------------------------


def _lanes(context: Context, node: ast.AST, name: str, log2_size: Any) -> int:
    """How many lanes take part: the subgroup, or a part of it."""
    size = blocks_of(context, node, name).subgroup_size
    if log2_size is None:
        return size
    log2 = compile_time_evaluation.static_value(context, log2_size, node, "`log2_size`")
    if not isinstance(log2, int) or not 0 <= log2 <= math.log2(size):
        problem = f"`log2_size` is {_show(log2)}, and a subgroup has {size} lanes"
        way_out = f"it is an integer from 0 to {int(math.log2(size))}"
        context.fail(WrongLanes(name, problem, way_out), node)
    return 1 << log2


def _value(context: Context, x: Any) -> RunTime:
    value = operand(context, x)
    return context.constant(value) if is_number(value) else value


def _scalar(context: Context, node: ast.AST, name: str, x: Any) -> Value:
    value = _value(context, x)
    if isinstance(value, MatrixValue):
        context.fail(WrongLanes(name, f"{describe(value)} is not a scalar"), node)
    return value


def _shuffle(fn: str) -> Implementation:
    name = f"subgroup.{fn}"

    def build(context: Context, node: ast.AST, value: Any, lane: Any) -> RunTime:
        loop_of(context, node, name)
        lanes, chosen = _lanes(context, node, name, None), _scalar(context, node, name, lane)
        if not chosen.type.is_integer:
            context.fail(WrongLanes(name, f"{describe(chosen)} cannot choose a lane"), node)
        number = context.builder.cast(chosen, i32)
        one = lambda x: context.builder.subgroup(fn, lanes, x, number)  # noqa: E731
        return elementwise(context, name, one, _value(context, value))

    return build


def _combine(fn: str, name: str, finish: Callable[..., Value]) -> Implementation:
    """A reduction or a scan; ``finish(context, lanes, result)`` makes it what is asked for."""
    name = f"subgroup.{name}"

    def build(context: Context, node: ast.AST, value: Any, log2_size: Any = None) -> RunTime:
        loop_of(context, node, name)
        lanes = _lanes(context, node, name, log2_size)

        def one(x: Value) -> Value:
            _check_type(context, node, name, fn.removeprefix("inclusive_"), x.type)
            return finish(context, lanes, context.builder.subgroup(fn, lanes, x))

        return elementwise(context, name, one, _value(context, value))

    return build


def _check_type(context: Context, node: ast.AST, name: str, fn: str, dtype: DType) -> None:
    if fn in BITWISE and dtype.is_float:
        context.fail(WrongLanes(name, f"it does not take {dtype}", "it is for integers"), node)
    if fn not in BITWISE and dtype.is_bool:
        way_out = "cast it to an integer, or use `reduce_and` or `reduce_or`"
        context.fail(WrongLanes(name, "it does not take u1", way_out), node)


def _as_it_is(_context: Context, _lanes: int, result: Value) -> Value:
    return result


def _exclusive(fn: str) -> Callable[..., Value]:
    """The inclusive scan of one lane before; in the first lane, the neutral element."""

    def finish(context: Context, lanes: int, result: Value) -> Value:
        assert context.blocks is not None
        assert context.loop is not None
        build, lane = context.builder, context.loop.lane
        shifted = build.subgroup(
            "shuffle_up", context.blocks.subgroup_size, result, build.constant(1, i32)
        )
        inside = build.binary("and", lane, build.constant(lanes - 1, i32))
        is_first = build.compare("eq", inside, build.constant(0, i32))
        start = build.constant(identity_of(fn, result.type), result.type)
        return build.select(is_first, start, shifted)

    return finish


def _identity(context: Context, node: ast.AST, fn: Any, value: Any) -> RunTime:
    known = compile_time_evaluation.static_value(context, fn, node, "the function")
    if known not in REDUCTIONS:
        context.fail(WrongLanes("subgroup.identity", f"there is no function {known!r}"), node)
    one = lambda x: context.constant(identity_of(known, x.type), x.type)  # noqa: E731
    return elementwise(context, "identity", one, _value(context, value))


def _ballot(context: Context, node: ast.AST, predicate: Any) -> Value:
    loop_of(context, node, "subgroup.ballot")
    lanes = _lanes(context, node, "subgroup.ballot", None)
    condition = _condition(context, node, "subgroup.ballot", predicate)
    return context.builder.subgroup("ballot", lanes, condition)


def _condition(context: Context, node: ast.AST, name: str, predicate: Any) -> Value:
    return arithmetic.truth(context, _scalar(context, node, name, predicate))


def _vote(fn: str, name: str) -> Implementation:
    """Whether a predicate holds in any lane, or in all."""
    name = f"subgroup.{name}"

    def build(context: Context, node: ast.AST, predicate: Any, log2_size: Any = None) -> Value:
        loop_of(context, node, name)
        lanes = _lanes(context, node, name, log2_size)
        condition = _condition(context, node, name, predicate)
        return context.builder.cast(context.builder.subgroup(fn, lanes, condition), i32)

    return build


def _all_equal(context: Context, node: ast.AST, value: Any, log2_size: Any = None) -> Value:
    """Whether all lanes have what the first one of the group has."""
    name = "subgroup.all_equal"
    build, lane = context.builder, loop_of(context, node, name).lane
    lanes, size = (_lanes(context, node, name, log2) for log2 in (log2_size, None))
    own = _scalar(context, node, name, value)
    first = build.binary("and", lane, build.constant(-lanes, i32))
    same = build.compare("eq", own, build.subgroup("shuffle", size, own, first))
    return build.cast(build.subgroup("and", lanes, same), i32)


# -- tables ----------------------------------------------------------------------------------------


def _combining() -> dict[Any, Implementation]:
    table: dict[Any, Implementation] = {}
    for fn in REDUCTIONS:
        ways = {
            f"reduce_{fn}": (fn, _as_it_is),
            f"inclusive_{fn}": (f"inclusive_{fn}", _as_it_is),
            f"exclusive_{fn}": (f"inclusive_{fn}", _exclusive(fn)),
        }
        for name, (operation, finish) in ways.items():
            for full in (name, f"{name}_tiled"):
                table[getattr(subgroup, full)] = _combine(operation, full, finish)
    return table


def _voting() -> dict[Any, Implementation]:
    table: dict[Any, Implementation] = {
        getattr(subgroup, full): _vote(fn, full)
        for fn, name in (("or", "any_true"), ("and", "all_true"))
        for full in (name, f"{name}_tiled")
    }
    return {
        **table,
        subgroup.ballot: _ballot,
        subgroup.all_equal: _all_equal,
        subgroup.all_equal_tiled: _all_equal,
    }


def _not_supported(what: str, way_out: str) -> Implementation:
    def build(context: Context, node: ast.AST, *_: Any, **__: Any) -> None:
        context.fail(NoSuchWork(what, way_out), node)

    return build


TABLE: dict[Any, Implementation] = {
    block.radix_rank_match_atomic_or: _not_supported(
        "`simt.block.radix_rank_match_atomic_or` is",
        "count digits in a `block.SharedArray`, and scan the counts by `block.exclusive_add`",
    ),
    block.thread_idx: _number("block.thread_idx", lambda loop: loop.thread),
    block.global_thread_idx: _number("block.global_thread_idx", lambda loop: loop.number),
    block.size: _number("block.size", lambda loop: loop.count),
    block.dim: _dim,
    block.sync: _barrier("block"),
    block.mem_fence: _fence("block", "block"),
    block.SharedArray: _shared_array,
    grid.mem_fence: _fence("grid", "device"),
    subgroup.group_size: _group_size,
    subgroup.log2_group_size: _log2_group_size,
    subgroup.invocation_id: _number("subgroup.invocation_id", lambda loop: loop.lane),
    subgroup.sync: _barrier("subgroup"),
    subgroup.mem_fence: _fence("subgroup", "subgroup"),
    subgroup.identity: _identity,
    **{getattr(subgroup, fn): _shuffle(fn) for fn in SHUFFLES},
    **_combining(),
    **_voting(),
}
"""The functions of the library, by what a kernel calls."""
