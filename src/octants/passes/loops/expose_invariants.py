"""Unrolls short loops that compute the same in each iteration of the loop around them.

Before::

    array @x: f32, 1, ndarray, () [primal]
    serial {
      %0: i32 = constant<0>()
      %1: i32 = constant<2>()
      %2: i32 = shape<@x, 0>()
      for(%0, %2) { (%3: i32):
        %4: f32 = load<@x, primal>(%3)
        %5: f32 = for(%0, %1, %4) { (%6: i32, %7: f32):
          %8: f32 = cast(%6)
          %9: f32 = unary<exp>(%8)
          %10: f32 = binary<mul>(%7, %9)
          yield(%10)
        }
        store<@x, primal>(%5, %3)
        yield()
      }
    }

After::

    serial {
      %0: i32 = constant<0>()
      %1: i32 = shape<@x, 0>()
      %2: f32 = constant<0.0>()
      %3: f32 = unary<exp>(%2)
      %4: f32 = constant<1.0>()
      %5: f32 = unary<exp>(%4)
      for(%0, %1) { (%6: i32):
        %7: f32 = load<@x, primal>(%6)
        %8: f32 = binary<mul>(%7, %3)
        %9: f32 = binary<mul>(%8, %5)
        store<@x, primal>(%9, %6)
        yield()
      }
    }

The functions depend on the counter of the inner loop only, so `simplify` hoists them out of the
outer one when each iteration has its own. That is worth the longer code for functions of
mathematics, such as the features sin(k x) of a network, which all units of a layer add up.
"""

from __future__ import annotations

from collections.abc import Iterable

from octants.analysis.cost_model import LIBRARY, Costs
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.array_aliasing import may_alias
from octants.ir.cloning import copy_operation
from octants.ir.core import ArrayRef, Block, Module, Operation, Task, Value
from octants.lazy_dataclass import dataclass
from octants.passes.loops.unrolled_iterations import ReplacedLoops
from octants.simplify import simplify

_MOST_TRIPS, _MOST_WORK, _MOST_VALUES = 16, 512, 64
"""The most iterations of a loop that is unrolled, operations of all of them together, and values
that are hoisted and stay in registers.
"""


@staged("expose_invariants")
def expose_invariants(module: Module) -> None:
    """Unroll in all tasks, in place."""
    changes = [_Unroller(task, module.noalias).unroll() for task in module.tasks]
    if any(changes):
        simplify(module)


@dataclass(frozen=True, slots=True)
class _Outer:
    """The loop around the visited operations: the arrays that it writes, and whether loads stay."""

    written: frozenset[ArrayRef]
    pins: bool

    def changes(self, target: ArrayRef, noalias: bool) -> bool:
        """Whether a load may give another value in another iteration, or must stay."""
        return self.pins or any(may_alias(each, target, noalias) for each in self.written)


class _Unroller:
    """Rewrites a task."""

    def __init__(self, task: Task, noalias: bool) -> None:
        self._body, self._noalias = task.body, noalias
        self._constants = ops.constants_in(task.body)
        self._costs = Costs(task.body)
        self._depths: dict[Value, int] = {}  # of the loops around a definition
        self._replaced = ReplacedLoops()
        self._has_changed = False

    def unroll(self) -> bool:
        """Rewrite the task; gives whether anything has changed."""
        self._visit(self._body, 0, None)
        self._replaced.apply(self._body)
        return self._has_changed

    def _visit(self, block: Block, depth: int, outer: _Outer | None) -> None:
        """Unroll loops of a block and of those in it; ``outer`` is the loop whose body it is."""
        self._depths.update((arg, depth) for arg in block.args)
        written: list[Operation] = []
        for op in block.ops:
            self._depths.update((value, depth) for value in op.results)
            if isinstance(op, ops.For) and outer is not None and self._exposes(op, depth, outer):
                written += self._copies(op)
                continue
            inner = _outer(op) if isinstance(op, ops.Loop) else None
            for region in op.regions:
                self._visit(region, depth + (inner is not None), inner)
            written.append(op)
        block.ops[:] = written

    def _exposes(self, loop: ops.For, depth: int, outer: _Outer) -> bool:
        """Whether an iteration has costly operations that the loop around it does not change."""
        trips = self._costs.trips(loop)
        if trips is None or not 1 < trips <= _MOST_TRIPS:
            return False
        inside = [op for op in loop.body.walk() if not isinstance(op, ops.Constant)]
        if len(inside) * trips > _MOST_WORK or any(isinstance(op, ops.Loop) for op in inside):
            return False
        steady, costly = {loop.body.args[0]}, 0
        for op in loop.body.ops:
            is_load = isinstance(op, ops.Load) and not outer.changes(op.ref, self._noalias)
            if (op.is_scalar or is_load) and self._are_steady(op.operands, steady, depth):
                steady.update(op.results)
                costly += self._costs.of_operation(op) >= LIBRARY
        return 0 < costly * trips <= _MOST_VALUES

    def _are_steady(self, values: Iterable[Value], steady: set[Value], depth: int) -> bool:
        """Whether values follow from the counter, and from what is defined outside both loops."""
        return all(
            value in steady or value in self._constants or self._depths.get(value, depth) < depth
            for value in values
        )

    def _copies(self, loop: ops.For) -> list[Operation]:
        """Return the iterations of a loop, one after the other."""
        written: list[Operation] = []
        counter, *_ = loop.body.args
        carried, first = list(loop.inits), self._constants[loop.lower]
        for number in range(self._costs.trips(loop) or 0):
            index = ops.Constant(first + number, results=[Value(counter.type)])
            values = dict(zip(loop.body.args, [index.result, *carried], strict=True))
            written += [index, *(copy_operation(op, values) for op in loop.body.ops[:-1])]
            carried = [values.get(value, value) for value in loop.body.yielded]
        self._replaced.replace(loop, carried)
        self._has_changed = True
        return written


def _outer(loop: ops.Loop) -> _Outer:
    inside = [*loop.walk_regions()]
    written = frozenset(op.ref for op in inside if isinstance(op, ops.Write))
    return _Outer(written, any(op.orders_memory or isinstance(op, ops.Assert) for op in inside))
