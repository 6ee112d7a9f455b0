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
from collections.abc import Hashable, Iterable
from dataclasses import field

from octants.autodiff.hazards import Log
from octants.autodiff.nests import Nests
from octants.autodiff.replay import EntryBuilder, Flag
from octants.autodiff.storing import Storer
from octants.ir import ops
from octants.ir.core import Array, Block, Operation, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType

MOST_AROUND = 16
"""So many ifs may be within each other and hand out all that they define."""

Place = tuple[DType, int]
"""The type of what an if hands out, and how many of that type come before it."""


@dataclass(eq=False, slots=True)
class DeepIfs:
    """The ifs of a body that are in nests of many, and the values that operations use.

    `used` leaves out what is only yielded: a reverse does not need that.
    """

    ops: set[Operation] = field(default_factory=set)
    used: set[Value] = field(default_factory=set)


def deep_ifs(body: Block, log: Log | None) -> DeepIfs:
    """Find the ifs that are within too many others, with all of those; a loop is a new start."""
    found = DeepIfs()
    _find_nests(body, 0, [], found.ops)
    if found.ops:
        for op in body.walk():
            if not isinstance(op, ops.Yield):
                found.used.update(op.operands)
        found.used.update(log.positions.values() if log is not None else ())
    return found


def _find_nests(block: Block, depth: int, nest: list[Operation], found: set[Operation]) -> int:
    """Note the nests in a block that is so deep in one; the depth of the deepest if."""
    deepest = depth
    for op in block.ops:
        if not isinstance(op, ops.If):
            for region in op.regions:
                _find_nests(region, 0, [], found)
            continue
        around = nest if depth else []
        around.append(op)
        reached = max(_find_nests(region, depth + 1, around, found) for region in op.regions)
        if depth == 0 and reached > MOST_AROUND:
            found.update(around)
        deepest = max(deepest, reached)
    return deepest


@dataclass(eq=False, slots=True)
class _Branch:
    """A recorded side of an if: its results, what else it defines, where the stack ends.

    If loops in it may have been stored, also where their records end in their frame.
    """

    block: Block
    results: list[Value]
    exports: dict[Hashable, Value]
    ends: list[Value]


class Brancher(Storer):
    """A replayer that records ifs."""

    def __init__(
        self,
        builder: EntryBuilder,
        arrays: dict[Array, Array],
        flag: Flag,
        log: Log | None,
        capacity: int,
        nests: Nests,
    ) -> None:
        super().__init__(builder, arrays, flag, log, capacity, nests)
        self.deep = DeepIfs()
        self.places: dict[Block, dict[Hashable, tuple[Operation, Place]]] = {}

    def _record_if(self, op: ops.If) -> None:
        start, frame, mark = self.stack, self.frame, len(self.journal)
        size = frame.size if frame is not None and self.nests.stored_in(Block([], [op])) else None
        is_deep = op in self.deep.ops
        then, orelse = [self._branch(block, start, size, is_deep) for block in (op.then, op.orelse)]
        if is_deep:
            self._share_places(op, then, orelse)
        exports = {**then.exports, **orelse.exports}
        for branch in (then, orelse):
            given = [
                branch.exports.get(key) or self.builder.constant(0, value.type)
                for key, value in exports.items()
            ]
            with self.builder.into(branch.block):
                self.builder.yield_([*branch.results, *given, *branch.ends])
        new = self.builder.if_(self.values[op.condition], then.block, orelse.block)
        if is_deep:
            self._forget(mark, then.block, orelse.block)
        keys: list[Hashable] = [*op.results, *exports]
        for key, value in zip(keys, new.results, strict=False):
            self.bind(key, value)
        self.stack = new.results[len(keys)]
        if frame is not None and size is not None:
            frame.size = new.results[-1]

    def _branch(self, primal: Block, start: Value, size: Value | None, is_deep: bool) -> _Branch:
        """Emit one side of an if that is recorded, without its yield."""
        block, mark = Block(), len(self.journal)
        self.stack = start
        if self.frame is not None and size is not None:
            self.frame.size = size
        with self.builder.into(block):
            self.recorded(primal)
        own = _defined(block)
        bound: Iterable[Hashable] = [key for key in self.journal[mark:] if self.values[key] in own]
        if is_deep:
            left_out = self._not_handed(primal)
            bound = [key for key in bound if key not in left_out]
        exports = {key: self.values[key] for key in bound}
        ends = [self.stack]
        if self.frame is not None and size is not None:
            ends.append(self.frame.size)
        return _Branch(block, self._mapped(primal.yielded), exports, ends)

    # -- ifs deep within each other ----------------------------------------------------------------

    def _not_handed(self, primal: Block) -> set[Value]:
        """What a deep branch defines and does not hand out: it is computed again, or not needed."""
        again = {op.results[0] for op in primal.ops if self._is_repeated(op)}
        branches = [op for op in primal.ops if isinstance(op, ops.If)]
        return again.union(v for op in branches for v in op.results if v not in self.deep.used)

    def _is_repeated(self, op: Operation) -> bool:
        """Whether an operation of a deep branch is computed again where that is reversed."""
        is_logged = self.log is not None and op in self.log.positions
        return (op.is_scalar or isinstance(op, ops.Load)) and not is_logged

    def _share_places(self, op: ops.If, then: _Branch, orelse: _Branch) -> None:
        """Have the branches hand out what they know of their loops in the same places.

        Values have none: one that is not needed would be, and what it was read from, if it had the
        place of another that is.
        """
        for branch, primal in ((then, op.then), (orelse, op.orelse)):
            places: dict[Hashable, tuple[Operation, Place]] = {}
            count = Counter[DType]()
            for key, value in branch.exports.items():
                if not isinstance(key, Value):
                    places[key] = op, (value.type, count[value.type])
                    count[value.type] += 1
            self.places[primal] = places
            branch.exports = {places.get(key, key): v for key, v in branch.exports.items()}

    def _forget(self, mark: int, *blocks: Block) -> None:
        """Take out of the journal what the branches of a deep if define."""
        own = {value for block in blocks for value in _defined(block)} | self.builder.entry_values
        self.journal[mark:] = [key for key in self.journal[mark:] if self.values[key] not in own]

    def find_again(self, primal: Block) -> None:
        """Have what a branch defines, at the start of its reverse, if it is of a deep if."""
        if primal not in self.places:
            return
        for key, place in self.places[primal].items():
            self.bind(key, self.values[place])
        for op in primal.ops:
            if self._is_repeated(op):
                self._emit(op, recorded=False)


def _defined(block: Block) -> set[Value]:
    """What the operations of a block define."""
    return {value for op in block.ops for value in op.results}
