"""Find the inputs that determine a task's record-buffer size and its number of work items.

If these are constants, arguments, extents, and arrays that the kernel does not write, two launches
with equal inputs need the same record buffer: a host that has seen one knows the size for the
other. Values that the kernel writes, and random numbers, may differ in each launch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from octants.artifact import MemoryRange, ParameterLayout, RecordBufferSizeInputs, Slot
from octants.codegen.memory_ranges_of_arrays import range_of, written_arrays
from octants.codegen.recording_facts import may_be_skipped, may_exceed_record_buffer
from octants.ir import ops
from octants.ir.core import Array, Block, Companion, Module, Operation, Record, Space, Task, Value

_OF_SHARES = (ops.RecordEnd, ops.RecordCapacity, ops.Longest)
"""Operations whose results depend on their operands and on the quota, which the host knows."""


Indices = tuple[int | None, ...]
"""The indices of an element; None for one that is not constant."""


class _Unknown(Exception):
    """The size depends on something that the host cannot compare."""


def find_size_inputs(
    task: Task, module: Module, parameters: ParameterLayout
) -> RecordBufferSizeInputs | None:
    """Return the inputs of the record buffers' size; None if the host cannot compare them."""
    if may_be_skipped(module, task):
        return None
    try:
        return _Search(task.body, module, parameters).of_capacity()
    except _Unknown:
        return None


def find_domain_inputs(
    task: Task, module: Module, parameters: ParameterLayout
) -> RecordBufferSizeInputs | None:
    """Return the inputs of a task's domain; None if the host cannot compare them."""
    if task.domain is None or may_be_skipped(module, task):
        return None
    try:
        return _Search(task.domain, module, parameters).of_yielded()
    except _Unknown:
        return None


class _Search:
    """Traces the operations that take space for records back to the inputs that they depend on."""

    def __init__(self, body: Block, module: Module, parameters: ParameterLayout) -> None:
        self._body, self._arrays, self._parameters = body, module.arrays, parameters
        self._written = written_arrays(module)
        self._memory: set[MemoryRange] = set()
        self._makers: dict[Value, Operation] = {}
        self._owners: dict[Value, tuple[Operation, int]] = {}
        self._around: dict[Operation, Operation] = {}
        self._pushes: dict[Record, list[ops.RecordPush]] = {}
        self._stores: dict[Array, list[ops.Store]] = {}
        self._updated: set[Array] = set()
        self._slots: set[int] = set()
        self._by_item = False
        self._seen: set[Value | Operation] = set()
        self._waiting: list[Value | Operation] = []
        self._learn(body, None)
        self._temporaries = self._learn_temporaries(module)
        self._defined = self._elements_defined_before(body, module)

    def _learn_temporaries(self, module: Module) -> set[Array]:
        """Return the launch-temporary arrays that only serial tasks write; index these tasks."""
        serial = [task for task in module.tasks if task.domain is None]
        others = [task for task in module.tasks if task.domain is not None]
        for task in serial:
            if task.body is not self._body:
                self._learn(task.body, None)
        written = {
            op.array for task in others for op in task.body.walk() if isinstance(op, ops.Write)
        }
        arrays = (array for array in module.arrays if array.space is Space.TEMPORARY)
        return {array for array in arrays if array not in written | self._updated}

    def _elements_defined_before(self, body: Block, module: Module) -> set[tuple[Array, Indices]]:
        """Return the elements that serial tasks before a body store, whatever happens.

        Other elements may come from another module: a kernel on a tape runs in parts, which share
        temporary arrays.
        """
        found = set()
        for task in module.tasks:
            if body is task.body or body is task.domain:
                break
            if task.domain is None:
                stores = [op for op in task.body.ops if isinstance(op, ops.Store)]
                found |= {(op.array, self._indices(op)) for op in stores}
        return found

    def _is_defined(self, load: ops.Load) -> bool:
        """Whether this module has stored what a load of a temporary array reads."""
        indices = self._indices(load)
        if None not in indices:
            return (load.array, indices) in self._defined
        known = [held for array, held in self._defined if array is load.array and None not in held]
        return len(known) == math.prod(load.array.element_shape)

    def _indices(self, op: ops.Load | ops.Store) -> Indices:
        makers = [self._makers.get(index) for index in op.indices]
        return tuple(maker.value if isinstance(maker, ops.Constant) else None for maker in makers)

    def _learn(self, block: Block, owner: Operation | None) -> None:
        """Index a block: definitions of values, enclosing operations, stores and pushes."""
        for op in block.ops:
            self._makers.update((result, op) for result in op.results)
            if owner is not None:
                self._around[op] = owner
            if isinstance(op, ops.RecordPush):
                self._pushes.setdefault(op.record, []).append(op)
            elif isinstance(op, ops.Write) and op.reads:
                self._updated.add(op.array)
            elif isinstance(op, ops.Store):
                self._stores.setdefault(op.array, []).append(op)
            for region in op.regions:
                for number, argument in enumerate(region.args):
                    self._owners[argument] = op, number
                self._learn(region, op)

    def of_capacity(self) -> RecordBufferSizeInputs:
        """Return the inputs of the body's record-buffer size."""
        for op in self._body.walk():
            if may_exceed_record_buffer(op):
                self._waiting += [*_record_offsets(op), op]
            elif isinstance(op, ops.RecordCheck):  # may end a work item before it needs more
                self._waiting += [op.count, op]
            elif isinstance(op, ops.Assert):
                raise _Unknown
        return self._run()

    def of_yielded(self) -> RecordBufferSizeInputs:
        """Return the inputs of the values that the body yields."""
        if any(isinstance(op, ops.Assert) for op in self._body.walk()):
            raise _Unknown
        self._waiting += self._body.yielded
        return self._run()

    def _run(self) -> RecordBufferSizeInputs:
        while self._waiting:
            found = self._waiting.pop()
            if found in self._seen:
                continue
            self._seen.add(found)
            self._waiting += self._of_value(found) if isinstance(found, Value) else self._of(found)
        memory = sorted(self._memory, key=lambda memory_range: memory_range.slot)
        return RecordBufferSizeInputs(tuple(sorted(self._slots)), self._by_item, tuple(memory))

    def _of(self, op: Operation) -> Iterator[Value | Operation]:
        """Yield what determines how often an operation runs."""
        around = self._around.get(op)
        if around is None:
            return
        yield around
        if isinstance(around, ops.For):
            yield from (around.lower, around.upper)
        elif isinstance(around, ops.While):
            yield from around.condition.yielded
        elif isinstance(around, ops.If):
            yield around.condition
        else:
            raise _Unknown

    def _of_value(self, value: Value) -> Iterator[Value | Operation]:
        """Yield what determines a value."""
        op = self._makers.get(value)
        if op is None:
            yield from self._of_argument(value)
            return
        if op.is_pure or isinstance(op, _OF_SHARES):
            yield from op.operands
        elif isinstance(op, ops.If):
            number = op.results.index(value)
            yield from (op.condition, op.then.yielded[number], op.orelse.yielded[number])
        elif isinstance(op, ops.For):
            number = op.results.index(value)
            yield from (op.lower, op.upper, op.inits[number], op.body.yielded[number])
        elif isinstance(op, ops.While):
            number = op.results.index(value)
            yield from (op.inits[number], op.body.yielded[number], *op.condition.yielded)
        elif isinstance(op, ops.RecordPop):
            yield from (op.base, op.index)
            for push in self._pushes.get(op.record, ()):
                yield push
                yield from [*_record_offsets(push), push.values[op.results.index(value)]]
        elif isinstance(op, ops.Load):
            yield from self._of_load(op)
        elif isinstance(op, ops.Shape):
            self._take_shape(op)
        else:
            raise _Unknown

    def _of_argument(self, value: Value) -> Iterator[Value | Operation]:
        """Yield what determines an argument of a block."""
        if value not in self._owners:
            self._by_item = True
            return
        op, number = self._owners[value]
        if isinstance(op, ops.While):
            yield from (op.inits[number], op.body.yielded[number], *op.condition.yielded)
        elif not isinstance(op, ops.For):
            raise _Unknown
        else:
            yield from (op.lower, op.upper)
            if number:
                yield from (op.inits[number - 1], op.body.yielded[number - 1])

    def _of_load(self, op: ops.Load) -> Iterator[Value | Operation]:
        """Yield what determines a loaded value; note parameters and memory among the inputs.

        Raises:
            _Unknown: Others may write what is loaded.
        """
        if op.companion is not Companion.PRIMAL:
            raise _Unknown
        yield from op.indices
        if op.array.space is Space.ARGUMENT:
            number = self._arrays.index(op.array)
            slots = enumerate(self._parameters.slots)
            self._slots.update(
                k for k, slot in slots if slot.kind == "scalar" and slot.array == number
            )
        elif (op.array in self._temporaries and self._is_defined(op)) or (
            op.array.space is Space.LOCAL and op.array not in self._updated
        ):
            for store in self._stores.get(op.array, ()):
                yield store
                yield from [store.value, *store.indices]
        elif op.array.space in (Space.FIELD, Space.NDARRAY) and (
            op.array.whole not in self._written
        ):
            self._take_memory(op.array.whole)
        else:
            raise _Unknown

    def _take_memory(self, array: Array) -> None:
        """Add an array that is read, and what determines the location of its elements."""
        self._memory.add(range_of(array, Companion.PRIMAL, self._arrays, self._parameters))
        number = self._arrays.index(array)
        for k, slot in enumerate(self._parameters.slots):
            if slot.array == number and slot.kind in ("shape", "stride"):
                self._slots.add(k)

    def _take_shape(self, op: ops.Shape) -> None:
        if op.array.fixed_shape is None:
            number = self._arrays.index(op.array)
            slot = Slot("shape", array=number, index=op.axis)
            self._slots.add(self._parameters.position(slot))


def _record_offsets(op: Operation) -> list[Value]:
    """Return the operands that determine how far an operation reaches in the record buffer."""
    return [op.base, op.index] if isinstance(op, ops.RecordPush) else list(op.operands)
