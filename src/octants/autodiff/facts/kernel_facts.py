"""Analyses a kernel for its reverse: which arrays have adjoints, what tasks write and overwrite."""

from __future__ import annotations

from octants.analysis.memory.access_aliasing import ElementAliasing
from octants.autodiff.facts.cooperative_tasks import shared_with_adjoints
from octants.autodiff.facts.hazardous_reads import ReadLog, thread_log, writers
from octants.autodiff.facts.idempotent_tasks import initialises
from octants.autodiff.facts.order_dependent_updates import ordering_of
from octants.autodiff.facts.task_facts import TaskFacts
from octants.ir import ops
from octants.ir.cloning import copy_arrays
from octants.ir.cooperative_tasks import has_barriers
from octants.ir.core import Array, Companion, Module, Operation, Space

PRIMAL, ADJOINT = Companion.PRIMAL, Companion.ADJOINT


class Analysis:
    """Facts of a kernel; a task is named by its position in the kernel.

    `arrays` maps the arrays of the kernel to those of the reverse kernel, which have adjoints where
    a derivative flows through them. `rerun_tasks` are the tasks whose first sweep repeats their
    stores: all if ``before_launch``, the idempotent ones if ``repeat_stores``. `orderings` and
    `writers` have an entry for each task: see `order_dependent_updates.ordering_of` and
    `hazardous_reads.writers`.
    """

    def __init__(
        self, module: Module, *, before_launch: bool, repeat_stores: bool, argument_gradients: bool
    ) -> None:
        self.tasks = module.tasks
        self.arrays = copy_arrays(module)
        for array in self.arrays.values():
            if _gets_adjoint(array, argument_gradients):
                array.layouts[ADJOINT] = None
        for task in self.tasks:
            for array in shared_with_adjoints(task, self.has_adjoint):
                self.arrays[array].layouts[ADJOINT] = array.layouts[PRIMAL]
        self.orderings = [ordering_of(task, self.has_adjoint) for task in self.tasks]
        self.writers = [writers(task) for task in self.tasks]
        numbers = range(len(self.tasks))
        self.rerun_tasks = {
            n for n in numbers if before_launch or (repeat_stores and self._initialises(n))
        }
        self._logs = {number: self._thread_log(number) for number in self.rerun_tasks}
        self._aliasing: dict[int, ElementAliasing] = {}

    def has_adjoint(self, array: Array) -> bool:
        """Whether a derivative flows through an array of the primal kernel."""
        return self.arrays[array].has(ADJOINT)

    def facts(self, number: int) -> TaskFacts:
        """The facts of one task.

        Raises:
            OctantsCompilationError: an operation has no derivative rule.
        """
        log, ordering = self._logs.get(number), self.orderings[number]
        return TaskFacts(self.tasks[number], log, ordering, self.has_adjoint)

    # -- what tasks overwrite ----------------------------------------------------------------------

    def overwritten(self, number: int) -> frozenset[Array]:
        """The arrays that a task both reads and writes."""
        return frozenset(self.writers[number]) & self._read_arrays(number)

    def _initialises(self, number: int) -> bool:
        """Whether a task is idempotent, and no later task writes what it overwrites."""
        arrays = self.overwritten(number)
        later = set().union(*self.writers[number + 1 :])
        return later.isdisjoint(arrays) and initialises(self.tasks[number], arrays)

    def _thread_log(self, number: int) -> ReadLog:
        arrays = self.overwritten(number)
        return thread_log(self.tasks[number].body, arrays, self.orderings[number].shared)

    def _read_arrays(self, number: int) -> frozenset[Array]:
        """The arrays from which a task reads, also the prior contents that its updates need."""
        body = self.tasks[number].body
        used = body.used()
        return self.orderings[number].needing.union(
            op.array
            for op in body.walk()
            if isinstance(op, ops.Access) and op.reads and op.result in used
        )

    def _touching(self, number: int, origin: Operation, writes: list[Operation]) -> list[Operation]:
        """The writes of a task that may change what one of its loads read, after that load."""
        if not isinstance(origin, ops.Load) or not writes:
            return []
        if has_barriers(self.tasks[number].body):  # others may write after a barrier
            return writes
        if number not in self._aliasing:
            self._aliasing[number] = ElementAliasing(self.tasks[number])
        aliasing = self._aliasing[number]
        if origin not in aliasing.order:  # in the domain, which runs before everything else
            return writes
        return [op for op in writes if aliasing.may_touch_later(origin, op)]  # type: ignore[arg-type]

    def later_writes(
        self, array: Array, number: int, origin: Operation, kind: str, before_task: bool
    ) -> list[Operation]:
        """The writes after which memory no longer holds what an operation read or left.

        Args:
            array: the array that ``origin`` accesses.
            number: the position of the task of ``origin``.
            origin: the primal operation.
            kind: "load" for the value that it loaded, "extremum" for what an atomic_min or
                atomic_max left, "atomic" for what an atomic returned.
            before_task: the task is reversed on the memory from before it.

        Returns:
            The writes of the task itself and of later ones, in the order of the tasks.
        """
        own = self.writers[number].get(array, [])
        later = [op for task in self.writers[number + 1 :] for op in task.get(array, ())]
        if kind == "load":
            return later if before_task else self._touching(number, origin, own) + later
        if kind == "extremum":
            if before_task and array in self._read_arrays(number):
                return own  # run again item by item, it never holds what all of them left
            fn = origin.attributes[0]
            own = [op for op in own if not (isinstance(op, ops.Atomic) and op.fn == fn)]
        return own + later


def _gets_adjoint(array: Array, argument_gradients: bool) -> bool:
    if not array.dtype.is_float:
        return False
    if array.space is Space.ARGUMENT:
        return argument_gradients
    return array.space in (Space.TEMPORARY, Space.RETURN)
