"""The passes of each phase as rows of a list, with the reason for the position of each.

A kernel comes from the frontend as one body and leaves `LOWER` as tasks, of which derivatives are
taken; what `FINISH` makes of them code is generated from. A pass runs if the `Capabilities` of the
machine fulfil its condition. `Stage.observe` sees the module after each pass; in debug mode and in
tests each pass is followed by the verifier.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from octants.analysis.lanes.choose_loops import choose, may_run
from octants.compile_profile import stage as timed
from octants.deferred_import import Deferred
from octants.ir.cloning import copy_module
from octants.ir.cloning import serialise as serialise_task
from octants.ir.core import BYTES, Array, Module, Task
from octants.ir.ops import Atomic, RecordCapacity
from octants.lazy_dataclass import dataclass
from octants.pass_context import Observer as Observer
from octants.pass_context import Stage as Stage
from octants.passes.contract_to_fma import contract_to_fma
from octants.passes.demote_atomics import demote_atomics
from octants.passes.drop_custom_derivatives import drop_custom_derivatives
from octants.passes.expand_divisions import expand_divisions
from octants.passes.expand_powers import expand_powers
from octants.passes.expose_invariants import expose_invariants
from octants.passes.fold_zero_products import fold_zero_products
from octants.passes.hoist_from_branches import hoist_from_branches
from octants.passes.jam_loops import has_nests, jam_loops
from octants.passes.outline_tasks import outline_tasks
from octants.passes.relax_divisions import relax_divisions
from octants.passes.sequence_work_items import sequence_work_items
from octants.passes.share_reciprocals import share_reciprocals
from octants.passes.sink_into_branches import sink_into_branches
from octants.passes.skip_unchanged_updates import skip_unchanged_updates
from octants.passes.spill_vectors import spill_vectors
from octants.passes.sum_in_registers import sum_in_registers
from octants.simplify import simplify
from octants.target import Blocks, Capabilities, Vectors

if TYPE_CHECKING:
    from octants.autodiff import batched_adjoints, forward, reverse
    from octants.autodiff.batched_adjoints import BatchedReverse
    from octants.autodiff.reverse import Reversed
    from octants.passes import (
        allot_registers,
        approximate_quotients,
        check_bounds,
        check_finite,
        fix_summation_order,
        fuse_product_sums,
        gather_sums,
        hoist_loads,
        localise_rows,
        share_differences,
        sink_stores,
        split_sums,
        unroll_loops,
        unroll_shared_sums,
    )
else:  # what only derivatives, some machines or some options need
    allot_registers = Deferred("octants.passes.allot_registers")
    batched_adjoints = Deferred("octants.autodiff.batched_adjoints")
    forward, reverse = Deferred("octants.autodiff.forward"), Deferred("octants.autodiff.reverse")
    approximate_quotients = Deferred("octants.passes.approximate_quotients")
    check_bounds = Deferred("octants.passes.check_bounds")
    check_finite = Deferred("octants.passes.check_finite")
    fix_summation_order = Deferred("octants.passes.fix_summation_order")
    fuse_product_sums = Deferred("octants.passes.fuse_product_sums")
    gather_sums = Deferred("octants.passes.gather_sums")
    hoist_loads = Deferred("octants.passes.hoist_loads")
    share_differences = Deferred("octants.passes.share_differences")
    sink_stores = Deferred("octants.passes.sink_stores")
    split_sums = Deferred("octants.passes.split_sums")
    localise_rows = Deferred("octants.passes.localise_rows")
    unroll_loops = Deferred("octants.passes.unroll_loops")
    unroll_shared_sums = Deferred("octants.passes.unroll_shared_sums")

Condition = Callable[[Capabilities], bool]


def _always(_: Capabilities) -> bool:
    return True


def _contracts(machine: Capabilities) -> bool:
    return machine.contracts


def _fuses(machine: Capabilities) -> bool:
    return machine.contracts and machine.fuses


def _deterministic(machine: Capabilities) -> bool:
    return machine.deterministic


def _is_gpu(machine: Capabilities) -> bool:
    return machine.fills > 0


def _splits(machine: Capabilities) -> bool:
    return machine.splits and machine.contracts


@dataclass(frozen=True, slots=True)
class Pass:
    """A step that changes a module in place; `reason` says why it runs at its position.

    It is left out unless `when` accepts the machine.
    """

    name: str
    run: Callable[[Module, Capabilities], None]
    reason: str
    when: Condition = _always


LOWER = (
    Pass(
        "check_bounds",
        lambda module, _: check_bounds.check_bounds(module),
        "before anything moves, so that each access is still where it is in the user's code",
        when=lambda machine: machine.checks_bounds,
    ),
    Pass(
        "outline_tasks",
        lambda module, _: outline_tasks(module),
        "before simplifying, which works within tasks: what crosses them is in memory by then",
    ),
    Pass(
        "simplify",
        lambda module, _: simplify(module),
        "when all is in place: what follows costs what is left",
    ),
    Pass(
        "expose_invariants",
        lambda module, _: expose_invariants(module),
        "before derivatives are taken: a reverse run has the same invariants, and records none",
    ),
    Pass(
        "fold_zero_products",
        lambda module, _: fold_zero_products(module),
        "before products are taken into sums",
        _contracts,
    ),
    Pass(
        "relax_divisions",
        lambda module, _: relax_divisions(module),
        "before derivatives are taken, whose replays must divide as what they replay",
        _contracts,
    ),
    Pass(
        "approximate_quotients",
        lambda module, _: approximate_quotients.approximate_quotients(module),
        "after divisions of which products are made, and before derivatives, for the same reason",
        lambda machine: machine.contracts and machine.approximates_quotients,
    ),
    Pass(
        "contract_to_fma",
        lambda module, _: contract_to_fma(module),
        "before derivatives are taken, whose replays must round as what they replay",
        _contracts,
    ),
)
"""From the body that the frontend built to simplified tasks, of which derivatives are taken."""


def _gather_sums(module: Module, machine: Capabilities) -> None:
    splits = _splits(machine)
    fills = machine.fills // split_sums.SHARERS if splits else machine.fills
    gather_sums.gather_sums(
        module, module.noalias, 0 if machine.deterministic else fills, shared=splits
    )


def _localise_rows(module: Module, machine: Capabilities) -> None:
    if any(task.is_parallel and has_nests(task) for task in module.tasks):
        localise_rows.localise_rows(module, machine.vectors)


_EXCHANGING = 32
"""The part of the work items of a busy GPU up to which subgroups exchange factors: a thread waits
less then. More of them take turns, and shared memory would be busier than the arithmetic."""


def _unroll_shared_sums(module: Module, machine: Capabilities) -> None:
    if any(isinstance(op, Atomic) for op in module.walk()):
        unroll_shared_sums.unroll_shared_sums(
            module,
            machine.vectors,
            exchanges=machine.exchanges_factors * machine.fills // _EXCHANGING,
        )


def _cheaper_updates(when: Condition, reason: str) -> tuple[Pass, Pass]:
    """The two passes that find cheaper updates."""
    return (
        Pass(
            "sum_in_registers",
            lambda m, machine: sum_in_registers(m, m.noalias, machine.deterministic),
            reason,
            when,
        ),
        Pass(
            "demote_atomics",
            lambda m, _: demote_atomics(m, m.noalias),
            "after sums have left their loops: one update may remain of many",
            when,
        ),
    )


FINISH = (
    Pass(
        "drop_custom_derivatives",
        lambda module, _: drop_custom_derivatives(module),
        "when derivatives have been taken: all else works with the values",
    ),
    Pass(
        "check_finite",
        lambda module, _: check_finite.check_finite(module),
        "after derivatives, whose stores it checks too, and while each update stands at its line",
        when=lambda machine: machine.checks_finite,
    ),
    Pass(
        "sequence_work_items",
        lambda module, _: sequence_work_items(module),
        "before the passes on updates: some are plain afterwards",
        when=lambda machine: machine.serialises_blocks,
    ),
    Pass("gather_sums", _gather_sums, "before sums leave the loops that it interchanges", _is_gpu),
    *_cheaper_updates(_always, "before updates are demoted: it leaves one of many"),
    Pass(
        "fix_summation_order",
        lambda m, machine: fix_summation_order.fix_summation_order(
            m, m.noalias, many=machine.fills > 0
        ),
        "when it is known which updates only one work item makes",
        _deterministic,
    ),
    *_cheaper_updates(_deterministic, "again, since work items have become loops"),
    Pass(
        "skip_unchanged_updates",
        lambda module, _: skip_unchanged_updates(module),
        "when it is known which updates have to be atomic",
    ),
    Pass(
        "sink_into_branches",
        lambda module, _: sink_into_branches(module),
        "when sums have left their loops, and before the passes that look at what loops carry",
        _contracts,
    ),
    Pass(
        "expand_powers",
        lambda module, _: expand_powers(module),
        "when derivatives, whose rules know powers, have been taken",
        _contracts,
    ),
    Pass(
        "expand_divisions",
        lambda module, _: expand_divisions(module),
        "when derivatives, whose rules know quotients, have been taken",
        _fuses,
    ),
    Pass(
        "share_reciprocals",
        lambda module, _: share_reciprocals(module),
        "after powers, of which divisions are made",
        _contracts,
    ),
    Pass(
        "share_differences",
        lambda module, _: share_differences.share_differences(module),
        "when sums are gathered: each work item has both differences of a pair then",
        _splits,
    ),
    Pass(
        "fuse_product_sums",
        lambda module, _: fuse_product_sums.fuse_product_sums(module),
        "late, since sums may be rounded in another order",
        _splits,
    ),
    Pass(
        "split_sums",
        lambda m, machine: split_sums.split_sums(
            m, m.noalias, machine.fills, machine.blocks or Blocks()
        ),
        "when a loop holds all its sums",
        _splits,
    ),
    Pass(
        "hoist_from_branches",
        lambda m, _: hoist_from_branches(m, m.noalias),
        "when no derivative is to be taken any more, and all operations are those of the code",
    ),
    Pass(
        "hoist_loads",
        lambda m, _: hoist_loads.hoist_loads(m, m.noalias),
        "when branches are as they stay",
        _is_gpu,
    ),
    Pass(
        "sink_stores",
        lambda m, _: sink_stores.sink_stores(m, m.noalias),
        "last: it moves what others would look for",
        _is_gpu,
    ),
    Pass(
        "spill_vectors",
        lambda module, machine: spill_vectors(module, machine.vector_bytes),
        "last: others know vectors as values, which loops carry",
    ),
    Pass(
        "localise_rows",
        _localise_rows,
        "when it is known which updates are plain, and before iterations run side by side",
    ),
    Pass(
        "jam_loops",
        lambda module, machine: jam_loops(module, machine.vectors),
        "when vectors are in memory, and before loops with sums that it multiplies are unrolled",
    ),
    Pass(
        "unroll_shared_sums",
        _unroll_shared_sums,
        "when all sums are where they stay",
        lambda machine: machine.groups_sums and not machine.deterministic,
    ),
    Pass(
        "unroll_loops",
        lambda m, machine: unroll_loops.unroll_loops(
            m, estimate_sums=machine.estimate_sums * machine.contracts
        ),
        "last: it writes code many times",
        lambda machine: machine.unrolls,
    ),
    Pass(
        "allot_registers",
        lambda m, machine: allot_registers.allot_registers(m, machine.fills),
        "when it is known how many work items there are",
        when=lambda machine: machine.allots_registers,
    ),
)
"""From tasks, perhaps derivatives, to what code is generated from, with cheaper updates."""


def _run(passes: tuple[Pass, ...], module: Module, stage: Stage) -> None:
    for step in passes:
        if step.when(stage.capabilities):
            with timed(step.name, module.name, module.size):
                step.run(module, stage.capabilities)
            stage.see(step.name, module)


def lower(module: Module, stage: Stage) -> None:
    """Run the passes of `LOWER`, in place."""
    stage.see("frontend", module)
    _run(LOWER, module, stage)


def finish(module: Module, stage: Stage, *, noalias: bool = False) -> Module:
    """A copy of a lowered or differentiated module after the passes of `FINISH`.

    ``noalias`` says that no two of its arrays share memory.
    """
    with timed("finish", module.name, module.size) as note:
        result = copy_module(module)
        result.noalias = noalias
        _run(FINISH, result, stage)
        note.gives(result.size)
    stage.see("finish", result)
    return result


def serialise(module: Module, stage: Stage) -> Module:
    """A lowered module whose parallel loops run their work items one after the other, in order."""
    tasks = [serialise_task(task) for task in module.tasks]
    result = Module(module.name, list(module.arrays), None, tasks, module.location)
    simplify(result)
    stage.see("serialise", result)
    return result


def differentiate_reverse(
    module: Module,
    stage: Stage,
    *,
    before_launch: bool,
    split: bool,
    repeat_stores: bool = False,
    argument_gradients: bool = False,
    noalias: bool = False,
) -> Reversed:
    """The reverse of a lowered module, simplified.

    Nests are not stored where only that keeps work items from running in lanes.
    """
    machine = stage.capabilities

    def make(nests: str) -> Reversed:
        return reverse.reverse(
            module,
            replace(machine, nests=nests),
            before_launch=before_launch,
            repeat_stores=repeat_stores,
            split=split,
            argument_gradients=argument_gradients,
            noalias=noalias,
        )

    with timed("reverse", f"{module.name}_reverse", module.size) as note:
        result = make(machine.nests)
        if machine.nests == "auto" and machine.vectors is not None:
            result = _for_lanes(machine, machine.vectors, result, make)
        note.gives(result.module.size)
    stage.see("reverse", result.module)
    return result


def _for_lanes(
    machine: Capabilities, vectors: Vectors, stored: Reversed, make: Callable[[str], Reversed]
) -> Reversed:
    """A reverse kernel that stores nests, or one without if that has more tasks run in lanes.

    What a task costs in lanes is known when passes have found cheaper updates for it, but only a
    task that would not run in lanes as it is needs these. Where all tasks that store nests run in
    lanes, the other kernel is not needed.
    """
    tasks = [task for task in stored.module.tasks if task.is_parallel and may_run(task, vectors)]
    names = {task.name for task in tasks if _stores_nests(task)}
    if not names:
        return stored
    storing = [task for task in tasks if task.name in names]
    if all(choose(task, vectors, noalias=True).lanes for task in storing):
        return stored
    plain = Stage(replace(machine, fills=0, splits=False, groups_sums=False))

    def in_lanes(module: Module) -> int:
        tasks = [task for task in module.tasks if task.name in names]
        finished = finish(Module(module.name, module.arrays, None, tasks), plain, noalias=True)
        return sum(bool(choose(task, vectors, noalias=True).lanes) for task in finished.tasks)

    found = in_lanes(stored.module)
    if found == len(names):
        return stored
    replayed = make("replay")
    return replayed if in_lanes(replayed.module) > found else stored


def _stores_nests(task: Task) -> bool:
    queries = (op for op in task.body.walk() if isinstance(op, RecordCapacity))
    return any(op.record.name == BYTES for op in queries)


def differentiate_forward(module: Module, stage: Stage) -> Module:
    """A lowered module with its tangents, simplified."""
    with timed("forward", f"{module.name}_forward", module.size) as note:
        result = forward.forward(module, contracts=stage.capabilities.contracts)
        note.gives(result.size)
    stage.see("forward", result)
    return result


def batch_adjoints(module: Module, count: int, stage: Stage) -> BatchedReverse:
    """A reverse module for several adjoints, simplified."""
    with timed("batch adjoints", module.name, module.size) as note:
        result = batched_adjoints.batch_adjoints(module, count)
        note.gives(result.module.size)
    stage.see("batch adjoints", result.module)
    return result


def add_tangent_arrays(
    module: Module, active: Collection[Array], directions: int, stage: Stage
) -> Module:
    """A lowered module with its tangents in arrays of their own, simplified; it is lowered, too."""
    contracts = stage.capabilities.contracts
    with timed("forward", f"{module.name}_forward", module.size) as note:
        result = forward.with_tangent_arrays(module, active, directions, contracts=contracts)
        note.gives(result.size)
    stage.see("forward", result)
    return result
