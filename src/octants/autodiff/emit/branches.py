"""Emits ifs that will be reversed; their branches yield what the reverse needs of them.

An if yields everything that its branches define, so that nothing is computed twice::

    %c, %product = if(%is_positive) {
      %c = compare<gt>(%x, %limit)
      %product = if(%c) { ... }
      yield(%c, %product)
    } { yield(%false, %zero) }
    ...
    if(%is_positive) { if(%c) { ... } }

Integers that take additions and multiplications of values from outside, such as indices, are not
exported, but computed again, so that it is still known how they change from one work item to the
next.

Exports pass through all ifs around them, so deep nests would need code of quadratic size. In these,
the reversed branch recomputes what depends only on operands and memory. The if exports the
other values; facts of loops are exported in *slots*, which the two branches share, and which the
reversed branch rebinds. So are the conditions of ifs around loops that depend on loads in branches:
memory may have changed, and the records are those of the branch that was taken::

    if(%is_positive) {
      %c = compare<gt>(%x, %limit)
      if(%c) { ... }
    }
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable

from octants.analysis.indices.affine_analysis import INDEX_TYPES
from octants.autodiff.emit.primal_emitter import PrimalEmitter
from octants.autodiff.emit.records import RecordStack
from octants.autodiff.emit.stored_loops import StoredLoops
from octants.ir import ops
from octants.ir.core import Block, Operation, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType

TypedSlot = tuple[DType, int]
"""The type of an export, and how many exports of that type come before it."""

RecordBlock = Callable[[Block, RecordStack], None]
"""Emits a block with the records that its reverse needs."""


@dataclass(eq=False, slots=True)
class _Branch:
    """A recorded branch of an if.

    `exports` are the values that it yields for its reverse; `ends` is where the record buffer is
    free at the end and, if loops in the branch may have been stored, the size of the stored loops
    in their frame.
    """

    block: Block
    results: list[Value]
    exports: dict[Hashable, Value]
    ends: list[Value]


class Branches:
    """Emits ifs with the records that their reverse needs; ``record`` emits the branches."""

    def __init__(
        self, emitter: PrimalEmitter, stored_loops: StoredLoops, record: RecordBlock
    ) -> None:
        self._emitter = emitter
        self._stored_loops = stored_loops
        self._record = record
        self._slots: dict[Block, dict[Hashable, tuple[Operation, TypedSlot]]] = {}
        self._integers: dict[Block, list[Operation]] = {}

    def record(self, op: ops.If, stack: RecordStack) -> None:
        """Emit an if with the records that its reverse needs."""
        emitter, values = self._emitter, self._emitter.values
        start, mark = stack.position, len(values.journal)
        size = self._stored_loops.passed_in(op)
        is_deep = op in emitter.facts.deep.ops
        then, orelse = (
            self._branch(block, RecordStack(start, stack.is_first), size, is_deep)
            for block in (op.then, op.orelse)
        )
        if is_deep:
            self._share_slots(op, then, orelse)
        exports = {**then.exports, **orelse.exports}
        for branch in (then, orelse):
            given = [
                branch.exports.get(key) or emitter.builder.constant(0, value.type)
                for key, value in exports.items()
            ]
            with emitter.builder.into(branch.block):
                emitter.builder.yield_([*branch.results, *given, *branch.ends])
        condition = self._stored_loops.condition_of(op)
        new = emitter.builder.if_(condition, then.block, orelse.block)
        if is_deep:
            self._drop_from_journal(mark, then.block, orelse.block)
        if op in emitter.facts.deep.varying or condition is not values[op.condition]:
            values.note(op, taken=condition)
        keys: list[Hashable] = [*op.results, *exports]
        values.bind_all(keys, new.results)
        stack.position = new.results[len(keys)]
        if size is not None:
            self._stored_loops.pass_over(new.results[-1])

    def _branch(
        self, primal: Block, stack: RecordStack, size: Value | None, is_deep: bool
    ) -> _Branch:
        """Emit one recorded branch, without its terminator."""
        values = self._emitter.values
        block, mark = Block(), len(values.journal)
        if size is not None:
            self._stored_loops.pass_over(size)
        with self._emitter.builder.into(block):
            self._record(primal, stack)
        own = _defined(block)
        bound: Iterable[Hashable] = [key for key in values.journal[mark:] if values[key] in own]
        left_out = self._not_exported(primal) if is_deep else self._leave_out_integers(primal)
        bound = [key for key in bound if key not in left_out]
        exports = {key: values[key] for key in bound}
        ends = [stack.position]
        if size is not None:
            ends.append(self._stored_loops.passed)
        return _Branch(block, values.mapped(primal.yielded), exports, ends)

    def _leave_out_integers(self, primal: Block) -> set[Value]:
        """The integers of a branch that its reverse computes again; note the operations."""
        defined = _defined(primal)
        again: dict[Value, Operation] = {}
        for op in primal.ops:
            if _is_integer_arithmetic(op) and again.keys() >= defined.intersection(op.operands):
                again[op.result] = op
        self._integers[primal] = list(again.values())
        return set(again)

    # -- deep nests of ifs -------------------------------------------------------------------------

    def _not_exported(self, primal: Block) -> set[Value]:
        """The values of a deep branch that are recomputed, or that its reverse does not need."""
        again = {value for op in primal.ops if self._is_repeated(op) for value in op.results}
        branches = [op for op in primal.ops if isinstance(op, ops.If)]
        used = self._emitter.facts.deep.used
        return again.union(v for op in branches for v in op.results if v not in used)

    def _is_repeated(self, op: Operation) -> bool:
        """Whether the reverse of a deep branch recomputes an operation."""
        return (op.is_scalar or isinstance(op, ops.Load)) and not self._emitter.facts.is_saved(op)

    def _share_slots(self, op: ops.If, then: _Branch, orelse: _Branch) -> None:
        """Let both branches export the facts of their loops in the same slots.

        Values do not share slots: one that is not needed would stay alive, with the record slot
        that it was read from, because of another one that is.
        """
        for branch, primal in ((then, op.then), (orelse, op.orelse)):
            slots: dict[Hashable, tuple[Operation, TypedSlot]] = {}
            count = Counter[DType]()
            for key, value in branch.exports.items():
                if not isinstance(key, Value):
                    slots[key] = op, (value.type, count[value.type])
                    count[value.type] += 1
            self._slots[primal] = slots
            branch.exports = {slots.get(key, key): v for key, v in branch.exports.items()}

    def _drop_from_journal(self, mark: int, *blocks: Block) -> None:
        """Remove from the journal what the branches of a deep if define."""
        values = self._emitter.values
        own = {value for block in blocks for value in _defined(block)}
        own |= self._emitter.builder.entry_values
        values.journal[mark:] = [key for key in values.journal[mark:] if values[key] not in own]

    def rebind(self, primal: Block) -> None:
        """Begin the reverse of a branch: bind the exports of a deep if, and recompute the rest."""
        for op in self._integers.get(primal, ()):
            self._emitter.emit(op)
        if primal not in self._slots:
            return
        values = self._emitter.values
        for key, slot in self._slots[primal].items():
            values.bind(key, values[slot])
        for op in primal.ops:
            if self._is_repeated(op):
                self._emitter.emit(op)


def _is_integer_arithmetic(op: Operation) -> bool:
    """Whether an operation takes next to no time, and makes an integer that may be an index."""
    if isinstance(op, ops.Binary) and op.fn not in ("add", "sub", "mul"):
        return False
    is_known = isinstance(op, (ops.Constant, ops.Binary, ops.Cast))
    return is_known and all(value.type in INDEX_TYPES for value in (*op.operands, op.result))


def _defined(block: Block) -> set[Value]:
    """The values that the operations of a block define."""
    return {value for op in block.ops for value in op.results}
