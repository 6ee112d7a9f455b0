"""Sums into the components of a local vector by run-time indices in memory, not by selects.

The gradient of ``v[i]`` in a loop adds to one component of the adjoint of ``v``, which the loop
carries, one value for each component. A chain of selects adds a zero to all other components::

    %0, %1, %2 = for(..., %a, %b, %c) { (..., %x, %y, %z):
      %is_2 = compare<eq>(%i, 2)              local[0], local[1], local[2] = %a, %b, %c
      %is_1 = compare<eq>(%i, 1)              for(...) {
      yield(%x + (%is_2 or %is_1 ? 0 : %g),     %k = 1 <= %i < 3 ? %i : 0
            %y + (%is_1 ? %g : 0),       ->     local[%k] = local[%k] + %g
            %z + (%is_2 ? %g : 0))            }
    }                                         %0, %1, %2 = local[0], local[1], local[2]

An iteration then takes the same time however long the vector is. The additions, and their order,
stay the same. Short vectors stay in registers.
"""

from __future__ import annotations

from collections import Counter

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cooperation import cooperates
from octants.ir.core import Array, Block, Companion, Module, Operation, Space, Task, Value
from octants.lazy_dataclass import dataclass
from octants.simplify.dead_code import prune_block
from octants.types.layouts import Layout, Term
from octants.types.scalars import DType, f32, f64

PRIMAL = Companion.PRIMAL
SHORTEST = 8  # components
_MOST_BYTES = 1 << 12  # of the arrays of a work item; lanes take as many times that


def spill_indexed_sums(module: Module) -> None:
    """Give local arrays to the sums of all tasks, in place."""
    for task in module.tasks:
        if not cooperates(task):
            _Rewriter(module, task).run()


@dataclass(frozen=True, slots=True)
class _Sum:
    """Values that each iteration adds, each to one of several carried values.

    `shares` has the index and the value of each addition, in order. `positions` has the carried
    value of each index from 0 on; the first is also that of all other indices.
    """

    shares: list[tuple[Value, Value]]
    positions: list[int]


class _Rewriter:
    def __init__(self, module: Module, task: Task) -> None:
        self._module = module
        self._task = task
        self._uses = Counter(value for op in task.body.walk() for value in op.operands)
        constants = (op for op in task.body.walk() if isinstance(op, ops.Constant))
        self._constants = {op.result: op.value for op in constants}
        self._arrays: dict[tuple[DType, int, int], Array] = {}
        self._nbytes = 0
        self._changed = False

    def run(self) -> None:
        self._block(self._task.body, 0)
        if self._changed:
            prune_block(self._task.body, self._task.domain)

    def _block(self, block: Block, depth: int) -> None:
        """Rewrite the loops of a block, which is inside loops with so many sums."""
        done: list[Operation] = []
        for op in block.ops:
            before: list[Operation] = []
            after: list[Operation] = []
            inner = depth
            while isinstance(op, ops.For) and len(op.inits) >= SHORTEST:
                found = self._first_sum(op)
                array = self._array(op, found, inner) if found is not None else None
                if found is None or array is None:
                    break
                first, last = self._rewrite(op, found, array)
                before, after, inner = before + first, after + last, inner + 1
                self._changed = True
            done += [*before, op, *after]
            for region in op.regions:
                self._block(region, inner)
        block.ops[:] = done

    # -- finding -----------------------------------------------------------------------------------

    def _first_sum(self, op: ops.For) -> _Sum | None:
        """The first sum of a loop, if it has one."""
        made = {op.results[0]: op for op in op.body.ops if len(op.results) == 1}
        added = [
            self._added(arg, end, made)
            for arg, end in zip(op.carried, op.body.yielded, strict=True)
        ]
        for position, values in enumerate(added):
            alike = {k: each for k, each in enumerate(added) if len(each) == len(values)}
            layers = [
                self._follow(position, {k: each[n] for k, each in alike.items()}, made)
                for n in range(len(values))
            ]
            found = [layer for layer in layers if layer is not None]
            if not found or len(found) < len(layers):
                continue
            if all(layer.positions == found[0].positions for layer in found):
                shares = [share for layer in found for share in layer.shares]
                return _Sum(shares, found[0].positions)
        return None

    def _added(self, arg: Value, end: Value, made: dict[Value, Operation]) -> list[Value]:
        """What an iteration adds to a carried value that has no other use, in order."""
        found: list[Value] = []
        value = end
        while arg.type in (f32, f64) and self._uses[value] == 1:
            if value is arg:
                return found[::-1]
            update = made.get(value)
            if not isinstance(update, ops.Binary) or update.fn != "add":
                break
            is_choice = isinstance(made.get(update.rhs), ops.Select)
            value, share = (update.lhs, update.rhs) if is_choice else (update.rhs, update.lhs)
            if self._uses[share] != 1:
                break
            found.append(share)
        return []

    def _follow(
        self, position: int, added: dict[int, Value], made: dict[Value, Operation]
    ) -> _Sum | None:
        """Follow a chain of selects from what is left at its end to the value that it adds.

        Args:
            position: the carried value to which the end of the chain is added.
            added: what is added to each carried value.
            made: the operations of the body by their results.
        """
        pieces: dict[tuple[Value, Value], int] = {}
        for k, value in added.items():
            piece = made.get(value)
            if isinstance(piece, ops.Select) and self._constants.get(piece.on_false) == 0:
                pieces[piece.condition, piece.on_true] = k
        positions, index = {0: position}, None
        share, rest = added[position], made.get(added[position])
        while isinstance(rest, ops.Select) and self._constants.get(rest.on_true) == 0:
            test = made.get(rest.condition)
            place = pieces.get((rest.condition, rest.on_false))
            if place is None or not isinstance(test, ops.Compare) or test.fn != "eq":
                break
            number = self._constants.get(test.rhs)
            if number is None or number in positions or index not in (None, test.lhs):
                return None
            positions[number], index, share = place, test.lhs, rest.on_false
            rest = made.get(share)
        count = len(positions)
        if index is None or count < SHORTEST or len({*positions.values()}) < count:
            return None
        if set(positions) != set(range(count)):
            return None
        return _Sum([(index, share)], [positions[number] for number in range(count)])

    def _array(self, op: ops.For, found: _Sum, depth: int) -> Array | None:
        """The array of a sum; loops that are not inside each other share one."""
        dtype, count = op.inits[found.positions[0]].type, len(found.positions)
        key = dtype, count, depth
        if key not in self._arrays:
            nbytes = count * dtype.size
            if self._nbytes + nbytes > _MOST_BYTES:
                return None
            self._nbytes += nbytes
            layout = Layout((count,), (Term(0, 1, 0, dtype.size),))
            name = f"{self._task.name}_sums{len(self._module.arrays)}"
            self._arrays[key] = Array(name, dtype, 1, Space.LOCAL, (), {PRIMAL: layout})
            self._module.arrays.append(self._arrays[key])
        return self._arrays[key]

    # -- rewriting ---------------------------------------------------------------------------------

    def _rewrite(
        self, op: ops.For, found: _Sum, array: Array
    ) -> tuple[list[Operation], list[Operation]]:
        """Let a loop sum up in an array; gives the operations before and behind it."""
        before, after, inside = Builder(), Builder(), Builder()
        for build in (before, after, inside):
            build.location = op.location
        for number, position in enumerate(found.positions):
            before.store(array, [before.index(number)], op.inits[position])
            read = ops.Load(array, PRIMAL, [after.index(number)], results=[op.results[position]])
            after.append(read)
        for index, share in found.shares:
            _add(inside, array, index, share)
        terminator = op.body.ops.pop()
        assert isinstance(terminator, ops.Yield)
        kept = [k for k in range(len(op.inits)) if k not in set(found.positions)]
        carried = op.carried
        op.body.args = [op.body.args[0], *(carried[k] for k in kept)]
        terminator.values = [terminator.values[k] for k in kept]
        op.inits, op.results = [op.inits[k] for k in kept], [op.results[k] for k in kept]
        dropped = _without(op.body, [carried[k] for k in found.positions])
        op.body.ops = [each for each in op.body.ops if each not in dropped]
        op.body.ops += [*inside.block.ops, terminator]
        return before.block.ops, after.block.ops


def _without(body: Block, values: list[Value]) -> set[Operation]:
    """The operations of a body that use some values, or what these compute."""
    gone, found = set(values), set()
    for op in body.ops:
        if not gone.isdisjoint(op.operands):
            gone.update(op.results)
            found.add(op)
    return found


def _add(build: Builder, array: Array, index: Value, share: Value) -> None:
    """Add a share to the element at an index."""
    (count,), first = array.fixed_shape or (), build.constant(0, index.type)
    is_inside = build.binary(
        "and",
        build.compare("gt", index, first),
        build.compare("lt", index, build.constant(count, index.type)),
    )
    place = build.select(is_inside, index, first)
    build.store(array, [place], build.add(build.load(array, [place]), share))
