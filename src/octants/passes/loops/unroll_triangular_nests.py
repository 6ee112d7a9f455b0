"""Unrolls nests of loops over local vectors whose inner loops depend on the counters around them.

A matrix of a work item that is eliminated, factorised or solved in place is a vector that such
loops read and replace by run-time indices. Each iteration reaches known components, so that no
index is left when all are written: components are values in registers. Loops would keep them in
memory. Their reverse would also record the vector again and again, since inner loops of several
lengths have no records of a known length.

Before::

    array @x: f32, 1, ndarray, () [primal]
    serial {
      %0: i32 = constant<0>()
      %1: i32 = constant<1>()
      %2: i32 = constant<2>()
      %3: f32 = load<@x, primal>(%0)
      %4: f32 = load<@x, primal>(%1)
      %5: f32, %6: f32 = for(%0, %2, %3, %4) { (%7: i32, %8: f32, %9: f32):
        %10: f32 = extract(%7, %8, %9)
        %11: f32, %12: f32 = for(%0, %7, %8, %9) { (%13: i32, %14: f32, %15: f32):
          %16: f32, %17: f32 = insert(%13, %10, %14, %15)
          yield(%16, %17)
        }
        yield(%11, %12)
      }
      store<@x, primal>(%5, %0)
    }

After::

    array @x: f32, 1, ndarray, () [primal]
    serial {
      %0: i32 = constant<0>()
      %1: i32 = constant<1>()
      %2: f32 = load<@x, primal>(%1)
      store<@x, primal>(%2, %0)
    }

The other loops of the block over vectors are unrolled with them, else these stayed in memory. All
is left as it is if that took too many operations, or if an index does not become a constant.
"""

from __future__ import annotations

from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Block, Module, Operation, Value, replace_operands
from octants.passes.loops.unrolled_iterations import copy_folded
from octants.simplify import simplify

_MOST_WORK = 1024
"""The most operations that the loops of a block become."""
_VECTORS = (ops.Extract, ops.Insert)


@staged("unroll_triangular_nests")
def unroll_triangular_nests(module: Module) -> None:
    """Unroll in all tasks, in place."""
    changes = [_unroll(task.body) for task in module.tasks if _loops(task.body)]
    if any(changes):
        simplify(module)


def _unroll(body: Block) -> bool:
    """Unroll the nests of a body; returns whether there are any."""
    numbers, replaced = ops.constants_in(body), dict[Value, Value]()

    def visit(block: Block) -> None:
        loops = _loops(block)
        unrolled = _unrolled(block, numbers) if any(map(_is_triangular, loops)) else None
        if unrolled is None:
            for op in loops:
                visit(op.body)
            return
        block.ops, results = unrolled
        replaced.update(results)

    visit(body)
    for op in body.walk() if replaced else ():
        replace_operands(op, lambda value: replaced.get(value, value))
    return bool(replaced)


def _loops(block: Block) -> list[ops.For]:
    """The loops of a block that access vectors."""
    return [
        op
        for op in block.ops
        if isinstance(op, ops.For) and any(isinstance(each, _VECTORS) for each in op.body.walk())
    ]


def _is_triangular(loop: ops.For) -> bool:
    """Whether the bounds of a loop in a loop depend on the counters around it."""
    inside = loop.body.defined()
    known = ops.constants_in(loop.body)
    return any(
        isinstance(op, ops.For) and not inside.difference(known).isdisjoint((op.lower, op.upper))
        for op in loop.body.walk()
    )


class _TooLong(Exception):
    """A nest stays as it is."""


def _unrolled(
    block: Block, numbers: dict[Value, object]
) -> tuple[list[Operation], dict[Value, Value]] | None:
    """The operations of a block without loops over vectors, and the values of their results."""
    writer, results, loops = _Writer(numbers), dict[Value, Value](), set[Operation](_loops(block))
    try:
        for op in block.ops:
            if op in loops:
                assert isinstance(op, ops.For)
                results.update(zip(op.results, writer.iterations(op, results), strict=True))
            else:
                writer.builder.append(op)
    except _TooLong:
        return None
    return writer.builder.block.ops, results


class _Writer:
    """Writes the iterations of nests, as long as they are not too many."""

    def __init__(self, numbers: dict[Value, object]) -> None:
        self.builder = Builder()
        self.builder.constants.update(numbers)
        self._left = _MOST_WORK

    def iterations(self, loop: ops.For, values: dict[Value, Value]) -> list[Value]:
        """Write all iterations of a loop; ``values`` maps values; returns what it carries then."""
        builder = self.builder
        bounds = (builder.constant_of(_at(value, values)) for value in (loop.lower, loop.upper))
        lower, upper = (self._known(bound) for bound in bounds)
        carried = [_at(value, values) for value in loop.inits]
        for number in range(lower, upper):
            counter = builder.constant(number, loop.lower.type)
            own = {**values, **dict(zip(loop.body.args, [counter, *carried], strict=True))}
            before = self._left
            for op in loop.body.ops[:-1]:
                self._write(op, own)
            if self._left == before:  # iterations that only move components take time, too
                self._spend(1)
            carried = [_at(value, own) for value in loop.body.yielded]
        return carried

    def _known(self, bound: object) -> int:
        if not isinstance(bound, int):
            raise _TooLong
        return bound

    def _write(self, op: Operation, values: dict[Value, Value]) -> None:
        builder = self.builder
        operands = [_at(value, values) for value in op.operands]
        builder.location = op.location
        before = len(builder.block.ops)
        if isinstance(op, ops.For):
            found = self.iterations(op, values)
        elif isinstance(op, ops.Extract):
            found = [operands[1 + self._index(op, operands)]]
        elif isinstance(op, ops.Insert):
            found = operands[2:]
            found[self._index(op, operands)] = operands[1]
        elif op.is_scalar or (isinstance(op, ops.Access) and not op.is_tied):
            copy_folded(builder, op, values)
            found = [values[result] for result in op.results]
        else:
            raise _TooLong
        if not isinstance(op, ops.For):
            written = builder.block.ops[before:]
            self._spend(sum(not isinstance(each, ops.Constant) for each in written))
        values.update(zip(op.results, found, strict=True))

    def _spend(self, count: int) -> None:
        """Count operations, as long as there are not too many."""
        self._left -= count
        if self._left < 0:
            raise _TooLong

    def _index(self, op: ops.Extract | ops.Insert, operands: list[Value]) -> int:
        """The index of a component; one out of range is left to the loop."""
        index = self.builder.constant_of(operands[0])
        if not isinstance(index, int) or not 0 <= index < len(op.components):
            raise _TooLong
        return index


def _at(value: Value, values: dict[Value, Value]) -> Value:
    return values.get(value, value)
