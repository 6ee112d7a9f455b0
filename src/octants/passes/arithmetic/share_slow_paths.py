"""Let sines that do not depend on each other share a slow path.

An instruction that estimates sines and cosines of small angles needs a test of each angle in front
of it, and a slow path. Several of a block have one test, and one branch with all slow paths.

Before::

    array @x: f32, 1, field, () [primal]
    array @y: f32, 1, field, () [primal]
    serial {
      %0: i32 = constant<0>()
      %1: i32 = constant<1>()
      %2: f32 = load<@x, primal>(%0)
      %3: f32 = unary<sin>(%2)
      %4: f32 = unary<cos>(%2)
      %5: f32 = binary<mul>(%3, %4)
      %6: f32 = load<@x, primal>(%1)
      %7: f32 = unary<sin>(%6)
      %8: f32 = unary<cos>(%6)
      %9: f32 = fma(%7, %8, %5)
      store<@y, primal>(%9, %0)
    }

After::

    serial {
      %0: i32 = constant<0>()
      %1: i32 = constant<1>()
      %2: f32 = load<@x, primal>(%0)
      %3: f32 = load<@x, primal>(%1)
      %4: f32 = unary<sin_estimate>(%2)
      %5: f32 = unary<cos_estimate>(%2)
      %6: f32 = unary<sin_estimate>(%3)
      %7: f32 = unary<cos_estimate>(%3)
      %8: f32 = unary<abs>(%2)
      %9: f32 = constant<64.0>()
      %10: u1 = compare<lt>(%8, %9)
      %11: f32 = unary<abs>(%3)
      %12: f32 = constant<64.0>()
      %13: u1 = compare<lt>(%11, %12)
      %14: u1 = binary<and>(%10, %13)
      %15: f32, %16: f32, %17: f32, %18: f32 = if(%14) {
        yield(%4, %5, %6, %7)
      } {
        %19: f32 = unary<sin>(%2)
        %20: f32 = unary<cos>(%2)
        %21: f32 = unary<sin>(%3)
        %22: f32 = unary<cos>(%3)
        yield(%19, %20, %21, %22)
      }
      %23: f32 = binary<mul>(%15, %16)
      %24: f32 = fma(%17, %18, %23)
      store<@y, primal>(%24, %0)
    }

The slow paths are calls of two functions: where a driver inlines these, the pass does not pay.

Of constant multiples of one number only the largest has a test. Results have the same bits: a slow
path computes each function as if it were alone. What an angle follows from moves before the first
function of its group, but never over a branch or a loop.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

from octants.analysis.floats import slow_paths
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Block, Module, Operation, Task, Value
from octants.ir.slices import backward_slice
from octants.types.scalars import f32

LEAST_FUNCTIONS, MOST_FUNCTIONS = 4, 16
"""The sizes of groups. Fewer functions are as fast with a test each, and their code is shorter; the
results of many take registers until they are used.
"""


@staged("share_slow_paths")
def share_slow_paths(module: Module) -> None:
    """Group the sines and cosines of all tasks, in place."""
    for task in module.tasks:
        if sum(map(slow_paths.is_unbounded_sine, task.body.walk())) >= LEAST_FUNCTIONS:
            _Rewriter(task).rewrite(task.body)


class _Rewriter:
    """Rewrites the blocks of a task."""

    def __init__(self, task: Task) -> None:
        self._builder = Builder()
        self._builder.constants.update(ops.constants_in(task.body))
        self._multiples = dict(self._find_multiples(task))

    def _find_multiples(self, task: Task) -> Iterator[tuple[Value, tuple[Value, float]]]:
        """Find products of a number and a constant: the number, and the size of the constant."""
        constants = self._builder.constants
        for op in task.body.walk():
            if isinstance(op, ops.Binary) and op.fn == "mul" and op.result.type is f32:
                for number, factor in (op.operands, op.operands[::-1]):
                    size = abs(constants.get(factor, math.inf))
                    if math.isfinite(size):
                        yield op.result, (number, size)

    def rewrite(self, block: Block) -> None:
        """Rewrite a block, and those inside it."""
        operations, block.ops = block.ops, []
        with self._builder.into(block):
            group = _Group()
            for op in operations:
                if op.regions or group.is_full or group.precedes(op):
                    self._write(group)
                    group = _Group()
                repeats = isinstance(op, ops.If) and slow_paths.repeats_iterations(op)
                for region in () if repeats else op.regions:
                    self.rewrite(region)
                group.add(op)
            self._write(group)

    def _write(self, group: _Group) -> None:
        """Write a group, and what follows it."""
        block = self._builder.block
        block.ops += group.before
        if len(group.functions) >= LEAST_FUNCTIONS:
            self._write_functions(group.functions)
        else:
            block.ops += group.functions
        block.ops += group.behind

    def _write_functions(self, functions: list[ops.Unary]) -> None:
        """Write a test of all angles, and the functions behind it."""
        builder = self._builder

        def copies(fast: bool) -> list[Value]:
            names = slow_paths.ESTIMATES if fast else {}
            made = (
                ops.Unary(names.get(op.fn, op.fn), op.x, results=[Value(f32)], location=op.location)
                for op in functions
            )
            return [builder.append(op).result for op in made]

        builder.location = functions[0].location
        estimates = copies(fast=True)
        tests = [slow_paths.is_small(builder, x) for x in self._largest_angles(functions)]
        are_small = functools.reduce(functools.partial(builder.binary, "and"), tests)
        small, large = Block(), Block()
        with builder.into(small):
            builder.yield_(estimates)
        with builder.into(large):
            builder.yield_(copies(fast=False))
        results = [op.result for op in functions]
        builder.append(ops.If(are_small, small, large, results=results))

    def _largest_angles(self, functions: list[ops.Unary]) -> list[Value]:
        """Return angles that are small only if all are."""
        largest: dict[Value, tuple[float, Value]] = {}
        for op in functions:
            number, factor = self._multiples.get(op.x, (op.x, 1.0))
            if number not in largest or factor > largest[number][0]:
                largest[number] = factor, op.x
        return [angle for _, angle in largest.values()]


class _Group:
    """Functions that do not depend on each other, and the operations around them.

    What is `before` the functions, and `behind` them, was after the first one.
    """

    def __init__(self) -> None:
        self.before: list[Operation] = []
        self.functions: list[ops.Unary] = []
        self.behind: dict[Operation, None] = {}
        self._movable: dict[Value, Operation] = {}
        self._late: set[Value] = set()
        self._may_move_loads = True

    @property
    def is_full(self) -> bool:
        """Whether no function may be added."""
        return len(self.functions) == MOST_FUNCTIONS

    def precedes(self, op: Operation) -> bool:
        """Whether an operation is a function whose angle is known only behind the group."""
        return slow_paths.is_unbounded_sine(op) and op.x in self._late

    def add(self, op: Operation) -> None:
        """Take the next operation."""
        if slow_paths.is_unbounded_sine(op):
            for needed in backward_slice([op.x], self._movable):
                del self.behind[needed], self._movable[needed.results[0]]
                self.before.append(needed)
            self.functions.append(op)
            self._late.add(op.result)
        elif not self.functions:
            self.before.append(op)
        else:
            self.behind[op] = None
            if self._may_move(op):
                self._movable[op.results[0]] = op
            else:
                self._late.update(op.results)
            if op.has_effects or op.writes or op.orders_memory or op.is_convergent:
                self._may_move_loads = False

    def _may_move(self, op: Operation) -> bool:
        """Whether an operation may run before the functions."""
        if op.regions or not self._late.isdisjoint(op.operands) or len(op.results) != 1:
            return False
        return op.is_pure or (isinstance(op, ops.Load) and self._may_move_loads)
