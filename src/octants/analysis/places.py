"""Whether a write can touch, after a read, the place that was read.

Indices are compared as affine forms: a constant plus multiples of atoms, which are the counters of
loops, the index of the work item, and values that no arithmetic explains. Index arithmetic is taken
not to wrap: an index that did would be out of bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from octants.ir import ops
from octants.ir.core import Block, Operation, Space, Task, Value

Write = ops.Store | ops.Atomic | ops.CompareExchange


@dataclass(slots=True)
class Affine:
    """``constant + sum(coefficient * atom)``"""

    constant: int = 0
    terms: dict[Value, int] = field(default_factory=dict)

    def plus(self, other: Affine, factor: int = 1) -> Affine:
        terms = dict(self.terms)
        for atom, coefficient in other.terms.items():
            terms[atom] = terms.get(atom, 0) + factor * coefficient
        kept = {atom: c for atom, c in terms.items() if c}
        return Affine(self.constant + factor * other.constant, kept)


class Places:
    """Facts of one task on which `may_touch_later` rests."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.definitions: dict[Value, Operation] = {}
        self.order: dict[Operation, int] = {}
        self.loops: dict[Operation, tuple[Operation, ...]] = {}
        self.home: dict[Value, tuple[Operation, ...]] = {}  # the loops around a definition
        self._forms: dict[Value, Affine] = {}
        self._visit(task.body, ())
        self.item = task.body.args[0] if task.is_parallel else None

    def _visit(self, block: Block, loops: tuple[Operation, ...]) -> None:
        self.home.update((arg, loops) for arg in block.args)
        for op in block.ops:
            self.order[op] = len(self.order)
            self.loops[op] = loops
            for value in op.results:
                self.definitions[value] = op
                self.home[value] = loops
            inner = (*loops, op) if isinstance(op, (ops.For, ops.While)) else loops
            for region in op.regions:
                self._visit(region, inner)

    # -- forms -------------------------------------------------------------------------------------

    def form(self, value: Value) -> Affine:
        if value not in self._forms:
            self._forms[value] = self._compute(value)
        return self._forms[value]

    def _compute(self, value: Value) -> Affine:
        op = self.definitions.get(value)
        if isinstance(op, ops.Constant):
            return Affine(op.value)
        if isinstance(op, ops.Cast) and op.x.type.is_integer:
            return self.form(op.x)
        if isinstance(op, ops.Binary) and op.fn in ("add", "sub"):
            return self.form(op.lhs).plus(self.form(op.rhs), 1 if op.fn == "add" else -1)
        if isinstance(op, ops.Binary) and op.fn == "mul":
            left, right = self.form(op.lhs), self.form(op.rhs)
            if not left.terms:
                return Affine().plus(right, left.constant)
            if not right.terms:
                return Affine().plus(left, right.constant)
        return Affine(0, {value: 1})

    def _is_uniform(self, atom: Value) -> bool:
        """Whether all work items see the same value."""
        op = self.definitions.get(atom)
        if isinstance(op, ops.Shape):
            return True
        return isinstance(op, ops.Load) and op.array.space is Space.ARGUMENT

    # -- the question ------------------------------------------------------------------------------

    def may_touch_later(self, load: ops.Load, write: Write) -> bool:
        """Whether ``write`` may overwrite, after ``load``, the element that it read."""
        pairs = [
            (self.form(a), self.form(b)) for a, b in zip(load.indices, write.indices, strict=True)
        ]
        if any(self._always_differ(read, written) for read, written in pairs):
            return False
        if self.task.is_parallel and not self._same_item_only(pairs):
            return True
        return not self._never_after(load, write, pairs)

    def _always_differ(self, read: Affine, written: Affine) -> bool:
        """Whether two indices differ whichever work items and iterations they belong to."""
        difference = written.plus(read, -1)
        atoms = {**read.terms, **written.terms}
        uniform = all(self._is_uniform(atom) for atom in atoms)
        return not difference.terms and difference.constant != 0 and uniform

    def _same_item_only(self, pairs: list[tuple[Affine, Affine]]) -> bool:
        """Whether equal indices mean that the same work item computed them."""
        assert self.item is not None
        shared: set[Value] = set()
        for read, written in pairs:
            varying = [atom for atom in read.terms if not self._is_uniform(atom)]
            difference = written.plus(read, -1)
            if len(varying) == 1 and not difference.terms and not difference.constant:
                shared.add(varying[0])
        return self._determined(self.item, shared)

    def _determined(self, value: Value, by: set[Value]) -> bool:
        """Whether ``value`` follows from others: it is one, or its quotient and remainder are."""
        if value in by:
            return True
        quotients: dict[Value, list[Value]] = {}
        remainders: set[Value] = set()
        for result, op in self.definitions.items():
            if isinstance(op, ops.Binary) and op.lhs is value and not self.loops[op]:
                if op.fn == "floordiv":
                    quotients.setdefault(op.rhs, []).append(result)
                elif op.fn == "mod" and result in by:
                    remainders.add(op.rhs)
        return any(
            self._determined(quotient, by)
            for divisor in remainders
            for quotient in quotients.get(divisor, ())
        )

    def _never_after(
        self, load: ops.Load, write: Write, pairs: list[tuple[Affine, Affine]]
    ) -> bool:
        """Whether within a work item the write never follows the read at the same place."""
        common = [a for a, b in zip(self.loops[load], self.loops[write], strict=False) if a is b]
        write_is_first = self.order[write] < self.order[load]
        if not common:
            if write_is_first:
                return True
            return any(self._differ_by_constant(*pair) for pair in pairs)
        outermost = common[0]
        counter = outermost.body.args[0] if isinstance(outermost, ops.For) else None
        first_each_time = write_is_first and len(common) == 1
        return any(
            self._differ_later(read, written, outermost, counter, first_each_time)
            for read, written in pairs
        )

    def _differ_by_constant(self, read: Affine, written: Affine) -> bool:
        difference = written.plus(read, -1)
        return not difference.terms and difference.constant != 0

    def _differ_later(
        self,
        read: Affine,
        written: Affine,
        outermost: Operation,
        counter: Value | None,
        write_is_first: bool,
    ) -> bool:
        """Whether the indices differ if the write runs in the read's iteration or a later one.

        The difference is then ``slope * later + constant`` with ``later`` >= 0, or > 0 if within an
        iteration the write comes first.
        """
        slope = written.terms.get(counter, 0) if counter is not None else 0
        if counter is not None and read.terms.get(counter, 0) != slope:
            return False
        difference = written.plus(read, -1)
        atoms = {**read.terms, **written.terms}
        fixed = all(atom is counter or outermost not in self.home[atom] for atom in atoms)
        if difference.terms or not fixed:
            return False
        if difference.constant:
            return slope * difference.constant >= 0
        return slope != 0 and write_is_first
