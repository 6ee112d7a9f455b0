"""Share work items between threads: the code for lanes and for blocks (see `split_sums`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from octants.analysis.sums.gatherable_sums import PairLoops, mirrored
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import emit
from octants.ir.cooperative_tasks import SHARED_LOOPS
from octants.ir.core import Array, Block, Operation, Task, Value
from octants.lazy_dataclass import dataclass
from octants.simplify.dead_code import prune_block
from octants.target import Blocks
from octants.types.scalars import DType, i32, i64, u1


@dataclass(frozen=True, slots=True)
class Sizes:
    """The first work item, how many there are, and the logarithm of how many share one; i64."""

    lower: Value
    items: Value
    shift: Value


@dataclass(frozen=True, slots=True)
class Share:
    """How many threads have a work item (i64), the logarithm of that, and which one this is.

    The first thread starts from the initial value of a sum, and has the effects. `acts` is false
    for an item of a thread that does not exist; `numbers` are those of the items, from 0.
    """

    count: Value
    shift: Value
    index: Value
    is_first: Value
    numbers: list[Value]
    acts: list[Value]


class SharedItems(ABC):
    """Rewrites a task so that several threads share each work item."""

    scope: str
    """The group of threads that a barrier synchronises."""
    shortest = 0
    """Iterations of a share, where it is known how many there are."""

    def __init__(
        self, task: Task, facts: PairLoops, loops: set[ops.For], fills: int, blocks: Blocks
    ) -> None:
        self.task, self.facts, self.fills, self.blocks = task, facts, fills, blocks
        self.loops = [op for op in task.body.ops if isinstance(op, ops.For) and op in loops]
        self.values: list[dict[Value, Value]] = []  # for each item of a thread
        self.builder = Builder()
        self.arrays: list[Array] = []  # that are needed
        self.known = facts.following(task.body)  # uniform over the items
        self._deferred: list[Operation] = []  # effects that are not emitted yet

    @property
    def options(self) -> dict[str, Any]:
        """Further options of the task."""
        return {}

    @property
    @abstractmethod
    def block_dim(self) -> int:
        """The threads of a block."""

    @property
    @abstractmethod
    def powers(self) -> int:
        """The logarithm of how many threads may share an item."""

    @abstractmethod
    def threads(self, builder: Builder, sizes: Sizes) -> Value:
        """How many threads there are."""

    @abstractmethod
    def share_of(self, thread: Value, sizes: Sizes) -> Share:
        """The work items of a thread, and its share of their loops."""

    @abstractmethod
    def iterations(self, lower: Value, upper: Value) -> tuple[Value, Value, Value | None]:
        """The bounds of a share of the iterations from ``lower`` to ``upper`` (i64).

        If there is a third value, an iteration is that, and the counter times how many share.
        """

    @abstractmethod
    def totals(self, shares: list[Value]) -> list[Value]:
        """The sums of what the threads of the work item have."""

    def run(self) -> None:
        """Replace the domain and the body of the task."""
        task = self.task
        domain = Builder()
        threads = self.threads(domain, self._sizes(domain))
        domain.yield_([domain.offset(0), threads])
        body = Block([Value(i64)])
        with self.builder.into(body):
            self.builder.location = task.location
            self._body(body.args[0])
        task.domain, task.body = domain.block, body
        prune_block(task.body, task.domain)
        sizes = {"block_dim": self.block_dim, "subgroup_size": self.blocks.subgroup_size}
        task.options = {**task.options, **sizes, **self.options, SHARED_LOOPS: True}

    def _sizes(self, builder: Builder) -> Sizes:
        """Emit the lower bound, the number of work items, and how many threads share one."""
        domain, values = self.task.domain, dict[Value, Value]()
        assert domain is not None
        for op in domain.ops[:-1]:
            emit(builder, op, values)
        lower, upper = (builder.cast(values[value], i64) for value in domain.yielded[:2])
        difference = builder.binary("sub", upper, lower)
        items = builder.binary("max", difference, builder.offset(0))
        longest = self._longest(builder, values)
        shift = builder.offset(0)
        for power in range(1, self.powers + 1):
            fits = builder.compare("le", items, builder.offset(self.most_threads >> power))
            if longest is not None:
                is_long = builder.compare("ge", longest, builder.offset(self.shortest << power))
                fits = builder.binary("and", fits, is_long)
            shift = builder.binary("add", shift, builder.cast(fits, i64))
        if longest is not None:
            shift = self.balanced(builder, items, longest, shift)
        return Sizes(lower, items, shift)

    @property
    def most_threads(self) -> int:
        """How many threads there should be at most, unless there are more work items."""
        return self.fills

    def balanced(
        self,
        builder: Builder,  # noqa: ARG002
        items: Value,  # noqa: ARG002
        longest: Value,  # noqa: ARG002
        shift: Value,
    ) -> Value:
        """The logarithm of how many threads share an item, raised if that balances the load."""
        return shift

    @property
    def has_known_bounds(self) -> bool:
        """Whether loops have as many iterations for all items."""
        return all(self.known.issuperset(loop.operands[:2]) for loop in self.loops)

    def _longest(self, builder: Builder, values: dict[Value, Value]) -> Value | None:
        """The most iterations of a loop, if they are known for all items; ``values`` are copies."""
        if not (self.shortest and self.has_known_bounds):
            return None
        for op in self.task.body.ops:
            if op.results and not op.regions and self.known.issuperset(op.results):
                emit(builder, op, values)
        longest = builder.offset(0)
        for loop in self.loops:
            lower, upper = (builder.cast(values[value], i64) for value in loop.operands[:2])
            longest = builder.binary("max", longest, builder.binary("sub", upper, lower))
        return longest

    def _body(self, thread: Value) -> None:
        builder, (item,) = self.builder, self.task.body.args
        sizes = self._sizes(builder)
        self.share = self.share_of(thread, sizes)
        for number in self.share.numbers:
            index = builder.binary("add", sizes.lower, number)
            self.values.append({item: builder.cast(index, item.type)})
        for op in self.task.body.ops[:-1]:
            builder.location = op.location
            inside = [*op.walk()]
            is_late = op not in self.loops and any(each.has_effects for each in inside)
            if is_late:
                self._deferred.append(op)
                continue
            if self._conflicts(inside):
                self._emit_effects()
            if op in self.loops:
                self._split(op)
            else:
                for values in self.values:
                    emit(builder, op, values)
        self._emit_effects(is_last=True)
        builder.yield_()

    # -- sums --------------------------------------------------------------------------------------

    def _split(self, op: Operation) -> None:
        """Give each thread iterations of a loop of its own, for all its items at once."""
        assert isinstance(op, ops.For)
        builder, kind = self.builder, self._kind(op)
        bounds = (self.values[0][value] for value in (op.lower, op.upper))
        lower, upper = (builder.cast(value, i64) for value in bounds)
        if op.lower.type is i64:  # the distance of others never wraps
            upper = builder.binary("max", lower, upper)
        first, last, start = self.iterations(lower, upper)
        carried = op.body.args[1:]
        body = Block([Value(kind), *(Value(arg.type) for _ in self.values for arg in carried)])
        with builder.into(body):
            counter = body.args[0]
            if start is not None:
                steps = builder.binary("shl", counter, builder.cast(self.share.shift, kind))
                counter = builder.binary("add", builder.cast(start, kind), steps)
            ends: list[Value] = []
            for number, values in enumerate(self.values):
                own = body.args[1 + number * len(carried) :]
                values.update(zip(carried, own, strict=False))
                self._count(op, counter, upper, values)
                ends += self._emit_iteration(op, values)
            builder.yield_(ends)
        inits = [self._start(values[init]) for values in self.values for init in op.inits]
        ends = [builder.cast(end, kind) for end in (first, last)]
        totals = self.totals(builder.for_(ends[0], ends[1], inits, body).results)
        for values in self.values:
            values.update(zip(op.results, totals, strict=False))
            totals = totals[len(op.results) :]

    def _emit_iteration(self, op: ops.For, values: dict[Value, Value]) -> list[Value]:
        """Emit an iteration of one item; what it yields."""
        for each in op.body.ops[:-1]:
            if not each.results or each.results[0] not in values:
                emit(self.builder, each, values)
        return [values.get(value, value) for value in op.body.yielded]

    def _kind(self, op: ops.For) -> DType:
        """The type of a loop's counter: i32 where no counter wraps."""
        upper = next((each for each in self.task.body.ops if op.upper in each.results), None)
        fits = isinstance(upper, ops.Cast) and upper.x.type is i32
        fits |= self.facts.numbers.get(op.upper, 1 << 31) < 1 << 31
        return i32 if fits and mirrored(op, self.facts.numbers) else op.lower.type

    def _count(self, op: ops.For, counter: Value, upper: Value, values: dict[Value, Value]) -> None:
        """Bind the counter of a loop, or its mirrored counter, which then counts up."""
        builder, old = self.builder, op.body.args[0]
        down = mirrored(op, self.facts.numbers)
        if down is not None:
            values[down] = builder.cast(counter, down.type)
            last = builder.binary("sub", upper, builder.offset(1))
            counter = builder.binary("sub", last, builder.cast(counter, i64))
        values[old] = builder.cast(counter, old.type)

    def _start(self, init: Value) -> Value:
        """The initial value of a thread's share; flags are or-ed."""
        if init.type is u1:
            return init
        nothing = self.builder.constant(-0.0 if init.type.is_float else 0, init.type)
        return self.builder.select(self.share.is_first, init, nothing)

    # -- effects -----------------------------------------------------------------------------------

    def _conflicts(self, inside: list[Operation]) -> bool:
        """Whether operations must come after the deferred effects."""
        accesses = [op for op in inside if isinstance(op, ops.Access)]
        late = [each for op in self._deferred for each in op.walk() if isinstance(each, ops.Access)]
        return any(
            other.has_effects and self.facts.meet(op, other) for op in accesses for other in late
        )

    def _emit_effects(self, *, is_last: bool = False) -> None:
        """Emit the deferred effects for the first thread, after a barrier."""
        builder, late = self.builder, self._deferred
        if not late:
            return
        builder.barrier(self.scope)
        for acts, values in zip(self.share.acts, self.values, strict=True):
            with builder.only_if(acts):
                for op in late:
                    emit(builder, op, values)
        if not is_last:
            builder.barrier(self.scope)
        self._deferred = []
