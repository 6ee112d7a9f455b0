"""Makes an atomic update a load, operations and a store where no other work item interferes.

Before::

    array @x: f32, 1, ndarray, () [primal, adjoint]
    array @y: f32, 1, ndarray, () [primal, adjoint]
    parallel (%2: i32 < shape<@x, 0>()) {
      %3: i32 = constant<1>()
      %4: i32 = binary<add>(%2, %3)
      %5: f32 = load<@y, primal>(%2)
      %6: f32 = atomic<add, @x, adjoint>(%5, %2)
      %7: f32 = atomic<add, @y, adjoint>(%5, %2)
      %8: f32 = atomic<add, @y, adjoint>(%5, %4)
    }

After::

    parallel (%2: i32 < shape<@x, 0>()) {
      %3: i32 = constant<1>()
      %4: i32 = binary<add>(%2, %3)
      %5: f32 = load<@y, primal>(%2)
      %6: f32 = load<@x, adjoint>(%2)
      %7: f32 = binary<add>(%6, %5)
      store<@x, adjoint>(%7, %2)
      %8: f32 = atomic<add, @y, adjoint>(%5, %2)
      %9: f32 = atomic<add, @y, adjoint>(%5, %4)
    }

That is so in serial tasks, and where all writes of a task to an array go to elements that follow
from the index of the work item in one way: here those of `x`, but not of `y`, where an element is
the second of one work item and the first of the next.

A loop that exchanges an element until no other work item has changed it meanwhile runs once. So
are numbers of quantised fields stored, several of which share a word.

Before::

    array @x: u32, 1, field, () [primal]
    parallel (%2: i32 < constant<8>()) {
      %3: u32 = load<@x, primal>(%2)
      %4: u1 = constant<False>()
      %5: u32 = constant<127>()
      %6: u32, %7: u1 = while(%3, %4) { (%8: u32, %9: u1):
        %10: u1 = unary<not>(%9)
        yield(%10)
      } { (%11: u32, %12: u1):
        %13: u32 = binary<or>(%11, %5)
        %14: u32 = compare_exchange<@x, primal>(%11, %13, %2)
        %15: u1 = compare<eq>(%14, %11)
        yield(%14, %15)
      }
    }

After::

    parallel (%2: i32 < constant<8>()) {
      %3: u32 = load<@x, primal>(%2)
      %4: u32 = constant<127>()
      %5: u32 = binary<or>(%3, %4)
      store<@x, primal>(%5, %2)
    }

Ownership is that of words: of a `quant_array` along the loop, whose words hold elements of several
work items, no word is owned.
"""

from __future__ import annotations

from typing import Any

from octants.analysis.memory.access_aliasing import ElementAliasing
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.array_aliasing import may_alias_another
from octants.ir.builder import Builder
from octants.ir.cloning import copy_operation
from octants.ir.core import ArrayRef, Block, Module, Operation, Task, Value
from octants.ir.rewriting import rewrite
from octants.lazy_dataclass import dataclass
from octants.simplify import simplify
from octants.types.scalars import u1


@staged("demote_atomics")
def demote_atomics(module: Module, noalias: bool = True) -> None:
    """Replace atomics at locations that one work item owns by loads and stores, in place.

    Args:
        module: what is rewritten.
        noalias: no two arrays share memory.
    """
    with_loops: list[Task] = []
    for task in module.tasks:
        owned = owned_targets(task, noalias)
        if owned and _rewrite(task.body, owned, ops.constants_in(task.body)):
            with_loops.append(task)
    if with_loops:  # updates of one word, one after the other, need one load
        simplify(Module(module.name, module.arrays, tasks=with_loops, noalias=noalias))


def owned_targets(task: Task, noalias: bool) -> set[ArrayRef]:
    """The targets of updates that no two work items write at one location."""
    writes: dict[ArrayRef, list[ops.Write]] = {}
    for op in task.body.walk():
        if isinstance(op, ops.Write):
            writes.setdefault(op.ref, []).append(op)
    updated = {target for target, own in writes.items() if any(map(_is_update, own))}
    if not task.is_parallel or not updated:
        return updated
    aliasing = ElementAliasing(task)
    return {
        target
        for target in updated
        if not may_alias_another(target, writes, noalias) and aliasing.is_owned(writes[target])
    }


def _is_update(op: Operation) -> bool:
    is_atomic = isinstance(op, ops.Atomic) and op.array.dtype is not u1
    return is_atomic or isinstance(op, ops.CompareExchange)


def _rewrite(body: Block, owned: set[ArrayRef], constants: dict[Value, Any]) -> bool:
    """Rewrite the updates in a body, in place; return whether loops were among them."""
    loops = []

    def demote(builder: Builder, op: Operation) -> bool:
        exchange = _ExchangeLoop.of(op, constants) if isinstance(op, ops.While) else None
        if exchange is not None and exchange.update.ref in owned:
            builder.block.ops += exchange.once()
            loops.append(op)
            return True
        if isinstance(op, ops.Atomic) and _is_update(op) and op.ref in owned:
            builder.block.ops += _plain(op)
            return True
        return False

    rewrite(body, demote)
    return bool(loops)


def _plain(op: ops.Atomic) -> list[Operation]:
    """Return an update as a load, an operation and a store; its result is the load's."""
    target, indices = op.ref, op.indices
    load = ops.Load(*target, indices, results=op.results, location=op.location)
    if op.fn == "exchange":
        return [load, ops.Store(*target, op.value, indices, location=op.location)]
    new = Value(op.array.dtype)
    update = ops.Binary(op.fn, load.result, op.value, results=[new], location=op.location)
    return [load, update, ops.Store(*target, new, indices, location=op.location)]


@dataclass(frozen=True, slots=True)
class _ExchangeLoop:
    """A loop that does nothing but exchange an element until it held what was expected.

    Attributes:
        loop: the loop.
        update: the exchange, whose expected value, the carried value `held`, is what it found last.
        held: the position of that among the carried values.
        is_done: the position of the only other one: whether the exchange succeeded.
    """

    loop: ops.While
    update: ops.CompareExchange
    held: int
    is_done: int

    @classmethod
    def of(cls, loop: ops.While, constants: dict[Value, Any]) -> _ExchangeLoop | None:
        """The loop as one that exchanges; None if it is another one."""
        work = loop.body.ops[:-1]
        updates = [op for op in work if isinstance(op, ops.CompareExchange)]
        args, ends = loop.body.args, loop.body.yielded
        if len(updates) != 1 or len(args) != 2 or updates[0].expected not in args:
            return None
        (update,), held = updates, args.index(updates[0].expected)
        found = cls(loop, update, held, 1 - held)
        is_fixed = loop.body.defined().isdisjoint(update.indices)
        is_pure = all(op is update or op.is_scalar for op in work)
        if not (is_fixed and is_pure and update.array.dtype.is_integer):
            return None
        is_kept = ends[held] is update.result and _compares(work, ends[1 - held], update)
        runs = constants.get(loop.inits[1 - held]) is False
        return found if is_kept and runs and _runs_until(loop, 1 - held) else None

    def once(self) -> list[Operation]:
        """The operations of one iteration, with a load and a store in place of the exchange."""
        update, args, results = self.update, self.loop.body.args, self.loop.results
        old = results[self.held]
        values = {args[self.held]: old, update.result: old}
        values[args[self.is_done]] = self.loop.inits[self.is_done]
        done: list[Operation] = [
            ops.Load(*update.ref, update.indices, results=[old], location=update.location),
            ops.Constant(True, results=[results[self.is_done]]),
        ]
        for op in self.loop.body.ops[:-1]:
            if op is update:
                new = values.get(update.value, update.value)
                done.append(ops.Store(*update.ref, new, update.indices, location=update.location))
            else:
                done.append(copy_operation(op, values))
        return done


def _compares(work: list[Operation], value: Value, update: ops.CompareExchange) -> bool:
    """Whether a value is whether an exchange found what it expected."""
    compare = next((op for op in work if value in op.results), None)
    if not isinstance(compare, ops.Compare) or compare.fn != "eq":
        return False
    return {compare.lhs, compare.rhs} == {update.result, update.expected}


def _runs_until(loop: ops.While, is_done: int) -> bool:
    """Whether a loop runs until a carried value, which is false at first, is true."""
    first, *rest = loop.condition.ops
    arg = loop.condition.args[is_done]
    goes_on = isinstance(first, ops.Unary) and first.fn == "not" and first.x is arg
    return goes_on and len(rest) == 1 and loop.condition.yielded == first.results
