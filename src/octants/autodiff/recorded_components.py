"""Lets records hold the components that an iteration reads, instead of the vector.

Before::

    kernel @k
    array @x: f32, 1, field, () [primal, adjoint]
    record #r: f32, f32, ...
    for(...) { (%i, %a, %b, ...):                    for(...):
      record_push<#r>(%0, %i, %a, %b, ...)             record_pop: %p, %q, ...
      %v = extract(%j, %a, %b, ...)                    %w = extract(%j, %p, %q, ...)

After::

      %v = extract(%j, %a, %b, ...)                    record_pop: %p, %q, ..., %w
      record_push<#r>(%0, %i, %a, %b, ..., %v)

A loop records what it carries. If the backward sweep uses a carried vector only to read some of its
components again, and every sweep that records reads them, too, they are recorded, and pruning
removes the components that nothing reads. So an iteration that changes one component of a long
vector records a few numbers. Reads behind such a change, in the same iteration, are as good as
those before it; reads in a branch or in an inner loop need the vector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from octants.ir import ops
from octants.ir.core import Block, Operation, Record, Value, replace_operands

Reads = Mapping[Operation, Sequence[Operation]]
"""The copies of each primal `Extract`."""


def record_components(body: Block, records: Sequence[Record], reads: Reads) -> None:
    """Let the records of a reverse task hold components, in place.

    Args:
        body: the task, before it is pruned.
        records: the records of loops that hold nothing besides what the loops carry.
        reads: the copies of reads in the sweeps of the task.
    """
    if not reads:
        return
    recorder = _ComponentRecorder(body, reads)
    for record in records:
        recorder.rewrite(record)
    if recorder.replaced:
        for op in body.walk():
            replace_operands(op, lambda value: recorder.replaced.get(value, value))


class _ComponentRecorder:
    def __init__(self, body: Block, reads: Reads) -> None:
        self.reads = reads
        self.replaced: dict[Value, Value] = {}
        self.home: dict[Operation, Block] = {}
        self.users: dict[Value, list[Operation]] = {}
        self.pushes: dict[Record, list[ops.RecordPush]] = {}
        self.pops: dict[Record, list[ops.RecordPop]] = {}
        self._visit(body)

    def _visit(self, block: Block) -> None:
        for op in block.ops:
            self.home[op] = block
            for value in dict.fromkeys(op.operands):
                self.users.setdefault(value, []).append(op)
            if isinstance(op, ops.RecordPush):
                self.pushes.setdefault(op.record, []).append(op)
            elif isinstance(op, ops.RecordPop):
                self.pops.setdefault(op.record, []).append(op)
            for region in op.regions:
                self._visit(region)

    def rewrite(self, record: Record) -> None:
        """Let a record hold components, if that is less than what it then need not hold."""
        pops, pushes = self.pops.get(record, []), self.pushes.get(record, [])
        if len(pops) != 1 or not pushes:
            return
        (pop,) = pops
        carried, derived = self._vectors(pop)
        found = [copies for copies in map(self._copies, self.reads.values()) if copies]
        chosen = []
        for copies in found:
            again = copies.get(self.home[pop])
            if again is None or (carried | derived).isdisjoint(again.components):
                continue
            if all(self.home[push] in copies for push in pushes):
                chosen.append(copies)
        left = self._still_needed(carried, derived, {c[self.home[pop]] for c in chosen}, pop)
        if left is not None and len(chosen) + len(left) < len(carried):
            for copies in chosen:
                self._record(record, pop, pushes, copies)

    def _copies(self, copies: Sequence[Operation]) -> dict[Block, ops.Extract]:
        """The copy of a read in each block; without blocks that have several."""
        found: dict[Block, list[ops.Extract]] = {}
        for op in copies:
            if op in self.home and isinstance(op, ops.Extract):
                found.setdefault(self.home[op], []).append(op)
        return {block: own[0] for block, own in found.items() if len(own) == 1}

    def _vectors(self, pop: ops.RecordPop) -> tuple[set[Value], set[Value]]:
        """The popped components of vectors, and the components that writes make of them."""
        popped, carried = set(pop.results), set[Value]()
        derived: set[Value] = set()
        for op in self.home[pop].ops:
            if isinstance(op, (ops.Extract, ops.Insert)):
                own = popped.intersection(op.components)
                carried |= own
                if isinstance(op, ops.Insert) and (own or not derived.isdisjoint(op.components)):
                    derived.update(op.results)
        return carried, derived

    def _still_needed(
        self, carried: set[Value], derived: set[Value], chosen: set[ops.Extract], pop: ops.RecordPop
    ) -> set[Value] | None:
        """The popped components that have other uses than reads that are recorded.

        None if all of them have.
        """
        found: set[Value] = set()
        for value in carried | derived:
            for user in self.users.get(value, ()):
                if user in chosen and value in user.operands[1:]:
                    continue
                is_write = isinstance(user, ops.Insert) and self.home[user] is self.home[pop]
                if is_write and user.operands[0] is not value:
                    continue
                if value in derived or isinstance(user, (ops.Extract, ops.Insert)):
                    return None
                found.add(value)
        return found

    def _record(
        self,
        record: Record,
        pop: ops.RecordPop,
        pushes: Sequence[ops.RecordPush],
        copies: Mapping[Block, ops.Extract],
    ) -> None:
        """Record the component that a read gives, behind the read."""
        again = copies[self.home[pop]]
        record.slots.append(again.result.type)
        popped = Value(again.result.type, again.result.name or again.components[0].name)
        pop.results = [*pop.results, popped]
        self.replaced[again.result] = popped
        for push in pushes:
            block = self.home[push]
            read = copies[block]
            push.values = [*push.values, read.result]
            block.ops.remove(push)
            after = max(block.ops.index(op) for op in self._definitions(block, push.values))
            block.ops.insert(after + 1, push)

    def _definitions(self, block: Block, values: Sequence[Value]) -> list[Operation]:
        """The operations of a block that compute some of the values."""
        wanted = set(values)
        return [op for op in block.ops if not wanted.isdisjoint(op.results)]
