"""Small loops that may leave records have a version that does, and one that does not.

Before::

    kernel @k
    array @x: f32, 0, field, () [primal]
    record #r: f32
    serial @k_0 {
      %0: i64 = constant<0>()
      %1: i64 = constant<9>()
      %2: f32 = load<@x, primal>()
      %3: i64 = record_room<#r, 1>(%0)
      %4: u1 = compare<le>(%1, %3)
      %5: f32 = for(%0, %1, %2) { (%6: i64, %7: f32):
        if(%4) {
          record_push<#r>(%0, %6, %7)
          yield()
        } {
          yield()
        }
        %8: f32 = unary<sin>(%7)
        yield(%8)
      }
      store<@x, primal>(%5)
      yield()
    }

After::

    kernel @k
    array @x: f32, 0, field, () [primal]
    record #r: f32
    serial @k_0 {
      %0: i64 = constant<0>()
      %1: i64 = constant<9>()
      %2: f32 = load<@x, primal>()
      %3: i64 = record_room<#r, 1>(%0)
      %4: u1 = compare<le>(%1, %3)
      %5: f32 = if(%4) {
        %6: f32 = for(%0, %1, %2) { (%7: i64, %8: f32):
          record_push<#r>(%0, %7, %8)
          %9: f32 = unary<sin>(%8)
          yield(%9)
        }
        yield(%6)
      } {
        %10: f32 = for(%0, %1, %2) { (%11: i64, %12: f32):
          %13: f32 = unary<sin>(%12)
          yield(%13)
        }
        yield(%10)
      }
      store<@x, primal>(%5)
      yield()
    }

What is asked once need not be asked in each turn, and what is computed for the record alone is
computed only where there is one.
"""

from __future__ import annotations

from octants.ir import ops
from octants.ir.core import Block, Module, Operation, Value
from octants.ir.rewriter import copy_operation

_SMALL = 64
"""Operations of a loop's body: a larger one is not there twice."""


def make_versions(module: Module) -> None:
    """Give the loops of all tasks two versions where that pays, in place."""
    for task in module.tasks:
        _visit(task.body)


def _visit(block: Block) -> None:
    for position, op in enumerate(block.ops):
        for region in op.regions:
            _visit(region)
        asking = _asking(op) if isinstance(op, ops.For) else None
        if asking is not None:
            assert isinstance(op, ops.For)
            block.ops[position] = _versions(op, asking)


def _asking(loop: ops.For) -> ops.If | None:
    """The branch of a loop that records, or not, for all turns alike."""
    inside = list(loop.body.walk())
    if len(inside) > _SMALL or any(isinstance(op, ops.Loop) for op in inside):
        return None
    own = {value for op in inside for value in op.results}.union(loop.body.args)
    for op in loop.body.ops:
        if not isinstance(op, ops.If) or op.results or op.condition in own:
            continue
        if len(op.orelse.ops) == 1 and isinstance(op.then.ops[0], ops.RecordPush):
            return op
    return None


def _versions(loop: ops.For, asking: ops.If) -> ops.If:
    """A loop that records if a condition holds, and the same without that."""
    position = loop.body.ops.index(asking)
    loop.body.ops[position : position + 1] = []
    plain = copy_operation(loop, {})
    loop.body.ops[position:position] = asking.then.ops[:-1]
    results = loop.results
    loop.results = [Value(value.type, value.name) for value in results]
    sides = _yielding(loop), _yielding(plain)
    return ops.If(asking.condition, *sides, results=results, location=loop.location)


def _yielding(op: Operation) -> Block:
    return Block([], [op, ops.Yield(list(op.results))])
