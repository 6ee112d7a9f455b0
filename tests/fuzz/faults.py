"""Faults of the kinds that reverse-mode compilers have had, put into ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from octants.ad.overwrites.needed_contents import Content
from octants.ad.overwrites.overwrite_ledger import OverwriteLedger
from octants.ad.overwrites.repeated_reversals import Reversals
from octants.analysis.memory.access_aliasing import ElementAliasing
from octants.autodiff.emit import backward_sweep
from octants.autodiff.emit.backward_sweep import Backward, LoopIterations
from octants.autodiff.emit.loop_recording import Checkpoints
from octants.autodiff.emit.primal_operations import PrimalMemory
from octants.interpreter import HANDLERS, Interpreter
from octants.ir import ops
from octants.ir.core import Block, Companion, Value
from octants.launch.gradients.operand_changes import OperandCheck
from octants.types.scalars import i64, u1

Fault = Callable[[pytest.MonkeyPatch], None]


def reset_accumulators(patch: pytest.MonkeyPatch) -> None:
    """The adjoint of a value captured by a loop starts from zero in each iteration."""

    def reverse_loop(self: Backward, op: Any) -> None:
        captured = self.facts.captures(op.body)
        original(self, op)
        loop = next(o for o in reversed(self.builder.block.ops) if isinstance(o, ops.For))
        for argument in loop.body.args[len(loop.body.args) - len(captured) :]:
            zero = self.builder.constant(0.0, argument.type)
            _replace(loop.body, argument, zero)

    original = Backward._reverse_loop
    _patch_loops(patch, reverse_loop)


def keep_captured_adjoints_inside(patch: pytest.MonkeyPatch) -> None:
    """What a loop adds to the adjoint of a captured value is lost after it."""

    def reverse_loop(self: Backward, op: Any) -> None:
        before = self.adjoints.snapshot(self.facts.captures(op.body))
        original(self, op)
        self.adjoints.restore(before)

    original = Backward._reverse_loop
    _patch_loops(patch, reverse_loop)


def forget_to_zero(patch: pytest.MonkeyPatch) -> None:
    """A store takes the adjoint of its destination, but leaves it there."""

    def reverse_store(self: Backward, op: ops.Store) -> None:
        original(self, op)
        ops_here = self.builder.block.ops
        ops_here.remove(next(o for o in reversed(ops_here) if isinstance(o, ops.Store)))

    original = Backward._reverse_store
    patch.setitem(backward_sweep._REVERSE, ops.Store, reverse_store)


def swap_record_slots(patch: pytest.MonkeyPatch) -> None:
    """Two carried values of one type are read back from each other's slots."""

    def pop_record(self: LoopIterations, *given: Any) -> None:
        original(self, *given)
        ops_here = self._backward.builder.block.ops
        pop = next(o for o in reversed(ops_here) if isinstance(o, ops.RecordPop))
        for k, first in enumerate(pop.results):
            for j in range(k + 1, len(pop.results)):
                if pop.results[j].type is first.type and first.type.is_float:
                    pop.results[k], pop.results[j] = pop.results[j], pop.results[k]
                    return

    original = LoopIterations._pop_record
    patch.setattr(LoopIterations, "_pop_record", pop_record)


def read_the_next_record(patch: pytest.MonkeyPatch) -> None:
    """The carried values of an iteration are those of the last one."""

    def pop_record(self: LoopIterations, number: Value, iteration: Value, *given: Any) -> None:
        builder, values = self._backward.builder, self._backward.values
        last = builder.binary("sub", values[self._op, "count"], builder.constant(1, i64))
        original(self, last, iteration, *given)

    original = LoopIterations._pop_record
    patch.setattr(LoopIterations, "_pop_record", pop_record)


def stale_branches(patch: pytest.MonkeyPatch) -> None:
    """In a loop, the adjoint takes the same side of an if whatever the iteration took."""

    def reverse_if(self: Backward, op: ops.If) -> None:
        condition = self.values[op.condition]
        if self.depth:  # type: ignore[attr-defined]
            self.values[op.condition] = self.builder.constant(True, u1)
        original(self, op)
        self.values[op.condition] = condition

    original = Backward._reverse_if
    patch.setitem(backward_sweep._REVERSE, ops.If, reverse_if)
    _count_depth(patch)


def one_lane_for_all(patch: pytest.MonkeyPatch) -> None:
    """Values that the reverse run reads again are those of the first work item."""

    def read(self: PrimalMemory, op: Any, kind: str) -> Value:
        result = original(self, op, kind)
        load: Any = self._builder.block.ops[-1]
        zeros = {self._values[item]: item.type for item in self._facts.body.args}
        load.indices = [
            self._builder.constant(0, zeros[index]) if index in zeros else index
            for index in load.indices
        ]
        return result

    original = PrimalMemory.read
    patch.setattr(PrimalMemory, "read", read)


def overwrite_adjoints_of_loads(patch: pytest.MonkeyPatch) -> None:
    """The adjoint of a load replaces that of the array's element instead of being added."""

    def reverse_load(self: Backward, op: ops.Load) -> None:
        before = len(self.builder.block.ops)
        original(self, op)
        for k, new in enumerate(self.builder.block.ops[before:], before):
            if isinstance(new, ops.Atomic):
                store = ops.Store(new.array, Companion.ADJOINT, new.value, new.indices)
                self.builder.block.ops[k] = store

    original = Backward._reverse_load
    patch.setitem(backward_sweep._REVERSE, ops.Load, reverse_load)


def one_iteration_less(patch: pytest.MonkeyPatch) -> None:
    """The first iteration of a while loop is not reversed, or its first block."""

    def reverse_loop(self: Backward, op: Any) -> None:
        original(self, op)
        if isinstance(op, ops.While):
            loop = next(o for o in reversed(self.builder.block.ops) if isinstance(o, ops.For))
            one = self.builder.constant(1, i64)
            less = ops.Binary("sub", loop.upper, one, results=[Value(i64)])
            self.builder.block.ops.insert(self.builder.block.ops.index(loop), less)
            loop.upper = less.result

    original = Backward._reverse_loop
    _patch_loops(patch, reverse_loop)


def untaken_selects(patch: pytest.MonkeyPatch) -> None:
    """The first side of a select gets the adjoint even if the second was taken."""
    from octants.autodiff import derivative_rules

    _, _, second = derivative_rules._SELECT
    patch.setattr(derivative_rules, "_SELECT", (None, derivative_rules._through, second))


def _patch_loops(patch: pytest.MonkeyPatch, new: Callable[[Backward, Any], None]) -> None:
    patch.setitem(backward_sweep._REVERSE, ops.For, new)
    patch.setitem(backward_sweep._REVERSE, ops.While, new)


def _count_depth(patch: pytest.MonkeyPatch) -> None:
    def reverse_loop(self: Backward, op: Any) -> None:
        self.depth += 1  # type: ignore[attr-defined]
        original(self, op)
        self.depth -= 1  # type: ignore[attr-defined]

    original = Backward._reverse_loop
    patch.setattr(Backward, "depth", 0, raising=False)
    _patch_loops(patch, reverse_loop)


def _replace(block: Block, old: Value, new: Value) -> None:
    for op in block.walk():
        for name in op.OPERANDS:
            if getattr(op, name) is old:
                setattr(op, name, new)
        if op.VARIADIC is not None:
            values: list[Value] = getattr(op, op.VARIADIC)
            setattr(op, op.VARIADIC, [new if value is old else value for value in values])


def skip_checkpoints(patch: pytest.MonkeyPatch) -> None:
    """A block is run again from what the loop started with, whichever block it is."""

    def carried_into(self: Checkpoints, _: Value) -> list[Value]:
        return self._emitter.values.mapped(self._op.inits)

    patch.setattr(Checkpoints, "_carried_into", carried_into)


def skip_a_snapshot(patch: pytest.MonkeyPatch) -> None:
    """What a launch overwrites is not copied before."""
    patch.setattr(OverwriteLedger, "_save", lambda *_: ())


def restore_in_the_wrong_order(patch: pytest.MonkeyPatch) -> None:
    """Contents are put back in the order in which they were saved, and not in the reverse one."""

    def save(self: OverwriteLedger, content: Content, *how: Any) -> Any:
        saved.setdefault((id(self), content.memory.key), []).append(content)
        return original_save(self, content, *how)

    def put(self: OverwriteLedger, content: Content, **how: Any) -> None:
        order = saved.get((id(self), content.memory.key), [])
        same = [one for one in order if one.region == content.region]
        if content in same:
            content = same[-1 - same.index(content)]
        original_put(self, content, **how)

    saved: dict[Any, list[Content]] = {}
    original_save, original_put = OverwriteLedger._save, OverwriteLedger._put
    patch.setattr(OverwriteLedger, "_save", save)
    patch.setattr(OverwriteLedger, "_put", put)


def replay_with_other_numbers(patch: pytest.MonkeyPatch) -> None:
    """A tape is reversed like an earlier one whose launches had other numbers as arguments."""

    def numbers(self: Reversals, launches: Any) -> Any:
        return None if original(self, launches) is None else ()

    original = Reversals.numbers
    patch.setattr(Reversals, "numbers", numbers)


def let_work_items_overtake(patch: pytest.MonkeyPatch) -> None:
    """No fault: on the interpreter, no work item sees what another one stores plainly to adjoints.

    So an update that is not atomic loses all others, as it may among threads.
    """

    def item(self: Interpreter, body: Block, environment: dict[Value, Any]) -> None:
        if state["task"] != (self, body):
            written.clear()
        state["task"], state["item"] = (self, body), state["item"] + 1
        original_item(self, body, environment)

    def store(self: Interpreter, op: ops.Store, env: dict[Value, Any]) -> None:
        key, data, position = place(self, op, env)
        before = written[key][1] if key in written else data[position].item()
        if op.companion is Companion.ADJOINT:
            written[key] = state["item"], before
        original_store(self, op, env)

    def load(self: Interpreter, op: ops.Load, env: dict[Value, Any]) -> None:
        original_load(self, op, env)
        key, _, _ = place(self, op, env)
        writer, before = written.get(key, (state["item"], None))
        if writer != state["item"]:
            env[op.result] = before

    def place(self: Interpreter, op: Any, env: dict[Value, Any]) -> tuple[Any, Any, Any]:
        position, ref = tuple(env[index] for index in op.indices), op.ref.whole
        return (ref, position), self.storage[ref], position

    state: dict[str, Any] = {"task": None, "item": 0}
    written: dict[Any, tuple[int, Any]] = {}
    original_item = Interpreter.item
    original_store, original_load = HANDLERS[ops.Store], HANDLERS[ops.Load]
    patch.setattr(Interpreter, "item", item)
    patch.setitem(HANDLERS, ops.Store, store)
    patch.setitem(HANDLERS, ops.Load, load)


def plain_adds_where_addresses_collide(patch: pytest.MonkeyPatch) -> None:
    """Updates are taken for those of one work item alone, whatever they touch."""
    let_work_items_overtake(patch)
    patch.setattr(ElementAliasing, "is_owned", lambda self, accesses: True)


INTERPRETED = (plain_adds_where_addresses_collide,)
"""Faults that show on the interpreter, where the order of memory accesses is ours to choose."""


def see_no_late_writes(patch: pytest.MonkeyPatch) -> None:
    """A bare gradient reads operands that the host has written since the launch."""
    patch.setattr(OperandCheck, "check", lambda *_: None)


FAULTS: tuple[Fault, ...] = (
    reset_accumulators,
    keep_captured_adjoints_inside,
    forget_to_zero,
    swap_record_slots,
    read_the_next_record,
    stale_branches,
    one_lane_for_all,
    overwrite_adjoints_of_loads,
    one_iteration_less,
    untaken_selects,
    skip_checkpoints,
    skip_a_snapshot,
    restore_in_the_wrong_order,
    replay_with_other_numbers,
    see_no_late_writes,
)
