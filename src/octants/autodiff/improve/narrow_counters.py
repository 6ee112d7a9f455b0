"""Lets loops count in i32 if nothing needs their counters in i64.

Before::

    array @x: f32, 1, field, () [primal]
    array @y: f32, 1, field, () [primal]
    array @n: i32, 0, field, () [primal]
    serial {
      %0: i64 = constant<0>()
      %1: i32 = load<@n, primal>()
      %2: i64 = cast(%1)
      for(%0, %2) { (%3: i64):
        %4: i32 = cast(%3)
        %5: f32 = load<@x, primal>(%4)
        store<@y, primal>(%5, %4)
        yield()
      }
    }

After::

    serial {
      %0: i32 = constant<0>()
      %1: i32 = load<@n, primal>()
      for(%0, %1) { (%2: i32):
        %3: f32 = load<@x, primal>(%2)
        store<@y, primal>(%3, %2)
        yield()
      }
    }

Reversed loops count iterations in i64, since there may be more of them than an i32 can hold. GPUs
compute with those in two halves.
"""

from __future__ import annotations

from octants.ir import ops
from octants.ir.core import Module, Operation, Task, Value, replace_operands
from octants.simplify.dead_code import prune
from octants.types.scalars import i32, i64


def narrow_counters(module: Module) -> None:
    """Narrow the counters of the loops of all tasks that start at 0, in place."""
    changes = [_Narrower(task).narrow() for task in module.tasks]
    if any(changes):
        prune(module)


class _Narrower:
    """Rewrites a task; `replaced` maps casts of counters to narrow counters."""

    def __init__(self, task: Task) -> None:
        self._body = task.body
        self._makers: dict[Value, Operation] = {}
        self._users: dict[Value, list[Operation]] = {}
        self._constants: dict[int, Value] = {}
        self._replaced: dict[Value, Value] = {}
        self._has_changed = False
        for op in task.body.walk():
            if isinstance(op, (ops.Constant, ops.Cast)):
                self._makers[op.result] = op
            for value in op.operands:
                self._users.setdefault(value, []).append(op)

    def narrow(self) -> bool:
        """Rewrite the task; gives whether anything has changed."""
        for op in self._body.walk():
            if isinstance(op, ops.For) and op.lower.type is i64 and self._is_zero(op.lower):
                self._narrow_loop(op)
        if self._replaced:
            for op in self._body.walk():
                replace_operands(op, lambda value: self._replaced.get(value, value))
        self._body.ops[:0] = [
            ops.Constant(number, results=[value]) for number, value in self._constants.items()
        ]
        return self._has_changed

    def _narrow_loop(self, loop: ops.For) -> None:
        wide, narrow = loop.body.args[0], Value(i32, loop.body.args[0].name)
        casts = self._users.get(wide, ())
        upper = self._as_i32(loop.upper) if all(map(_is_to_i32, casts)) else None
        if upper is None:
            return
        loop.lower, loop.upper, loop.body.args[0] = self._constant(0), upper, narrow
        self._replaced.update((op.results[0], narrow) for op in casts)
        self._has_changed = True

    def _is_zero(self, value: Value) -> bool:
        op = self._makers.get(value)
        return isinstance(op, ops.Constant) and op.value == 0

    def _as_i32(self, bound: Value) -> Value | None:
        """The bound as an i32; None if it may be none."""
        op = self._makers.get(bound)
        if isinstance(op, ops.Cast) and op.x.type is i32:
            return op.x
        if isinstance(op, ops.Constant) and op.value < 1 << 31:
            return self._constant(max(0, op.value))
        return None

    def _constant(self, number: int) -> Value:
        return self._constants.setdefault(number, Value(i32))


def _is_to_i32(op: Operation) -> bool:
    return isinstance(op, ops.Cast) and op.result.type is i32
