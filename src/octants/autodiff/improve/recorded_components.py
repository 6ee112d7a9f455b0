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
those before it. What a branch reads is a result of the if, which is zero if the other branch was
taken; the backward sweep takes the same branch. Reads in an inner loop need the vector.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from octants.ir import ops
from octants.ir.core import Block, Operation, Record, Value, replace_operands
from octants.lazy_dataclass import dataclass
from octants.types.scalars import convert

Reads = Mapping[Operation, Sequence[Operation]]
"""The copies of each primal `Extract`."""

Copies = Mapping[Block, list[ops.Extract]]
"""The copies of one read by the body in which they are, including its branches."""


def record_components(body: Block, records: Sequence[Record], reads: Reads) -> None:
    """Let the records of a reverse task hold components, in place.

    Args:
        body: the task, before it is pruned.
        records: the records of its loops.
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


@dataclass(eq=False, slots=True)
class _Vectors:
    """The vectors of an iteration: popped components, and what writes and branches make of them."""

    popped: set[Value]
    made: set[Value]

    @property
    def all(self) -> set[Value]:
        return self.popped | self.made


class _ComponentRecorder:
    def __init__(self, body: Block, reads: Reads) -> None:
        self.reads = reads
        self.replaced: dict[Value, Value] = {}
        self.home: dict[Operation, Block] = {}
        self.branch_of: dict[Block, ops.If] = {}
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
                if isinstance(op, ops.If):
                    self.branch_of[region] = op
                self._visit(region)

    def _body(self, block: Block) -> Block:
        """The body of a loop or of the task to which a block belongs, perhaps as a branch."""
        while block in self.branch_of:
            block = self.home[self.branch_of[block]]
        return block

    def rewrite(self, record: Record) -> None:
        """Let a record hold components, if that is less than what it then need not hold."""
        pops, pushes = self.pops.get(record, []), self.pushes.get(record, [])
        if len(pops) != 1 or not pushes:
            return
        (pop,) = pops
        body = self.home[pop]
        if body in self.branch_of:
            return
        vectors, chosen = self._vectors(pop), []
        for copies in map(self._copies, self.reads.values()):
            again = copies.get(body, [])
            if not any(not vectors.all.isdisjoint(op.components) for op in again):
                continue
            if all(len(copies.get(self._body(self.home[push]), ())) == 1 for push in pushes):
                chosen.append(copies)
        left = self._still_needed(vectors, {op for found in chosen for op in found[body]}, body)
        if left is not None and len(chosen) + len(left) < len(vectors.popped):
            for copies in chosen:
                self._record(record, pop, pushes, copies)

    def _copies(self, copies: Sequence[Operation]) -> Copies:
        found: dict[Block, list[ops.Extract]] = {}
        for op in copies:
            if op in self.home and isinstance(op, ops.Extract):
                found.setdefault(self._body(self.home[op]), []).append(op)
        return found

    # -- what an iteration that is reversed does with its vectors ----------------------------------

    def _vectors(self, pop: ops.RecordPop) -> _Vectors:
        operations = list(self._operations(self.home[pop]))
        accessed = {
            value
            for op in operations
            if isinstance(op, (ops.Extract, ops.Insert))
            for value in op.components
        }
        vectors = _Vectors(accessed.intersection(pop.results), set())
        for op in operations:
            known = vectors.all
            if isinstance(op, ops.Insert) and not known.isdisjoint(op.components):
                vectors.made.update(op.results)
            elif isinstance(op, ops.If):
                for result, *ends in zip(op.results, *_ends(op), strict=True):
                    possible = known if result in accessed else vectors.made
                    if not possible.isdisjoint(ends):
                        vectors.made.add(result)
        return vectors

    def _operations(self, block: Block) -> Iterator[Operation]:
        """The operations of a block and its branches; an if comes behind those in it."""
        for op in block.ops:
            if isinstance(op, ops.If):
                for region in op.regions:
                    yield from self._operations(region)
            yield op

    def _still_needed(
        self, vectors: _Vectors, chosen: Collection[Operation], body: Block
    ) -> set[Value] | None:
        """The popped components that have other uses than reads that are recorded.

        None if all of them have.
        """
        found: set[Value] = set()
        for value in vectors.all:
            for user in self.users.get(value, ()):
                if user in chosen and value in user.operands[1:]:
                    continue
                if self._makes_vectors(user, value, vectors, body):
                    continue
                if value in vectors.made or isinstance(user, (ops.Extract, ops.Insert)):
                    return None
                found.add(value)
        return found

    def _makes_vectors(self, user: Operation, value: Value, vectors: _Vectors, body: Block) -> bool:
        """Whether an operation uses a value only for components of vectors of the same body."""
        home = self.home[user]
        if self._body(home) is not body:
            return False
        if isinstance(user, ops.Insert):
            return user.index is not value
        if not isinstance(user, ops.Yield) or home not in self.branch_of:
            return False
        results = self.branch_of[home].results
        yielded = zip(user.values, results, strict=True)
        return all(result in vectors.made for given, result in yielded if given is value)

    # -- what is recorded --------------------------------------------------------------------------

    def _record(
        self, record: Record, pop: ops.RecordPop, pushes: Sequence[ops.RecordPush], copies: Copies
    ) -> None:
        """Record the component that a read gives, behind the read."""
        again = copies[self.home[pop]]
        dtype = again[0].result.type
        record.slots.append(dtype)
        popped = Value(dtype, again[0].result.name or again[0].components[0].name)
        pop.results = [*pop.results, popped]
        self.replaced.update((read.result, popped) for read in again)
        for push in pushes:
            body = self._body(self.home[push])
            push.values = [*push.values, self._lift(copies[body][0])]
            self._move_behind_operands(push, body)

    def _lift(self, read: ops.Extract) -> Value:
        """The result of a read, or zero if the branch that reads is not taken."""
        block, value = self.home[read], read.result
        while block in self.branch_of:
            branch = self.branch_of[block]
            for region in branch.regions:
                end, given = region.ops[-1], value
                assert isinstance(end, ops.Yield)
                if region is not block:
                    given = Value(value.type)
                    region.ops.insert(-1, ops.Constant(convert(0, value.type), results=[given]))
                end.values = [*end.values, given]
            value = Value(value.type)
            branch.results = [*branch.results, value]
            block = self.home[branch]
        return value

    def _move_behind_operands(self, push: ops.RecordPush, body: Block) -> None:
        """Move a push, or the if that contains it, behind what it needs of its body."""
        moved: Operation = push
        while self.home[moved] is not body:
            moved = self.branch_of[self.home[moved]]
        wanted = set(push.operands)
        before = body.ops.index(moved)
        after = max(
            (k for k, op in enumerate(body.ops) if not wanted.isdisjoint(op.results)), default=-1
        )
        if after > before:
            body.ops.insert(after, body.ops.pop(before))


def _ends(op: ops.If) -> tuple[list[Value], list[Value]]:
    """The values that the branches of an if yield."""
    return op.then.yielded, op.orelse.yielded
