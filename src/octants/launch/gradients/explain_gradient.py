"""Measures the cost of a gradient, the records of its loops and their bytes, by running it.

The kernel and its reverse run once more, as under a tape. The reverse counts what it records
instead of adding up adjoints. All memory is restored afterwards.
"""

from __future__ import annotations

import copy
import inspect
import linecache
import math
import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import numpy as np

from octants import abi, driver, options, pipeline
from octants.analysis.sums.privatisation import PrivatisedSums
from octants.autodiff.variants.record_counts_for_explain import PER_RECORD, Counting, count_records
from octants.backends.base import Updates
from octants.backends.table import backend_of
from octants.diagnostics.span import Span
from octants.ir import ops
from octants.ir.core import (
    CHECKPOINT,
    LOG,
    REST,
    ArrayRef,
    Block,
    Companion,
    Module,
    Operation,
    Record,
    Space,
    Task,
    Value,
)
from octants.launch.bound_code import BoundKernelCode
from octants.launch.checks.atomic_logs import Logs
from octants.launch.gradients.derivative_variants import (
    ReverseStep,
    TapePlan,
    differentiable,
    plan_with_modules,
)
from octants.launch.gradients.explain_gradient_report import (
    AdjointUpdate,
    ArrayAdjoint,
    Explanation,
    InlinedFunction,
    Lines,
    LoopRecords,
    RecordSlot,
    Storing,
)
from octants.launch.gradients.taped_memory import TapedMemory, memories_of
from octants.launch.specialisation import Specialisation
from octants.runtime.memory.array_access import parts_of
from octants.runtime.memory.host import describe_bytes

PRIMAL, ADJOINT = Companion.PRIMAL, Companion.ADJOINT
_TIMED = 3  # runs, of which the shortest one counts


def explain(specialisation: Specialisation, arguments: tuple[Any, ...]) -> Explanation:
    """Measure what the gradient of a launch with these arguments records.

    Raises:
        OctantsCompilationError: the kernel cannot be differentiated.
    """
    memories = memories_of(specialisation, arguments)
    merged = differentiable(specialisation, memories)
    plan = plan_with_modules(merged)
    run = _Run(merged, plan, memories, arguments)
    with run.unnoticed():
        loops = run.loops()
        forward, gradient = run.seconds()
    loops += _unrecorded(merged.module, loops)
    loops.sort(key=lambda loop: (loop.file, loop.line, loop.depth))
    arrays = _arrays(merged, plan, memories)
    at_once = driver.capabilities(specialisation.options).workers * run.lanes
    return Explanation(
        merged.signature.kernel,
        tuple(loops),
        tuple(arrays),
        at_once,
        run.log_bytes,
        _privatised_bytes(merged, plan, memories),
        *_source_of(specialisation.kernel.function),
        _functions_of(specialisation.module),
        forward,
        gradient,
    )


def _source_of(function: FunctionType) -> tuple[str, Lines]:
    """The file of a function, and its lines with their numbers; no lines if they are unknown."""
    file = function.__code__.co_filename
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        return file, ()
    text = textwrap.dedent("".join(lines)).rstrip().splitlines()
    return file, tuple(enumerate(text, first))


def _functions_of(module: Module) -> tuple[InlinedFunction, ...]:
    """The functions that the kernel calls, each with its lines and its calls."""
    calls: dict[tuple[str, str, int, int], list[Span]] = {}
    for each in module.calls:
        calls.setdefault((each.function, each.file, each.first, each.last), []).append(each.call)
    return tuple(
        InlinedFunction(name, file, tuple(_lines(file, first, last)), tuple(at))
        for (name, file, first, last), at in calls.items()
    )


def _lines(file: str, first: int, last: int) -> Iterator[tuple[int, str]]:
    text = "".join(linecache.getlines(file)[first - 1 : last])
    return enumerate(textwrap.dedent(text).rstrip().splitlines(), first)


class _Run:
    """A forward run and the counting reverse run, step by step."""

    def __init__(
        self,
        specialisation: Specialisation,
        plan: TapePlan,
        memories: Mapping[int, TapedMemory],
        arguments: tuple[Any, ...],
    ) -> None:
        self.specialisation = specialisation
        self.plan = plan
        self.memories = [memories[k] for k in sorted(specialisation.written)]
        self._arrays: list[Any] = [memory.array for memory in memories.values()]
        self._has_foreign_arrays = any(memory.is_foreign for memory in memories.values())
        self.arguments = arguments
        self.lanes = 1
        self.countings = [
            None if step.backward is None else self._counting(step.backward.the_module)
            for step in plan.steps
        ]
        sizes = [8 * c.counts.element_shape[0] for c in self.countings if c is not None]
        self.log_bytes = 0
        self._log: Logs = ()
        size, device = plan.persistent.size + max(sizes, default=0), specialisation.device
        self._memory = device.allocate(size)
        self._parts = parts_of(device)
        self._storage = describe_bytes(self._memory.address, size, self._memory)

    def _counting(self, module: Module) -> Counting:
        """The counting variant of a reverse kernel, scheduled as the kernel itself."""
        counting, chosen = count_records(module), self.specialisation.options
        finished = pipeline.finish(
            module, driver.stage_of(chosen), noalias=self.specialisation.noalias
        )
        choices = dict(
            zip(
                (task.name for task in finished.tasks),
                backend_of(chosen.arch).choices(finished, chosen),
                strict=True,
            )
        )
        for task in counting.module.tasks:
            if task.name in choices:
                self.lanes = max(self.lanes, choices[task.name].lanes)
                task.options = {**task.options, "choice": choices[task.name].as_option()}
        return counting

    @contextmanager
    def unnoticed(self) -> Iterator[None]:
        """Restore memory and random numbers after a ``with`` block."""
        before, numbers = self._save(), driver.state.numbers
        driver.state.numbers = copy.copy(numbers)
        try:
            yield
        finally:
            driver.state.numbers = numbers
            self._restore(before)

    def loops(self) -> list[LoopRecords]:
        """The loops that are recorded."""
        self._number = number = next(driver.state.numbers)
        states, logs = [self._save()], list[Logs]()
        self._states, self._logs = states, logs
        for step in self.plan.steps:
            self._make_log(step, number)
            self._launch(step.forward, number)
            self.log_bytes += self._log[-1].nbytes if self._log else 0
            logs.append(self._log)
            states.append(self._save())
        found = []
        for k, (step, counting) in enumerate(zip(self.plan.steps, self.countings, strict=True)):
            if counting is not None:
                self._log = logs[k]
                self._restore(states[k] if step.state == "before" else states[k + 1])
                found += _loops(counting, self._count(counting, number))
        return found

    def seconds(self) -> tuple[float, float]:
        """The least seconds of some forward runs, and of some gradients, without compiling.

        They are 0 if the kernel prints, or works on arrays of other libraries.
        """
        prints = any(isinstance(op, ops.Print) for op in self.specialisation.module.walk())
        if prints or self._has_foreign_arrays:
            return 0.0, 0.0
        adjoints = [each.companion_array(ADJOINT) for each in self._arrays if each.has_grad()]
        saved = [(array, array.snapshot()) for array in adjoints]
        try:
            forward = min(self._time_forward() for _ in range(_TIMED))
            gradient = min(self._time_gradient() for _ in range(_TIMED))
        finally:
            for array, contents in saved:
                array.restore(contents)
        return forward, gradient

    def _time_forward(self) -> float:
        self._restore(self._states[0])
        return sum(
            self._time(step.forward, log)
            for step, log in zip(self.plan.steps, self._logs, strict=True)
        )

    def _time_gradient(self) -> float:
        total = 0.0
        for k, step in reversed(list(enumerate(self.plan.steps))):
            if step.backward is not None:
                self._restore(self._states[k if step.state == "before" else k + 1])
                total += self._time(step.backward, self._logs[k])
        return total

    def _time(self, program: BoundKernelCode, log: Logs) -> float:
        device, self._log = program.device, log
        device.synchronize()
        start = time.perf_counter()
        self._launch(program, self._number)
        device.synchronize()
        return time.perf_counter() - start

    def _make_log(self, step: ReverseStep, number: int) -> None:
        """Allocate the log for what the atomics of a step return."""

        def measure(program: BoundKernelCode, log: Logs) -> None:
            self._log = log
            self._launch(program, number)

        self._log = () if step.log is None else step.log.allocate(measure)

    def _launch(self, program: BoundKernelCode, number: int) -> None:
        arguments = (*self.arguments, *self._log)
        program.launch(driver.state.seed, number, self._memory.address, *arguments)

    def _count(self, counting: Counting, number: int) -> np.ndarray[Any, Any]:
        """Run a counting module.

        Returns:
            An array of shape ``(records, PER_RECORD)`` and type i64.
        """
        specialisation = self.specialisation.with_log if self._log else self.specialisation
        start = self.plan.persistent.size
        array_offsets = {
            **self.plan.persistent.array_offsets(counting.module),
            ArrayRef(counting.counts, PRIMAL): start,
        }
        counts = self._storage[start : start + 8 * counting.counts.element_shape[0]].view(np.int64)
        self._parts.clear(counts)
        noalias = self.specialisation.noalias
        self._launch(
            BoundKernelCode(specialisation, counting.module, (), array_offsets, noalias=noalias),
            number,
        )
        rows = self._parts.read(counts[: PER_RECORD * len(counting.records)])
        return rows.reshape(-1, PER_RECORD)

    def _save(self) -> list[Any]:
        storage = self._parts.save(self._storage)
        return [*(memory.snapshot() for memory in self.memories), storage]

    def _restore(self, saved: list[Any]) -> None:
        for memory, content in zip(self.memories, saved, strict=False):
            memory.restore(content)
        self._parts.restore(self._storage, saved[-1])


# -- loops -----------------------------------------------------------------------------------------


def _loops(counting: Counting, counts: np.ndarray[Any, Any]) -> list[LoopRecords]:
    """The recorded loops of a module, from their counts."""
    numbers: dict[Record, list[int]] = dict(zip(counting.records, counts.tolist(), strict=True))
    parents, checkpoints = counting.around, _records_named(counting.records, CHECKPOINT)
    rests, reasons = _records_named(counting.records, REST), _reasons(counting.module)
    for record, rest in rests.items():
        numbers[record] = _with_rest(numbers[record], numbers[rest])
    has_log = any(record.name == LOG for record in counting.records)
    found: dict[Record, LoopRecords] = {}
    for record in counting.records:
        if record.name in (CHECKPOINT, REST):
            continue
        slots, _, pops, stored = numbers[record]
        held = numbers[checkpoints[record]][0] if record in checkpoints else 0
        chain = _chain(record, parents)
        runners = _runners(counting.module, record)
        span = record.location
        found[record] = LoopRecords(
            file=span.file if span else "",
            line=span.line if span else 0,
            depth=len(chain) - 1,
            slots=reasons.get(record, ()),
            bytes_per_iteration=record.offsets()[1],
            trips=pops,
            capacity=slots,
            checkpoints=held,
            runs=1 + has_log + sum(_ratio(numbers[one]) for one in chain if one in runners),
            is_log=record.name == LOG,
            storing=_describe_storing(counting, record, numbers[record], parents),
            stored=stored,
        )
    return list(found.values())


def _ratio(row: list[int]) -> float:
    """How often a loop ran to record it, for each time that it was reversed."""
    _, pushes, pops, _ = row
    return pushes / pops if pops else 1.0


def _chain(record: Record, parents: Mapping[Record, Record]) -> list[Record]:
    """A record, and the records of the loops around it."""
    chain = [record]
    while chain[-1] in parents:
        chain.append(parents[chain[-1]])
    return chain


def _with_rest(row: list[int], rest: list[int]) -> list[int]:
    """The counts of a loop whose blocks ran once before they ran to be recorded.

    The record of what is in no block may then have held all iterations for a while: more than are
    popped.
    """
    slots, pushes, pops, stored = row
    before = 0 if rest[1] > rest[2] else pops
    return [slots + rest[0], pushes + before + rest[1], pops + rest[2], stored]


def _records_named(records: list[Record], name: str) -> dict[Record, Record]:
    """The records with a name, such as those of checkpoints, by the record of their loop."""
    waiting = [record for record in records if record.name == name]
    found = {}
    for record in records:
        same = [one for one in waiting if one.location is record.location]
        if record.name not in (CHECKPOINT, REST) and same:
            found[record] = same[0]
            waiting.remove(same[0])
    return found


def _describe_storing(
    counting: Counting, record: Record, row: list[int], parents: Mapping[Record, Record]
) -> Storing:
    """Whether the records of an inner loop are stored with the outer one, and why."""
    if record not in parents:
        return Storing.ALONE
    chosen, (_, again, _, stored) = options.current(), row
    if record in counting.storable:
        partly = Storing.PARTLY if stored else Storing.TOO_LARGE
        return partly if again else Storing.WHOLE
    if chosen.ad_stack_size or chosen.ad_stack_nests == "replay":
        return Storing.FORBIDDEN
    if parents[record] not in _runners(counting.module, record):
        return Storing.NOTHING_SAVED
    return Storing.TOO_LARGE if counting.storable else Storing.LANES


def _runners(module: Module, record: Record) -> set[Record]:
    """The records that are filled by loops that contain the loop of a record, including its own."""
    loops = [op for op in module.walk() if isinstance(op, ops.Loop)]
    return {record} | {
        op.record
        for loop in loops
        for op in loop.body.ops
        if isinstance(op, ops.RecordPush)
        and any(inner.location is record.location for inner in loop.body.walk() if inner.REGIONS)
    }


def _reasons(module: Module) -> dict[Record, tuple[RecordSlot, ...]]:
    """The slots of each record, and the operations of the reverse run that use them."""
    users: dict[Value, list[Operation]] = {}
    for op in module.walk():
        for value in op.operands:
            users.setdefault(value, []).append(op)
    found: dict[Record, tuple[RecordSlot, ...]] = {}
    for op in module.walk():
        if isinstance(op, ops.RecordPop) and op.record not in found:
            found[op.record] = tuple(
                RecordSlot(value.name or "a value", value.type.name, _uses(users.get(value, [])))
                for value in op.results
            )
    return found


def _uses(users: list[Operation]) -> tuple[tuple[str, int], ...]:
    """The names and lines of operations, each once."""
    found: dict[tuple[str, int], None] = {}
    for op in users:
        fn = op.attributes[0] if isinstance(op, (ops.Unary, ops.Binary, ops.Compare)) else op.NAME
        found[str(fn), op.location.line if op.location else 0] = None
    return tuple(found)


def _unrecorded(module: Module, recorded: list[LoopRecords]) -> list[LoopRecords]:
    """The serial loops that record nothing."""
    lines = {(loop.file, loop.line) for loop in recorded}
    found: dict[tuple[str, int], LoopRecords] = {}

    def walk(block: Block, depth: int) -> None:
        for op in block.ops:
            is_loop = isinstance(op, ops.Loop)
            if is_loop and op.location is not None:
                line = op.location.file, op.location.line
                if line not in lines:
                    found.setdefault(line, LoopRecords(*line, depth))
            for region in op.regions:
                walk(region, depth + is_loop)

    for task in module.tasks:
        walk(task.body, 0)
    return list(found.values())


# -- arrays ----------------------------------------------------------------------------------------


def _arrays(
    specialisation: Specialisation, plan: TapePlan, memories: Mapping[int, TapedMemory]
) -> list[ArrayAdjoint]:
    """How the adjoints of each float array that the kernel names are updated."""
    found: dict[str, dict[tuple[AdjointUpdate, int], None]] = {}
    modules = [step.backward.the_module for step in plan.steps if step.backward is not None]
    for task in (task for module in modules for task in module.tasks):
        updates = _updates(specialisation, task)
        values = {op.results[0]: op for op in task.body.walk() if op.results}
        for op in task.body.walk():
            if isinstance(op, ops.Write) and op.companion is ADJOINT:
                update = (
                    AdjointUpdate.COLLECTED
                    if op in updates.collected
                    else _update_of(op, updates.sums, values)
                )
                line = op.location.line if op.location else 0
                found.setdefault(op.array.whole.name, {})[update, line] = None
    memory = (Space.FIELD, Space.NDARRAY)
    return [
        ArrayAdjoint(
            array.name,
            array.has(ADJOINT),
            tuple(found.get(array.name, ())),
            memories[position].array.nbytes,
        )
        for position, array in enumerate(specialisation.arrays)
        if array.space in memory and array.dtype.is_float
    ]


def _privatised_bytes(
    specialisation: Specialisation, plan: TapePlan, memories: Mapping[int, TapedMemory]
) -> int:
    """The most bytes that the privatised copies of all workers take, in any task."""
    sizes = {specialisation.arrays[k].name: found.array.nbytes for k, found in memories.items()}
    modules = [step.backward.the_module for step in plan.steps if step.backward is not None]
    most = 0
    for task in (task for module in modules for task in module.tasks):
        updates = _updates(specialisation, task)
        # Arguments that are passed by value have one element.
        each = (
            sizes.get(array.whole.name, math.prod(array.element_shape) * array.dtype.size)
            for array, _ in updates.sums.private_copies
        )
        part = sum(-(-size // abi.PART_ALIGNMENT) * abi.PART_ALIGNMENT for size in each)
        every = part * updates.parts
        most = max(most, every if every <= abi.PARTS_LIMIT else 0)
    return most


def _updates(specialisation: Specialisation, task: Task) -> Updates:
    backend = backend_of(specialisation.options.arch)
    return backend.updates(task, specialisation.noalias, specialisation.device)


def _update_of(
    op: ops.Write, sums: PrivatisedSums, values: Mapping[Value, Operation]
) -> AdjointUpdate:
    if isinstance(op, ops.Atomic):
        target = op.ref
        if target in sums.alternating:
            return AdjointUpdate.ALTERNATING
        return AdjointUpdate.PRIVATISED if target in sums.private_copies else AdjointUpdate.ATOMIC
    source = values.get(op.value)
    return AdjointUpdate.PLAIN if isinstance(source, ops.Binary) else AdjointUpdate.TAKEN
