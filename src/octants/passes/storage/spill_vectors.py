"""Spills local vectors that are indexed at run time to memory of the work item.

Before, a vector has a value for each component, which loops carry; here it has two::

    %0, %1 = for(..., %a, %b) { (%j, %x, %y):      local[0], local[1] = %a, %b
      %2 = extract(%i, %x, %y)                     for(...) { (%j):
      %3 = sin(%2)                            ->     %3 = sin(local[%i])
      %4, %5 = insert(%i, %3, %x, %y)                local[%i] = %3
      yield(%4, %5)                                }
    }                                              %0, %1 = local[0], local[1]

An access then takes the same time however long the vector is.
`analysis.memory.vector_storage_reuse` finds which vectors share an array. This pass walks the task
in order and tracks which value each element holds: before an access it stores the components that
differ, and a component that is used by itself is loaded where it was made. A vector that is
accessed only once after its components were computed stays in registers, as do those that would
take too much memory: they are accessed by selects. Reads of vectors of constants stay as they are:
code generation makes tables of these.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import field

from octants.analysis.indices.affine_analysis import AffineExpressions
from octants.analysis.memory.vector_storage_reuse import Access, VectorGroup, VectorStorage
from octants.ir import component_access, ops
from octants.ir.builder import Builder
from octants.ir.core import (
    Array,
    Block,
    Companion,
    Module,
    Operation,
    Space,
    Task,
    Value,
    replace_operands,
)
from octants.lazy_dataclass import dataclass
from octants.simplify.dead_code import prune_block
from octants.types.layouts import one_axis
from octants.types.scalars import i32

PRIMAL = Companion.PRIMAL

Contents = dict[VectorGroup, list[Value | None]]
"""The value that each element of an array holds; None if that is not known."""


def spill_vectors(module: Module, most_bytes: int) -> None:
    """Give arrays to the vectors of all tasks, in place.

    No `Insert` is left, and no `Extract` but from constants.
    The arrays of a work item take up to ``most_bytes``; lanes take as many times that.
    """
    for task in module.tasks:
        for block in (task.domain, task.body):
            if block is not None and any(isinstance(op, Access) for op in block.walk()):
                _drop_checks(task, block)
                _Spiller(module, task, block, most_bytes).run()


def _drop_checks(task: Task, block: Block) -> None:
    """Drop checks that an index of a vector is in range if its range is known to be."""
    ranges = AffineExpressions(task)
    numbers = ops.constants_in(block)
    checked = {op.index for op in block.walk() if isinstance(op, Access)}
    checked.update(
        op.on_true for op in block.walk() if isinstance(op, ops.Select) and op.result in checked
    )
    true: set[Value] = set()
    known: dict[Value, Value] = {}
    for op in block.walk():
        replace_operands(op, lambda value: known.get(value, value))
        if isinstance(op, ops.Compare) and op.lhs in checked and op.rhs in numbers:
            low, high = ranges.value_range(op.lhs)
            if (op.fn == "ge" and low >= numbers[op.rhs]) or (
                op.fn == "lt" and high < numbers[op.rhs]
            ):
                true.add(op.result)
        elif isinstance(op, ops.Binary) and op.fn == "and" and true.issuperset(op.operands):
            true.add(op.result)
        elif isinstance(op, ops.Select) and op.condition in true:
            known[op.result] = op.on_true


@dataclass(eq=False, slots=True)
class _Output:
    """The operations of a block that is rewritten; `late` has lists that are still filled."""

    pieces: list[Operation | list[Operation]] = field(default_factory=list)

    def later(self) -> list[Operation]:
        """A list of operations for this position, which may still be filled."""
        filled: list[Operation] = []
        self.pieces.append(filled)
        return filled

    def operations(self) -> list[Operation]:
        return [
            op for piece in self.pieces for op in (piece if isinstance(piece, list) else [piece])
        ]


class _Spiller:
    def __init__(self, module: Module, task: Task, block: Block, most_bytes: int) -> None:
        self._module = module
        self._task = task
        self._block = block
        self._vectors = VectorStorage(block)
        self._ranges = AffineExpressions(task)
        self._constants: list[Operation] = []
        self._numbers: dict[int, Value] = {}
        self._in_use = self._positions()
        self._arrays = self._choose(most_bytes)
        self._summaries: dict[Operation, dict[VectorGroup, list[set[Value | None]]]] = {}
        self._held: dict[Value, tuple[VectorGroup, int, list[Operation]]] = {}
        self._writes = True

    def run(self) -> None:
        contents: Contents = {storage: [None] * storage.count for storage in self._arrays}
        self._rewrite(self._block, contents, _Output(), lambda _: None)
        self._block.ops[:0] = self._constants
        prune_block(self._block)

    # -- which vectors are in memory ---------------------------------------------------------------

    def _choose(self, most_bytes: int) -> dict[VectorGroup, Array]:
        """The arrays of the vectors; those in the innermost loops come first if not all fit."""
        found = list(filter(self._pays, dict.fromkeys(self._vectors.of.values())))
        found.sort(key=lambda group: self._in_use[group])
        shares = self._share(found)
        if sum(_nbytes(share[0]) for share in shares) > most_bytes:
            found.sort(key=self._depth, reverse=True)
            shares = self._share(found, most_bytes)
        return {
            group: array
            for share in shares
            for array in (self._array(share[0]),)
            for group in share
        }

    def _positions(self) -> dict[VectorGroup, tuple[int, int]]:
        """The first and the last operation of the block that accesses the vectors of a group."""
        found: dict[VectorGroup, tuple[int, int]] = {}
        for number, op in enumerate(self._block.ops):
            for each in op.walk():
                if isinstance(each, Access):
                    group = self._vectors.of[each]
                    found[group] = found.get(group, (number, number))[0], number
        return found

    def _depth(self, storage: VectorGroup) -> int:
        """The loops around an access, at most."""
        return max(len(self._vectors.loops[op]) for op in storage.accesses)

    def _share(
        self, groups: Sequence[VectorGroup], most_bytes: float = math.inf
    ) -> list[list[VectorGroup]]:
        """Groups of vectors that share an array, as they are in use one after the other.

        A group that needs another array is left out if that would exceed the bytes of all.
        """
        shares: list[list[VectorGroup]] = []
        for group in groups:
            for others in shares:
                if all(self._may_share(group, other) for other in others):
                    others.append(group)
                    break
            else:
                if _nbytes(group) <= most_bytes:
                    most_bytes -= _nbytes(group)
                    shares.append([group])
        return shares

    def _may_share(self, one: VectorGroup, other: VectorGroup) -> bool:
        """Whether an array is only loaded from where it has been stored to for the same group."""
        (first, last), (begin, end) = self._in_use[one], self._in_use[other]
        is_like = (one.dtype, one.count) == (other.dtype, other.count)
        return is_like and (last < begin or end < first)

    def _pays(self, storage: VectorGroup) -> bool:
        """Whether a vector is accessed more than once after its components were computed.

        One of constants needs no memory.
        """
        constants = self._vectors.constants
        if all(constants.issuperset(op.components) for op in storage.accesses):
            return False
        if len(storage.accesses) > 1:
            return True
        (op,), vectors = storage.accesses, self._vectors
        loops, after = vectors.loops[op], op.results * (storage.count // len(op.results))
        kept = [
            value
            for value, become in zip(op.components, after, strict=True)
            if vectors.origin[value] != loops or vectors.version(value) is vectors.version(become)
        ]
        return bool(loops) and 2 * len(kept) >= storage.count

    def _array(self, storage: VectorGroup) -> Array:
        """An array with an element more than the vector, for what is written out of range."""
        count = storage.count + 1
        layout = one_axis(count, storage.dtype.size)
        name = f"{self._task.name}_vector{len(self._module.arrays)}"
        array = Array(name, storage.dtype, 1, Space.LOCAL, (), {PRIMAL: layout})
        self._module.arrays.append(array)
        return array

    # -- blocks ------------------------------------------------------------------------------------

    def _rewrite(
        self,
        block: Block,
        contents: Contents,
        out: _Output,
        end: Callable[[_Output], None],
        dropped: frozenset[int] = frozenset(),
    ) -> None:
        """Rewrite a block, which yields all but some positions after what ``end`` emits."""
        terminator = block.ops[-1]
        assert isinstance(terminator, ops.Yield)
        for op in block.ops[:-1]:
            self._operation(op, out, contents)
        end(out)
        terminator.values = [v for k, v in enumerate(terminator.values) if k not in dropped]
        self._need(terminator.values)
        out.pieces.append(terminator)
        block.ops = out.operations()

    def _operation(self, op: Operation, out: _Output, contents: Contents) -> None:
        if isinstance(op, Access):
            self._access(op, out, contents)
        elif isinstance(op, (ops.For, ops.While)):
            self._loop(op, out, contents)
        elif isinstance(op, ops.If):
            self._if(op, out, contents)
        else:
            self._need(op.operands)
            out.pieces.append(op)

    def _need(self, values: Sequence[Value]) -> None:
        """Load values that are in memory where they were made."""
        for value in values:
            if value in self._held:
                storage, k, point = self._held.pop(value)
                index = [self._number(k)]
                point.append(ops.Load(self._arrays[storage], PRIMAL, index, results=[value]))

    def _hold(self, storage: VectorGroup, values: Sequence[Value | None], out: _Output) -> None:
        """Note that an array holds values from here on that nothing else holds."""
        point = out.later()
        for k, value in enumerate(values):
            if value is not None:
                self._held[value] = storage, k, point

    def _put(
        self, storage: VectorGroup, k: int, value: Value, out: _Output, contents: Contents
    ) -> None:
        """Let an element hold a value."""
        if contents[storage][k] is not value:
            self._need([value])
            contents[storage][k] = value
            index = [self._number(k)]
            out.pieces.append(ops.Store(self._arrays[storage], PRIMAL, value, index))

    def _number(self, k: int) -> Value:
        if k not in self._numbers:
            self._numbers[k] = Value(i32)
            self._constants.append(ops.Constant(k, results=[self._numbers[k]]))
        return self._numbers[k]

    # -- accesses ----------------------------------------------------------------------------------

    def _access(self, op: Access, out: _Output, contents: Contents) -> None:
        storage = self._vectors.of[op]
        self._need(op.operands[: len(op.OPERANDS)])
        is_there = storage in self._arrays and all(
            value is known for value, known in zip(op.components, contents[storage], strict=True)
        )
        reads = isinstance(op, ops.Extract) and is_there
        constants = self._vectors.constants
        if isinstance(op, ops.Extract) and constants.issuperset(op.components):
            out.pieces.append(op)
            return
        if storage not in self._arrays or not (self._writes or reads):
            self._select(op, out)
            return
        for k, value in enumerate(op.components):
            self._put(storage, k, value, out, contents)
        array, build = self._arrays[storage], Builder()
        build.location = op.location
        if isinstance(op, ops.Extract):
            number = self._in_range(build, op.index, storage.count, 0)
            build.append(ops.Load(array, PRIMAL, [number], results=op.results))
        else:
            number = self._in_range(build, op.index, storage.count, storage.count)
            build.store(array, [number], op.value)
            contents[storage] = list(op.results)
        out.pieces += build.block.ops
        if isinstance(op, ops.Insert):
            self._hold(storage, op.results, out)

    def _select(self, op: Access, out: _Output) -> None:
        """Access a vector in registers."""
        self._need(op.components)
        build = Builder()
        build.location = op.location
        tests = [component_access.is_equal(build, op.index, k) for k in range(len(op.components))]
        if isinstance(op, ops.Insert):
            for test, value, result in zip(tests, op.components, op.results, strict=True):
                build.append(ops.Select(test, op.value, value, results=[result]))
        else:
            found, *others = op.components
            results = [*(Value(found.type) for _ in others[1:]), op.result]
            for test, value, result in zip(tests[1:], others, results, strict=True):
                build.append(ops.Select(test, value, found, results=[result]))
                found = result
        out.pieces += build.block.ops

    def _in_range(self, build: Builder, index: Value, count: int, outside: int) -> Value:
        """An index, or ``outside`` if it is out of range."""
        if self._ranges.is_index(index, count):
            return index
        inside = component_access.is_inside(build, index, count)
        return build.select(inside, index, build.constant(outside, index.type))

    # -- loops and branches ------------------------------------------------------------------------

    def _groups(self, op: Operation, values: Sequence[Value]) -> dict[VectorGroup, dict[int, int]]:
        """The values that an operation carries in each array: the position of each component."""
        groups: dict[VectorGroup, dict[int, int]] = {}
        claimed: set[int] = set()
        for storage in self._vectors.within.get(op, ()):
            if storage not in self._arrays:
                continue
            group = groups[storage] = {}
            for position, value in enumerate(values):
                k = self._vectors.component(storage, value)
                if k is not None and k not in group and position not in claimed:
                    group[k] = position
            claimed.update(group.values())
        return groups if self._writes else {}

    def _loop(self, op: ops.For | ops.While, out: _Output, contents: Contents) -> None:
        groups = self._groups(op, op.carried)
        fixed = {storage: self._invariant(op, storage, group) for storage, group in groups.items()}
        for storage, group in groups.items():
            for k, position in group.items():
                self._put(storage, k, op.inits[position], out, contents)
            for k, value in fixed[storage].items():
                self._put(storage, k, value, out, contents)
        self._need(op.operands[: len(op.OPERANDS)])

        def versions(values: Sequence[Value]) -> Contents:
            known = {storage: list(held) for storage, held in contents.items()}
            for storage, group in groups.items():
                known[storage] = [
                    values[group[k]] if k in group else fixed[storage].get(k)
                    for k in range(storage.count)
                ]
            return known

        gone = frozenset(k for group in groups.values() for k in group.values())
        if isinstance(op, ops.While):
            self._region(op.condition, op.condition.args, groups, versions, writes=False)
            op.condition.args = _without(op.condition.args, gone)
        carried, ends = op.carried, op.body.yielded

        def finish(inner: _Output, held: Contents) -> None:
            for storage, group in groups.items():
                for k, position in group.items():
                    self._put(storage, k, ends[position], inner, held)
                for k, value in fixed[storage].items():
                    self._put(storage, k, value, inner, held)

        self._region(op.body, carried, groups, versions, finish=finish, dropped=gone)
        others = op.body.args[: len(op.body.args) - len(carried)]
        op.body.args = [*others, *_without(carried, gone)]
        results, op.inits = op.results, _without(op.inits, gone)
        op.results = _without(results, gone)
        self._need(op.inits)
        out.pieces.append(op)
        after = versions(results)
        for storage, group in groups.items():
            contents[storage] = after[storage]
            held = [results[group[k]] if k in group else None for k in range(storage.count)]
            self._hold(storage, held, out)

    def _region(
        self,
        block: Block,
        values: Sequence[Value],
        groups: dict[VectorGroup, dict[int, int]],
        versions: Callable[[Sequence[Value]], Contents],
        finish: Callable[[_Output, Contents], None] = lambda *_: None,
        dropped: frozenset[int] = frozenset(),
        *,
        writes: bool = True,
    ) -> None:
        """Rewrite a region of a loop, at whose start arrays hold some of ``values``."""
        out, held = _Output(), versions(values)
        for storage, group in groups.items():
            own = [values[group[k]] if k in group else None for k in range(storage.count)]
            self._hold(storage, own, out)
        outer, self._writes = self._writes, self._writes and writes
        self._rewrite(block, held, out, lambda inner: finish(inner, held), dropped)
        self._writes = outer

    def _invariant(
        self, op: Operation, storage: VectorGroup, group: dict[int, int]
    ) -> dict[int, Value]:
        """The components that a loop does not carry, and that are the same in all of it."""
        found: dict[int, Value] = {}
        for k, values in enumerate(self._summary(op).get(storage, ())):
            if k not in group and len(values) == 1 and None not in values:
                (value,) = values
                if value is not None and op not in self._vectors.origin[value]:
                    found[k] = value
        return found

    def _summary(self, op: Operation) -> dict[VectorGroup, list[set[Value | None]]]:
        """The values of each component in the accesses inside an operation; None for others."""
        if op in self._summaries:
            return self._summaries[op]
        found: dict[VectorGroup, list[set[Value | None]]] = {}
        for inner in (each for region in op.regions for each in region.ops):
            if isinstance(inner, Access):
                storage = self._vectors.of[inner]
                sets = found.setdefault(storage, [set() for _ in range(storage.count)])
                for known, value in zip(sets, inner.components, strict=True):
                    known.update([value, None] if isinstance(inner, ops.Insert) else [value])
            elif inner.REGIONS:
                for storage, more in self._summary(inner).items():
                    sets = found.setdefault(storage, [set() for _ in range(storage.count)])
                    for known, values in zip(sets, more, strict=True):
                        known |= values
                    for k in self._carried(inner, storage):
                        sets[k].add(None)
        self._summaries[op] = found
        return found

    def _carried(self, op: Operation, storage: VectorGroup) -> list[int]:
        values = op.carried if isinstance(op, ops.Loop) else op.results
        found = (self._vectors.component(storage, value) for value in values)
        return [k for k in found if k is not None]

    def _if(self, op: ops.If, out: _Output, contents: Contents) -> None:
        self._need([op.condition])
        groups, results = self._groups(op, op.results), op.results
        gone = frozenset(k for group in groups.values() for k in group.values())
        ends: list[Contents] = []
        for branch in (op.then, op.orelse):
            known = {storage: list(values) for storage, values in contents.items()}
            finish = functools.partial(self._finish_branch, groups, branch.yielded, known)
            self._rewrite(branch, known, _Output(), finish, gone)
            ends.append(known)
        op.results = _without(results, gone)
        out.pieces.append(op)
        for storage in contents:
            then, orelse = (end[storage] for end in ends)
            contents[storage] = [a if a is b else None for a, b in zip(then, orelse, strict=True)]
        for storage, group in groups.items():
            for k, position in group.items():
                contents[storage][k] = results[position]
            held = [results[group[k]] if k in group else None for k in range(storage.count)]
            self._hold(storage, held, out)

    def _finish_branch(
        self,
        groups: dict[VectorGroup, dict[int, int]],
        values: Sequence[Value],
        contents: Contents,
        out: _Output,
    ) -> None:
        """Let arrays hold what a branch yields."""
        for storage, group in groups.items():
            for k, position in group.items():
                self._put(storage, k, values[position], out, contents)


def _nbytes(storage: VectorGroup) -> int:
    """The bytes of an array with an element more, for what is written out of range."""
    return (storage.count + 1) * storage.dtype.size


def _without(values: Sequence[Value], positions: frozenset[int]) -> list[Value]:
    return [value for k, value in enumerate(values) if k not in positions]
