"""Reverse mode: a kernel becomes the kernel that propagates adjoints, task by task, last first.

Before::

    kernel @k
    array @x: f32, 1, ndarray, () [primal, adjoint]
    array @y: f32, 0, ndarray, () [primal, adjoint]
    parallel @k_0 {
      %0: i32 = constant<0>()
      %1: i32 = shape<@x, 0>()
      yield(%0, %1)
    } { (%2: i32):
      %3: f32 = load<@x, primal>(%2)
      %4: f32 = unary<sin>(%3)
      %5: f32 = atomic<add, @y, primal>(%4)
      yield()
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

The algorithm is section "Reverse mode" of docs/architecture.md. Launch-temporary values are
computed again by the first tasks of the reverse kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from octants.analysis.places import Places
from octants.analysis.serial_sums import FREE_SUMS, only_sums
from octants.analysis.strictness import FREE_WAVES, decides, nobody_minds, waves
from octants.autodiff.backward import Backward
from octants.autodiff.checkpoints import REPLAY, Allowance, Plan, plan
from octants.autodiff.cooperation import (
    Phases,
    ends_here,
    has_barriers,
    refuse_order,
    refuse_records,
    with_adjoints,
)
from octants.autodiff.errors import Hazard
from octants.autodiff.hazards import Log, thread_log, writers
from octants.autodiff.initialised import initialises
from octants.autodiff.ordering import ordering_of
from octants.autodiff.replay import EntryBuilder
from octants.autodiff.results import record_results
from octants.autodiff.versions import make_versions
from octants.ir import ops
from octants.ir.core import Array, Block, Companion, Module, Operation, Space, Task, Value
from octants.ir.rewriter import copy_arrays, copy_block
from octants.lazy_dataclass import dataclass
from octants.simplify import simplify
from octants.simplify.prune import prune
from octants.types.scalars import i64

PRIMAL, ADJOINT = Companion.PRIMAL, Companion.ADJOINT
_OF_THE_LAUNCH = (Space.TEMPORARY, Space.SHARED)


@dataclass(eq=False, slots=True)
class Reversed:
    """A reverse kernel and the memory that it must run on.

    `module.arrays` stands parallel to the primal's. `needed` are the primal's arrays whose contents
    it reads. `state` says which contents: those "after" the forward run of the kernel, or those
    "before" it; in the second case the run writes again what it must read while it changes, and
    arrays that the forward run changes and this one does not are read as they were after it. If
    `hazards` is not empty, the reverse kernel is wrong. `reads` are the operations of the primal
    whose reads it repeats.
    """

    module: Module
    needed: list[Array]
    state: str
    hazards: list[Hazard] = field(default_factory=list)
    reads: list[Operation] = field(default_factory=list)


def reverse(
    module: Module,
    *,
    saved: bool = False,
    again: bool = False,
    part: bool = False,
    argument_gradients: bool = False,
    capacity: int = 0,
    tape_whole: int = 0,
    tape_sharers: int = 1,
    nests: str = "auto",
    tape_local: int = 0,
    contracts: bool = False,
) -> Reversed:
    """The reverse of a kernel whose tasks have been outlined and simplified.

    With ``saved`` the kernel, of one task, is reversed on the memory from before it, whatever it
    overwrites. With ``again`` its tasks that initialise what they overwrite store it once more,
    which leaves it as it was. With ``part`` it is one of the parts of `ir.rewriter.split_tasks`,
    whose temporaries still hold what the forward run put there. With ``argument_gradients`` float
    scalar arguments have adjoints too. With a ``capacity`` the record of each loop holds so many
    iterations; a work item that needs more ends before it reverses anything. Without one, loops are
    recorded in blocks where a launch needs that, but for those that surely take no more than
    ``tape_whole`` bytes of a worker's tape, which up to ``tape_sharers`` work items share (0: any
    number of bytes). Loops in loops may be stored: ``nests`` is "auto", "replay" (never), or
    "store" (as far as the launch's budget goes). With ``tape_local`` none is: what a loop records
    is local, in blocks of so many bytes. What is added to an adjoint is rounded with the sum if it
    ``contracts``.

    Raises:
        OctantsCompilationError: an operation has no derivative rule.
    """
    allowance = Allowance(
        whole=0 if capacity else tape_whole,
        sharers=tape_sharers,
        nests=REPLAY if capacity else nests,
        local=0 if capacity else tape_local,
    )
    reverser = _Reverser(module, saved, part, argument_gradients, capacity, allowance, contracts)
    if again:
        reverser.store_again()
    return reverser.run()


def differentiate(
    module: Module,
    *,
    part: bool = False,
    tape_whole: int = 0,
    nests: str = "auto",
    tape_local: int = 0,
    contracts: bool = False,
) -> Reversed:
    """The reverse of a kernel in the best state that its overwriting allows.

    The one for the memory after the forward run if it has no hazards; else, for a kernel of one
    task, the one for the memory from before. Hazards that remain are for the caller to see to: of a
    kernel of several tasks, by launching its tasks as parts under a tape.
    """

    def make(saved: bool) -> Reversed:
        return reverse(
            module,
            saved=saved,
            part=part,
            tape_whole=tape_whole,
            nests=nests,
            tape_local=tape_local,
            contracts=contracts,
        )

    return in_best_state(module, make)


def in_best_state(module: Module, make: Callable[[bool], Reversed]) -> Reversed:
    """See `differentiate`; ``make(saved)`` reverses the module, for either state."""
    after = make(False)
    if not after.hazards or len(module.tasks) != 1:
        return after
    before = make(True)
    return after if before.hazards else before


class _Reverser:
    def __init__(
        self,
        module: Module,
        saved: bool,
        part: bool,
        argument_gradients: bool,
        capacity: int,
        allowance: Allowance,
        contracts: bool,
    ) -> None:
        self.module = module
        self.saved = saved
        self.part = part
        self.capacity = capacity
        self.allowance = allowance
        self.contracts = contracts
        self.plans = [Plan() for _ in module.tasks]
        self.sweeps: dict[int, Backward] = {}
        self.arrays = copy_arrays(module)
        self.primal_of = {new: old for old, new in self.arrays.items()}
        for array in self.arrays.values():
            if _gets_adjoint(array, argument_gradients):
                array.layouts[ADJOINT] = None
        for task in module.tasks:
            for array in with_adjoints(task, self._has_adjoint):
                self.arrays[array].layouts[ADJOINT] = array.layouts[PRIMAL]
        self.reverse_module = Module(
            f"{module.name}_reverse", list(self.arrays.values()), location=module.location
        )
        self.writers = [writers(task) for task in module.tasks]
        self.orderings = [ordering_of(task, self._has_adjoint) for task in module.tasks]
        self.places: dict[int, Places] = {}
        self.flagged: dict[Operation, tuple[int, Operation, str]] = {}
        self.reads: dict[Operation, None] = {}
        self.stored_again = set(range(len(module.tasks))) if saved else set()
        self.logs = [self._thread_log(number) for number in range(len(module.tasks))]

    def _has_adjoint(self, array: Array) -> bool:
        return self.arrays[array].has(ADJOINT)

    def store_again(self) -> None:
        """Let tasks store once more what they initialise, if none overwrites it later."""
        for number, task in enumerate(self.module.tasks):
            arrays = self._overwritten(number)
            later = set().union(*self.writers[number + 1 :])
            if later.isdisjoint(arrays) and initialises(task, arrays):
                self.stored_again.add(number)
                self.logs[number] = self._thread_log(number)

    def run(self) -> Reversed:
        self._reverse_tasks()
        if self._make_plans():
            self._reverse_tasks()
        tasks = self.reverse_module.tasks
        if not (self.part or self.saved) and self._reads_temporaries():
            tasks[:0] = self._recompute_temporaries()
            prune(self.reverse_module)
        hazards, needed = self._survey()
        slopes = set().union(*(backward.slopes for backward in self.sweeps.values()))
        record_results(self.reverse_module, slopes if self.contracts else ())
        make_versions(self.reverse_module)
        simplify(self.reverse_module)
        for task in tasks:
            refuse_records(task)
        state = "before" if self.saved else "after"
        return Reversed(self.reverse_module, needed, state, hazards, list(self.reads))

    # -- tasks -------------------------------------------------------------------------------------

    def _reverse_tasks(self) -> None:
        self.flagged.clear()
        numbers = reversed(range(len(self.module.tasks)))
        self.reverse_module.tasks[:] = [self._reverse_task(number) for number in numbers]
        prune(self.reverse_module)

    def _make_plans(self) -> bool:
        """Decide how loops are recorded, from records that have been pruned; whether it matters."""
        left = set(self.reverse_module.walk())
        for number, task in enumerate(self.module.tasks):
            if number not in self.sweeps:
                continue
            log, backward = self.logs[number], self.sweeps[number]
            body = task.body if log is None else log.body
            saving = [op for op, copies in backward.copies.items() if not left.isdisjoint(copies)]
            self.plans[number] = plan(body, backward.records, saving, self.allowance)
        return any(plan.in_blocks or plan.nests.around or plan.local for plan in self.plans)

    def _overwritten(self, number: int) -> frozenset[Array]:
        """The arrays that a task both reads and writes."""
        return frozenset(self.writers[number]) & self._read_arrays(number)

    def _thread_log(self, number: int) -> Log | None:
        if number not in self.stored_again:
            return None
        log = thread_log(self.module.tasks[number].body, self._overwritten(number))
        log.shared = self.orderings[number].shared
        return log

    def _reverse_task(self, number: int) -> Task:
        task, log = self.module.tasks[number], self.logs[number]
        if ends_here(task, self._has_adjoint):
            return Task(f"{task.name}_reverse", Block([], [ops.Yield([])]))
        if log is not None:
            refuse_order(task)
        primal = task.body if log is None else log.body
        body = Block([Value(arg.type, arg.name) for arg in primal.args])
        builder = EntryBuilder(body, contracts=self.contracts)

        def flag(read: Operation, origin: Operation, kind: str) -> None:
            self.flagged[read] = number, origin, kind

        plan = self.plans[number]
        backward = Backward(builder, self.arrays, flag, primal, log, self.capacity, plan)
        self.sweeps[number] = backward
        backward.mixed = self.orderings[number].mixed
        for arg, new in zip(primal.args, body.args, strict=True):
            backward.bind(arg, new)
        if log is not None:
            _first_sweep(backward, log, self._overwritten(number))
        backward.find_rooms(primal)
        backward.checks_plain = True
        backward.shares = True
        backward.recorded(primal)
        backward.checks_plain = backward.shares = False
        backward.reverse(primal)
        builder.yield_()
        body.ops[:0] = builder.entry
        domain = None if task.domain is None else self._copy_primal(task.domain, number)
        options = task.options
        if log is None and _has_free_sums(task):
            options = {**options, FREE_SUMS: True}
        if log is None:
            options = {**options, **_freedoms(task)}
        return Task(f"{task.name}_reverse", body, domain, task.location, options)

    def _copy_primal(self, block: Block, number: int, keep: bool = False) -> Block:
        """A copy of a primal block over the new arrays, without effects, its loads flagged.

        With ``keep``, the writes to arrays of the launch and its blocks stay.
        """
        new = copy_block(block, {})
        self._strip(new, block, number, keep)
        return new

    def _strip(self, new: Block, primal: Block, number: int, keep: bool) -> None:
        stripped: list[Operation] = []
        for op, origin in zip(new.ops, primal.ops, strict=True):
            if op.reports:
                continue
            if isinstance(op, ops.Write) and not (keep and op.array.space in _OF_THE_LAUNCH):
                if op.results:
                    op = ops.Load(op.array, PRIMAL, op.indices, results=op.results)
                    self.flagged[op] = number, origin, "atomic"
                else:
                    continue
            elif isinstance(op, ops.Load):
                self.flagged[op] = number, origin, "load"
            if hasattr(op, "array"):
                op.array = self.arrays[op.array]
            for region, primal_region in zip(op.regions, origin.regions, strict=True):
                self._strip(region, primal_region, number, keep)
            stripped.append(op)
        new.ops = stripped

    def _recompute_temporaries(self) -> list[Task]:
        """The tasks that compute launch-temporary values, with no other effects."""
        tasks = []
        for number, task in enumerate(self.module.tasks):
            if any(array.space is Space.TEMPORARY for array in self.writers[number]):
                body = self._copy_primal(task.body, number, keep=True)
                domain = None if task.domain is None else self._copy_primal(task.domain, number)
                name = f"{task.name}_again"
                tasks.append(Task(name, body, domain, task.location, task.options))
        return tasks

    def _reads_temporaries(self) -> bool:
        return any(
            isinstance(op, ops.Load)
            and op.array.space is Space.TEMPORARY
            and op.companion is PRIMAL
            for op in self.reverse_module.walk()
        )

    # -- what the reverse kernel reads -------------------------------------------------------------

    def _survey(self) -> tuple[list[Hazard], list[Array]]:
        """The hazards among the primal reads that are left, and the arrays that are read."""
        hazards: list[Hazard] = []
        needed: dict[Array, None] = {}
        again = {id(task.body) for task in self.reverse_module.tasks if _is_again(task)}
        for task in self.reverse_module.tasks:
            for block in (task.domain, task.body):
                for op in block.walk() if block is not None else ():
                    if op in self.flagged:
                        self._consider(op, id(task.body) in again, hazards, needed)
        for ordering in self.orderings:
            hazards += [
                Hazard(op.array.name, op.location, None, "order") for op in ordering.unordered
            ]
        return hazards, list(needed)

    def _consider(
        self, op: Operation, again: bool, hazards: list[Hazard], needed: dict[Array, None]
    ) -> None:
        number, origin, kind = self.flagged[op]
        array: Array = origin.array  # type: ignore[attr-defined]
        if kind == "shared":
            Phases(self.module.tasks[number]).check(origin)
            return
        if self._is_kept(array):
            needed[array] = self.reads[origin] = None
        if again and array.space in _OF_THE_LAUNCH and kind == "load":
            return
        saved = number in self.stored_again and not again
        writes = self._later_writes(array, number, origin, kind, saved)
        if kind == "atomic" or writes:
            write = writes[0].location if writes else None
            hazards.append(Hazard(array.name, origin.location, write, kind))

    def _read_arrays(self, number: int) -> frozenset[Array]:
        """The arrays from which a task reads, be it what was there before an update."""
        body = self.module.tasks[number].body
        used = {value for op in body.walk() for value in op.operands}
        return self.orderings[number].needing.union(
            op.array
            for op in body.walk()
            if isinstance(op, ops.Access) and op.reads and op.result in used
        )

    def _is_kept(self, array: Array) -> bool:
        """Whether the contents of the array outlive the forward launch."""
        memory = array.space in (Space.FIELD, Space.NDARRAY)
        return memory or (self.part and array.space is Space.TEMPORARY)

    def _touching(self, number: int, origin: Operation, writes: list[Operation]) -> list[Operation]:
        """The writes of a task that may touch what one of its loads read, after it did."""
        if not isinstance(origin, ops.Load) or not writes:
            return []
        if has_barriers(self.module.tasks[number].body):  # others may write after a barrier
            return writes
        if number not in self.places:
            self.places[number] = Places(self.module.tasks[number])
        places = self.places[number]
        if origin not in places.order:  # in the domain, which runs before everything else
            return writes
        return [op for op in writes if places.may_touch_later(origin, op)]  # type: ignore[arg-type]

    def _later_writes(
        self, array: Array, number: int, origin: Operation, kind: str, saved: bool
    ) -> list[Operation]:
        """The writes after which memory does not hold what ``origin`` read (or left)."""
        own = self.writers[number].get(array, [])
        later = [op for task in self.writers[number + 1 :] for op in task.get(array, ())]
        if kind == "load":
            return later if saved else self._touching(number, origin, own) + later
        if kind == "extremum":
            if saved and array in self._read_arrays(number):
                return own  # run again item by item, it never holds what all of them left
            fn = origin.attributes[0]
            own = [op for op in own if not (isinstance(op, ops.Atomic) and op.fn == fn)]
        return own + later


def _first_sweep(backward: Backward, log: Log, overwritten: frozenset[Array]) -> None:
    """Run the task forward, with its stores, logging what hazardous loads read."""
    assert log.end is not None
    builder = backward.builder
    backward.stores_run = overwritten
    backward.plain(log.body)
    backward.stores_run = frozenset()
    end = ops.RecordEnd(
        backward.log_record, builder.constant(0, i64), backward.value(log.end), results=[Value(i64)]
    )
    backward.stack = builder.append(end).result


def _gets_adjoint(array: Array, argument_gradients: bool) -> bool:
    if not array.dtype.is_float:
        return False
    if array.space is Space.ARGUMENT:
        return argument_gradients
    return array.space in (Space.TEMPORARY, Space.RETURN)


def _has_free_sums(task: Task) -> bool:
    """Whether a task has loops that sum up, on which nothing hangs that a replay must find again.

    What its reverse compares then is for slopes only.
    """
    loops = [op for op in task.body.ops if isinstance(op, ops.For) and op.inits]
    sums = {value for op in loops for value in op.results if value.type.is_float}
    return bool(sums) and all(map(only_sums, loops)) and not decides(task.body, sums)


def _freedoms(task: Task) -> dict[str, bool]:
    """The option that no replay of a task must find its sines again to the bit, if so."""
    has_loops = any(isinstance(op, (ops.For, ops.While)) for op in task.body.walk())
    numbers = waves(task.body) if has_loops else set()
    return {FREE_WAVES: True} if numbers and nobody_minds(task.body, numbers) else {}


def _is_again(task: Task) -> bool:
    return task.name.endswith("_again")
