"""The passes of each phase as rows of a list, with the reason for the position of each.

A kernel comes from the frontend as one body and leaves `LOWER` as tasks, of which derivatives are
taken; what `FINISH` makes of them code is generated from. A pass runs if the `Capabilities` of the
machine fulfil its condition. `Stage.observe` sees the module after each pass; in debug mode and in
tests each pass is followed by the verifier.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from octants.analysis.lanes.choose_loops import choose, may_run
from octants.compile_profile import stage as timed
from octants.deferred_import import Deferred
from octants.ir.cloning import copy_module
from octants.ir.cloning import serialise as serialise_task
from octants.ir.cooperative_tasks import cooperates
from octants.ir.core import BYTES, Array, Block, Module, Task
from octants.ir.ops import Atomic, For, RecordCapacity
from octants.lazy_dataclass import dataclass
from octants.pass_context import Observer as Observer
from octants.pass_context import Stage as Stage
from octants.passes.loops.jam_loops import has_nests
from octants.simplify import simplify
from octants.target import Blocks, Capabilities, Vectors

if TYPE_CHECKING:
    from octants.autodiff import forward, reverse
    from octants.autodiff.reverse import Reversed
    from octants.autodiff.variants import batched_adjoints
    from octants.autodiff.variants.batched_adjoints import BatchedReverse
    from octants.passes.cooperation import sequence_work_items
    from octants.passes.loops import unroll_shared_sums
    from octants.passes.storage import localise_rows
    from octants.passes.sums import fuse_product_sums, gather_sums, split_sums
else:  # what only derivatives, some machines or some options need
    batched_adjoints = Deferred("octants.autodiff.variants.batched_adjoints")
    forward, reverse = Deferred("octants.autodiff.forward"), Deferred("octants.autodiff.reverse")
    fuse_product_sums = Deferred("octants.passes.sums.fuse_product_sums")
    gather_sums = Deferred("octants.passes.sums.gather_sums")
    localise_rows = Deferred("octants.passes.storage.localise_rows")
    sequence_work_items = Deferred("octants.passes.cooperation.sequence_work_items")
    split_sums = Deferred("octants.passes.sums.split_sums")
    unroll_shared_sums = Deferred("octants.passes.loops.unroll_shared_sums")

Condition = Callable[[Capabilities], bool]


def _nothing() -> None:
    pass


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


def _estimate_sums(machine: Capabilities) -> int:
    return machine.estimate_sums if machine.contracts else 0


@dataclass(frozen=True, slots=True)
class Pass:
    """A step that changes a module in place; `reason` says why it runs at its position.

    It is left out unless `when` accepts the machine. `load` imports what it needs.
    """

    name: str
    run: Callable[[Module, Capabilities], None]
    reason: str
    when: Condition = _always
    load: Callable[[], object] = _nothing


def _row(
    file: str,
    reason: str,
    when: Condition = _always,
    given: Callable[[Module, Capabilities], tuple[Any, ...]] = lambda *_: (),
) -> Pass:
    """The row of the function that has the name of its file in `octants.passes`.

    The file is imported when the pass first runs.

    Args:
        file: the group and the name of the file.
        reason: why the pass runs at its position.
        when: accepts the machines that need it.
        given: the arguments of the function after the module.
    """
    found = Deferred(f"octants.passes.{file}")
    name = file.rpartition(".")[2]

    def run(module: Module, machine: Capabilities) -> None:
        getattr(found, name)(module, *given(module, machine))

    return Pass(name, run, reason, when, lambda: getattr(found, name))


def _noalias(module: Module, _: Capabilities) -> tuple[Any, ...]:
    return (module.noalias,)


LOWER = (
    _row(
        "checks.check_bounds",
        "before anything moves, so that each access is still where it is in the user's code",
        lambda machine: machine.checks_bounds,
    ),
    _row(
        "tasks.outline_tasks",
        "before simplifying, which works within tasks: what crosses them is in memory by then",
    ),
    Pass(
        "simplify",
        lambda module, _: simplify(module),
        "when all is in place: what follows costs what is left",
    ),
    _row(
        "loops.expose_invariants",
        "before derivatives are taken: a reverse run has the same invariants, and records none",
    ),
    _row(
        "loops.unroll_triangular_nests",
        "before derivatives are taken, which record nothing of straight-line code",
        _is_gpu,
    ),
    _row("arithmetic.fold_zero_products", "before products are taken into sums", _contracts),
    _row(
        "arithmetic.relax_divisions",
        "before derivatives are taken, whose replays must divide as what they replay",
        _contracts,
    ),
    _row(
        "arithmetic.approximate_quotients",
        "after divisions of which products are made, and before derivatives, for the same reason",
        lambda machine: machine.contracts and machine.approximates_quotients,
    ),
    _row(
        "arithmetic.contract_to_fma",
        "before derivatives are taken, whose replays must round as what they replay",
        _contracts,
    ),
    _row(
        "code_motion.hoist_from_branches",
        "before derivatives are taken: the adjoint of what is hoisted flows on once",
        given=lambda module, _: (module.noalias, True),
    ),
)
"""From the body that the frontend built to simplified tasks, of which derivatives are taken."""


def _inner_loops(module: Module) -> Iterator[Block]:
    """The bodies of the loops that work items of parallel tasks run."""
    for task in module.tasks:
        for op in task.body.walk() if task.is_parallel else ():
            if isinstance(op, For):
                yield op.body


def _sequence_work_items(module: Module, _: Capabilities) -> None:
    if any(cooperates(task) for task in module.tasks):  # else nothing of the pass is imported
        sequence_work_items.sequence_work_items(module)


def _gather_sums(module: Module, machine: Capabilities) -> None:
    if _is_gpu(machine):
        splits = _splits(machine)
        fills = machine.fills // split_sums.SHARERS if splits else machine.fills
        fills = 0 if machine.deterministic else fills
        gather_sums.gather_sums(module, module.noalias, fills, splits, machine.contracts)
    elif any(isinstance(op, Atomic) for body in _inner_loops(module) for op in body.walk()):
        gather_sums.gather_pairs(module, module.noalias)


_LATENCY = 8
"""The operations that a CPU can begin before the result of another one is there."""


def _fuse_product_sums(module: Module, machine: Capabilities) -> None:
    latency = 0 if _is_gpu(machine) else _LATENCY
    if any(len(body.ops) > latency for body in _inner_loops(module)):
        fuse_product_sums.fuse_product_sums(module, latency)


def _localise_rows(module: Module, machine: Capabilities) -> None:
    if any(task.is_parallel and has_nests(task) for task in module.tasks):
        localise_rows.localise_rows(module, machine.vectors)


def _unroll_shared_sums(module: Module, machine: Capabilities) -> None:
    if any(isinstance(op, Atomic) for op in module.walk()):
        unroll_shared_sums.unroll_shared_sums(
            module, machine.vectors, exchanges=machine.exchanges_factors
        )


def _cheaper_updates(when: Condition, reason: str) -> tuple[Pass, Pass]:
    """The two passes that find cheaper updates."""
    return (
        _row(
            "sums.sum_in_registers",
            reason,
            when,
            lambda m, machine: (m.noalias, machine.deterministic),
        ),
        _row(
            "sums.demote_atomics",
            "after sums have left their loops: one update may remain of many",
            when,
            _noalias,
        ),
    )


FINISH = (
    _row(
        "arithmetic.drop_custom_derivatives",
        "when derivatives have been taken: all else works with the values",
    ),
    _row(
        "arithmetic.bound_angles",
        "before other passes number the work items in another way, of which bounds follow",
        given=lambda _, machine: (_estimate_sums(machine) > 0,),
    ),
    _row(
        "checks.check_finite",
        "after derivatives, whose stores it checks too, and while each update stands at its line",
        lambda machine: machine.checks_finite,
    ),
    Pass(
        "sequence_work_items",
        _sequence_work_items,
        "before the passes on updates: some are plain afterwards",
        lambda machine: machine.serialises_blocks,
    ),
    _row(
        "sums.section_arrays",
        "before the passes that look for elements which nothing but updates touches",
        given=_noalias,
    ),
    Pass(
        "gather_sums",
        _gather_sums,
        "before sums leave the loops that it interchanges",
        lambda machine: _is_gpu(machine) or machine.contracts,
    ),
    *_cheaper_updates(_always, "before updates are demoted: it leaves one of many"),
    _row(
        "sums.fix_summation_order",
        "when it is known which updates only one work item makes",
        _deterministic,
        lambda m, machine: (m.noalias, machine.fills > 0),
    ),
    *_cheaper_updates(_deterministic, "again, since work items have become loops"),
    _row("sums.skip_unchanged_updates", "when it is known which updates have to be atomic"),
    _row(
        "code_motion.sink_into_branches",
        "when sums have left their loops, and before the passes that look at what loops carry",
        _contracts,
    ),
    _row(
        "arithmetic.expand_powers",
        "when derivatives, whose rules know powers, have been taken",
        _contracts,
    ),
    _row(
        "arithmetic.expand_divisions",
        "when derivatives, whose rules know quotients, have been taken",
        _fuses,
    ),
    _row("arithmetic.share_reciprocals", "after powers, of which divisions are made", _contracts),
    _row(
        "arithmetic.share_differences",
        "when sums are gathered: each work item has both differences of a pair then",
        _splits,
    ),
    Pass(
        "fuse_product_sums",
        _fuse_product_sums,
        "late, since sums may be rounded in another order",
        lambda machine: _splits(machine) or (_fuses(machine) and not _is_gpu(machine)),
    ),
    _row(
        "sums.split_sums",
        "when a loop holds all its sums",
        _splits,
        lambda m, machine: (m.noalias, machine.fills, machine.blocks or Blocks()),
    ),
    _row(
        "code_motion.hoist_from_branches",
        "again, since derivatives have invariants of their own",
        given=_noalias,
    ),
    _row("code_motion.hoist_loads", "when branches are as they stay", _is_gpu, _noalias),
    _row("code_motion.sink_stores", "last: it moves what others would look for", _is_gpu, _noalias),
    _row(
        "storage.spill_vectors",
        "last: others know vectors as values, which loops carry",
        given=lambda _, machine: (machine.vector_bytes,),
    ),
    Pass(
        "localise_rows",
        _localise_rows,
        "when it is known which updates are plain, and before iterations run side by side",
    ),
    _row(
        "loops.jam_loops",
        "when vectors are in memory, and before loops with sums that it multiplies are unrolled",
        given=lambda _, machine: (machine.vectors, _is_gpu(machine)),
    ),
    _row(
        "tasks.mark_short_tasks",
        "when it is known how many work items there are",
        lambda machine: machine.allots_registers,
        lambda _, machine: (machine.fills,),
    ),
    Pass(
        "unroll_shared_sums",
        _unroll_shared_sums,
        "when all sums are where they stay",
        lambda machine: machine.groups_sums and not machine.deterministic,
    ),
    _row(
        "loops.unroll_vector_loops",
        "after loops with sums are unrolled, which access vectors by constants then",
        lambda machine: machine.unrolls,
    ),
    _row(
        "loops.unroll_loops",
        "last: it writes code many times",
        lambda machine: machine.unrolls or _estimate_sums(machine) > 0,
        lambda _, machine: (_estimate_sums(machine), machine.unrolls),
    ),
    _row(
        "arithmetic.share_slow_paths",
        "after loops of sines are unrolled, whose chunks have a test of their own",
        lambda machine: machine.keeps_calls and _estimate_sums(machine) > 0,
    ),
)
"""From tasks, perhaps derivatives, to what code is generated from, with cheaper updates."""

_USUAL = Capabilities(contracts=True, fuses=True, groups_sums=True)
_USUAL_GPU = replace(_USUAL, fills=1, splits=True, estimate_sums=1, approximates_quotients=True)


def import_passes(is_gpu: bool) -> None:
    """Import the passes that most kernels run through, before one is compiled."""
    machine = _USUAL_GPU if is_gpu else _USUAL
    for step in (*LOWER, *FINISH):
        if step.when(machine):
            step.load()
    if is_gpu:
        _ = gather_sums.gather_sums


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
