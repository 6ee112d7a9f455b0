"""Removes what no effect depends on: operations, carried values, results of ifs, record slots.

Before::

    array @x: f32, 0, field, () [primal]
    serial {
      %0: i32 = constant<0>()
      %1: i32 = constant<9>()
      %2: f32 = constant<1.0>()
      %3: f32, %4: f32 = for(%0, %1, %2, %2) { (%5: i32, %6: f32, %7: f32):
        %8: f32 = binary<add>(%6, %6)
        %9: f32 = binary<mul>(%7, %7)
        yield(%8, %9)
      }
      store<@x, primal>(%4)
    }

After::

    serial {
      %0: i32 = constant<0>()
      %1: i32 = constant<9>()
      %2: f32 = constant<1.0>()
      %3: f32 = for(%0, %1, %2) { (%4: i32, %5: f32):
        %6: f32 = binary<mul>(%5, %5)
        yield(%6)
      }
      store<@x, primal>(%3)
    }

Marks from the effects backwards, through loops and record buffers: a carried value lives if its
argument or its result is read; a slot of a record lives if what is popped from it is read; of a
record that has slots that do, the checks and the reservations for it live, and the count with which
it ends. Then sweeps. Loops without effects are taken to end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.core import BYTES, Block, Module, Operation, Record, Value


@staged("prune")
def prune(module: Module) -> None:
    """Remove dead code in every task, in place, and tasks that do nothing."""
    module.tasks[:] = [task for task in module.tasks if prune_block(task.body, task.domain)]
    if module.body is not None:
        prune_block(module.body)


def prune_block(block: Block, domain: Block | None = None) -> bool:
    """Remove dead code in a block (and the domain of its task); whether any effect is left."""
    if domain is not None:
        _Pruner(domain).run()
    return _Pruner(block).run()


class _Pruner:
    def __init__(self, block: Block) -> None:
        self.block = block
        self.live_ops: set[Operation] = set()
        self.live_values: set[Value] = set()
        self.definition: dict[Value, tuple[Operation, int]] = {}
        self.parent: dict[Operation, Operation] = {}
        self.pushes: dict[Record, list[ops.RecordPush]] = {}
        self.checks: dict[Record, list[Operation]] = {}
        self.ends: dict[Record, list[ops.RecordEnd]] = {}
        self.live_slots: dict[Record, set[int]] = {}
        self.work: list[Value | Operation] = []

    def run(self) -> bool:
        self._index(self.block, None)
        has_effects = bool(self.work)
        for value in self.block.yielded:
            self.work.append(value)
        while self.work:
            item = self.work.pop()
            if isinstance(item, Value):
                self._mark_value(item)
            else:
                self._mark_operation(item)
        self._sweep(self.block)
        for record, slots in self.live_slots.items():
            record.slots[:] = [record.slots[k] for k in sorted(slots)]
        return has_effects

    def _index(self, block: Block, parent: Operation | None) -> None:
        """Note where each value is defined and queue the operations that have effects."""
        for op in block.ops:
            if parent is not None:
                self.parent[op] = parent
            for k, value in enumerate(op.results):
                self.definition[value] = op, k
            if op.is_scalar:
                continue
            if op.has_effects:
                self.work.append(op)
            elif isinstance(op, ops.RecordPush):
                self.pushes.setdefault(op.record, []).append(op)
                self.live_slots.setdefault(op.record, set())
            elif isinstance(op, (ops.RecordCheck, ops.RecordReserve)):
                self.checks.setdefault(op.record, []).append(op)
            elif isinstance(op, ops.RecordEnd):
                self.ends.setdefault(op.record, []).append(op)
                used = {0} if op.record.name == BYTES else set()
                self.live_slots.setdefault(op.record, used)
            for region in op.regions:
                first = 1 if isinstance(op, (ops.For, ops.ParallelFor)) else 0
                for k, arg in enumerate(region.args):
                    self.definition[arg] = op, k - first
                self._index(region, op)

    # -- marking -----------------------------------------------------------------------------------

    def _mark_operation(self, op: Operation) -> None:
        """Keep an operation, and queue what it needs."""
        if op in self.live_ops:
            return
        self.live_ops.add(op)
        parent = self.parent.get(op)
        if parent is not None and parent not in self.live_ops:
            self.work.append(parent)
        if op.is_scalar:
            self.work += op.operands
        elif isinstance(op, ops.While):
            self.work.extend(op.condition.yielded)
        elif isinstance(op, (ops.For, ops.If, ops.RecordPush)):
            self.work.extend(getattr(op, name) for name in op.OPERANDS)
        elif isinstance(op, ops.RecordEnd):
            self.work.extend(op.operands if self.live_slots.get(op.record) else [op.base])
        else:
            self.work.extend(op.operands)

    def _mark_value(self, value: Value) -> None:
        """Keep a value, and queue what defines it: only the carried values and slots in use."""
        if value in self.live_values:
            return
        self.live_values.add(value)
        entry = self.definition.get(value)
        if entry is None:
            return  # an argument of the outermost block
        op, k = entry
        self._mark_operation(op)
        if k < 0 or op.is_scalar:
            return  # the counter of a loop, or an operation that needs all its operands
        if isinstance(op, ops.If):
            self.work += [op.then.yielded[k], op.orelse.yielded[k]]
        elif isinstance(op, ops.Loop):
            self._mark_carried(op, k)
        elif isinstance(op, ops.RecordPop):
            self._mark_slot(op.record, k)

    def _mark_carried(self, op: ops.Loop, k: int) -> None:
        self.work += [op.results[k], op.inits[k], op.body.yielded[k], op.carried[k]]
        if isinstance(op, ops.While):
            self.work.append(op.condition.args[k])

    def _mark_slot(self, record: Record, k: int) -> None:
        if k in self.live_slots.setdefault(record, set()):
            return
        self.live_slots[record].add(k)
        self.work += self.checks.get(record, ())
        self.work += [end.count for end in self.ends.get(record, ()) if end in self.live_ops]
        for push in self.pushes.get(record, ()):
            self.work += [push, push.values[k]]

    # -- sweeping ----------------------------------------------------------------------------------

    def _sweep(self, block: Block) -> None:
        block.ops[:] = [op for op in block.ops if op in self.live_ops or isinstance(op, ops.Yield)]
        for op in block.ops:
            thin = _THIN.get(type(op))
            if thin is not None:
                thin(self, op)
            if op.REGIONS:
                for region in op.regions:
                    self._sweep(region)

    def _keep(self, values: list[Value]) -> list[int]:
        return [k for k, value in enumerate(values) if value in self.live_values]

    def _thin_if(self, op: ops.If) -> None:
        keep = self._keep(op.results)
        op.results = _pick(op.results, keep)
        for block in (op.then, op.orelse):
            _thin_yield(block, keep)

    def _thin_for(self, op: ops.For) -> None:
        keep = self._keep(op.results)
        op.results, op.inits = _pick(op.results, keep), _pick(op.inits, keep)
        op.body.args = [op.body.args[0], *_pick(op.body.args[1:], keep)]
        _thin_yield(op.body, keep)

    def _thin_while(self, op: ops.While) -> None:
        keep = self._keep(op.results)
        op.results, op.inits = _pick(op.results, keep), _pick(op.inits, keep)
        op.condition.args = _pick(op.condition.args, keep)
        op.body.args = _pick(op.body.args, keep)
        _thin_yield(op.body, keep)

    def _thin_push(self, op: ops.RecordPush) -> None:
        op.values = _pick(op.values, sorted(self.live_slots[op.record]))

    def _thin_end(self, op: ops.RecordEnd) -> None:
        if not self.live_slots.get(op.record):
            op.count = op.base  # it ends where it begins

    def _thin_pop(self, op: ops.RecordPop) -> None:
        op.results = _pick(op.results, sorted(self.live_slots[op.record]))


def _pick(values: list[Value], keep: list[int]) -> list[Value]:
    return [values[k] for k in keep]


def _thin_yield(block: Block, keep: list[int]) -> None:
    terminator: Any = block.ops[-1]
    terminator.values = _pick(terminator.values, keep)


_THIN: dict[type[Operation], Callable[[_Pruner, Any], None]] = {
    ops.If: _Pruner._thin_if,
    ops.For: _Pruner._thin_for,
    ops.While: _Pruner._thin_while,
    ops.RecordPush: _Pruner._thin_push,
    ops.RecordPop: _Pruner._thin_pop,
    ops.RecordEnd: _Pruner._thin_end,
}
