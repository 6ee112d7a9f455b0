"""Logs what atomics returned to the work items of a parallel loop, for the reverse to read.

A second run would return other values, because the order of the work items is free. So the forward
launch under a tape logs them, and the kernel that is reversed reads the log instead::

    forward:   %k: i32 = atomic<add, @count, primal>(%one)
               store<@log_words, primal>(%k as 64 bits, %position)

    reversed:  %unused: i32 = atomic<add, @count, primal>(%one)
               %k: i32 = load<@log_words, primal>(%position)

The updates themselves are not repeated. Loads from the same arrays are logged, too, unless their
values have a derivative: then there is no log, and work items run in order. A work item logs one
word for each execution. If an atomic is in a loop, a kernel that runs before the launch counts the
executions; it must not depend on what the loop itself changes.
"""

from __future__ import annotations

from octants.autodiff.facts.activity import ActivityFlow
from octants.autodiff.facts.hazardous_reads import thread_log, writers
from octants.autodiff.facts.order_dependent_updates import ordering_of
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import copy_block, without_effects
from octants.ir.core import Array, Block, Companion, Module, Operation, Space, Task, Value
from octants.ir.rewriting import rewrite
from octants.lazy_dataclass import dataclass
from octants.simplify import simplify
from octants.types.scalars import by_name, i64, u64

PRIMAL = Companion.PRIMAL


@dataclass(frozen=True)
class Logged:
    """Part of a kernel with a log: modules over its arrays followed by the `arrays` of the log.

    Attributes:
        measure: fills `bounds` (i64), with the first work item and the number of work items.
        count: fills `starts` (i64), with the position of the first word of each work item and, at
            the end, the number of words; None if each work item has `sites` words.
        sites: the words of a work item; 0 if `count` counts them.
        forward: the part that writes the log, `words` (u64).
        reading: the part that reads the log, to be reversed.
    """

    measure: Module
    count: Module | None
    sites: int
    forward: Module
    reading: Module

    @property
    def arrays(self) -> list[Array]:
        """The arrays of the log: `bounds`, `starts`, `words`."""
        return self.reading.arrays[-3:]


def log_results(part: Module) -> Logged | None:
    """Log the reads of arrays whose atomics return values that depend on the order of work items.

    Args:
        part: a kernel of one task.

    Returns:
        The modules, or None if there is nothing to log, if the size of the log cannot be counted
        before the launch, or if an adjoint flows through a load that would be logged.
    """
    (task,) = part.tasks
    arrays = _returning(task) & ordering_of(task, lambda _: False).shared
    if task.domain is None or not arrays or _has_active_loads(task, arrays):
        return None
    return _Logger(part, task, arrays).run()


def _has_active_loads(task: Task, arrays: frozenset[Array]) -> bool:
    """Whether the loads from some arrays have adjoints, which a word of a log does not pass on."""
    loads = [
        op.result
        for op in task.body.walk()
        if isinstance(op, ops.Load) and op.array in arrays and _is_active(op.array)
    ]
    return bool(loads) and not ActivityFlow(task.body).useful(_is_active).isdisjoint(loads)


def _is_active(array: Array) -> bool:
    """Whether an array has an adjoint, or gets one in the reverse kernel."""
    is_local = array.space in (Space.TEMPORARY, Space.RETURN)
    return array.has(Companion.ADJOINT) or (is_local and array.dtype.is_float)


def _returning(task: Task) -> frozenset[Array]:
    """The arrays with an atomic whose result is used."""
    used = task.body.used()
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
        """How many logged reads there are; 0 if one of them is in a loop."""
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

    # -- the size of the log --------------------------------------------------------------------

    def _measure(self) -> Task:
        """The task that computes the domain."""
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
        """The kernel that counts words; None if it would depend on what the loop itself changes."""
        log = thread_log(self.task.body, self.arrays)
        assert log.end is not None
        _strip(log.body)
        builder = Builder(log.body)
        end = log.body.ops.pop()
        following = builder.binary("add", self._number(builder, log.body), builder.offset(1))
        builder.store(self.starts, [following], log.end)
        builder.append(end)
        module = self._module("count", [self._parallel(log.body), self._sum()])
        written = set(writers(self.task))
        counting = module.tasks[0].body.walk()
        reads = (op for op in counting if isinstance(op, ops.Access) and op.reads)
        if any(op.array in written for op in reads):
            return None
        return module

    def _sum(self) -> Task:
        """The task that turns numbers of words into positions."""
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
        """The number of the work item in its domain."""
        lower = builder.load(self.bounds, [builder.index(0)])
        return builder.binary("sub", builder.cast(body.args[0], i64), lower)

    # -- writing and reading the log ------------------------------------------------------------

    def _with_log(self, *, writes: bool) -> Task:
        """A copy of the task that writes the results of its atomics to the log, or reads them."""
        log = thread_log(self.task.body, self.arrays)
        head = Builder()
        number = self._number(head, log.body)
        if self.sites:
            base = head.binary("mul", number, head.offset(self.sites))
        else:
            base = head.load(self.starts, [number])

        def log_one(builder: Builder, op: Operation) -> bool:
            """Write a word of the log, or read it in place of the operation."""
            if op not in log.positions:
                return False
            if writes or not isinstance(op, ops.Load):
                builder.append(op)
            position = builder.binary("add", base, log.positions[op])
            if writes:
                builder.store(self.words, [position], builder.word(op.result))
            else:
                self._read(builder, op, builder.load(self.words, [position]))
            return True

        rewrite(log.body, log_one)
        log.body.ops[:0] = head.block.ops
        return self._parallel(log.body)

    def _read(self, builder: Builder, op: Operation, word: Value) -> None:
        """Let a logged word stand for the result of an operation."""
        value, op.results = op.result, [Value(op.result.type)]
        if value.type.is_float:
            bits = builder.cast(word, by_name(f"u{value.type.bits}"))
            builder.append(ops.Bitcast(bits, results=[value]))
        else:
            builder.append(ops.Cast(word, results=[value]))


def _strip(block: Block) -> None:
    """Remove operations with effects; one whose result is used becomes a load."""
    for op in block.ops:
        for region in op.regions:
            _strip(region)
    block.ops[:] = [kept for kept in map(without_effects, block.ops) if kept is not None]
