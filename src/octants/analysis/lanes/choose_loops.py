"""Chooses which parallel loops run in lanes, and in how many.

A loop runs in lanes if an estimate says that this pays, unless `init` (for all loops) or
`loop_config` (for one) decides.
"""

from __future__ import annotations

import math
from dataclasses import replace

from octants.analysis.control_flow.uniformity import Uniformity
from octants.analysis.cost_model import GRAIN, Costs
from octants.analysis.lanes.lane_choice import LaneChoice as LaneChoice
from octants.analysis.lanes.row_major_loops import ContiguousRows, find_rows
from octants.analysis.lanes.time_estimate import CheapUpdates, Cost, LaneCost
from octants.analysis.sums.privatisation import find_sums
from octants.analysis.sums.reductions import find_reductions
from octants.ir import ops
from octants.ir.cooperative_tasks import ON_STACK, local_arrays, nbytes
from octants.ir.core import ArrayRef, Operation, Space, Task
from octants.target import ALWAYS, MOST_VECTORS, NEVER, Vectors

_FEW = 2  # values that a loop carries, and work items
"""Work items that are not worth lanes; carried values that fit the registers of several vectors."""
_SMALL = 60  # operations: only a body of less is compiled for whole tiles and once more for others
_LARGE = 400  # operations on registers: a body of more has none to spare for several vectors
_HUGE = 3000  # operations: a body of more is not compiled once more for few work items
_PAYS = 2.0  # the least gain by the estimate, which is rough
_MOST_LOCAL, _MOST_OF_TWO = 9 << 13, 3 << 15
"""The most bytes of the local arrays of four vectors, whose caches are fast, and of two: a single
vector waits longer for itself."""
_FEWEST = 4  # the share of a tile, as a divisor, that is worth a tile at any gain
_MOST_OF_ITEM = 2.5  # times of a work item that a tile may take in each row of one work item

_USUALLY_FILLED = 0.9  # of the lanes, in rows of unknown length
"""The share of lanes with a work item, in rows of unknown length."""


def choose(task: Task, vectors: Vectors, noalias: bool = False) -> LaneChoice:
    """Choose how a task runs.

    Args:
        task: the task. Its option "choice" holds a choice that was made before
            (`LaneChoice.as_option`).
        vectors: the vectors of the machine, and the option `simd`.
        noalias: no two arrays of the kernel share memory.

    Returns:
        The choice, with its reason.
    """
    if "choice" in task.options:
        *made, has_rows = task.options["choice"]
        return replace(LaneChoice(*made), rows=find_rows(task) if has_rows else None)
    wanted, simd = task.options.get("simd"), vectors.simd
    is_forced = wanted is not None and wanted is not False
    obstacle = _obstacle(task, vectors, wanted)
    if obstacle:
        return LaneChoice(obstacle)
    facts, count = Uniformity(task.body), ops.known_work_items(task)
    if facts.has_unknown_base:
        return LaneChoice("its records have no position that all lanes share")
    if count is not None and count <= _FEW and not is_forced:
        return LaneChoice(f"it has {count} work items")
    size = sum(1 for _ in task.body.walk())
    lanes = _width(task, facts, vectors.lanes, count)
    if wanted is not None and wanted is not True:
        lanes = _on_stack(task, int(wanted))
    updates = _updates(task, noalias)
    estimate, rows = LaneCost(task, facts, lanes, vectors, updates), find_rows(task)
    gain = estimate.gain
    if rows is not None:
        of_rows = Uniformity(task.body, rows.numbers)
        in_rows = LaneCost(task, of_rows, lanes, vectors, updates, rows)
        gain_in_rows = in_rows.gain * _filled(rows, lanes)
        found = (gain, estimate, None, facts), (gain_in_rows, in_rows, rows, of_rows)
        gain, estimate, rows, facts = max(found, key=lambda each: each[0])
    if gain < _PAYS and simd != ALWAYS and not is_forced:
        return LaneChoice(f"lanes would gain a factor of {gain:.1f}")
    is_open = count is None and simd != ALWAYS and not is_forced
    is_twofold = is_open and size <= _HUGE and not _suits_few(task, estimate.cost, rows)
    return LaneChoice(
        f"lanes gain a factor of {gain:.1f}",
        lanes,
        fewest=_fewest(lanes, gain) if is_twofold else 0,
        splits=rows is None and size <= _SMALL,
        even=count is not None and count % lanes == 0 and _has_whole_tiles(task, rows, lanes),
        gain=max(1.0, gain),
        rows=rows,
        facts=facts,
    )


def _has_whole_tiles(task: Task, rows: ContiguousRows | None, lanes: int) -> bool:
    """Whether no tile ends because a row does."""
    if rows is None:
        return True
    assert task.domain is not None
    first = ops.constants_in(task.domain)[task.domain.yielded[0]]
    return rows.length is not None and rows.length % lanes == 0 and first % lanes == 0


def _fewest(lanes: int, gain: float) -> int:
    """The work items that one thread runs in the time of a tile, by the estimate.

    More threads than one would run them faster, but a tile of fewer loses more where there are few
    threads: 12 pendulums take 160 us on two threads, and 18 us as a tile of 64 lanes.
    """
    return max(2, min(lanes // _FEWEST, math.ceil(lanes / gain)))


def _suits_few(task: Task, cost: Cost, rows: ContiguousRows | None) -> bool:
    """Whether few work items may take the time of a tile.

    Then nothing is compiled for single work items, which takes as long as to compile the tiles. All
    tiles of short rows have few work items, so that these must not take much less than a tile.
    """
    if rows is not None and cost.tile > _MOST_OF_ITEM * cost.item:
        return False
    return max(cost.tile, Costs(task.body).of(task.body)) <= GRAIN


def may_run(task: Task, vectors: Vectors) -> bool:
    """Whether the options allow lanes for a task, and the machine has usable vectors."""
    wanted = task.options.get("simd")
    is_wanted = vectors.simd != NEVER if wanted is None else wanted is not False
    return is_wanted and vectors.lanes > 0


def _updates(task: Task, noalias: bool) -> CheapUpdates:
    collected = {op for found in find_reductions(task, noalias) for op in found.atomics}
    sums = find_sums(task, noalias, collected)
    return CheapUpdates(collected, {*sums.private_copies, *sums.alternating})


def _filled(rows: ContiguousRows, lanes: int) -> float:
    """The share of the lanes that have a work item, if tiles end with rows."""
    if rows.length is None:
        return _USUALLY_FILLED
    tiles = max(1, -(-rows.length // lanes))
    return rows.length / (tiles * lanes)


def _obstacle(task: Task, vectors: Vectors, wanted: object) -> str:
    """Why a task cannot or must not run in lanes; empty if it may."""
    if not task.is_parallel:
        return "it is serial"
    if vectors.lanes == 0:
        return "this processor has no vectors to rely on"
    if not may_run(task, vectors):
        return "an option switches lanes off"
    known = frozenset(vectors.operations)
    for op in task.body.walk():
        if op.NAME not in known:
            return f"it has a `{op.NAME}`"
        if isinstance(op, ops.RecordAccess) and op.record.capacity:
            return "its records have a forced size"
    if wanted is None and _has_order(task):
        return "its results show the order of work items"
    return ""


def _width(task: Task, facts: Uniformity, width: int, count: int | None) -> int:
    """How many lanes: those of one vector, or of several, but not many more than work items."""
    size = sum(
        any(map(facts.varies, (*op.operands, *op.results)))
        for op in task.body.walk()
        if not (isinstance(op, ops.Access) and op.array.space is Space.LOCAL)
    )
    vectors = 1 if size > _LARGE else _vectors(task, facts)
    local = width * sum(map(nbytes, local_arrays(task)))
    while vectors > 1 and vectors * local > (_MOST_LOCAL if vectors > 2 else _MOST_OF_TWO):
        vectors //= 2
    lanes = width * vectors
    while count is not None and lanes >= 2 * max(count, _FEW):
        lanes //= 2
    return lanes


def _on_stack(task: Task, lanes: int) -> int:
    """As many lanes as wanted, or as have their local arrays beside the task's records."""
    if any(isinstance(op, ops.RecordAccess) for op in task.body.walk()):
        while lanes > 1 and lanes * sum(map(nbytes, local_arrays(task))) > ON_STACK:
            lanes //= 2
    return lanes


def _vectors(task: Task, facts: Uniformity) -> int:
    """How many vectors make a tile: several for a loop that would wait for each result.

    That is so if it carries few values; many would not fit the registers. A loop around others may
    carry more: they are in memory while an inner loop runs. But if lanes leave an inner loop one
    after the other, a tile of more lanes waits longer, so that there all loops must carry few. A
    loop that sums over lanes in each iteration does so once for a tile, so that more vectors pay
    there.
    """
    most, widest, folds = 0, 32, False
    for op in task.body.walk():
        if isinstance(op, ops.Loop):
            carried = [arg for arg in op.body.args if facts.varies(arg)]
            if not _is_around_steady_loops(op, facts):
                most = max(most, len(carried))
            widest = max([widest, *(arg.type.bits for arg in carried if arg.type.is_float)])
            folds = folds or any(_is_folded(each, facts) for each in op.body.ops)
    if most == 0:
        return 1
    wanted = MOST_VECTORS if most <= (2 * _FEW if folds else _FEW) else 2
    wanted = wanted if most <= 2 * _FEW else 1
    return max(1, wanted * 32 // widest)


def _is_around_steady_loops(op: ops.Loop, facts: Uniformity) -> bool:
    """Whether a loop has inner loops, and lanes leave each of them together."""
    inner = [each for each in op.body.walk() if isinstance(each, ops.Loop)]
    return bool(inner) and not any(map(facts.diverges, inner))


def _is_folded(op: Operation, facts: Uniformity) -> bool:
    """Whether all lanes update one element."""
    return isinstance(op, ops.Atomic) and not any(map(facts.varies, op.indices))


def _has_order(task: Task) -> bool:
    """Whether results depend on the order in which work items access elements that they share.

    Threads have no order anyway, but few work items run on one thread, in order.
    """
    used = task.body.used()
    functions: dict[ArrayRef, set[str]] = {}
    for op in task.body.walk():
        if not (op.reads and op.writes):
            continue
        if not isinstance(op, ops.Atomic) or op.result in used or op.fn == "exchange":
            return True
        fn = "add" if op.fn == "sub" else op.fn
        functions.setdefault(op.ref, set()).add(fn)
    return any(len(found) > 1 for found in functions.values())
