"""Runs work items that work together: block by block, all items of a block side by side.

Each item is a generator that stops at convergent operations. When no item can run on by itself,
those that stand at one operation of their subgroup take part in it, and go on; when all items of
the block stand at one barrier of it, they pass. If neither is so, the program is wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import numpy as np

from octants.ir import ops, scalar_semantics
from octants.ir.cooperative_tasks import local_arrays, shared_arrays, sizes, waiting_operations
from octants.ir.core import Array, ArrayRef, Block, Companion, Operation, Task, Value
from octants.types.scalars import DType

Environment = dict[Value, Any]


class EndOfItem(Exception):
    """A work item ends before its time; the others go on without it."""


class Divergence(Exception):
    """Not all work items reach a convergent operation."""

    def __init__(self, op: Operation, item: int) -> None:
        super().__init__(op.NAME, item)
        self.op = op
        self.item = item


class OperationRunner(Protocol):
    """A runner of operations, one at a time."""

    storage: dict[ArrayRef, Any]
    record_buffer: Any

    def execute(self, op: Operation, environment: Environment, /) -> None: ...

    def end_early(self, error: EndOfItem, environment: Environment, body: Block, /) -> None: ...


class _Item:
    """A work item: where it stands, its values, its arrays, its record buffer."""

    def __init__(
        self,
        environment: Environment,
        steps: Iterator[Operation],
        arrays: dict[ArrayRef, Any],
    ) -> None:
        self.environment = environment
        self.steps = steps
        self.arrays = arrays
        self.record_buffer: Any = {}
        self.waits_at: Operation | None = None
        self.is_gone = False  # it ended before its time


def run_blocks(machine: OperationRunner, task: Task, environments: Iterable[Environment]) -> None:
    """Run the work items of a task, whose values at the start are given in their order."""
    rest = iter(environments)
    runner = _Runner(machine, task)
    while items := list(itertools.islice(rest, runner.block_dim)):
        runner.run(items)


class _Runner:
    def __init__(self, machine: OperationRunner, task: Task) -> None:
        self.machine = machine
        self.body = task.body
        self.block_dim, self.subgroup_size = sizes(task)
        self.shared = shared_arrays(task)
        self.own = local_arrays(task)
        self.waiting = waiting_operations(task.body)
        self.items: list[_Item] = []

    def run(self, environments: list[Environment]) -> None:
        """One block of work items."""
        for array in self.shared:
            for companion in array.layouts:
                self.machine.storage[ArrayRef(array, companion)] = undefined(array)
        self.items = [
            _Item(each, self._steps(self.body, each), undefined_arrays(self.own))
            for each in environments
        ]
        for item in self.items:
            self._advance(item)
        while any(item.waits_at for item in self.items):
            for item in self._run_convergent():
                self._advance(item)

    # -- one work item -----------------------------------------------------------------------------

    def _advance(self, item: _Item) -> None:
        """Run an item until it waits at a convergent operation, or ends."""
        self.machine.record_buffer = item.record_buffer
        self.machine.storage.update(item.arrays)
        try:
            item.waits_at = next(item.steps, None)
        except EndOfItem as error:
            item.waits_at, item.is_gone = None, True
            self.machine.end_early(error, item.environment, self.body)

    def _steps(self, block: Block, env: Environment) -> Iterator[Operation]:
        for op in block.ops:
            if op not in self.waiting:
                self.machine.execute(op, env)
            elif op.is_convergent:
                yield op
            else:
                yield from _CONTROL[type(op)](self, op, env)

    def _if(self, op: ops.If, env: Environment) -> Iterator[Operation]:
        side = op.then if env[op.condition] else op.orelse
        yield from self._steps(side, env)
        _hand_on(env, op.results, side.yielded)

    def _for(self, op: ops.For, env: Environment) -> Iterator[Operation]:
        values = [env[value] for value in op.inits]
        for counter in range(env[op.lower], env[op.upper]):
            env.update(zip(op.body.args, [counter, *values], strict=True))
            yield from self._steps(op.body, env)
            values = [env[value] for value in op.body.yielded]
        env.update(zip(op.results, values, strict=True))

    def _while(self, op: ops.While, env: Environment) -> Iterator[Operation]:
        values = [env[value] for value in op.inits]
        while True:
            env.update(zip(op.condition.args, values, strict=True))
            yield from self._steps(op.condition, env)
            if not env[op.condition.yielded[0]]:
                break
            env.update(zip(op.body.args, values, strict=True))
            yield from self._steps(op.body, env)
            values = [env[value] for value in op.body.yielded]
        env.update(zip(op.results, values, strict=True))

    # -- convergent operations ---------------------------------------------------------------------

    def _run_convergent(self) -> list[_Item]:
        """Run a convergent operation that its items have reached; returns those that can go on."""
        going: list[_Item] = []
        for first, lanes in self._groups():
            members = self.items[first : first + lanes]
            op = next((item.waits_at for item in members if item.waits_at is not None), None)
            if op is not None and self._lanes_of(op) == lanes and _all_at(op, members):
                self._take_part(op, first, members)
                going += [item for item in members if not item.is_gone]
        return going or self._pass_barrier()

    def _groups(self) -> Iterator[tuple[int, int]]:
        """The first item and the number of lanes of a subgroup that can run its operation now."""
        seen: set[tuple[int, int]] = set()
        for number, item in enumerate(self.items):
            lanes = 0 if item.waits_at is None else self._lanes_of(item.waits_at)
            if lanes:
                seen.add((number - number % self.subgroup_size % lanes, lanes))
        return iter(sorted(seen))

    def _lanes_of(self, op: Operation) -> int:
        """How many lanes come to an operation of a subgroup; 0 for one of the block."""
        if isinstance(op, ops.Subgroup):
            return op.lanes
        assert isinstance(op, ops.Barrier)
        return self.subgroup_size if op.scope == "subgroup" else 0

    def _pass_barrier(self) -> list[_Item]:
        first = next(item for item in self.items if item.waits_at is not None)
        assert first.waits_at is not None
        if self._lanes_of(first.waits_at) or not _all_at(first.waits_at, self.items):
            raise Divergence(first.waits_at, first.environment[self.body.args[0]])
        return [item for item in self.items if not item.is_gone]

    def _take_part(self, op: Operation, first: int, members: list[_Item]) -> None:
        if not isinstance(op, ops.Subgroup):
            return
        start = first % self.subgroup_size
        present = {
            start + k: item.environment for k, item in enumerate(members) if not item.is_gone
        }
        values = {lane: env[op.value] for lane, env in present.items()}
        if op.lane:
            chosen = {lane: env[op.lane[0]] for lane, env in present.items()}
            results = _shuffled(op.fn, values, chosen)
        else:
            results = _combined(op, values)
        for lane, env in present.items():
            env[op.result] = results[lane]


_CONTROL: dict[type[Operation], Callable[..., Iterator[Operation]]] = {
    ops.If: _Runner._if,
    ops.For: _Runner._for,
    ops.While: _Runner._while,
}


def _hand_on(env: Environment, results: list[Value], yielded: list[Value]) -> None:
    env.update(zip(results, [env[value] for value in yielded], strict=True))


def _all_at(op: Operation, items: list[_Item]) -> bool:
    return all(item.waits_at is op or item.is_gone for item in items)


def undefined_arrays(arrays: Iterable[Array]) -> dict[ArrayRef, Any]:
    """The contents of local arrays at the start of a work item."""
    return {ArrayRef(array, Companion.PRIMAL): undefined(array) for array in arrays}


def undefined(array: Array) -> np.ndarray[Any, Any]:
    """An array of conspicuous values, which stand for undefined elements."""
    shape = (*(array.fixed_shape or ()), *array.element_shape)
    if array.dtype.is_float:
        return np.full(shape, np.nan, array.dtype.numpy)
    bytes_ = np.full((*shape, array.dtype.size), 0x55, np.uint8)
    return bytes_.view(array.dtype.numpy).reshape(shape)


# -- what lanes do ---------------------------------------------------------------------------------

_SOURCES: dict[str, Callable[[int, int], int]] = {
    "shuffle": lambda _, chosen: chosen,
    "broadcast": lambda _, chosen: chosen,
    "shuffle_up": lambda lane, chosen: lane - chosen,
    "shuffle_down": lambda lane, chosen: lane + chosen,
    "shuffle_xor": lambda lane, chosen: lane ^ chosen,
}


def _shuffled(fn: str, values: dict[int, Any], chosen: dict[int, int]) -> dict[int, Any]:
    source = _SOURCES[fn]
    return {lane: values.get(source(lane, chosen[lane]), own) for lane, own in values.items()}


def _combined(op: ops.Subgroup, values: dict[int, Any]) -> dict[int, Any]:
    dtype = op.value.type
    if op.fn == "ballot":
        return dict.fromkeys(values, sum(1 << lane for lane, value in values.items() if value))
    if op.fn.startswith("inclusive_"):
        return _scanned(op.fn.removeprefix("inclusive_"), dtype, op.lanes, values)
    return dict.fromkeys(values, _reduced(op.fn, dtype, values))


def _reduced(fn: str, dtype: DType, values: dict[int, Any]) -> Any:
    """Neighbours first, then neighbouring pairs, and so on."""
    while len(values) > 1:
        halved: dict[int, Any] = {}
        for lane, value in values.items():
            half = lane // 2
            known = halved.get(half)
            is_first = half not in halved
            halved[half] = value if is_first else scalar_semantics.evaluate(fn, dtype, known, value)
        values = halved
    (total,) = values.values()
    return total


def _scanned(fn: str, dtype: DType, lanes: int, values: dict[int, Any]) -> dict[int, Any]:
    step = 1
    while step < lanes:
        values = {
            lane: scalar_semantics.evaluate(fn, dtype, values[lane - step], value)
            if lane - step in values and (lane - step) // lanes == lane // lanes
            else value
            for lane, value in values.items()
        }
        step *= 2
    return values
