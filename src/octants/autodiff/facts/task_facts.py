"""Facts of one task for emitting its reverse: activity, captures, inductions, saved reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from octants.analysis.memory.races import Races, same_everywhere
from octants.autodiff.facts.activity import ActivityFlow
from octants.autodiff.facts.deeply_nested_ifs import DeepIfs, deep_ifs
from octants.autodiff.facts.hazardous_reads import ReadLog
from octants.autodiff.facts.induction_variables import Steps, inductions
from octants.autodiff.facts.order_dependent_updates import Ordering
from octants.cached_property import cached_property
from octants.ir import ops
from octants.ir.cooperative_tasks import cooperates
from octants.ir.core import Array, Block, Operation, Space, Task, Value


class TaskFacts:
    """Facts of one task that do not depend on how its loops are recorded.

    `body` is what is reversed: the body of the task, or a copy of it with a `log`. The `active`
    values have an adjoint; the adjoints of `guarded` values may be zero because a select, min or
    max took the other operand, or no iteration of a loop used them. `deep` are the ifs in deep
    nests. `has_adjoint` says whether a derivative flows through an array.
    """

    def __init__(
        self,
        task: Task,
        log: ReadLog | None,
        ordering: Ordering,
        has_adjoint: Callable[[Array], bool],
    ) -> None:
        self.task = task if log is None else replace(task, body=log.body)
        self.body = self.task.body
        self.log = log
        self.ordering = ordering
        self.deep: DeepIfs = deep_ifs(self.body, log)
        flow = ActivityFlow(self.body)
        self.has_adjoint = has_adjoint
        self.active = flow.varied(self.has_adjoint) & flow.useful(self.has_adjoint)
        self.guarded = flow.guarded()
        self._captures: dict[Block, dict[Value, None]] = {}
        self._is_reversed: dict[Operation, bool] = {}
        self._inductions: dict[Operation, dict[int, Steps]] = {}

    def is_repeated(self, op: ops.Store) -> bool:
        """Whether several work items may store one value with a derivative in one element."""
        if not self.task.is_parallel or op.value not in self.active:
            return False
        if op.array.space is Space.SHARED:
            return not self._follows_thread(op.indices)
        if op.value not in self._same and not self._cooperates:
            return False
        return not self._races.is_owned(self._stores[op.array])

    def _follows_thread(self, indices: Sequence[Value]) -> bool:
        """Whether no two work items of a block have the same indices."""
        same = set().union(*(self._races.agreeing(index, index) for index in indices))
        return any(self._races.determined(number, same) for number in self._thread_numbers)

    @cached_property
    def _thread_numbers(self) -> list[Value]:
        """The values that are the number of the work item in its block."""
        races, size = self._races, self.task.options["block_dim"]
        divisors = {"mod": size, "truncmod": size}
        if size & (size - 1) == 0:
            divisors["and"] = size - 1
        remainders = (
            op
            for op in races.definitions.values()
            if isinstance(op, ops.Binary) and races.number(op.rhs) == divisors.get(op.fn, ())
        )
        return [op.result for op in remainders if self._counts_items(op.lhs)]

    def _counts_items(self, value: Value) -> bool:
        """Whether a value is the index of the work item and something that is uniform."""
        terms = self._races.expression(value).terms
        varying = {atom: n for atom, n in terms.items() if not self._races.is_uniform(atom)}
        return varying == {self._races.item: 1}

    @cached_property
    def _cooperates(self) -> bool:
        return cooperates(self.task)

    @cached_property
    def _same(self) -> set[Value]:
        return same_everywhere(self.task)

    @cached_property
    def _races(self) -> Races:
        return Races(self.task)

    @cached_property
    def _stores(self) -> dict[Array, list[ops.Access]]:
        found: dict[Array, list[ops.Access]] = {}
        for op in self.body.walk():
            if isinstance(op, ops.Store):
                found.setdefault(op.array, []).append(op)
        return found

    def is_saved(self, op: Operation) -> bool:
        """Whether the first sweep saves what an operation reads, in the log or as its result."""
        return self.log is not None and (op in self.log.positions or op in self.log.once)

    def is_reversed(self, op: Operation) -> bool:
        """Whether an operation with regions has a reverse, and so must be recorded."""
        if op not in self._is_reversed:
            inside = any(self.matters(o) for region in op.regions for o in region.ops)
            self._is_reversed[op] = inside or any(v in self.active for v in op.results)
        return self._is_reversed[op]

    def matters(self, op: Operation) -> bool:
        """Whether an operation that is not scalar has a reverse."""
        if isinstance(op, ops.Write):
            return self.has_adjoint(op.array)
        if op.REGIONS:
            return self.is_reversed(op)
        return isinstance(op, ops.Barrier) or any(value in self.active for value in op.results)

    def captures(self, block: Block) -> dict[Value, None]:
        """The active values that a block uses and does not define, in the order of their uses."""
        if block not in self._captures:
            used: dict[Value, None] = {}
            defined = set(block.args)
            for op in block.ops:
                used.update((value, None) for value in op.operands if value in self.active)
                for region in op.regions:
                    used.update(self.captures(region))
                defined.update(op.results)
            self._captures[block] = {value: None for value in used if value not in defined}
        return self._captures[block]

    def inductions(self, op: ops.Loop) -> dict[int, Steps]:
        """The carried integers of a loop that are affine in the iteration number, by position."""
        if op not in self._inductions:
            self._inductions[op] = inductions(op)
        return self._inductions[op]
