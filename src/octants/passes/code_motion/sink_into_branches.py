"""Moves what only one branch makes different from nothing into that branch.

Before::

    array @x: f32, 1, ndarray, () [primal]
    array @y: f32, 1, ndarray, () [primal]
    parallel (%2: i32 < shape<@x, 0>()) {
      %3: f32 = constant<0.0>()
      %4: f32 = load<@x, primal>(%2)
      %5: u1 = compare<gt>(%4, %3)
      %6: f32 = if(%5) {
        %7: f32 = unary<exp>(%4)
        yield(%7)
      } {
        yield(%3)
      }
      %8: f32 = binary<mul>(%6, %4)
      %9: f32 = atomic<add, @y, primal>(%8, %2)
    }

After::

    parallel (%2: i32 < shape<@x, 0>()) {
      %3: f32 = constant<0.0>()
      %4: f32 = load<@x, primal>(%2)
      %5: u1 = compare<gt>(%4, %3)
      if(%5) {
        %7: f32 = unary<exp>(%4)
        %8: f32 = binary<mul>(%7, %4)
        %9: f32 = atomic<add, @y, primal>(%8, %2)
        yield()
      } {
        yield()
      }
    }

In the gradient of a loop over pairs, whose condition is about their distance, the adjoints of the
distance come behind the branch: those of pairs that are too far apart are zero, and were added to
both ends. What follows the branch and depends on it moves into it if the other branch, with the
numbers that it yields, leaves nothing to do: sums with zeros, and products with them, which
`fast_math` takes for zeros.
"""

from __future__ import annotations

from typing import Any

from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import copy_operation
from octants.ir.core import Block, Module, Operation, Value, replace_operands
from octants.ir.scalar_semantics import EXACT, evaluate
from octants.lazy_dataclass import dataclass
from octants.simplify import simplify
from octants.types.scalars import DType

_MOST = 300
"""The most operations behind an if, each of which it looks at."""


@staged("sink_into_branches")
def sink_into_branches(module: Module) -> None:
    """Rewrite the ifs of every task that adds to memory, in place."""
    changed = False
    for task in module.tasks:
        if any(isinstance(op, ops.Atomic) for op in task.body.walk()):
            changed |= _visit(task.body, ops.constants_in(task.body))
    if changed:
        simplify(module)


def _visit(block: Block, numbers: dict[Value, Any]) -> bool:
    """Rewrite the ifs of a block and of its regions; whether one was rewritten."""
    changed = False
    for op in block.ops:
        for region in op.regions:
            changed |= _visit(region, numbers)
    at = 0
    while at < len(block.ops):
        op = block.ops[at]
        is_moved = isinstance(op, ops.If) and op.results and _sink(block, at, op, numbers)
        changed |= bool(is_moved)
        at += not is_moved
    return changed


def _sink(block: Block, at: int, branch: ops.If, numbers: dict[Value, Any]) -> bool:
    """Move what depends on an if into one of its branches, if the other one needs nothing of it."""
    choices = [
        taken
        for taken, other in ((True, branch.orelse), (False, branch.then))
        if all(isinstance(op, ops.Constant) for op in other.ops[:-1])
    ]
    depending, values = list[Operation](), set(branch.results)
    tail = block.ops[at + 1 : -1]
    if not choices or len(tail) > _MOST:
        return False
    for op in tail:
        if any(not values.isdisjoint(each.operands) for each in op.walk()):
            depending.append(op)
            values.update(op.results)
            if not _may_move(op):
                return False
        elif not op.is_scalar or op.regions:
            return False
    inside = [each for op in depending for each in op.walk()]
    if not any(isinstance(op, ops.Atomic) for op in inside):
        return False
    needed = list(dict.fromkeys(value for value in block.yielded if value in values))
    for taken in choices:
        left = _Nothing(branch, not taken, inside, numbers)
        results = [left.value(value) for value in needed]
        if all(result is not None for result in results) and left.is_all(depending):
            _move(block, at, taken, depending, dict(zip(needed, results, strict=True)))
            return True
    return False


def _may_move(op: Operation) -> bool:
    """Whether an operation, with its regions, computes scalars and adds to memory at most."""
    if isinstance(op, ops.If):
        return all(_may_move(each) for region in op.regions for each in region.ops[:-1])
    if isinstance(op, ops.Atomic):
        return op.fn == "add"
    return op.is_scalar and not op.regions


class _Nothing:
    """Finds operations that have no effect if an if takes one of its branches.

    Args:
        branch: the if.
        taken: whether its condition is true.
        inside: the operations, with those of their regions.
        numbers: the constants of the task.
    """

    def __init__(
        self, branch: ops.If, taken: bool, inside: list[Operation], numbers: dict[Value, Any]
    ) -> None:
        self._makers = {result: op for op in inside for result in op.results}
        self._known: dict[Value, Value | _Number | None] = {}
        self._numbers = numbers
        self._known[branch.condition] = _Number(taken, branch.condition.type)
        yielded = (branch.then if taken else branch.orelse).yielded
        for result, value in zip(branch.results, yielded, strict=True):
            self._known[result] = self.value(value)

    def is_all(self, operations: list[Operation]) -> bool:
        """Whether operations leave memory as it is."""
        return all(map(self._is_nothing, operations))

    def _is_nothing(self, op: Operation) -> bool:
        if isinstance(op, ops.Atomic):
            added = self.value(op.value)
            return isinstance(added, _Number) and added.number == 0
        if isinstance(op, ops.If):
            condition = self.value(op.condition)
            if isinstance(condition, _Number):
                return self.is_all((op.then if condition.number else op.orelse).ops[:-1])
            return all(self.is_all(region.ops[:-1]) for region in op.regions)
        return True

    def value(self, value: Value) -> Value | _Number | None:
        """A number, or a value of outside, which another one is; None if it is neither."""
        if value not in self._known:
            if value in self._makers:
                self._known[value] = self._result(self._makers[value], value)
            elif value in self._numbers:
                self._known[value] = _Number(self._numbers[value], value.type)
            else:
                self._known[value] = value
        return self._known[value]

    def _result(self, op: Operation, value: Value) -> Value | _Number | None:
        if isinstance(op, ops.If):
            condition = self.value(op.condition)
            if not isinstance(condition, _Number):
                return None
            region = op.then if condition.number else op.orelse
            return self.value(region.yielded[op.results.index(value)])
        if isinstance(op, ops.Select):
            condition = self.value(op.condition)
            if not isinstance(condition, _Number):
                return None
            return self.value(op.on_true if condition.number else op.on_false)
        if isinstance(op, ops.Fma):
            is_zero = _is_zero(self.value(op.x)) or _is_zero(self.value(op.y))
            return self.value(op.z) if is_zero else None
        if isinstance(op, ops.Binary) and op.fn in ("mul", "add", "sub"):
            known = self._of_zeros(op.fn, self.value(op.lhs), self.value(op.rhs))
            if known is not None:
                return known
        return self._folded(op, value)

    def _of_zeros(
        self, fn: str, left: Value | _Number | None, right: Value | _Number | None
    ) -> Value | _Number | None:
        if fn == "mul":
            return left if _is_zero(left) else right if _is_zero(right) else None
        if _is_zero(right):
            return left
        return right if fn == "add" and _is_zero(left) else None

    def _folded(self, op: Operation, value: Value) -> _Number | None:
        """The result of an exact operation with numbers."""
        if not isinstance(op, (ops.Binary, ops.Unary, ops.Compare)) or op.fn not in EXACT:
            return None
        operands = [self.value(operand) for operand in op.operands]
        numbers = [each.number for each in operands if isinstance(each, _Number)]
        if len(numbers) < len(operands):
            return None
        return _Number(evaluate(op.fn, op.operands[0].type, *numbers), value.type)


@dataclass(frozen=True, slots=True)
class _Number:
    number: Any
    type: DType


def _is_zero(value: Value | _Number | None) -> bool:
    return isinstance(value, _Number) and value.type.is_float and value.number == 0


def _move(
    block: Block,
    at: int,
    taken: bool,
    depending: list[Operation],
    results: dict[Value, Any],
) -> None:
    """Make one if of an if and of what depends on it.

    Args:
        block: where they are.
        at: the position of the if.
        taken: whether they come into the branch that runs where its condition is true.
        depending: the operations.
        results: what is used after them, and what that is in the other branch.
    """
    branch = block.ops[at]
    assert isinstance(branch, ops.If)
    own = branch.then if taken else branch.orelse
    into = Builder(Block())
    values = dict(zip(branch.results, own.yielded, strict=True))
    into.block.ops += own.ops[:-1]
    _inline(into, depending, branch.condition, taken, values)
    into.yield_([values.get(value, value) for value in results])
    beside = Builder(Block())
    beside.yield_(
        [
            beside.constant(value.number, value.type) if isinstance(value, _Number) else value
            for value in results.values()
        ]
    )
    regions = (into.block, beside.block) if taken else (beside.block, into.block)
    new = ops.If(branch.condition, *regions, results=[Value(each.type) for each in results])
    new.location = branch.location
    renamed = dict(zip(results, new.results, strict=True))
    gone = set(depending)
    rest = [op for op in block.ops[at + 1 :] if op not in gone]
    block.ops[at:] = [*rest[:-1], new, rest[-1]]
    replace_operands(rest[-1], lambda value: renamed.get(value, value))


def _inline(
    builder: Builder,
    operations: list[Operation],
    condition: Value,
    taken: bool,
    values: dict[Value, Value],
) -> None:
    """Append copies of operations, and of the branches that the condition takes."""
    for op in operations:
        if isinstance(op, ops.If) and op.condition is condition:
            region = op.then if taken else op.orelse
            _inline(builder, region.ops[:-1], condition, taken, values)
            yielded = [values.get(value, value) for value in region.yielded]
            values.update(zip(op.results, yielded, strict=True))
        else:
            builder.append(copy_operation(op, values))
