"""A parallel loop that runs in blocks: the numbers of its work items, and who comes where."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from octants.cached_property import cached_property
from octants.diagnostics.cooperation_errors import Divergent
from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.render import Label
from octants.ir import ops, scalar_semantics
from octants.ir.builder import Builder
from octants.ir.cooperative_tasks import is_block_barrier
from octants.ir.core import Array, Block, Operation, Value
from octants.ir.ops.cooperation import REDUCTIONS
from octants.target import Blocks
from octants.types.scalars import convert, i32


class BlockLoop:
    """The parallel loop that is being built; its numbers are computed at the start of its body.

    `cooperates` says whether work items of it have been seen to work together. `shared` has the
    shared arrays, and where they are made.
    """

    def __init__(
        self,
        item: Value,
        bounds: tuple[Value, Value],
        options: dict[str, Any],
        blocks: Blocks,
        constant_of: Callable[[Value], Any],
    ) -> None:
        self.item = item
        self.lower, self.upper = bounds
        self.subgroup_size = blocks.subgroup_size
        self.block_dim: int = options.get("block_dim") or blocks.block_dim
        self.cooperates = False
        self.shared: dict[Array, ast.AST] = {}
        self.start = Block()
        self._builder = Builder(self.start)
        self._constant_of = constant_of

    @property
    def options(self) -> dict[str, int]:
        """The options of the loop about its blocks."""
        return {"block_dim": self.block_dim, "subgroup_size": self.subgroup_size}

    @cached_property
    def number(self) -> Value:
        """The number of the work item in the loop, i32."""
        return self._builder.cast(self._from_lower(self.item), i32)

    @cached_property
    def thread(self) -> Value:
        """Its number in the block, i32."""
        return self._rest(self.number, self.block_dim)

    @cached_property
    def lane(self) -> Value:
        """Its number in the subgroup, i32."""
        return self._rest(self.thread, self.subgroup_size)

    @cached_property
    def count(self) -> Value:
        """How many work items its block has, i32."""
        build = self._builder
        all_of_them = build.cast(self._from_lower(self.upper), i32)
        first = build.binary("sub", self.number, self.thread)
        rest = build.binary("sub", all_of_them, first)
        return build.binary("min", rest, build.constant(self.block_dim, i32))

    def _from_lower(self, index: Value) -> Value:
        is_zero = self._constant_of(self.lower) == 0
        return index if is_zero else self._builder.binary("sub", index, self.lower)

    def _rest(self, number: Value, size: int) -> Value:
        """The remainder of a division of a number that is not negative."""
        if size & (size - 1):
            return self._builder.binary("truncmod", number, self._builder.constant(size, i32))
        return self._builder.binary("and", number, self._builder.constant(size - 1, i32))

    def begin(self, body: Block) -> None:
        """Put the numbers at the start of the body."""
        body.ops[:0] = self.start.ops

    # -- who comes where ---------------------------------------------------------------------------

    def check(self, body: Block) -> None:
        """Raise an error where a convergent operation is provably divergent."""
        _ConvergentOperations(self, body, self._first_block()).check(body, [])

    def _first_block(self) -> tuple[dict[Value, int], int]:
        """The number of the first item, if known, and the number of items of the first block.

        It has all, where nothing is known of their number: a loop that is right only for a few
        items is of no use.
        """
        low, high = self._constant_of(self.lower), self._constant_of(self.upper)
        starts = {} if low is None else {self.item: low}
        if low is None or high is None:
            return starts, self.block_dim
        return starts, max(0, min(self.block_dim, high - low))


class _ConvergentOperations:
    """Computes what decides about control flow for each work item of the first block."""

    def __init__(self, loop: BlockLoop, body: Block, first: tuple[dict[Value, int], int]) -> None:
        self.loop = loop
        self.starts, self.count = first
        self.definitions = {value: op for op in body.walk() for value in op.results}
        self.known: dict[Value, list[Any] | None] = {}

    def check(self, block: Block, around: list[tuple[Operation, list[Any]]]) -> None:
        """``around`` has what is known to differ: the branch or loop, and what each item does."""
        for op in block.ops:
            if op.is_convergent:
                self._check_convergence(op, around)
            ways = self._paths_taken(op)
            for region in op.regions:
                self.check(region, around if ways is None else [*around, (op, ways)])

    def _check_convergence(self, op: Operation, around: list[tuple[Operation, list[Any]]]) -> None:
        for branch, ways in around:
            size = self._size(op)
            groups = (ways[k : k + size] for k in range(0, len(ways), size))
            if any(len(set(group)) > 1 for group in groups):
                raise _divergent(op, branch)

    def _size(self, op: Operation) -> int:
        if isinstance(op, ops.Subgroup):
            return op.lanes
        return self.loop.block_dim if is_block_barrier(op) else self.loop.subgroup_size

    def _paths_taken(self, op: Operation) -> list[Any] | None:
        """The path of each work item at a branch or a loop; None where that is not known."""
        if isinstance(op, ops.If):
            return self._values(op.condition)
        if isinstance(op, ops.For):
            lower, upper = self._values(op.lower), self._values(op.upper)
            if lower is not None and upper is not None:
                return [max(0, high - low) for low, high in zip(lower, upper, strict=True)]
        return None

    def _values(self, value: Value) -> list[Any] | None:
        """A value for each work item."""
        if value not in self.known:
            self.known[value] = self._compute(value)
        return self.known[value]

    def _compute(self, value: Value) -> list[Any] | None:
        numbers = range(self.count)
        if value in self.starts:
            return [self.starts[value] + k for k in numbers]
        if value is self.loop.__dict__.get("thread"):
            return list(numbers)
        op = self.definitions.get(value)
        if isinstance(op, ops.Constant):
            return [op.value] * self.count
        if not isinstance(op, (ops.Unary, ops.Binary, ops.Compare, ops.Select, ops.Cast)):
            return None
        columns = [self._values(operand) for operand in op.operands]
        if any(column is None for column in columns) or not _is_exact(op):
            return None
        return [_apply(op, row) for row in zip(*columns, strict=True)]


def _is_exact(op: Operation) -> bool:
    return not hasattr(op, "fn") or op.fn in scalar_semantics.EXACT


def _apply(op: Any, row: tuple[Any, ...]) -> Any:
    if isinstance(op, ops.Select):
        return row[1] if row[0] else row[2]
    if isinstance(op, ops.Cast):
        return convert(row[0], op.result.type)
    return scalar_semantics.evaluate(op.fn, op.operands[0].type, *row)


def _divergent(op: Operation, branch: Operation) -> OctantsError:
    who = "work items of a block" if is_block_barrier(op) else "lanes"
    labels = []
    if branch.location is not None:
        labels.append(Label(branch.location, "this is not the same for all of them"))
    return Divergent(_name(op), who).at(op.location, *labels)


def _name(op: Operation) -> str:
    """The user's name for an operation."""
    if isinstance(op, ops.Subgroup):
        return f"subgroup.reduce_{op.fn}" if op.fn in REDUCTIONS else f"subgroup.{op.fn}"
    return f"{op.attributes[0]}.sync"
