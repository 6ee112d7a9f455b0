"""Uniformity analysis: which values are the same in all lanes, and which control flow diverges.

Work items that run in step, as lanes of vectors, share one program counter: a loop runs while any
of them needs another iteration, and both branches of an if run one after the other. A value is
*uniform* if all lanes that are active at its definition have the same value, else it *varies*. An
`if` or a loop *diverges* if its condition varies; the results of a diverging loop vary, since lanes
leave it in different iterations.

Lanes may differ in the bounds of a loop and still be in the same iteration: its number, the counter
minus the lower bound, is uniform. A loop that pops records, last first, runs so that lanes are at
the same record instead: those with fewer records join later. There the upper bound minus the
counter is uniform.

The bases of records are uniform whatever is recorded: a record ends behind that of the longest
lane, and if the branches of a diverging `if` end at different positions, the further one counts. So
lanes agree on the position of a record, though not on the iteration. A base that a loop carries is
the same for the lanes in the loop, and stays right when some have left.

A value that is popped is uniform if what is pushed is, and if all lanes push and pop together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from octants.analysis.reachability import reachable
from octants.ir import ops
from octants.ir.core import Block, Operation, Record, Space, Value
from octants.types.scalars import i32, i64

_RECORD = (ops.RecordPush, ops.RecordPop, ops.RecordEnd)


class Uniformity:
    """Facts about a block.

    Args:
        block: the block, whose arguments vary.
        uniform: values that are known to be uniform.
    """

    def __init__(self, block: Block, uniform: Iterable[Value] = ()) -> None:
        self._known = set(uniform)
        self.bases: set[Value] = set()
        self.has_unknown_base = False
        """Whether the base of a record has another source than the ends of records.

        Sums of bases count as ends, and so do selections between them by a comparison of bases.
        The records of both branches of a diverging `if` begin at one base, which lanes share if
        all slots have one size, so that each lane has the same columns in all records.
        """
        self.iteration_numbers: dict[ops.For, list[tuple[Value, int]]] = {}
        """Values that are an iteration's number, or that of its record, plus a constant."""
        self._joining: set[Operation] = set()
        self._casts: dict[Value, Value] = {}
        self._constants: dict[Value, Any] = {}
        self._numbers: set[Value] = set()  # those in `iteration_numbers`
        self._varying: set[Value] = set()
        self._follow: dict[Value, list[Value]] = {}
        self._sources: dict[Value, list[Value]] = {}  # of what may be a base
        self._choices: dict[Value, Value] = {}
        self._comparisons: dict[Value, list[Value]] = {}
        self._negative: set[Value] = set()
        self._backwards: list[Value] = []  # counts of records before an end
        self._ends: set[Value] = set()
        self._pushes: dict[Record, list[tuple[ops.RecordPush, list[Value]]]] = {}
        self._visit(block, [])
        self._find_bases(block)
        roots = [*block.args, *self._link_records(block)]
        roots += [v for op in block.walk() if _is_varying(op) for v in op.results]
        self._spread(roots)
        chosen = (self._choices[value] for value in self.bases if value in self._choices)
        bases = (op.base for op in block.walk() if isinstance(op, _RECORD))
        terms = (term for base in self.bases for term in self._sources[base])  # sums have counts
        self.has_unknown_base |= any(map(self.varies, (*chosen, *bases, *terms, *self._backwards)))
        sizes = {slot.size for record in _records(block) for slot in record.slots}
        if len(sizes) > 1:
            ifs = filter(_both_branches_push, block.walk())
            self.has_unknown_base |= any(map(self.diverges, ifs))

    def varies(self, value: Value) -> bool:
        return value in self._varying

    def diverges(self, op: Operation) -> bool:
        """Whether lanes may take different branches, or run different numbers of iterations."""
        if isinstance(op, ops.If):
            return self.varies(op.condition)
        if isinstance(op, ops.For):
            return self.varies(op.lower) or self.varies(op.upper)
        return isinstance(op, ops.While) and self.varies(op.condition.yielded[0])

    def joins(self, op: ops.For) -> bool:
        """Whether lanes join a loop in different iterations, and leave it together."""
        return op in self._joining and self.varies(op.upper)

    # -- dependences -------------------------------------------------------------------------------

    def _edge(self, source: Value, target: Value) -> None:
        self._follow.setdefault(source, []).append(target)

    def _visit(self, block: Block, control: list[Value]) -> None:
        """Add the edges along which values vary, for all operations of a block.

        ``control`` are the values on which it depends how often the block runs.
        """
        for op in block.ops:
            if isinstance(op, ops.If):
                self._if(op)
            elif isinstance(op, ops.For):
                self._for(op)
            elif isinstance(op, ops.While):
                self._while(op)
            elif isinstance(op, ops.RecordEnd):
                self._sources[op.result] = []
                self._ends.add(op.result)
                if op.count in self._negative:
                    self._backwards.append(op.count)
            elif isinstance(op, ops.Longest):
                self._sources[op.result] = []
            elif self._numbers.isdisjoint(op.results):
                self._note(op)
                for operand in op.operands:
                    for result in op.results:
                        self._edge(operand, result)
            if isinstance(op, ops.RecordPush):
                self._pushes.setdefault(op.record, []).append((op, [op.index, *control]))
            for region in op.regions:
                self._visit(region, [*control, *_control(op)])

    def _link_records(self, block: Block) -> list[Value]:
        """Add the edges from pushes to pops; gives what records hold that others have pushed."""
        others = []
        for op in block.walk():
            if not isinstance(op, ops.RecordPop):
                continue
            if op.record not in self._pushes:
                others += op.results
            for push, control in self._pushes.get(op.record, ()):
                for value, result in zip(push.values, op.results, strict=True):
                    for source in (value, *control):
                        self._edge(source, result)
        return others

    def _note(self, op: Operation) -> None:
        if isinstance(op, ops.Constant):
            self._constants[op.result] = op.value
            self._sources[op.result] = []
        elif isinstance(op, ops.Binary) and op.fn in ("add", "sub", "min"):
            self._sources[op.result] = [op.lhs, op.rhs]
            if op.fn == "sub" and self._constants.get(op.lhs) == 0:
                self._negative.add(op.result)
        elif isinstance(op, ops.Select):
            self._sources[op.result] = [op.on_true, op.on_false]
            self._choices[op.result] = op.condition
        elif isinstance(op, ops.Compare):
            self._comparisons[op.result] = [op.lhs, op.rhs]
        elif isinstance(op, ops.Cast) and op.x.type is i32 and op.result.type is i64:
            self._casts[op.result] = op.x

    def _root(self, value: Value) -> Value:
        """A value before it was widened."""
        return self._casts.get(value, value)

    def _if(self, op: ops.If) -> None:
        yielded = zip(op.results, op.then.yielded, op.orelse.yielded, strict=True)
        for result, then, orelse in yielded:
            self._sources[result] = [then, orelse]
            self._edge(then, result)
            self._edge(orelse, result)
            if then is not orelse:
                self._edge(op.condition, result)

    def _for(self, op: ops.For) -> None:
        self._find_iteration_numbers(op)
        self._edge(op.lower, op.body.args[0])
        self._carry(op, op.body.args[1:])
        for arg, result in zip(op.body.args[1:], op.results, strict=True):
            self._sources[result] = [arg]
            for source in (arg, op.lower, op.upper):
                self._edge(source, result)

    def _find_iteration_numbers(self, op: ops.For) -> None:
        """Find the numbers of iterations and of records that the body of a loop computes first."""
        counter, lower, upper = op.body.args[0], self._root(op.lower), self._root(op.upper)
        rests: set[Value] = set()
        iterations, records = [], []
        widened = {counter}
        for each in op.body.ops:
            if isinstance(each, ops.Cast) and each.x in widened and each.result.type is i64:
                widened.add(each.result)
            elif isinstance(each, ops.Constant):
                self._note(each)
            elif isinstance(each, ops.Binary) and each.fn == "sub":
                if each.lhs in widened and self._root(each.rhs) is lower:
                    iterations.append((each.result, 0))
                elif self._root(each.lhs) is upper and each.rhs in widened:
                    rests.add(each.result)
                    records.append((each.result, 1))
                elif each.lhs in rests and self._constants.get(each.rhs) == 1:
                    records.append((each.result, 0))
        starts_at_zero = self._constants.get(op.lower) == 0 and counter.type is i64
        if starts_at_zero and _pops(op.body, {value for value, _ in records}):
            self._joining.add(op)
            self.iteration_numbers[op] = records
            for arg in op.body.args:
                self._edge(op.upper, arg)
        elif iterations and op.lower not in self._constants:
            self.iteration_numbers[op] = iterations
        self._numbers.update(value for value, _ in self.iteration_numbers.get(op, ()))

    def _while(self, op: ops.While) -> None:
        self._carry(op, op.condition.args)
        (goes_on,) = op.condition.yielded
        for test, arg, result in zip(op.condition.args, op.body.args, op.results, strict=True):
            self._sources[arg] = self._sources[result] = [test]
            self._edge(test, arg)
            self._edge(test, result)
            self._edge(goes_on, result)

    def _carry(self, op: ops.Loop, args: list[Value]) -> None:
        values = zip(op.inits, args, op.body.yielded, op.results, strict=True)
        for init, arg, end, result in values:
            self._sources[arg] = [init, end, result]  # all of them are bases, or none is
            self._edge(init, arg)
            self._edge(end, arg)

    def _spread(self, roots: list[Value]) -> None:
        waiting = list(roots)
        while waiting:
            value = waiting.pop()
            if not (value in self._varying or value in self.bases or value in self._known):
                self._varying.add(value)
                waiting += self._follow.get(value, ())

    # -- bases -------------------------------------------------------------------------------------

    def _find_bases(self, block: Block) -> None:
        """Find the bases: ends and constants, and what branches and loops yield of them.

        A value that is compared to select a base is a base too, if it derives from the end of a
        record; mere counts are not.
        """
        roots = [op.base for op in block.walk() if isinstance(op, _RECORD)]
        self.has_unknown_base = any(
            value not in self._sources for value in self._before(roots, False)
        )
        found = self._before(roots, True)
        users: dict[Value, list[Value]] = {}
        for value in found:
            for source in self._sources.get(value, ()):
                users.setdefault(source, []).append(value)
        self.bases = reachable(self._ends & found, users)
        unknown = [value for value in found if value not in self._sources]
        self.has_unknown_base |= not self.bases.isdisjoint(reachable(unknown, users))

    def _before(self, values: list[Value], compared: bool) -> set[Value]:
        """The values from which some values derive; with ``compared`` also what selects them."""
        found: set[Value] = set()
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            if value not in found:
                found.add(value)
                waiting += self._sources.get(value, ())
                if compared:
                    waiting += self._comparisons.get(self._choices.get(value, value), ())
        return found


def _is_varying(op: Operation) -> bool:
    """Whether the results of an operation vary by themselves: each work item has its own arrays."""
    if isinstance(op, ops.RecordPop):
        return False
    return op.is_varying or (isinstance(op, ops.Load) and op.array.space is Space.LOCAL)


def _control(op: Operation) -> list[Value]:
    """The values on which it depends whether an operation runs its regions, and how often."""
    if isinstance(op, ops.For):
        return [op.lower, op.upper]
    if isinstance(op, ops.While):
        return op.condition.yielded
    return [op.condition] if isinstance(op, ops.If) else []


def _both_branches_push(op: Operation) -> bool:
    """Whether both branches of an `if` push records."""
    return isinstance(op, ops.If) and all(map(_records, op.regions))


def _pops(block: Block, indices: set[Value]) -> bool:
    """Whether a block pops a record at one of some indices."""
    return bool(indices) and any(
        isinstance(op, ops.RecordPop) and op.index in indices for op in block.walk()
    )


def _records(block: Block) -> set[Record]:
    return {op.record for op in block.walk() if isinstance(op, ops.RecordPush)}
