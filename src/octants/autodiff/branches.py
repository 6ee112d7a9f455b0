"""Emits the ifs that will be reversed; their branches hand out what the reverse of them needs.

An if hands out all that its branches define, so that nothing need be computed twice::

    %c, %product = if(%is_positive) {
      %c = compare<gt>(%x, %limit)
      %product = if(%c) { ... }
      yield(%c, %product)
    } { yield(%false, %zero) }
    ...
    if(%is_positive) { if(%c) { ... } }

What is handed out passes through all ifs around it, which for ifs deep within each other would be
code of the square of their depth. Those compute again, where they are reversed, what depends on
nothing but its operands and memory. The rest is handed out; what is known of loops in *places*,
which the two branches share, and where the reversed branch finds it again::

    if(%is_positive) {
      %c = compare<gt>(%x, %limit)
      if(%c) { ... }
    }
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable

from octants.autodiff.records import Stack
from octants.autodiff.stored_loops import StoredLoops
from octants.autodiff.sweep import Sweep
from octants.ir import ops
from octants.ir.core import Block, Operation, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType

TypedSlot = tuple[DType, int]
"""The type of what an if hands out, and how many of that type come before it."""

Record = Callable[[Block, Stack], None]
"""Emits a block so that it can be reversed."""


@dataclass(eq=False, slots=True)
class _Branch:
    """A recorded side of an if: its results, what else it defines, where the stack ends.

    If loops in it may have been stored, also where their records end in their frame.
    """

    block: Block
    results: list[Value]
    exports: dict[Hashable, Value]
    ends: list[Value]


class Branches:
    """Emits ifs that will be reversed, whose blocks ``record`` emits."""

    def __init__(self, sweep: Sweep, stores: StoredLoops, record: Record) -> None:
        self._sweep = sweep
        self._stores = stores
        self._record = record
        self._places: dict[Block, dict[Hashable, tuple[Operation, TypedSlot]]] = {}

    def record(self, op: ops.If, stack: Stack) -> None:
        """Emit an if so that it can be reversed."""
        sweep, values = self._sweep, self._sweep.values
        start, mark = stack.position, len(values.journal)
        size = self._stores.passed_in(op)
        is_deep = op in sweep.facts.deep.ops
        then, orelse = (
            self._branch(block, Stack(start, stack.is_first), size, is_deep)
            for block in (op.then, op.orelse)
        )
        if is_deep:
            self._share_places(op, then, orelse)
        exports = {**then.exports, **orelse.exports}
        for branch in (then, orelse):
            given = [
                branch.exports.get(key) or sweep.builder.constant(0, value.type)
                for key, value in exports.items()
            ]
            with sweep.builder.into(branch.block):
                sweep.builder.yield_([*branch.results, *given, *branch.ends])
        new = sweep.builder.if_(values[op.condition], then.block, orelse.block)
        if is_deep:
            self._forget(mark, then.block, orelse.block)
        keys: list[Hashable] = [*op.results, *exports]
        values.bind_all(keys, new.results)
        stack.position = new.results[len(keys)]
        if size is not None:
            self._stores.pass_over(new.results[-1])

    def _branch(self, primal: Block, stack: Stack, size: Value | None, is_deep: bool) -> _Branch:
        """Emit one side of an if that is recorded, without its yield."""
        values = self._sweep.values
        block, mark = Block(), len(values.journal)
        if size is not None:
            self._stores.pass_over(size)
        with self._sweep.builder.into(block):
            self._record(primal, stack)
        own = _defined(block)
        bound: Iterable[Hashable] = [key for key in values.journal[mark:] if values[key] in own]
        if is_deep:
            left_out = self._not_handed(primal)
            bound = [key for key in bound if key not in left_out]
        exports = {key: values[key] for key in bound}
        ends = [stack.position]
        if size is not None:
            ends.append(self._stores.passed)
        return _Branch(block, values.mapped(primal.yielded), exports, ends)

    # -- ifs deep within each other ----------------------------------------------------------------

    def _not_handed(self, primal: Block) -> set[Value]:
        """What a deep branch defines and does not hand out: it is computed again, or not needed."""
        again = {op.results[0] for op in primal.ops if self._is_repeated(op)}
        branches = [op for op in primal.ops if isinstance(op, ops.If)]
        used = self._sweep.facts.deep.used
        return again.union(v for op in branches for v in op.results if v not in used)

    def _is_repeated(self, op: Operation) -> bool:
        """Whether an operation of a deep branch is computed again where that is reversed."""
        return (op.is_scalar or isinstance(op, ops.Load)) and not self._sweep.facts.is_logged(op)

    def _share_places(self, op: ops.If, then: _Branch, orelse: _Branch) -> None:
        """Have the branches hand out what they know of their loops in the same places.

        Values have none: one that is not needed would be, and what it was read from, if it had the
        place of another that is.
        """
        for branch, primal in ((then, op.then), (orelse, op.orelse)):
            places: dict[Hashable, tuple[Operation, TypedSlot]] = {}
            count = Counter[DType]()
            for key, value in branch.exports.items():
                if not isinstance(key, Value):
                    places[key] = op, (value.type, count[value.type])
                    count[value.type] += 1
            self._places[primal] = places
            branch.exports = {places.get(key, key): v for key, v in branch.exports.items()}

    def _forget(self, mark: int, *blocks: Block) -> None:
        """Take out of the journal what the branches of a deep if define."""
        values = self._sweep.values
        own = {value for block in blocks for value in _defined(block)}
        own |= self._sweep.builder.entry_values
        values.journal[mark:] = [key for key in values.journal[mark:] if values[key] not in own]

    def find_again(self, primal: Block) -> None:
        """Have what a branch defines, at the start of its reverse, if it is of a deep if."""
        if primal not in self._places:
            return
        values = self._sweep.values
        for key, place in self._places[primal].items():
            values.bind(key, values[place])
        for op in primal.ops:
            if self._is_repeated(op):
                self._sweep.emit(op)


def _defined(block: Block) -> set[Value]:
    """What the operations of a block define."""
    return {value for op in block.ops for value in op.results}
