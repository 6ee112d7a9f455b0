"""Emits the reverse of one task, as a plan says: a sweep forward, then one backward."""

from __future__ import annotations

from octants.autodiff.backward import Backward
from octants.autodiff.plan import Plan
from octants.autodiff.primal_memory import Flag
from octants.autodiff.records import Stack
from octants.autodiff.replay import Replay
from octants.autodiff.sweep import Sweep
from octants.autodiff.task_builder import EntryBuilder
from octants.autodiff.task_facts import Facts
from octants.ir.core import Array, Block, Operation, Record, Value
from octants.lazy_dataclass import dataclass
from octants.target import Capabilities
from octants.types.scalars import i64


@dataclass(frozen=True, slots=True)
class Emitted:
    """The body of a reversed task, and what was made for it.

    `records` are those of its loops; `copies` the loops in what records those around them, by the
    primal loop; `slopes` the operations that make derivatives.
    """

    body: Block
    records: dict[Operation, Record]
    copies: dict[Operation, list[Operation]]
    slopes: set[Operation]


def emit(
    facts: Facts,
    plan: Plan,
    arrays: dict[Array, Array],
    flag: Flag,
    overwritten: frozenset[Array],
    machine: Capabilities,
) -> Emitted:
    """The reverse of a task over ``arrays``, which stand for the primal ones.

    ``flag`` is told of its reads. A task with a log stores again what it has ``overwritten``.
    """
    primal = facts.body
    body = Block([Value(arg.type, arg.name) for arg in primal.args])
    builder = EntryBuilder(body, contracts=machine.contracts)
    replay = Replay(builder, facts, plan, arrays, flag, machine.capacity)
    sweep, stack = replay.sweep, Stack(builder.constant(0, i64), is_first=True)
    sweep.values.bind_all(primal.args, body.args)
    if facts.log is not None:
        _run_again(sweep, stack, overwritten)
    replay.make_room(stack)
    with sweep.memory.sharing(True):
        replay.record(primal, stack)
    backward = Backward(replay)
    backward.reverse(primal)
    builder.yield_()
    body.ops[:0] = builder.entry
    return Emitted(body, sweep.records.of_loops, sweep.copies, backward.slopes)


def _run_again(sweep: Sweep, stack: Stack, overwritten: frozenset[Array]) -> None:
    """Run the task forward, with its stores, logging what hazardous loads read."""
    log = sweep.facts.log
    assert log is not None and log.end is not None
    with sweep.memory.storing(overwritten):
        sweep.emit_block(log.body)
    base = sweep.builder.constant(0, i64)
    stack.position = sweep.records.end(sweep.records.log, base, sweep.values[log.end])
