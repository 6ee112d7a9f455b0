"""Unswitches small loops that may record: one version that records, one that does not.

Before::

    array @x: f32, 0, field, () [primal]
    record #r: f32
    serial {
      %0: i64 = constant<0>()
      %1: i64 = constant<9>()
      %2: f32 = load<@x, primal>()
      %3: i64 = record_capacity<#r, 1>(%0)
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
    }

After::

    serial {
      %0: i64 = constant<0>()
      %1: i64 = constant<9>()
      %2: f32 = load<@x, primal>()
      %3: i64 = record_capacity<#r, 1>(%0)
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
    }

The condition is loop-invariant, so it is tested once instead of in each iteration, and what is
computed for the record alone is computed only where there is one.
"""

from __future__ import annotations

from octants.ir import ops
from octants.ir.cloning import copy_operation
from octants.ir.core import Block, Module, Operation, Value

_SMALL = 64
"""The most operations in the body of a loop that is duplicated."""


def make_versions(module: Module) -> None:
    """Unswitch the loops of all tasks where that pays, in place."""
    for task in module.tasks:
        _visit(task.body)


def _visit(block: Block) -> None:
    for position, op in enumerate(block.ops):
        for region in op.regions:
            _visit(region)
        if isinstance(op, ops.For):
            branch = _recording_branch(op)
            if branch is not None:
                block.ops[position] = _versions(op, branch)


def _recording_branch(loop: ops.For) -> ops.If | None:
    """The loop-invariant if of a loop that decides whether it records; None if there is none."""
    found = [op for op in loop.body.ops if isinstance(op, ops.If) and _decides(op)]
    inside = list(loop.body.walk()) if found else []
    if len(inside) > _SMALL or any(isinstance(op, ops.Loop) for op in inside):
        return None
    own = loop.body.defined() if found else ()
    return next((op for op in found if op.condition not in own), None)


def _decides(op: ops.If) -> bool:
    """Whether an if only decides whether something is recorded."""
    records = isinstance(op.then.ops[0], ops.RecordPush)
    return records and not op.results and len(op.orelse.ops) == 1


def _versions(loop: ops.For, branch: ops.If) -> ops.If:
    """The loop that records if the condition holds, and the loop that does not."""
    position = loop.body.ops.index(branch)
    loop.body.ops[position : position + 1] = []
    plain = copy_operation(loop, {})
    loop.body.ops[position:position] = branch.then.ops[:-1]
    results = loop.results
    loop.results = [Value(value.type, value.name) for value in results]
    branches = _yielding(loop), _yielding(plain)
    return ops.If(branch.condition, *branches, results=results, location=loop.location)


def _yielding(op: Operation) -> Block:
    return Block([], [op, ops.Yield(list(op.results))])
