"""The ordered list of passes, with the reason of each place.

A kernel comes from the frontend as one body and leaves as tasks, which code generation and autodiff
read. `Stage.observe` sees the module after each pass; in debug mode and in tests each pass is
followed by the verifier.
"""

from __future__ import annotations

from collections.abc import Callable

from octants.autodiff.forward import forward
from octants.autodiff.reverse import Reversed, reverse
from octants.compile_profile import stage as timed
from octants.ir.core import BYTES, Module
from octants.ir.ops import RecordRoom
from octants.ir.rewriter import copy_module
from octants.ir.rewriter import serialise as serialise_task
from octants.lazy_dataclass import dataclass
from octants.passes.check_bounds import check_bounds
from octants.passes.collect_sums import collect_sums
from octants.passes.compose_turns import compose_turns
from octants.passes.contract import contract
from octants.passes.defer_constants import defer_constants
from octants.passes.delay_stores import delay_stores
from octants.passes.demote_atomics import demote_atomics
from octants.passes.drop_zeros import drop_zeros
from octants.passes.expand_powers import expand_powers
from octants.passes.fix_order import fix_order
from octants.passes.fold_doubles import fold_doubles
from octants.passes.fuse_sums import fuse_sums
from octants.passes.gather_sums import gather_sums
from octants.passes.outline_tasks import outline_tasks
from octants.passes.relax_divisions import relax_divisions
from octants.passes.serialise_blocks import serialise_blocks
from octants.passes.share_reciprocals import share_reciprocals
from octants.passes.split_sums import SHARERS, split_sums
from octants.simplify import simplify
from octants.stage import Observer as Observer
from octants.stage import Stage as Stage


@dataclass(frozen=True, slots=True)
class Pass:
    """A step from body to tasks; `reason` says why it stands where it does.

    `asked_by` is the attribute of the stage without which it is left out; empty for none.
    """

    name: str
    run: Callable[[Module], None]
    reason: str
    asked_by: str = ""


PASSES = (
    Pass(
        "check_bounds",
        check_bounds,
        "before anything moves, so that each access is still at its place in the user's code",
        asked_by="checks_bounds",
    ),
    Pass(
        "outline_tasks",
        outline_tasks,
        "before simplifying, which works within tasks: what crosses them is in memory by then",
    ),
    Pass("simplify", simplify, "when all is in place: what follows costs what is left"),
    Pass(
        "drop_zeros",
        drop_zeros,
        "before products are taken into sums",
        asked_by="contracts",
    ),
    Pass(
        "relax_divisions",
        relax_divisions,
        "before derivatives are taken, whose replays must divide as what they replay",
        asked_by="contracts",
    ),
    Pass(
        "contract",
        contract,
        "before derivatives are taken, whose replays must round as what they replay",
        asked_by="contracts",
    ),
    Pass(
        "defer_constants",
        defer_constants,
        "when products are in sums: these are what constants wait for",
        asked_by="contracts",
    ),
)


def lower(module: Module, stage: Stage) -> None:
    """From the body that the frontend built to simplified tasks, in place."""
    stage.see("frontend", module)
    for step in PASSES:
        if not step.asked_by or getattr(stage, step.asked_by):
            with timed(step.name, module.name, module.size):
                step.run(module)
            stage.see(step.name, module)


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
    saved: bool,
    part: bool,
    again: bool = False,
    argument_gradients: bool = False,
) -> Reversed:
    """The reverse of a lowered module, simplified.

    Nests are not stored where that is all that keeps work items from running in lanes.
    """

    def make(nests: str) -> Reversed:
        return reverse(
            module,
            saved=saved,
            again=again,
            part=part,
            argument_gradients=argument_gradients,
            capacity=stage.capacity,
            tape_whole=stage.tape_whole,
            tape_sharers=stage.tape_sharers,
            nests=nests,
            tape_local=stage.tape_local,
            contracts=stage.contracts,
        )

    with timed("reverse", f"{module.name}_reverse", module.size) as note:
        result = make(stage.nests)
        if stage.nests == "auto" and _stores_nests(result.module):
            result = _for_lanes(stage, result, make)
        note.gives(result.module.size)
    stage.see("reverse", result.module)
    return result


def _stores_nests(module: Module) -> bool:
    return any(isinstance(op, RecordRoom) and op.record.name == BYTES for op in module.walk())


def _for_lanes(stage: Stage, stored: Reversed, make: Callable[[str], Reversed]) -> Reversed:
    if stage.count_lanes is None:
        return stored
    plain = Stage(
        contracts=stage.contracts,
        deterministic=stage.deterministic,
        serialises_blocks=stage.serialises_blocks,
    )
    in_lanes = stage.count_lanes(finish(stored.module, plain, apart=True))
    if in_lanes == sum(task.is_parallel for task in stored.module.tasks):
        return stored
    again = make("replay")
    more = stage.count_lanes(finish(again.module, plain, apart=True)) > in_lanes
    return again if more else stored


def differentiate_forward(module: Module, stage: Stage) -> Module:
    """A lowered module with its tangents, simplified."""
    with timed("forward", f"{module.name}_forward", module.size) as note:
        result = forward(module, contracts=stage.contracts)
        note.gives(result.size)
    stage.see("forward", result)
    return result


def finish(module: Module, stage: Stage, *, apart: bool = False) -> Module:
    """A copy of a lowered or differentiated module for code generation, with cheaper updates.

    ``apart`` says that no two of its arrays share memory.
    """
    with timed("finish", module.name, module.size) as note:
        result = copy_module(module)
        result.apart = apart
        if stage.serialises_blocks:  # before all that looks at updates: some are plain afterwards
            serialise_blocks(result)
        splits = stage.splits and stage.contracts
        if stage.fills:
            fills = stage.fills // SHARERS if splits else stage.fills
            gather_sums(result, apart, 0 if stage.deterministic else fills, shared=splits)
        collect_sums(result, apart)
        demote_atomics(result, apart)
        if stage.deterministic:  # what only one work item touches is known better before than after
            fix_order(result, apart, many=stage.fills > 0)
            collect_sums(result, apart)
            demote_atomics(result, apart)
        if stage.contracts:
            expand_powers(result)
            share_reciprocals(result)
            fold_doubles(result)
            compose_turns(result)
        if splits:
            fuse_sums(result)
            split_sums(result, apart, stage.fills)
        if stage.fills:
            delay_stores(result, apart)
        note.gives(result.size)
    stage.see("finish", result)
    return result
