"""Reverse mode: turns a kernel into the kernel that propagates adjoints, task by task, last first.

Before::

    array @x: f32, 1, ndarray, () [primal, adjoint]
    array @y: f32, 0, ndarray, () [primal, adjoint]
    parallel (%2: i32 < shape<@x, 0>()) {
      %3: f32 = load<@x, primal>(%2)
      %4: f32 = unary<sin>(%3)
      %5: f32 = atomic<add, @y, primal>(%4)
    }

After::

    kernel @k_reverse
    array @x: f32, 1, ndarray, () [primal, adjoint]
    array @y: f32, 0, ndarray, () [primal, adjoint]
    parallel @k_0_reverse {
      %0: i32 = constant<0>()
      %1: i32 = shape<@x, 0>()
      yield(%0, %1)
    } { (%2: i32):
      %3: f32 = load<@x, primal>(%2)
      %4: f32 = load<@y, adjoint>()
      %5: f32 = unary<cos>(%3)
      %6: f32 = binary<mul>(%4, %5)
      %7: f32 = atomic<add, @x, adjoint>(%6, %2)
      yield()
    }

`_Reverser._emit_tasks` is the algorithm: the facts of each task, a draft of its reverse, a plan of
its records, the reverse. docs/inside_gradients.md explains it. The first tasks of the reverse
kernel recompute the launch-temporary values that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field, replace
from typing import Any

from octants.analysis.floats.replay_strictness import (
    APPROXIMATE_TRIG,
    decides,
    may_differ_in_replay,
    sines_and_cosines,
)
from octants.analysis.sums.serial_sums import REASSOCIATE_SUMS, only_sums
from octants.autodiff.emit.primal_reads import RECOMPUTED, PrimalReads
from octants.autodiff.emit.reverse_task import Emitted, emit
from octants.autodiff.errors import Hazard
from octants.autodiff.facts.cooperative_tasks import has_no_reverse, refuse_order, refuse_records
from octants.autodiff.facts.kernel_facts import Analysis
from octants.autodiff.facts.task_facts import TaskFacts
from octants.autodiff.improve.loop_unswitching import make_versions
from octants.autodiff.improve.loops_first_to_last import LastFirst, run_first_to_last
from octants.autodiff.improve.narrow_counters import narrow_counters
from octants.autodiff.improve.recorded_results import record_results
from octants.autodiff.plan.recording_plan import RecordingPlan, loops_with_frames, plan
from octants.ir import ops
from octants.ir.core import Array, Block, Companion, Module, Operation, Space, Task
from octants.lazy_dataclass import dataclass
from octants.simplify import simplify
from octants.simplify.dead_code import prune
from octants.target import Capabilities

_DEFAULTS = Capabilities()


@dataclass(eq=False, slots=True)
class Reversed:
    """A reverse kernel and the memory that it must run on.

    `module.arrays` are parallel to the arrays of the primal kernel. `needed` are the primal arrays
    whose contents the reverse kernel reads. `state` says which contents: those "after" the forward
    launch, or those "before" it. In the second case the first sweep repeats the stores whose
    results it must read; arrays that the forward launch changes and the reverse kernel does not are
    read as they are after it. If `hazards` is not empty, the reverse kernel is wrong.
    `reads` are the primal operations whose reads it repeats.
    """

    module: Module
    needed: list[Array]
    state: str
    hazards: list[Hazard] = field(default_factory=list)
    reads: list[Operation] = field(default_factory=list)


def reverse(
    module: Module,
    machine: Capabilities = _DEFAULTS,
    *,
    before_launch: bool = False,
    repeat_stores: bool = False,
    split: bool = False,
    argument_gradients: bool = False,
    noalias: bool = False,
) -> Reversed:
    """The reverse of a kernel whose tasks have been outlined and simplified.

    Args:
        module: the primal kernel, which is not changed.
        machine: the device for which the loops are recorded.
        before_launch: reverse the kernel, which must have one task, on the memory from before its
            launch.
        repeat_stores: let the first sweep repeat the stores of idempotent tasks, which leave memory
            as it is.
        split: the kernel is one of those of `ir.cloning.split_tasks`: its launch-temporaries still
            hold what the forward launch stored.
        argument_gradients: float scalar arguments have adjoints, too.
        noalias: no two arrays of a launch, nor their companions, share memory.

    Returns:
        The reverse kernel, simplified. Its `hazards` may be non-empty.

    Raises:
        OctantsCompilationError: an operation has no derivative rule.
    """
    analysis = Analysis(
        module,
        before_launch=before_launch,
        repeat_stores=repeat_stores,
        argument_gradients=argument_gradients,
    )
    reverser = _Reverser(module, analysis, machine, split=split, noalias=noalias)
    return reverser.run(
        is_alone=not (split or before_launch), state="before" if before_launch else "after"
    )


def in_best_state(module: Module, make: Callable[[bool], Reversed]) -> Reversed:
    """The reverse of a kernel on the memory after its launch, or before it if only that is right.

    Args:
        module: the primal kernel.
        make: gives the reverse kernel, with ``before_launch`` as its argument (see `reverse`).

    Returns:
        The reverse kernel for the state "after" if it has no hazards, else the one for "before" if
        the kernel has one task and that has no hazards, else the first with its hazards. The caller
        handles these: it launches the tasks of a kernel one by one under a tape.
    """
    after = make(False)
    if not after.hazards or len(module.tasks) != 1:
        return after
    before = make(True)
    return after if before.hazards else before


class _Reverser:
    """Reverses an analysed kernel: plans and emits its tasks, last to first."""

    def __init__(
        self,
        module: Module,
        analysis: Analysis,
        machine: Capabilities,
        *,
        split: bool,
        noalias: bool,
    ) -> None:
        self.tasks = module.tasks
        self.analysis = analysis
        self.machine = machine
        self.reads = PrimalReads(analysis, split=split)
        self._found_options: dict[int, dict[str, Any]] = {}
        self._with_frames: set[Operation] = set()
        arrays = list(analysis.arrays.values())
        self.module = Module(
            f"{module.name}_reverse", arrays, location=module.location, noalias=noalias
        )

    def run(self, *, is_alone: bool, state: str) -> Reversed:
        """The simplified reverse kernel; if ``is_alone``, it recomputes launch-temporaries."""
        derivative_ops, origins, last_first = self._emit_tasks()
        if is_alone and self._reads_temporaries():
            self.module.tasks[:0] = self._recompute_temporaries()
            prune(self.module)
        survey = self.reads.survey(self.module)
        record_results(self.module, derivative_ops if self.machine.contracts else (), origins)
        run_first_to_last(self.module, last_first, self._with_frames)
        make_versions(self.module)
        simplify(self.module)
        narrow_counters(self.module)
        for task in self.module.tasks:
            refuse_records(task)
        return Reversed(self.module, survey.needed, state, survey.hazards, survey.reads)

    # -- tasks -------------------------------------------------------------------------------------

    def _emit_tasks(self) -> tuple[set[Operation], dict[Operation, Operation], LastFirst]:
        """Emit and prune the reverse of all tasks.

        What a loop must record is known when its reverse exists and has been pruned. So each task
        is first emitted with all loops recorded whole, which is how most of them stay; a task with
        another plan is emitted again. If that needs a result of a loop that the draft did not need,
        no loop of the task is late.

        Returns:
            The operations that compute derivatives, the primal operation of each copy of one, and
            the loops of the backward sweeps.
        """
        numbers = list(reversed(range(len(self.tasks))))
        facts: dict[int, TaskFacts] = {}
        emitted: dict[int, Emitted] = {}
        for number in numbers:
            if not has_no_reverse(self.tasks[number], self.analysis.has_adjoint):
                facts[number] = self._facts(number)
                emitted[number] = self._emit(number, facts[number], RecordingPlan())
        tasks = {number: self._task(number, emitted.get(number)) for number in numbers}
        self._set_tasks(tasks.values())
        plans = self._plans(facts, emitted)
        while plans:
            for number, planned in plans.items():
                emitted[number] = self._emit(number, facts[number], planned)
                tasks[number] = self._task(number, emitted[number])
            self._set_tasks(tasks.values())
            plans = {
                number: replace(planned, late=frozenset())
                for number, planned in plans.items()
                if not emitted[number].is_known
            }
        derivative_ops = set[Operation]().union(*(e.derivative_ops for e in emitted.values()))
        origins = {copy: op for each in emitted.values() for copy, op in each.origins.items()}
        last_first = {loop: n for each in emitted.values() for loop, n in each.last_first.items()}
        return derivative_ops, origins, last_first

    def _facts(self, number: int) -> TaskFacts:
        if number in self.analysis.rerun_tasks:
            refuse_order(self.tasks[number])
        return self.analysis.facts(number)

    def _emit(self, number: int, facts: TaskFacts, planned: RecordingPlan) -> Emitted:
        return emit(
            facts,
            planned,
            self.analysis.arrays,
            self.reads.observer(number),
            self.analysis.overwritten(number) if facts.log is not None else frozenset(),
            self.machine,
        )

    def _set_tasks(self, tasks: Iterable[Task]) -> None:
        self.module.tasks[:] = tasks
        prune(self.module)

    def _plans(
        self, facts: dict[int, TaskFacts], emitted: dict[int, Emitted]
    ) -> dict[int, RecordingPlan]:
        """Plan the tasks, from their pruned drafts, except those with all loops recorded whole."""
        left, plans = set(self.module.walk()), {}
        used = {value for op in left for value in op.operands}
        for number, draft in emitted.items():
            body, uses = facts[number].body, draft.loop_uses(left, used)
            found = plan(body, uses, self.machine)
            self._with_frames |= loops_with_frames(body, uses, self.machine, found)
            if not found.is_whole:
                plans[number] = found
        return plans

    def _task(self, number: int, emitted: Emitted | None) -> Task:
        """The reverse of a task; empty if the task has none."""
        task = self.tasks[number]
        name = f"{task.name}_reverse"
        if emitted is None:
            return Task(name, Block([], [ops.Yield([])]))
        domain = None if task.domain is None else self.reads.copy(task.domain, number)
        return Task(name, emitted.body, domain, task.location, self._options(number))

    def _options(self, number: int) -> dict[str, Any]:
        """The options of a task's reverse, which are the same however the task is recorded."""
        if number not in self._found_options:
            task = self.tasks[number]
            found = dict(task.options)
            if number not in self.analysis.rerun_tasks:
                found |= {REASSOCIATE_SUMS: True} if _may_reassociate_sums(task) else {}
                found |= _trig_options(task)
            self._found_options[number] = found
        return self._found_options[number]

    # -- launch-temporaries ------------------------------------------------------------------------

    def _recompute_temporaries(self) -> list[Task]:
        """The tasks that compute launch-temporary values, without their other effects."""
        tasks = []
        for number, task in enumerate(self.tasks):
            if any(array.space is Space.TEMPORARY for array in self.analysis.writers[number]):
                body = self.reads.copy(task.body, number, keep=True)
                domain = None if task.domain is None else self.reads.copy(task.domain, number)
                name = f"{task.name}{RECOMPUTED}"
                tasks.append(Task(name, body, domain, task.location, task.options))
        return tasks

    def _reads_temporaries(self) -> bool:
        return any(
            isinstance(op, ops.Load)
            and op.array.space is Space.TEMPORARY
            and op.companion is Companion.PRIMAL
            for op in self.module.walk()
        )


def _may_reassociate_sums(task: Task) -> bool:
    """Whether a task has loops that only sum up, and no replay must reproduce sums bit by bit.

    What the reverse task computes from such sums, and all others in it, are derivatives.
    """
    loops = [op for op in task.body.walk() if isinstance(op, ops.For)]
    outermost = [op for op in task.body.ops if isinstance(op, ops.For) and op.inits]
    sums = {value for op in loops for value in op.results if value.type.is_float}
    if not loops or not all(only_sums(op, is_nest=True) for op in outermost):
        return False
    return not sums or not decides(task.body, sums)


def _trig_options(task: Task) -> dict[str, bool]:
    """The option that no replay of a task must reproduce its sines bit by bit, if so."""
    has_loops = any(isinstance(op, ops.Loop) for op in task.body.walk())
    sines = sines_and_cosines(task.body) if has_loops else set()
    return {APPROXIMATE_TRIG: True} if sines and may_differ_in_replay(task.body, sines) else {}
