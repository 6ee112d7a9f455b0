"""Has sums that a loop over pairs scatters gathered by work items of their own.

Before::

    array @x: f32, 1, ndarray, () [primal, adjoint]
    array @y: f32, 1, ndarray, () [primal]
    parallel (%2: i32 < shape<@y, 0>()) {
      %3: i32 = constant<0>()
      %4: i32 = shape<@x, 0>()
      %5: f32 = load<@y, primal>(%2)
      for(%3, %4) { (%6: i32):
        %7: f32 = load<@x, primal>(%6)
        %8: f32 = binary<mul>(%5, %7)
        %9: f32 = atomic<add, @x, adjoint>(%8, %6)
        yield()
      }
    }

After::

    kernel @k
    array @x: f32, 1, ndarray, () [primal, adjoint]
    array @y: f32, 1, ndarray, () [primal]
    parallel @k_0_gather {
      %0: i32 = shape<@y, 0>()
      %1: i32 = shape<@x, 0>()
      %2: i64 = cast(%0)
      %3: i64 = cast(%1)
      %4: i64 = constant<0>()
      %5: i64 = binary<max>(%2, %4)
      %6: i64 = constant<0>()
      %7: i64 = binary<max>(%3, %6)
      %8: i64 = constant<0>()
      %9: u1 = compare<gt>(%5, %8)
      %10: i64 = constant<0>()
      %11: i64 = constant<0>()
      %12: i64 = select(%9, %7, %11)
      yield(%10, %12)
    } { (%13: i64):
      %14: i32 = shape<@y, 0>()
      %15: i64 = cast(%14)
      %16: i64 = constant<0>()
      %17: i64 = binary<max>(%15, %16)
      %18: i32 = cast(%13)
      %19: f32 = load<@x, primal>(%18)
      %20: i32 = constant<0>()
      %21: i32 = cast(%17)
      for(%20, %21) { (%22: i32):
        %23: f32 = load<@y, primal>(%22)
        %24: f32 = binary<mul>(%23, %19)
        %25: f32 = atomic<add, @x, adjoint>(%24, %18)
        yield()
      }
      yield()
    }

A work item of the new task stands for an iteration of the loop, or for a part of its sums where
there are fewer of them than a GPU has threads: so each thread adds up many pairs, and then adds
once. What a pair needs of its work item is loaded again, or kept in memory that has an element for
each work item; where it is not known how many there can be, the loop stays as it is. It does, too,
if it adds what it carries on (see `analysis.sums.gatherable_sums`). What a work item adds up for
itself may move to the new task, too (`passes.sums.own_sums`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping

from octants.analysis.sums.gatherable_sums import PairLoops, mirrored
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import copy_block, copy_operation, copy_task, emit
from octants.ir.core import Array, Block, Module, Operation, Task, Value, rebuild
from octants.lazy_dataclass import dataclass
from octants.passes.sums.factor_pair_sums import factor_pair_sums
from octants.passes.sums.own_sums import OwnSums, stored_bounds
from octants.passes.tasks.launch_temporaries import ItemNumbers
from octants.simplify import simplify
from octants.simplify.dead_code import prune_block
from octants.types.scalars import i64, u1

_SHORTEST = 16  # pairs for a part of a sum, at least
_MOST_PARTS = 12  # their logarithm
_SCATTERING = 3  # operations that adding to an element takes
_LONGEST = 24  # operations that are rather run again for each pair than not gathered


@staged("gather_pairs")
def gather_pairs(module: Module, noalias: bool = True) -> None:
    """Gather sums, in place, only where one loop has both sums of a pair and takes less work."""
    tasks: list[Task] = []
    bounds: dict[Array, Hashable] | None = None
    for task in module.tasks:
        sums = [op for _, found in PairLoops(task, noalias).find() for op in found]
        if sums:
            bounds = stored_bounds(module, noalias) if bounds is None else bounds
            trial = Module(module.name, [], None, [copy_task(task)], module.location)
            most = _work(task) + _SCATTERING * len(sums)
            how = _How(noalias, bounds, contracts=True, merges=True)
            if _gather(trial, how) and sum(map(_work, trial.tasks)) < most:
                module.arrays += trial.arrays
                tasks += trial.tasks
                continue
        tasks.append(task)
    module.tasks[:] = tasks


def _work(task: Task) -> int:
    """The operations in the loops of a task."""
    loops = [op for op in task.body.ops if isinstance(op, ops.Loop)]
    inner = (op for loop in loops for region in loop.regions for op in region.walk())
    return sum(not isinstance(op, (ops.Load, ops.Constant)) for op in inner)


@staged("gather_sums")
def gather_sums(
    module: Module,
    noalias: bool = True,
    fills: int = 0,
    shared: bool = False,
    contracts: bool = False,
) -> None:
    """Replace scattered sums by tasks that gather them, in place.

    Args:
        module: what is rewritten.
        noalias: no two arrays share memory.
        fills: how many threads fill the device. Where there are fewer sums, each is split into
            partial sums, which add up in any order.
        shared: threads will share the sums of a work item (`split_sums`). Partial sums are then
            made only where their number is known: one loop over all terms is better otherwise.
        contracts: sums may be rounded differently.
    """
    _gather(module, _How(noalias, stored_bounds(module, noalias), contracts, fills, shared))


@dataclass(frozen=True, slots=True)
class _How:
    """The arguments of `gather_sums`, and the contents of launch-temporaries (`stored_bounds`).

    If it `merges`, sums are gathered only where a work item's own sums move to the same loop.
    """

    noalias: bool
    bounds: Mapping[Array, Hashable]
    contracts: bool = False
    fills: int = 0
    shared: bool = False
    merges: bool = False


def _gather(module: Module, how: _How) -> bool:
    """Gather sums; return whether a work item's own sums have moved to the same loop somewhere."""
    tasks: list[Task] = []
    is_merged = False
    for task in module.tasks:
        facts = PairLoops(task, how.noalias)
        made = [_gathered(facts, loop, sums, how) for loop, sums in list(facts.find())]
        gathers = [gather for gather in made if gather is not None]
        if not gathers or prune_block(task.body, task.domain):
            tasks.append(task)
        for number, gather in enumerate(gathers):
            name = f"{task.name}_gather{number or ''}"
            tasks.append(Task(name, gather.body, gather.domain, task.location))
            module.arrays += gather.stored.values()
            is_merged = is_merged or gather.own is not None
    module.tasks[:] = tasks
    if is_merged:
        simplify(module)  # terms of both sums of a pair share most of their work
    if is_merged and how.contracts:
        factor_pair_sums(module, how.noalias)
    return is_merged


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The first work item of the old task, and how many; the first sum, how many, their parts."""

    lower: Value
    items: Value
    first: Value
    sums: Value
    parts: Value


def _gathered(facts: PairLoops, loop: ops.For, sums: set[Operation], how: _How) -> _Gather | None:
    """The task that gathers the sums of a loop, which are gone from there then."""
    pairs = _isolate(facts, loop, sums)
    gather = None if pairs is None else _Gather(facts, pairs, how)
    if gather is None or not gather.is_possible():
        return None
    gather.find_own(loop, sums)
    if how.merges and gather.own is None:
        return None
    _drop(loop.body, sums)
    gather.build()
    position = facts.task.body.ops.index(loop)
    if gather.own is not None:
        gather.own.drop()
    facts.task.body.ops[position:position] = gather.stores()
    return gather


def _drop(block: Block, dropped: set[Operation]) -> None:
    block.ops[:] = [op for op in block.ops if op not in dropped]
    for op in block.ops:
        for region in op.regions:
            _drop(region, dropped)


# -- what sums need --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Pairs:
    """A copy of the body of a task with nothing but what some sums of a loop need.

    It is that loop, and what stands `before` it; `originals` tells what a value is a copy of.
    """

    item: Value
    before: list[Operation]
    loop: ops.For
    originals: dict[Value, Value]


def _isolate(facts: PairLoops, loop: ops.For, sums: set[Operation]) -> _Pairs | None:
    """The code that the sums need; None if it cannot be computed again for a pair."""
    values: dict[Value, Value] = {}
    body = copy_block(facts.task.body, values)
    copies = dict(zip(facts.task.body.walk(), list(body.walk()), strict=True))
    stored = {copies[op] for op in sums}
    _drop(body, {op for op in copies.values() if op.has_effects and op not in stored})
    prune_block(body)
    inner = copies[loop]
    assert isinstance(inner, ops.For)
    if inner.inits:
        return None
    control = (ops.For, ops.While, ops.If)
    for op in inner.body.walk():
        if not (op in stored or isinstance(op, control) or facts.is_repeatable(op)):
            return None
    before = body.ops[: body.ops.index(inner)]
    if not body.used() <= body.defined():  # something has gone that it needs
        return None
    return _Pairs(body.args[0], before, inner, {copy: value for value, copy in values.items()})


# -- the task that gathers -------------------------------------------------------------------------


class _Gather:
    """Builds the task: `domain`, `body`, and the arrays of what is `stored` of work items."""

    def __init__(self, facts: PairLoops, pairs: _Pairs, how: _How) -> None:
        self.task, self.pairs, self.how = facts.task, pairs, how
        self.fixed = facts.following(Block([], pairs.before))
        known = {*self.fixed, pairs.loop.body.args[0]}
        self.ahead = facts.following(pairs.loop.body, known) - self.fixed
        self.facts = facts
        self.definitions = {
            value: op for op in pairs.before for value in op.results if value not in self.fixed
        }
        self.again: set[Operation] = set()  # what is run again for each pair
        self.stored: dict[Value, Array] = {}
        self.numbers = ItemNumbers(self.task)
        self.domain, self.body = Block(), Block([Value(i64)])
        self.own: OwnSums | None = None

    def is_possible(self) -> bool:
        """Decide how pairs know what they need of their work item; whether that can be."""
        used = (value for op in self.pairs.loop.body.walk() for value in op.operands)
        for value in dict.fromkeys(used):
            if value in self.definitions:
                rematerialised = self.facts.repeatable_slice([value], self.definitions)
                if rematerialised is not None and all(map(_only_reads, rematerialised)):
                    self.again.update(rematerialised)
                elif self.numbers.can_store(value):
                    name = f"{self.task.name}_kept{len(self.stored)}"
                    self.stored[value] = self.numbers.array(name, value)
                elif rematerialised is not None and len(rematerialised) <= _LONGEST:
                    self.again.update(rematerialised)
                else:
                    return False
        return True

    def find_own(self, loop: ops.For, sums: set[Operation]) -> None:
        """Find what the old task adds up for its items in a loop, if the new one can do it."""
        builder = Builder()
        if self.how.shared or builder.constant_of(self._sizes(builder, {}).parts) == 1:
            originals = self.pairs.originals
            stored = {originals[value]: array for value, array in self.stored.items()}
            own = OwnSums(self.facts, loop, stored, self.how.bounds)
            self.own = own if own.can_move(sums) else None

    def stores(self) -> list[Operation]:
        """The stores, in the old task, of the values of a work item that the new one loads."""
        builder, (item,) = Builder(), self.task.body.args
        builder.location = self.task.location
        for value, array in self.stored.items():
            original = self.pairs.originals[value]
            builder.store(array, [self.numbers.number(builder, item)], original)
        return builder.block.ops

    # -- the new task ----------------------------------------------------------------------------

    def build(self) -> None:
        """Fill `domain` and `body`."""
        builder = Builder(self.domain)
        sizes = self._sizes(builder, {})
        some = builder.compare("gt", sizes.items, builder.offset(0))
        count = builder.binary("mul", sizes.sums, sizes.parts)
        builder.yield_([builder.offset(0), builder.select(some, count, builder.offset(0))])
        builder = Builder(self.body)
        builder.location = self.task.location
        self._gather(builder)
        builder.yield_()
        prune_block(self.body, self.domain)

    def _sizes(self, builder: Builder, values: dict[Value, Value]) -> _Sizes:
        """How many sums there are, of how many items; emits what is uniform over the items."""
        domain, loop = self.task.domain, self.pairs.loop
        assert domain is not None
        before = [op for op in self.pairs.before if op.results and not op.regions]
        fixed = [op for op in before if self.fixed.issuperset(op.results)]
        for op in [*domain.ops[:-1], *fixed]:
            emit(builder, op, values)
        bounds = (*domain.yielded[:2], loop.lower, loop.upper)
        lower, upper, first, last = (builder.cast(values[value], i64) for value in bounds)
        items, sums = (
            builder.binary("max", builder.binary("sub", b, a), builder.offset(0))
            for a, b in ((lower, upper), (first, last))
        )
        return _Sizes(lower, items, first, sums, self._parts(builder, items, sums))

    def _parts(self, builder: Builder, items: Value, sums: Value) -> Value:
        """In how many parts sums are taken: a power of two."""
        parts = builder.offset(1)
        is_known = builder.constant_of(sums) is not None
        has_parts = self.how.fills and (is_known or not self.how.shared) and self.own is None
        for power in range(1, _MOST_PARTS + 1) if has_parts else ():
            count = builder.offset(1 << power)
            threads = builder.binary("mul", sums, count)
            is_idle = builder.compare("le", threads, builder.offset(self.how.fills))
            pairs = builder.offset(_SHORTEST << power)
            is_long = builder.compare("ge", items, pairs)
            both = builder.binary("and", is_idle, is_long)
            parts = builder.select(both, count, parts)
        return parts

    def _gather(self, builder: Builder) -> None:
        """Emit what one part of one sum takes."""
        loop, item, (number,) = self.pairs.loop, self.pairs.item, self.body.args
        values: dict[Value, Value] = {}
        sizes = self._sizes(builder, values)
        part: Value | None = None
        if builder.constant_of(sizes.parts) != 1:
            part = builder.binary("floordiv", number, sizes.sums)
            number = builder.binary("mod", number, sizes.sums)
        self._count(builder, values, sizes, number)
        own, inits, mine = self.own, list[Value](), dict[Value, Value]()
        certain = own.certain if own is not None else ()
        for value, original in self.pairs.originals.items():
            if original in certain:
                values[value] = builder.constant(True, u1)
        for op in loop.body.walk():
            if op.results and self.ahead.issuperset(op.results) and op.results[0] not in values:
                emit(builder, op, values)
        if own is not None:
            position = builder.binary("add", sizes.lower, number)
            mine = own.begin(builder, position, self.numbers)
            inits = own.inits(mine)
        body = Block([Value(item.type), *(Value(init.type) for init in inits)])
        values[item] = body.args[0]
        with builder.into(body):
            for op in self.pairs.before:
                if op in self.again:
                    emit(builder, op, values)
            for value, array in self.stored.items():
                work_item = self.numbers.number(builder, body.args[0])
                values[value] = builder.load(array, [work_item])
            builder.block.ops += self._pair(loop.body, values)
            builder.yield_([] if own is None else own.add(builder, body, mine))
        ends = [builder.cast(end, item.type) for end in _range(builder, sizes, part)]
        found = builder.for_(ends[0], ends[1], inits, body)
        if own is not None:
            own.end(builder, found.results, mine)

    def _count(
        self, builder: Builder, values: dict[Value, Value], sizes: _Sizes, number: Value
    ) -> None:
        """Bind the counter of the loop; where it is mirrored, the order is that of the mirror."""
        loop = self.pairs.loop
        counter = loop.body.args[0]
        down = mirrored(loop, ops.constants_in(Block([], self.pairs.before)))
        if down is None:
            at = builder.binary("add", sizes.first, number)
        else:
            values[down] = builder.cast(number, down.type)
            last = builder.binary("sub", sizes.sums, builder.offset(1))
            at = builder.binary("sub", last, number)
        values[counter] = builder.cast(at, counter.type)

    def _pair(self, block: Block, values: dict[Value, Value]) -> list[Operation]:
        """The operations of a block that are not there yet, but for the yield of the loop."""
        made: list[Operation] = []
        for op in block.ops:
            if op.results and all(value in values for value in op.results):
                continue
            if isinstance(op, ops.If):
                regions = [Block([], self._pair(region, values)) for region in op.regions]
                for old, region in zip(op.regions, regions, strict=True):
                    region.ops.append(ops.Yield([values.get(v, v) for v in old.yielded]))
                new = rebuild(op, [values.get(op.condition, op.condition)], regions)
                values.update(zip(op.results, new.results, strict=True))
                made.append(new)
            elif not isinstance(op, ops.Yield):
                made.append(copy_operation(op, values))
        return made


def _range(builder: Builder, sizes: _Sizes, part: Value | None) -> Iterator[Value]:
    """The first work item of a part, and the one after its last."""
    if part is None:
        yield sizes.lower
        yield builder.binary("add", sizes.lower, sizes.items)
        return
    for number in (part, builder.binary("add", part, builder.offset(1))):
        share = builder.binary("mul", sizes.items, number)
        yield builder.binary("add", sizes.lower, builder.binary("floordiv", share, sizes.parts))


def _only_reads(op: Operation) -> bool:
    """Whether an operation is a load, or computes where or whether one is."""
    if isinstance(op, ops.If):
        return all(_only_reads(inner) for region in op.regions for inner in region.ops)
    if isinstance(op, (ops.Binary, ops.Compare)):
        return not op.operands[0].type.is_float
    return isinstance(op, (ops.Load, ops.Shape, ops.Constant, ops.Cast, ops.Yield))
