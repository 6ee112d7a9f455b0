"""Logs what atomics returned to the work items of a parallel loop, for the reverse run.

A second run would give work items other values, since their order is nobody's. So the forward run
under a tape writes them down, and the kernel that is reversed reads the log in their stead::

    forward:   %k: i32 = atomic<add, @count, primal>(%one)
               store<@log_words, primal>(%k as 64 bits, %position)

    reversed:  %unused: i32 = atomic<add, @count, primal>(%one)
               %k: i32 = load<@log_words, primal>(%position)

The updates themselves are not run again. A work item has a word for each execution. Where loops
are around one, a run before the launch counts them; what the loop itself changes must not decide
how many there are.
"""

from __future__ import annotations

from octants.autodiff.hazards import thread_log, writers
from octants.autodiff.ordering import ordering_of
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Array, Block, Companion, Module, Operation, Space, Task, Value
from octants.ir.rewriter import copy_block, without_effects
from octants.lazy_dataclass import dataclass
from octants.simplify import simplify
from octants.types.scalars import by_name, i64, u64

PRIMAL = Companion.PRIMAL


@dataclass(frozen=True)
class Logged:
    """A part of a kernel with a log, as modules over its arrays and, behind them, `arrays`.

    `arrays` are `bounds`, which holds the first work item and how many there are; `starts`, by work
    item, the position of its first word, and at the end their number; `words`. `measure` fills
    `bounds`. `count` fills `starts`; where it is None, a work item has `sites` words. `forward` is
    the part that writes the log, `reading` the one that reads it, to be reversed.
    """

    measure: Module
    count: Module | None
    sites: int
    forward: Module
    reading: Module

    @property
    def arrays(self) -> list[Array]:
        return self.reading.arrays[-3:]


def log_results(part: Module) -> Logged | None:
    """Log what is read of the arrays of which atomics return values that depend on the order.

    None if there are none, or if it cannot be told beforehand how much there is to log.
    """
    (task,) = part.tasks
    arrays = _returning(task) & ordering_of(task, lambda _: False).shared
    if task.domain is None or not arrays:
        return None
    return _Logger(part, task, arrays).run()


def _returning(task: Task) -> frozenset[Array]:
    """The arrays of which an atomic's value is used."""
    used = {value for op in task.body.walk() for value in op.operands}
    return frozenset(
        op.array
        for op in task.body.walk()
        if isinstance(op, ops.Write) and op.reads and op.result in used
    )


class _Logger:
    def __init__(self, part: Module, task: Task, arrays: frozenset[Array]) -> None:
        assert task.domain is not None
        self.part = part
        self.task = task
        self.domain = task.domain
        self.arrays = arrays
        self.bounds, self.starts, self.words = (
            Array(f"log_{name}", dtype, 1, Space.NDARRAY, layouts={PRIMAL: None})
            for name, dtype in (("bounds", i64), ("starts", i64), ("words", u64))
        )
        self.sites = self._sites(task.body)

    def _sites(self, block: Block) -> int:
        """How many logged reads there are, none of them in a loop; 0 if one is."""
        log = thread_log(block, self.arrays)
        looped = {
            inner
            for op in log.body.walk()
            if isinstance(op, ops.Loop)
            for region in op.regions
            for inner in region.walk()
        }
        return 0 if looped & set(log.positions) else len(log.positions)

    def run(self) -> Logged | None:
        count = None if self.sites else self._count()
        if not self.sites and count is None:
            return None
        forward = self._module("logging", [self._with_log(writes=True)])
        reading = self._module("logged", [self._with_log(writes=False)])
        measure = self._module("measure", [self._measure()])
        return Logged(measure, count, self.sites, forward, reading)

    def _module(self, name: str, tasks: list[Task]) -> Module:
        part = self.part
        arrays = [*part.arrays, self.bounds, self.starts, self.words]
        module = Module(f"{part.name}_{name}", arrays, None, tasks, part.location)
        simplify(module)
        return module

    def _parallel(self, body: Block) -> Task:
        task = self.task
        domain = copy_block(self.domain, {})
        return Task(task.name, body, domain, task.location, task.options)

    # -- how much there is ----------------------------------------------------------------------

    def _measure(self) -> Task:
        """Find out which work items there are."""
        block = copy_block(self.domain, {})
        ends = block.ops.pop().operands
        builder = Builder(block)
        lower, upper = (builder.cast(end, i64) for end in ends)
        count = builder.binary("max", builder.binary("sub", upper, lower), builder.offset(0))
        for number, value in enumerate((lower, count)):
            builder.store(self.bounds, [builder.index(number)], value)
        builder.yield_()
        return Task(f"{self.task.name}_measure", block, None, self.task.location)

    def _count(self) -> Module | None:
        """The kernel that counts; None if that takes what the loop itself changes."""
        log = thread_log(self.task.body, self.arrays)
        assert log.end is not None
        _strip(log.body)
        builder = Builder(log.body)
        end = log.body.ops.pop()
        place = builder.binary("add", self._number(builder, log.body), builder.offset(1))
        builder.store(self.starts, [place], log.end)
        builder.append(end)
        module = self._module("count", [self._parallel(log.body), self._sum()])
        written = set(writers(self.task))
        counting = module.tasks[0].body.walk()
        reads = (op for op in counting if isinstance(op, ops.Access) and op.reads)
        if any(op.array in written for op in reads):
            return None
        return module

    def _sum(self) -> Task:
        """Make numbers of words positions."""
        builder = Builder()
        count = builder.load(self.bounds, [builder.index(1)])
        body = Block([Value(i64)])
        builder.store(self.starts, [builder.index(0)], builder.offset(0))
        with builder.into(body):
            item = body.args[0]
            following = builder.binary("add", item, builder.offset(1))
            before = builder.load(self.starts, [item])
            own = builder.load(self.starts, [following])
            builder.store(self.starts, [following], builder.binary("add", before, own))
            builder.yield_()
        builder.for_(builder.offset(0), count, [], body)
        builder.yield_()
        return Task(f"{self.task.name}_sum", builder.block, None, self.task.location)

    def _number(self, builder: Builder, body: Block) -> Value:
        """How many work items come before this one."""
        lower = builder.load(self.bounds, [builder.index(0)])
        return builder.binary("sub", builder.cast(body.args[0], i64), lower)

    # -- writing and reading it -----------------------------------------------------------------

    def _with_log(self, *, writes: bool) -> Task:
        log = thread_log(self.task.body, self.arrays)
        head = Builder()
        number = self._number(head, log.body)
        if self.sites:
            base = head.binary("mul", number, head.offset(self.sites))
        else:
            base = head.load(self.starts, [number])
        self._rewrite(log.body, log.positions, base, writes)
        log.body.ops[:0] = head.block.ops
        return self._parallel(log.body)

    def _rewrite(
        self, block: Block, positions: dict[Operation, Value], base: Value, writes: bool
    ) -> None:
        builder = Builder(Block())
        for op in block.ops:
            builder.location = op.location
            for region in op.regions:
                self._rewrite(region, positions, base, writes)
            if op not in positions:
                builder.append(op)
                continue
            if writes or not isinstance(op, ops.Load):
                builder.append(op)
            place = builder.binary("add", base, positions[op])
            if writes:
                builder.store(self.words, [place], builder.word(op.result))
            else:
                self._read(builder, op, builder.load(self.words, [place]))
        block.ops[:] = builder.block.ops

    def _read(self, builder: Builder, op: Operation, word: Value) -> None:
        """Let what is logged stand for the result."""
        value, op.results = op.result, [Value(op.result.type)]
        if value.type.is_float:
            bits = builder.cast(word, by_name(f"u{value.type.bits}"))
            builder.append(ops.Bitcast(bits, results=[value]))
        else:
            builder.append(ops.Cast(word, results=[value]))


def _strip(block: Block) -> None:
    """Drop what has effects; a result that is needed nevertheless stands as a load."""
    for op in block.ops:
        for region in op.regions:
            _strip(region)
    block.ops[:] = [kept for kept in map(without_effects, block.ops) if kept is not None]
